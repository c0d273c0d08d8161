"""Weighted draws that represent the stream in the stream term."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from steinstream._typing import Array, Integers
from steinstream.preconditioning import Preconditioner

if TYPE_CHECKING:
    from steinstream.thinner.features import FeatureMap


@dataclass(frozen=True, eq=False)
class SummarisedStream:
    """Weighted draws that represent the stream of a kept set, 1000 to 2000 whatever the length of the stream.

    They were selected by kernel halving (:mod:`steinstream._engine.stream_summary`), without detected burn-in. The
    stream term compares the kept draws with them. `merge`, `Kept.weighted` and `Kept.ordered` use them.
    """

    draws: Array
    """Draws of the stream, (k, d); with features, what the stream term compares instead: sketches of features."""
    weights: Array
    """Number of draws of the stream that each of them represents, (k,)."""
    features: FeatureMap | None = None
    """Map from sketches to the coordinates of the kernel; None if draws are compared."""
    kept: Array | None = None
    """What the stream term compares of the kept draws, (n, ...); None for the draws themselves."""

    def in_kernel_coordinates(self, base: Array, preconditioner: Preconditioner) -> Array:
        """Return rows of ``draws`` or ``kept`` in the coordinates in which the base kernel is evaluated."""
        if self.features is None:
            return preconditioner.apply_to_draws(base)
        width = self.features.sketch_width
        mapped = self.features.apply(base[:, -width:])
        if base.shape[1] == width:
            return mapped
        return np.hstack([preconditioner.apply_to_draws(base[:, :-width]), mapped])

    def take(self, rows: Integers) -> SummarisedStream:
        """Return the same stream for some of the kept draws."""
        return self if self.kept is None else replace(self, kept=self.kept[rows])
