"""Thinners in their steady state: the size is reached, and every run starts from the same checkpoint."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from steinstream import Preconditioner, Thinner


class Steady:
    """A thinner that has seen ``size + before`` draws of a standard normal, and the next ``steps`` draws.

    Parameters
    ----------
    size, dim : int
        Number of kept draws, and of dimensions.
    steps, before : int
        Number of draws of a run, and of draws before it.
    pins : int, default 0
        Number of kept draws to pin.
    **settings
        Further settings of the thinner. With ``cost_weight``, the cost of a draw is the size of its first coordinate.
    """

    def __init__(self, size: int, dim: int, *, steps: int, before: int, pins: int = 0, **settings: Any) -> None:
        rng = np.random.default_rng(size + dim)
        self.priced = "cost_weight" in settings
        plain = {"preconditioner": Preconditioner.identity(), "stream_weight": 0.0}  # KSD alone
        thinner = Thinner(dim, size=size, **{**plain, **settings})
        self.extend(thinner, rng.normal(size=(size + before, dim)))
        if pins:
            thinner.pin(thinner.kept.ids[:pins])
        self.draws = rng.normal(size=(steps, dim))
        self.start = thinner.steps
        self._folder = TemporaryDirectory(prefix="steinstream-benchmarks-")
        thinner.save(self._path)

    @property
    def _path(self) -> Path:
        return Path(self._folder.name) / "steady.npz"

    def thinner(self) -> Thinner:
        """Return the thinner in its steady state."""
        return Thinner.load(self._path)

    def extend(self, thinner: Thinner, draws: Any) -> Thinner:
        """Add draws, with their costs if there are any."""
        thinner.extend(draws, -draws, costs=np.abs(draws[:, 0]) if self.priced else None)
        return thinner
