"""A Gaussian: the mixture of one component, under its own name."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from steinstream.errors import InputError
from steinstream.targets import Array, Compiled, Sample
from steinstream.targets.mixture import Mixture


class Gaussian:
    """A Gaussian with the given mean (d,).

    ``covariance`` holds variances, never standard deviations: one number for all coordinates, (d,) the diagonal of
    the covariance matrix, or (d, d) the whole matrix.

    >>> target = Gaussian([1.0, -1.0], covariance=[4.0, 0.25])
    >>> target.score(np.zeros(2))
    array([ 0.25, -4.  ])
    >>> target.sample(5, seed=0).draws.shape
    (5, 2)
    """

    def __init__(self, mean: ArrayLike, covariance: ArrayLike) -> None:
        self.mean, self.covariance = np.array(mean, dtype=np.float64), np.array(covariance, dtype=np.float64)
        d = len(self.mean) if self.mean.ndim == 1 else 0
        if not d:
            raise InputError(f"mean has shape {self.mean.shape}.", "Give a vector (d,).")
        if self.covariance.shape not in ((), (d,), (d, d)):
            raise InputError(f"covariance has shape {self.covariance.shape}.", f"Give a number, ({d},) or ({d}, {d}).")
        # A number is the same for all components, anything else has them along its first axis.
        self._mixture = Mixture(self.mean[None], self.covariance[None] if self.covariance.ndim else self.covariance)

    def log_density(self, position: Array) -> float:
        """The log density at one position (d,), constant included."""
        return self._mixture.log_density(position)

    def score(self, position: Array) -> Array:
        """The gradient (d,) of the log density at one position (d,)."""
        return self._mixture.score(position)

    def log_densities(self, points: ArrayLike) -> Array:
        """The log density (n,) at many points (n, d)."""
        return self._mixture.log_densities(points)

    def scores(self, points: ArrayLike) -> Array:
        """The scores (n, d) at many points (n, d)."""
        return self._mixture.scores(points)

    def sample(self, n: int, seed: int) -> Sample:
        """So many independent draws, and their scores."""
        return self._mixture.sample(n, seed)

    def compiled(self) -> Compiled:
        """The functions above for a sampler that runs in machine code."""
        return self._mixture.compiled()
