"""A Gaussian target: a mixture with one component."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from steinstream._typing import Array
from steinstream.errors import InputError
from steinstream.targets import CompiledTarget, Sample
from steinstream.targets.mixture import Mixture


class Gaussian:
    """A Gaussian distribution.

    Parameters
    ----------
    mean : array_like of shape (d,)
        Mean.
    covariance : array_like
        Variances, not standard deviations: one number for all coordinates, (d,) the diagonal of the covariance matrix,
        or (d, d) the matrix.

    Raises
    ------
    InputError
        If a shape is wrong, or the covariance is not positive definite.

    Examples
    --------
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
            raise InputError(f"mean must have shape (d,), got shape {self.mean.shape}.")
        if self.covariance.shape not in ((), (d,), (d, d)):
            raise InputError(
                f"covariance must be a number or have shape ({d},) or ({d}, {d}), got shape {self.covariance.shape}."
            )
        # Covariances of a mixture have the components along the first axis, except for a single number.
        self._mixture = Mixture(self.mean[None], self.covariance[None] if self.covariance.ndim else self.covariance)

    def log_density(self, position: Array) -> float:
        """Log density at a position (d,), including the normalising constant."""
        return self._mixture.log_density(position)

    def score(self, position: Array) -> Array:
        """Gradient (d,) of the log density at a position (d,)."""
        return self._mixture.score(position)

    def log_densities(self, points: ArrayLike) -> Array:
        """Log densities (n,) at points (n, d)."""
        return self._mixture.log_densities(points)

    def scores(self, points: ArrayLike) -> Array:
        """Scores (n, d) at points (n, d)."""
        return self._mixture.scores(points)

    def sample(self, n: int, seed: int) -> Sample:
        """Draw ``n`` independent draws, with their scores."""
        return self._mixture.sample(n, seed)

    def compiled(self) -> CompiledTarget:
        """Return the functions for samplers that run in compiled code."""
        return self._mixture.compiled()
