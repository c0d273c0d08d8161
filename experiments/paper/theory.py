"""How fast does KSD fall, and what was promised (section 3)? Slopes of E KSD^2 on n, against the bound.

The bound: let F_t = |D_t|^2 KSD^2(D_t). Adding an independent draw raises E F by at most kappa = E k0(x, x), removals
raise it by at most |D~_t|^2 eps_t; so with the kept set at its floor f

    E KSD^2(D_n) <= (n kappa + sum over t <= n of (f(t) + 1)^2 eps_t) / f(n)^2.

The paper's own rates are n log n / f(n)^2: no decay at all for its square root growth. Its corollary for constant
budgets is checked by the planner: is the radius that was planned for reached?
"""

from __future__ import annotations

from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from experiments.paper import Report, Unit
from experiments.paper.columns import Columns, matching, mean_over_repeats
from experiments.paper.toys import Toy, repeated
from steinstream import schedules
from steinstream.kernels import IMQ
from steinstream.planning import plan
from steinstream.preconditioning import Preconditioner
from steinstream.samplers import MALA
from steinstream.targets import Array, Mixture
from steinstream.thinner import Thinner

STREAMS = ("i.i.d.", "MALA")
GROWTHS = ("linear", "power:1.5", "sqrt")
BUDGETS = ("constant:0.0", "decaying", "constant:0.0001")
_STEPS = {"quick": 5_000, "medium": 20_000, "full": 100_000}
_REPEATS = {"quick": 3, "medium": 10, "full": 10}
_STEP = 1.0  # of MALA
RADII = (0.4, 0.2, 0.1)
EXPONENTS = ("power:1.2", "power:1.5", "power:1.8")
_WARMUP = 10_000  # draws to plan from
PLANNED = "planned for "

TARGET = Mixture(np.array([[0.0, 0.0], [2.0, 2.0]]), covariances=np.array(1.0))


class Theory(Toy):
    """Rates of E KSD^2 for every growth and budget, against the bound (section 3)."""

    def units(self) -> list[Unit]:
        """All repeats of one stream, growth and budget."""
        return [
            Unit(f"{stream}-{growth}-{budget}".replace(":", "-"), partial(self._run, stream, growth, budget))
            for growth, budget, stream in product(GROWTHS, BUDGETS, STREAMS)
        ] + [
            Unit(f"plan-{stream}-{growth}-{radius}".replace(":", "-"), partial(self._plan, stream, growth, radius))
            for growth, radius, stream in product(EXPONENTS, RADII, STREAMS)
        ]

    def _run(self, stream: str, growth: str, budget: str, checkpoint: Path, report: Report) -> Columns:
        return repeated(
            _REPEATS[self.scale],
            lambda: Thinner(2, preconditioner=Preconditioner.identity(), growth=growth, budget=budget),
            lambda repeat: _DRAWS[stream](_STEPS[self.scale], self.seed + repeat),
            report, stream=stream, growth=growth, budget=budget,
        )  # fmt: skip

    def _plan(self, stream: str, growth: str, radius: float, checkpoint: Path, report: Report) -> Columns:
        """Plan from a warm-up, then do as planned with other draws."""
        warmup = _DRAWS[stream](_WARMUP, self.seed + 1000)
        todo = plan(radius, *warmup, growth=growth, preconditioner=Preconditioner.identity())
        return repeated(
            _REPEATS[self.scale],
            lambda: Thinner(2, **todo.settings),
            lambda repeat: _DRAWS[stream](todo.draws, self.seed + repeat),
            report, stream=stream, growth=growth, budget=f"{PLANNED}{radius}",
        )  # fmt: skip

    def draw(self, results: Columns) -> dict[str, Any]:
        """The rates, and the plans."""
        from experiments.paper import plots

        return {"figure.png": plots.theory(results), "figure-plan.png": plots.plans(results)}

    def summary(self, results: Columns) -> str:
        """Slopes and constants, then the plans."""
        return f"{self._rates(results)}\n\n{self._plans(results)}"

    def _plans(self, results: Columns) -> str:
        lines = [
            f"Planned from {_WARMUP:,} draws; root mean square of KSD over {_REPEATS[self.scale]} repeats",
            "",
            "| growth | stream | radius | draws | kept | KSD | KSD / radius |",
            "|---|---|---|---|---|---|---|",
        ]
        for growth, stream, radius in product(EXPONENTS, STREAMS, RADII):
            curve = mean_over_repeats(matching(results, growth=growth, stream=stream, budget=f"{PLANNED}{radius}"))
            ksd = np.sqrt(curve["square"][-1])
            lines.append(
                f"| {growth} | {stream} | {radius} | {curve['step'][-1]:,} | {curve['kept'][-1]:,.0f} | {ksd:.4f} | "
                f"{ksd / radius:.2f} |"
            )
        return "\n".join(lines)

    def _rates(self, results: Columns) -> str:
        kappa = stein_diagonal()
        lines = [
            f"{_STEPS[self.scale]:,} steps, means of {_REPEATS[self.scale]} repeats; kappa = {kappa:.3f}; slope of log "
            "E KSD^2 on log n over the last factor of 30; the constant is E KSD^2 f(n)^2 / n at the end",
            "",
            "| growth | budget | stream | kept | KSD | slope | the bound's | constant | E KSD^2 / bound, greatest |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        for growth, budget, stream in product(GROWTHS, BUDGETS, STREAMS):
            curve = mean_over_repeats(matching(results, growth=growth, budget=budget, stream=stream))
            promised = bound(growth, budget, curve["step"], kappa)
            late = curve["step"] >= curve["step"][-1] / 30
            fit, fit_promised = (slope(curve["step"][late], values[late]) for values in (curve["square"], promised))
            n, square, kept = (curve[name][-1] for name in ("step", "square", "kept"))
            constant = square * float(schedules.growth(growth)(float(n))) ** 2 / n
            worst = (curve["square"] / promised)[curve["step"] >= 10].max()
            lines.append(
                f"| {growth} | {budget} | {stream} | {kept:,.0f} | {np.sqrt(square):.5f} | {fit:.2f} | "
                f"{fit_promised:.2f} | {constant:.3g} | {worst:.2g} |"
            )
        return "\n".join(lines)


def langevin(steps: int, seed: int) -> tuple[Array, Array]:
    """Draws and scores of a MALA chain that starts in the target."""
    sampler = MALA(TARGET, step=_STEP)
    _, block = sampler.sample(sampler.init(TARGET.sample(1, seed).draws[0], seed), steps)
    return block.draws, block.scores


_DRAWS = {"i.i.d.": TARGET.sample, "MALA": langevin}


def stein_diagonal() -> float:
    """Kappa = E k0(x, x), from a hundred thousand draws: |s|^2 + d for IMQ with c = 1."""
    return float(IMQ().diagonal(TARGET.sample(100_000, seed=0).scores).mean())


def bound(growth: str, budget: str, steps: Array, kappa: float) -> Array:
    """What is promised for E KSD^2 after each of these numbers of steps; infinite where the floor is 0."""
    f = schedules.growth(growth)
    t = np.arange(1.0, steps[-1] + 1)
    floor = schedules.evaluate(f, t)
    spent = np.cumsum((floor + 1) ** 2 * schedules.evaluate(schedules.budget(budget, f), t))
    at = steps.astype(int) - 1
    with np.errstate(divide="ignore"):
        promised: Array = (kappa * steps + spent[at]) / floor[at] ** 2
    return promised


def slope(n: Array, values: Array) -> float:
    """Of log values on log n."""
    return float(np.polyfit(np.log(n), np.log(values), 1)[0])
