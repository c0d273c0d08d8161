"""A Gaussian target: a mixture with one component."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from steinstream.errors import InputError
from steinstream.targets.mixture import Mixture


class Gaussian(Mixture):
    """A Gaussian distribution: a `Mixture` with one component, and the methods of a mixture.

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
        super().__init__(self.mean[None], self.covariance[None] if self.covariance.ndim else self.covariance)
