"""Live dashboard of a running thinner in the browser: KSD, checks, the kept draws, and their mean and sd.

``thinner.serve()`` opens it on this machine only (127.0.0.1) and on a free port. Its address contains a random token;
requests without it are answered with status 403. The dashboard is read-only. It is served from a separate thread with
bounded resources (``server.py``): no client can end the run or change its result.

Examples
--------
>>> import numpy as np
>>> import steinstream as ss
>>> draws = np.random.default_rng(0).normal(size=(1000, 2))
>>> thinner = ss.Thinner(dim=2, size=20)
>>> with thinner.serve() as dashboard:
...     address = dashboard.url  # http://127.0.0.1:PORT/TOKEN/
...     step = thinner.extend(draws, -draws)
"""

from __future__ import annotations

from steinstream.live.dashboard import Dashboard
from steinstream.live.snapshot import ThinnerObserver

__all__ = ["Dashboard", "ThinnerObserver"]
