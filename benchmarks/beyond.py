"""Steps with options: anchor, linear term, costs and pins, over the plain step.

Microseconds per step of Thinner.extend for a full thinner (size reached, steady state) on one thread; IMQ, draws from a
standard normal. Each contender has its own kept set, made with its own options, so they may replace more or fewer
draws: the share of steps that do is given for the plain thinner and for the one with all options. The last columns are
ratios to the plain step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.race import race
from benchmarks.table import Options, Row, at_most
from steinstream import IMQ, Thinner

CASES = ((100, 2), (100, 10), (1000, 2), (1000, 10), (1000, 38))
GOAL = (1000, 10), 2.0

LINEAR = IMQ(linear=0.1)
CONTENDERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "anchor": {"anchor": True},
    "linear": {"kernel": LINEAR},
    "costs": {"cost": 1.0},
    "all": {"anchor": True, "kernel": LINEAR, "cost": 1.0},
}


def run(options: Options) -> list[Row]:
    cases = [GOAL[0]] if options.quick else CASES
    return [measure(size, dim, options.quick) for size, dim in cases]


def measure(size: int, dim: int, quick: bool) -> Row:
    steps = max(50, int(4e6 / (size * (dim + 8))))  # some milliseconds
    before = 2 * size if quick else max(50_000, 5 * size)
    contenders = {name: Steady(size, dim, steps, before, settings) for name, settings in CONTENDERS.items()}
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
        "goal (all)": at_most(ratios["all"], GOAL[1]) if (size, dim) == GOAL[0] else "",
    }


class Steady:
    """A thinner in its steady state, put back into it before every run."""

    def __init__(self, size: int, dim: int, steps: int, before: int, settings: dict[str, Any]) -> None:
        rng = np.random.default_rng(size + dim)
        self.thinner = Thinner(dim, size=size, **settings)
        self.priced = "cost" in settings
        self.extend(rng.normal(size=(size + before, dim)))
        if len(settings) > 1:  # all options
            self.thinner.pin(self.thinner.kept.ids[:3])
        self.draws = rng.normal(size=(steps, dim))
        dictionary = self.thinner._dictionary
        self.arrays = [array for part in (dictionary._store, dictionary._guide) for array in part or ()]
        self.state = [array.copy() for array in self.arrays]
        self.start = self.thinner.steps

    def extend(self, draws: Any) -> None:
        costs = {"costs": np.abs(draws[:, 0])} if self.priced else {}
        self.thinner.extend(draws, -draws, **costs)

    def __call__(self) -> Callable[[], object]:
        for array, state in zip(self.arrays, self.state, strict=True):
            array[...] = state
        self.thinner.steps = self.thinner._numbered[0] = self.start
        return lambda: self.extend(self.draws)

    @property
    def replaced(self) -> float:
        """The share of the last run's steps whose draw was kept."""
        return float(np.mean(self.thinner.kept.ids[:, 1] >= self.start)) * len(self.thinner) / len(self.draws)
