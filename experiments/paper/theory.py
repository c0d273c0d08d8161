"""Rate of convergence of KSD and its bound (section 3): slopes of E KSD^2 on n.

The bound: let F_t = |D_t|^2 KSD^2(D_t). Adding an independent draw increases E F by at most kappa = E k0(x, x), and a
removal increases it by at most |D~_t|^2 eps_t. Hence, with the kept set at its floor ceil(f),

    E KSD^2(D_n) <= (n kappa + sum over t <= n of (ceil(f(t)) + 1)^2 eps_t) / f(n)^2.

The rates stated in the paper are n log n / f(n)^2: no decay at all for its square root growth. Its corollary for
constant budgets is tested with the planner: does KSD reach the planned radius?
"""

from __future__ import annotations

from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from experiments.paper.repeated_runs import RepeatedRuns, run_repeats
from experiments.paper.settings import BUDGET_FORMULAS, GROWTH_FORMULAS, MEAN_SQUARE, paper_thinner
from experiments.results import ResultTable, mean_over_repeats, select
from experiments.runner import ProgressCallback, WorkUnit
from steinstream import schedules
from steinstream._typing import Array
from steinstream.kernels import IMQ
from steinstream.planning import plan
from steinstream.preconditioning import Preconditioner
from steinstream.samplers import MALA
from steinstream.targets import Mixture

STREAMS = ("i.i.d.", "MALA")
GROWTHS = ("linear", "power:1.5", "sqrt")
BUDGETS = ("constant:0.0", "decaying", "constant:0.0001")
_STEPS = {"quick": 5_000, "medium": 20_000, "full": 100_000}
_REPEATS = {"quick": 3, "medium": 10, "full": 10}
_STEP_SIZE = 1.0  # of MALA
RADII = (0.4, 0.2, 0.1)
EXPONENTS = ("power:1.2", "power:1.5", "power:1.8")
_WARMUP = 10_000  # draws from which a run is planned
PLANNED = "planned for "  # prefix of the label of planned runs in the column budget

TARGET = Mixture(np.array([[0.0, 0.0], [2.0, 2.0]]), covariances=np.array(1.0))


class Theory(RepeatedRuns):
    """Rates of E KSD^2 for every growth and budget, against the bound (section 3)."""

    def units(self) -> list[WorkUnit]:
        """Return one work unit per stream, growth and budget, and one per planned run."""
        return [
            WorkUnit(f"{stream}-{growth}-{budget}".replace(":", "-"), partial(self._run, stream, growth, budget))
            for growth, budget, stream in product(GROWTHS, BUDGETS, STREAMS)
        ] + [
            WorkUnit(f"plan-{stream}-{growth}-{radius}".replace(":", "-"), partial(self._plan, stream, growth, radius))
            for growth, radius, stream in product(EXPONENTS, RADII, STREAMS)
        ]

    def _run(self, stream: str, growth: str, budget: str, checkpoint: Path, progress: ProgressCallback) -> ResultTable:
        return run_repeats(
            _REPEATS[self.scale],
            lambda: paper_thinner(2, growth=growth, budget=budget),
            lambda repeat: _SAMPLE[stream](_STEPS[self.scale], self.seed + repeat),
            progress,
            stream=stream,
            growth=growth,
            budget=budget,
        )

    def _plan(
        self, stream: str, growth: str, radius: float, checkpoint: Path, progress: ProgressCallback
    ) -> ResultTable:
        """Plan a run from a warm-up and run it with other draws."""
        warmup = _SAMPLE[stream](_WARMUP, self.seed + 1000)
        planned = plan(radius, *warmup, growth=growth, preconditioner=Preconditioner.identity())
        return run_repeats(
            _REPEATS[self.scale],
            lambda: paper_thinner(2, **planned.settings),
            lambda repeat: _SAMPLE[stream](planned.draws, self.seed + repeat),
            progress,
            stream=stream,
            growth=growth,
            budget=f"{PLANNED}{radius}",
        )

    def draw(self, results: ResultTable) -> dict[str, Any]:
        """Return a figure of the rates and a figure of the planned runs."""
        from experiments.paper import plots

        planned = np.char.startswith(results["budget"].astype(str), PLANNED)
        rates = {name: column[~planned] for name, column in results.items()}
        plans = {radius: select(results, budget=f"{PLANNED}{radius}") for radius in RADII}
        kappa = stein_diagonal()
        figure = plots.theory(rates, lambda growth, budget, steps: bound(growth, budget, steps, kappa))
        return {"figure.png": figure, "figure-plan.png": plots.plans(plans)}

    def summary(self, results: ResultTable) -> str:
        """Return slopes and constants, then the planned runs."""
        return f"{self._rates(results)}\n\n{self._plans(results)}"

    def _plans(self, results: ResultTable) -> str:
        lines = [
            f"Planned from {_WARMUP:,} draws; root mean square of KSD over {_REPEATS[self.scale]} repeats",
            "",
            "| growth | stream | radius | draws | kept | KSD | KSD / radius |",
            "|---|---|---|---|---|---|---|",
        ]
        for growth, stream, radius in product(EXPONENTS, STREAMS, RADII):
            curve = mean_over_repeats(select(results, growth=growth, stream=stream, budget=f"{PLANNED}{radius}"))
            ksd = np.sqrt(curve["square"][-1])
            lines.append(
                f"| {GROWTH_FORMULAS[growth]} | {stream} | {radius} | {curve['step'][-1]:,} | "
                f"{curve['kept'][-1]:,.0f} | {ksd:.4f} | {ksd / radius:.2f} |"
            )
        return "\n".join(lines)

    def _rates(self, results: ResultTable) -> str:
        kappa = stein_diagonal()
        lines = [
            rf"{_STEPS[self.scale]:,} steps, means of {_REPEATS[self.scale]} repeats; $\kappa = {kappa:.3f}$; slope of "
            rf"$\log {MEAN_SQUARE}$ on $\log n$ over the last factor of 30 ± one standard error (jackknife over the "
            rf"repeats); the constant is ${MEAN_SQUARE} f(n)^2 / n$ at the end",
            "",
            "| growth | budget | stream | kept | KSD | slope | slope of the bound | constant | "
            f"largest ${MEAN_SQUARE}$ / bound |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        for growth, budget, stream in product(GROWTHS, BUDGETS, STREAMS):
            runs = select(results, growth=growth, budget=budget, stream=stream)
            curve = mean_over_repeats(runs)
            limit = bound(growth, budget, curve["step"], kappa)
            late = curve["step"] >= curve["step"][-1] / 30
            fit, error = slope_over_repeats(runs, curve["step"][-1] / 30)
            fit_limit = slope(curve["step"][late], limit[late])
            n, square, kept = (curve[name][-1] for name in ("step", "square", "kept"))
            constant = square * float(schedules.growth(growth)(float(n))) ** 2 / n
            worst = (curve["square"] / limit).max()
            lines.append(
                f"| {GROWTH_FORMULAS[growth]} | {BUDGET_FORMULAS[budget]} | {stream} | {kept:,.0f} | "
                f"{np.sqrt(square):.5f} | {fit:.3f} ± {error:.3f} | {fit_limit:.2f} | {constant:.3g} | {worst:.2f} |"
            )
        return "\n".join(lines)


def langevin(steps: int, seed: int) -> tuple[Array, Array]:
    """Return the draws and scores of a MALA chain that starts in the target distribution."""
    sampler = MALA(TARGET, step=_STEP_SIZE)
    _, block = sampler.sample(sampler.init(TARGET.sample(1, seed).draws[0], seed), steps)
    return block.draws, block.scores


_SAMPLE = {"i.i.d.": TARGET.sample, "MALA": langevin}


def stein_diagonal() -> float:
    """Estimate kappa = E k0(x, x) from 100 000 draws; k0(x, x) is |s|^2 + d for IMQ with c = 1."""
    return float(IMQ().diagonal(TARGET.sample(100_000, seed=0).scores).mean())


def bound(growth: str, budget: str, steps: Array, kappa: float) -> Array:
    """Return the upper bound on E KSD^2 after each number of steps; infinite where the floor is 0."""
    f = schedules.growth(growth)
    t = np.arange(1.0, steps[-1] + 1)
    floor = schedules.evaluate(f, t)
    spent = np.cumsum((np.ceil(floor) + 1) ** 2 * schedules.evaluate(schedules.budget(budget, f), t))
    at = steps.astype(int) - 1
    with np.errstate(divide="ignore"):
        limit: Array = (kappa * steps + spent[at]) / floor[at] ** 2
    return limit


def slope(n: Array, values: Array) -> float:
    """Return the slope of log values on log n."""
    return float(np.polyfit(np.log(n), np.log(values), 1)[0])


def slope_over_repeats(table: ResultTable, first: float) -> tuple[float, float]:
    """Return the slope of log E KSD^2 on log n from ``first`` steps on, and its standard error by the jackknife."""

    def fitted(rows: ResultTable) -> float:
        curve = mean_over_repeats(rows)
        late = curve["step"] >= first
        return slope(curve["step"][late], curve["square"][late])

    repeats = np.unique(table["repeat"])
    others = [{name: column[table["repeat"] != one] for name, column in table.items()} for one in repeats]
    values = np.array([fitted(rows) for rows in others])
    error = np.sqrt((len(repeats) - 1) * np.mean((values - values.mean()) ** 2))
    return fitted(table), float(error)
