"""Cost of a step and memory early and late in a long stream: neither may grow.

Thinner(2, size=200) on draws from a standard normal, generated block by block. Two thinners, one early and one late in
its stream, process the same new draws in turn. *growth* is that of the resident memory of the process.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.memory import resident, trim
from benchmarks.race import Contender, race
from benchmarks.table import Options, Row
from steinstream import Thinner

EARLY, SETTLED, LATE = 10_000, 100_000, 10_000_000
BLOCK = 10_000


def run(options: Options) -> list[Row]:
    late = LATE // 10 if options.quick else LATE
    rng = np.random.default_rng(0)
    trim()
    thinner = fed(Thinner(2, size=200), rng, SETTLED)
    before = resident()
    fed(thinner, rng, late // 10 - SETTLED)
    halfway = resident()
    fed(thinner, rng, late - late // 10)
    grown = resident() - before

    best = race(both(thinner, rng), seconds=1.0 if options.quick else 5.0)
    return [
        {
            "kept": len(thinner),
            f"a step at draw {EARLY:,}, us": best["early"] / BLOCK * 1e6,
            f"a step at draw {late:,}, us": best["late"] / BLOCK * 1e6,
            "late / early": best["late"] / best["early"],
            "memory, MB": before,
            f"growth from {SETTLED:,} to {late // 10:,}, MB": halfway - before,
            f"to {late:,}, MB": grown,
        }
    ]


def fed(thinner: Thinner, rng: np.random.Generator, count: int) -> Thinner:
    for _ in range(count // BLOCK):
        draws = rng.normal(size=(BLOCK, 2))
        thinner.extend(draws, -draws)
    return thinner


def both(late: Thinner, rng: np.random.Generator) -> dict[str, Contender]:
    """An early thinner, created for each round, and the late one; both process the draws of the round."""
    draws = np.zeros((BLOCK, 2))

    def ready_early() -> Callable[[], object]:
        draws[:] = rng.normal(size=draws.shape)
        early = fed(Thinner(2, size=200), rng, EARLY)
        return lambda: early.extend(draws, -draws)

    return {"early": ready_early, "late": lambda: lambda: late.extend(draws, -draws)}
