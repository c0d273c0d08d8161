"""Sensitivity to the exponent of the growth (appendix): two modes, growth sqrt(t^alpha log t) / 2.

The paper finds alpha = 1.8 best for both KSD and normalised KSD.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from experiments.paper.repeated_runs import CANDIDATES, RepeatedRuns, run_repeats
from experiments.paper.settings import KERNELS, RULES, paper_thinner
from experiments.results import ResultTable, estimate, select
from experiments.runner import ProgressCallback, WorkUnit
from steinstream.targets import Mixture

ALPHAS = (1.0, 1.2, 1.4, 1.6, 1.8, 2.0)
_STEPS = {"quick": 2_000, "medium": 10_000, "full": 20_000}
_REPEATS = {"quick": 3, "medium": 5, "full": 10}


class Alpha(RepeatedRuns):
    """KSD against the exponent of the growth on two modes (appendix, parameter sensitivity)."""

    def units(self) -> list[WorkUnit]:
        """Return one work unit per kernel, rule and exponent."""
        keys = product(reversed(ALPHAS), KERNELS, RULES)
        return [
            WorkUnit(f"{kernel}-{rule}-{alpha}", partial(self._run, kernel, rule, alpha))
            for alpha, kernel, rule in keys
        ]

    def _run(self, kernel: str, rule: str, alpha: float, checkpoint: Path, progress: ProgressCallback) -> ResultTable:
        target = Mixture(np.array([[0.0, 0.0], [1.0, 1.0]]), covariances=np.array(0.5))
        growth = "linear" if alpha == 2.0 else f"power:{alpha}"  # as in the paper
        settings = {"kernel": KERNELS[kernel], "growth": growth, "rule": rule, "candidates": CANDIDATES}
        return run_repeats(
            _REPEATS[self.scale],
            lambda: paper_thinner(2, **settings),
            lambda repeat: target.sample(_STEPS[self.scale] * CANDIDATES, self.seed + repeat),
            progress,
            kernel=kernel,
            rule=rule,
            alpha=alpha,
        )

    def draw(self, results: ResultTable) -> dict[str, Any]:
        """Return one figure per kernel."""
        from experiments.paper import plots

        return {
            f"figure-{kernel}.png": plots.alpha(select(results, kernel=kernel), kernel, CANDIDATES)
            for kernel in KERNELS
        }

    def summary(self, results: ResultTable) -> str:
        """Return the means over the repeats at the last step."""
        last = select(results, step=_STEPS[self.scale])
        lines = [
            rf"Two modes, growth $f(t) = \sqrt{{t^\alpha \log t}} / 2$ ($t / 2$ for $\alpha = 2$), $m = {CANDIDATES}$, "
            f"{_STEPS[self.scale]:,} steps, means of {_REPEATS[self.scale]} repeats ± one standard error of the mean",
            "",
            r"| kernel | rule | $\alpha$ | kept | KSD | normalised KSD |",
            "|---|---|---|---|---|---|",
        ]
        for kernel, rule, alpha in product(KERNELS, RULES, ALPHAS):
            rows = select(last, kernel=kernel, rule=rule, alpha=alpha)
            ksd, normalised = estimate(rows["ksd"], 5), estimate(rows["normalised"])
            lines.append(f"| {kernel.upper()} | {rule} | {alpha} | {rows['kept'].mean():,.0f} | {ksd} | {normalised} |")
        return "\n".join(lines)
