"""A page in the browser to watch a run by: KSD, size, draws a second, and the kept draws as they come and go.

``thinner.serve()`` opens it, on this machine only (127.0.0.1) and on a free port. Its address holds a random token, and
whoever does not know it gets 403. The page can look and nothing else. It is served from a thread of its own, and
no browser holds up the run (:mod:`steinstream.live.snapshot`). Needs the ``live`` extra (starlette and uvicorn).

>>> import numpy as np
>>> import steinstream as ss
>>> draws = np.random.default_rng(0).normal(size=(1000, 2))
>>> thinner = ss.Thinner(dim=2, size=20)
>>> with thinner.serve() as page:
...     address = page.url  # http://127.0.0.1:PORT/TOKEN/
...     step = thinner.extend(draws, -draws)
"""

from __future__ import annotations

from steinstream.live.page import Dashboard
from steinstream.live.snapshot import ThinnerObserver

__all__ = ["Dashboard", "ThinnerObserver"]
