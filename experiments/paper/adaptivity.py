"""Does the kept set grow with the complexity of the target (section 4.4)? Mixtures of 1 to 10 modes, floor of 10.

The paper reports 24 draws for four modes and 40 for ten. Done right, its rule falls to the floor: KSD may rise with
every new draw and the next removal counts from there. The monotone rule does what the paper describes.
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

FLOOR = 10
_MODES = {"quick": (1, 4, 10), "medium": (1, 2, 4, 6, 8, 10), "full": tuple(range(1, 11))}
_STEPS = {"quick": 5_000, "medium": 20_000, "full": 20_000}
_REPEATS = {"quick": 3, "medium": 5, "full": 10}


class Adaptivity(Toy):
    """Draws kept against the number of modes, without mandatory growth (figure 6 and appendix)."""

    def units(self) -> list[Unit]:
        """All repeats of one kernel, rule and number of modes."""
        keys = product(KERNELS, RULES, reversed(_MODES[self.scale]))
        return [
            Unit(f"{kernel}-{rule}-{modes:02d}", partial(self._run, kernel, rule, modes))
            for kernel, rule, modes in keys
        ]

    def _run(self, kernel: str, rule: str, modes: int, checkpoint: Path, report: Report) -> Columns:
        target = Mixture(np.arange(modes)[:, None] * np.ones(2), covariances=0.5**2)
        return repeated(
            _REPEATS[self.scale],
            lambda: Thinner(
                2, kernel=KERNELS[kernel], preconditioner=IDENTITY, growth=FLOOR, rule=rule, candidates=CANDIDATES
            ),
            lambda repeat: target.sample(_STEPS[self.scale] * CANDIDATES, self.seed + repeat),
            report, kernel=kernel, rule=rule, modes=modes,
        )  # fmt: skip

    def draw(self, results: Columns) -> dict[str, Any]:
        """One figure a kernel."""
        from experiments.paper import plots

        return {f"figure-{kernel}.png": plots.adaptivity(matching(results, kernel=kernel), FLOOR) for kernel in KERNELS}

    def summary(self, results: Columns) -> str:
        """Means over the repeats, at the last step."""
        last = matching(results, step=_STEPS[self.scale])
        lines = [
            f"Floor {FLOOR}, m = {CANDIDATES}, {_STEPS[self.scale]:,} steps, means of {_REPEATS[self.scale]} repeats",
            "",
            "| kernel | rule | modes | kept (sd) | KSD |",
            "|---|---|---|---|---|",
        ]
        for kernel, rule, modes in product(KERNELS, RULES, _MODES[self.scale]):
            rows = matching(last, kernel=kernel, rule=rule, modes=modes)
            kept, ksd = rows["kept"], rows["ksd"]
            lines.append(
                f"| {kernel.upper()} | {rule} | {modes} | {kept.mean():.1f} ({kept.std():.1f}) | {ksd.mean():.3f} |"
            )
        return "\n".join(lines)
