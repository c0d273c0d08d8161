"""A report: how long it takes, and how large it is.

1000 kept of 100 000 independent normal draws in ten dimensions, read from an npz file. Goals: 20 s and 3 MB.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import steinstream as ss
from benchmarks.race import elapsed
from benchmarks.table import Options, Row, at_most

DRAWS, DIM, SIZE = 100_000, 10, 1000


def run(options: Options) -> list[Row]:
    draws = np.random.default_rng(0).normal(size=(DRAWS, DIM))
    kept = ss.thin(draws, -draws, size=SIZE)
    with tempfile.TemporaryDirectory(prefix="steinstream-benchmarks-") as folder:
        chain, page = Path(folder, "chain.npz"), Path(folder, "report.html")
        np.savez(chain, draws=draws, scores=-draws)
        first = elapsed(lambda: kept.report(page, chain))
        size = page.stat().st_size / 1e6
        best = min([first, *(elapsed(lambda: kept.report(page, chain)) for _ in range(0 if options.quick else 4))])
    return [
        {"report": "the first in a process", "s": first, "MB": size, "goal": at_most(first, 20)},
        {"report": "further ones", "s": best, "MB": size, "goal": at_most(size, 3)},
    ]
