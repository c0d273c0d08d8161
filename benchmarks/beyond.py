"""Steps with options: stream term, linear term, costs and pins, over the plain step.

Microseconds per step of Thinner.extend for a full thinner (size reached, steady state) on one thread; IMQ, draws from a
standard normal. Each contender has its own kept set, selected with its own options, so the number of replaced draws
differs: the share of such steps is given for the plain thinner and for the one with all options. The last columns are
ratios to the plain step, which selects by KSD alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.race import race
from benchmarks.steady import Steady
from benchmarks.table import Options, Row, at_most
from steinstream import IMQ

CASES = ((100, 2), (100, 10), (200, 10), (1000, 2), (1000, 10), (1000, 38))
GOAL = (1000, 10), 2.0
STREAM_GOAL = (200, 10), 8.0

LINEAR = IMQ(linear=0.1)
CONTENDERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "stream term": {"stream_weight": 1.0},
    "linear": {"kernel": LINEAR},
    "costs": {"cost_weight": 1.0},
    "all": {"stream_weight": 1.0, "kernel": LINEAR, "cost_weight": 1.0, "pins": 3},
}


def run(options: Options) -> list[Row]:
    cases = [STREAM_GOAL[0], GOAL[0]] if options.quick else CASES
    return [measure(size, dim, options.quick) for size, dim in cases]


def measure(size: int, dim: int, quick: bool) -> Row:
    steps = max(50, int(4e6 / (size * (dim + 8))))  # some milliseconds
    before = 2 * size if quick else max(50_000, 5 * size)
    contenders = {
        name: Contender(Steady(size, dim, steps=steps, before=before, **settings))
        for name, settings in CONTENDERS.items()
    }
    best = race(contenders, 2.0 if quick else 8.0)
    ratios = {name: best[name] / best["plain"] for name in CONTENDERS if name != "plain"}
    replaced = " / ".join(f"{contenders[name].replaced:.0%}" for name in ("plain", "all"))
    return {
        "kept": size,
        "d": dim,
        "plain, us": best["plain"] / steps * 1e6,
        "all, us": best["all"] / steps * 1e6,
        "replaced": replaced,
        **ratios,
        "goal (stream term)": at_most(ratios["stream term"], STREAM_GOAL[1]) if (size, dim) == STREAM_GOAL[0] else "",
        "goal (all)": at_most(ratios["all"], GOAL[1]) if (size, dim) == GOAL[0] else "",
    }


class Contender:
    """A thinner that is restored to its steady state before every run."""

    def __init__(self, steady: Steady) -> None:
        self.steady = steady
        self.thinner = steady.thinner()

    def __call__(self) -> Callable[[], object]:
        self.thinner = self.steady.thinner()
        return lambda: self.steady.extend(self.thinner, self.steady.draws)

    @property
    def replaced(self) -> float:
        """Share of the steps of the last run whose draw was kept."""
        kept = self.thinner.kept.ids[:, 1] >= self.steady.start
        return float(np.mean(kept)) * len(self.thinner) / len(self.steady.draws)
