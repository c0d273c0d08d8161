r"""Rates under the assumptions of the theorems (section 3 and appendix A): m_i = n candidates, a chain of known rate.

The target is a standard normal distribution in two dimensions. The stream is an autoregressive chain,
x' = rho x + sqrt(1 - rho^2) z, which is V-uniformly ergodic with rate rho; rho = 0 gives independent draws. The budget
is the decaying one of the theorems. Each run has a horizon of n steps and either one candidate per step, or n as the
proofs require.

With S^2 = (2 / gamma) log n and r_i = m_i = n, the proofs of the paper give with explicit constants

    E KSD^2(D_n) <= e (n A / f(n)^2 + sum over i <= n of eps_i i^2 / n^2),

    A = 5 S^2 + 4 b / gamma                                               independent draws,
    A = S^2 + 4 b / gamma + 2 R V_+(S) V_-(S) (1 + 2 rho) / (1 - rho)     V-uniformly ergodic chain,

with b = E exp(gamma k0(x, x)). The second line has the corrected term of the theorem on chains: the paper divides it
by n. Here k0(x, x) = |x|^2 + 2 and V(x) = 1 + |x|, so that all constants but R are known in closed form.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from experiments.paper import theory
from experiments.paper.repeated_runs import RepeatedRuns, run_repeats
from experiments.paper.settings import BUDGET_FORMULAS, GROWTH_FORMULAS, MEAN_SQUARE, paper_thinner
from experiments.results import ResultTable, mean_over_repeats, select
from experiments.runner import ProgressCallback, WorkUnit
from steinstream import schedules
from steinstream._engine.jit import jit
from steinstream._typing import Array

RATES = (0.0, 0.5, 0.9, 0.99)  # rho
GROWTHS = ("linear", "power:1.5", "sqrt")
BUDGET = "decaying"
ONE, ALL = "1", "n"  # number of candidates per step
DIM = 2
KAPPA = 2.0 * DIM  # E k0(x, x)
GAMMA = 0.25
#: Constant of V-uniform ergodicity: ``|P^k(y, .) - p|_V <= R V(y) rho^k``, computed on a grid of rho^k and ``|y|``.
R = 3.3
_STEPS = {"quick": 2_000, "medium": 10_000, "full": 20_000}
_HORIZONS = {"quick": (50, 100, 200), "medium": (50, 100, 200, 400), "full": (50, 100, 200, 400, 800)}
_REPEATS = {"quick": 3, "medium": 10, "full": 10}


class Assumptions(RepeatedRuns):
    """Rates with m_i = n candidates per step and with a chain of known rate."""

    def units(self) -> list[WorkUnit]:
        """Return one work unit per growth, rate and number of candidates."""
        keys = product(GROWTHS, RATES, (ALL, ONE))
        return [
            WorkUnit(f"{growth}-{rho}-{candidates}".replace(":", "-"), partial(self._run, growth, rho, candidates))
            for growth, rho, candidates in keys
        ]

    def _run(
        self, growth: str, rho: float, candidates: str, checkpoint: Path, progress: ProgressCallback
    ) -> ResultTable:
        labels = {"growth": growth, "rho": rho, "candidates": candidates}
        if candidates == ONE:
            return self._repeats(growth, rho, _STEPS[self.scale], 1, progress, labels)
        tables = []
        for n in _HORIZONS[self.scale]:
            table = self._repeats(growth, rho, n, n, progress, labels)
            tables.append(select(table, step=n))
        return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}

    def _repeats(
        self, growth: str, rho: float, steps: int, m: int, progress: ProgressCallback, labels: dict[str, Any]
    ) -> ResultTable:
        return run_repeats(
            _REPEATS[self.scale],
            lambda: paper_thinner(DIM, growth=growth, budget=BUDGET, candidates=m),
            lambda repeat: autoregressive(rho, steps * m, self.seed + repeat),
            progress,
            **labels,
        )

    def draw(self, results: ResultTable) -> dict[str, Any]:
        """Return a figure of E KSD^2 and its bounds."""
        from experiments.paper import plots

        return {"figure.png": plots.assumptions(results, independent_bound, paper_bound)}

    def summary(self, results: ResultTable) -> str:
        """Return the values at the end of the runs and the slopes."""
        repeats = _REPEATS[self.scale]
        lines = [
            f"Standard normal distribution in {DIM} dimensions, IMQ, budget {BUDGET_FORMULAS[BUDGET]}, means of "
            rf"{repeats} repeats; slope of $\log {MEAN_SQUARE}$ on $\log n$ from {_HORIZONS[self.scale][1]:,} steps "
            "on, with its standard error",
            "",
            r"| growth | candidates | $\rho$ | steps | evaluations | kept | KSD | slope | "
            f"${MEAN_SQUARE}$ / bound of the paper |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        for growth, candidates, rho in product(GROWTHS, (ONE, ALL), RATES):
            some = select(results, growth=growth, candidates=candidates, rho=rho)
            curve = mean_over_repeats(some)
            n = int(curve["step"][-1])
            fit, error = theory.slope_over_repeats(some, _HORIZONS[self.scale][1])
            ratio = ""
            if candidates == ALL:
                ratio = _in_powers_of_ten(curve["square"][-1] / paper_bound(growth, rho, curve["step"])[-1])
            evaluations = n * n if candidates == ALL else n
            m = "$n$" if candidates == ALL else candidates
            lines.append(
                f"| {GROWTH_FORMULAS[growth]} | {m} | {rho:g} | {n:,} | {evaluations:,} | {curve['kept'][-1]:,.0f} | "
                f"{np.sqrt(curve['square'][-1]):.5f} | {fit:.2f} ({error:.2f}) | {ratio} |"
            )
        lines += [
            "",
            f"${MEAN_SQUARE}$ after the same number of steps, relative to one candidate and independent draws:",
            "",
            "| growth | steps | " + " | ".join(rf"$m = n$, $\rho = {rho:g}$" for rho in RATES) + " |",
            "|---|---|" + "---|" * len(RATES),
        ]
        for growth, n in product(GROWTHS, _HORIZONS[self.scale]):
            one = mean_over_repeats(select(results, growth=growth, candidates=ONE, rho=0.0))
            reference = np.exp(np.interp(np.log(n), np.log(one["step"]), np.log(one["square"])))
            cells = []
            for rho in RATES:
                some = mean_over_repeats(select(results, growth=growth, candidates=ALL, rho=rho, step=n))
                cells.append(f"{some['square'][-1] / reference:.2f}")
            lines.append(f"| {GROWTH_FORMULAS[growth]} | {n:,} | {' | '.join(cells)} |")
        return "\n".join(lines)


def _in_powers_of_ten(value: float) -> str:
    r"""Return a value with two digits as a formula.

    >>> print(_in_powers_of_ten(4.4e-05))
    $4.4 \cdot 10^{-5}$
    """
    digits, exponent = f"{value:.1e}".split("e")
    return rf"${digits} \cdot 10^{{{int(exponent)}}}$"


def autoregressive(rho: float, steps: int, seed: int) -> tuple[Array, Array]:
    """Return the draws and scores of a stationary autoregressive chain with standard normal distribution."""
    noise = np.random.default_rng(seed).normal(size=(steps, DIM))
    _accumulate(rho, noise)
    return noise, -noise


def _autoregression(rho: float, values: Array) -> None:
    """Replace independent standard normal values by an autoregressive chain."""
    weight = np.sqrt(1.0 - rho * rho)
    for t in range(1, len(values)):
        for j in range(values.shape[1]):
            values[t, j] = rho * values[t - 1, j] + weight * values[t, j]


_accumulate = jit(_autoregression)


def independent_bound(growth: str, steps: Array) -> Array:
    """Return our bound for independent draws and any number of candidates."""
    return theory.bound(growth, BUDGET, steps, KAPPA)


def paper_bound(growth: str, rho: float, steps: Array) -> Array:
    """Return the bound of the paper for m_i = n candidates, with the constants of its proof."""
    f = schedules.growth(growth)
    t = np.arange(1.0, steps[-1] + 1)
    budgets = schedules.evaluate(schedules.budget(BUDGET, f), t)
    at = steps.astype(int) - 1
    spent = np.cumsum(budgets * t**2)[at] / steps**2
    b = np.exp(GAMMA * DIM) * (1.0 - 2.0 * GAMMA) ** (-DIM / 2.0)
    square = 2.0 / GAMMA * np.log(steps)  # S^2
    sampling = 5.0 * square + 4.0 * b / GAMMA
    if rho > 0.0:
        largest = np.sqrt(square) * (1.0 + np.sqrt(square - DIM))  # V_+(S): k0(x, x) <= S^2 if |x|^2 <= S^2 - d
        smallest = np.sqrt(DIM)  # V_-(S), at x = 0
        sampling = square + 4.0 * b / GAMMA + 2.0 * R * largest * smallest * (1.0 + 2.0 * rho) / (1.0 - rho)
    floor = schedules.evaluate(f, t)[at]
    limit: Array = np.e * (steps * sampling / floor**2 + spent)
    return limit
