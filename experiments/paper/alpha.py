"""How does the growth's exponent matter (appendix on parameter sensitivity)? Two modes, growth sqrt(t^alpha log t) / 2.

The paper finds alpha = 1.8 best for both KSD and normalised KSD.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from experiments.paper import Report, Unit
from experiments.paper.columns import Columns, matching
from experiments.paper.toys import CANDIDATES, IDENTITY, KERNELS, RULES, Toy, repeated
from steinstream.targets import Mixture
from steinstream.thinner import Thinner

ALPHAS = (1.0, 1.2, 1.4, 1.6, 1.8, 2.0)
_STEPS = {"quick": 2_000, "medium": 10_000, "full": 20_000}
_REPEATS = {"quick": 3, "medium": 5, "full": 10}


class Alpha(Toy):
    """KSD against the exponent of growth on two modes (appendix, parameter sensitivity)."""

    def units(self) -> list[Unit]:
        """All repeats of one kernel, rule and exponent."""
        keys = product(reversed(ALPHAS), KERNELS, RULES)
        return [
            Unit(f"{kernel}-{rule}-{alpha}", partial(self._run, kernel, rule, alpha)) for alpha, kernel, rule in keys
        ]

    def _run(self, kernel: str, rule: str, alpha: float, checkpoint: Path, report: Report) -> Columns:
        target = Mixture(np.array([[0.0, 0.0], [1.0, 1.0]]), covariances=np.array(0.5))
        growth = "linear" if alpha == 2.0 else f"power:{alpha}"  # as the paper does
        return repeated(
            _REPEATS[self.scale],
            lambda: Thinner(
                2, kernel=KERNELS[kernel], preconditioner=IDENTITY, growth=growth, rule=rule, candidates=CANDIDATES
            ),
            lambda repeat: target.sample(_STEPS[self.scale] * CANDIDATES, self.seed + repeat),
            report, kernel=kernel, rule=rule, alpha=alpha,
        )  # fmt: skip

    def draw(self, results: Columns) -> dict[str, Any]:
        """One figure a kernel."""
        from experiments.paper import plots

        return {f"figure-{kernel}.png": plots.alpha(matching(results, kernel=kernel)) for kernel in KERNELS}

    def summary(self, results: Columns) -> str:
        """Means over the repeats, at the last step."""
        last = matching(results, step=_STEPS[self.scale])
        lines = [
            f"Two modes, m = {CANDIDATES}, {_STEPS[self.scale]:,} steps, means of {_REPEATS[self.scale]} repeats",
            "",
            "| kernel | rule | alpha | kept | KSD (standard error) | normalised KSD |",
            "|---|---|---|---|---|---|",
        ]
        for kernel, rule, alpha in product(KERNELS, RULES, ALPHAS):
            rows = matching(last, kernel=kernel, rule=rule, alpha=alpha)
            kept, ksd, normalised = (rows[name].mean() for name in ("kept", "ksd", "normalised"))
            error = rows["ksd"].std() / np.sqrt(len(rows["ksd"]))
            lines.append(
                f"| {kernel.upper()} | {rule} | {alpha} | {kept:,.0f} | {ksd:.5f} ({error:.5f}) | {normalised:.4f} |"
            )
        return "\n".join(lines)
