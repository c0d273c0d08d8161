"""Reducing 10 000 draws to 200: the default against kernel thinning.

Kernel thinning is that of the package goodpoints (KT-SPLIT and KT-SWAP, IMQ kernel of median length) as in the quality
suite: it receives 4096 evenly spaced draws. Draws from a standard normal. The default reads all draws
once, with scores and without.
"""

from __future__ import annotations

import numpy as np

import steinstream as ss
from benchmarks.quality.methods import METHODS, Work
from benchmarks.quality.sampling import Chain
from benchmarks.race import race
from benchmarks.table import Options, Row, at_most

GOAL = 0.5


def run(options: Options) -> list[Row]:
    rows = []
    for dim in (10,) if options.quick else (2, 10, 50):
        draws = np.random.default_rng(0).normal(size=(10_000, dim))
        work = Work("normal", 0, Chain(draws[None], -draws[None]))
        best = race(
            {
                "kernel thinning": lambda work=work: lambda: METHODS["kt"].select(work, 200),
                "default": lambda draws=draws: lambda: ss.thin(draws, -draws, size=200),
                "without scores": lambda draws=draws: lambda: ss.thin(draws, size=200),
            },
            2.0 if options.quick else 10.0,
        )
        ratio = best["default"] / best["kernel thinning"]
        rows.append(
            {
                "d": dim,
                **{f"{name}, s": seconds for name, seconds in best.items()},
                "default / kernel thinning": ratio,
                "goal": at_most(ratio, GOAL),
            }
        )
    return rows
