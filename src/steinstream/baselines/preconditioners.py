"""The kernels of the package stein-thinning, in our terms.

There the base kernel is (1 + (x - y)^T P (x - y))^(-1/2) with a matrix P, while scores and derivatives stay as they
are. With P = I / l^2 that is a length scale l, up to a factor of the Stein kernel that changes no comparison. With
another P it is more than a change of coordinates: in the coordinates P^(1/2) x, turned to the axes of P, each
coordinate's part of the Stein kernel is weighted by its eigenvalue.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from steinstream.errors import InputError
from steinstream.preconditioning import Preconditioner

Array = NDArray[np.float64]

COVARIANCE = "smpcov"
LENGTHS = ("id", "med", "sclmed")
_SAMPLE = 1000  # draws, evenly spaced, of which the median distance is taken


def by_length(draws: Array, preconditioner: str | float, standardize: bool) -> Preconditioner:
    """Preconditioner for ``id``, ``med`` (median distance), ``sclmed`` (the same over sqrt(log n)) or a number l^2."""
    scale = _scale(draws, standardize)
    return Preconditioner.scales(scale * np.sqrt(_squared_length(draws / scale, preconditioner)))


def by_covariance(draws: Array, scores: Array, standardize: bool) -> tuple[Array, Array, Array]:
    """Draws and scores in the coordinates of ``smpcov``, and the coordinates' weights."""
    from steinstream._engine.triangular import multiply

    x, s = Preconditioner.scales(_scale(draws, standardize)).apply(draws, scores)
    dim = draws.shape[1]
    variances, axes = np.linalg.eigh(np.cov(x, rowvar=False).reshape(dim, dim))
    if not variances.min() > 0:
        raise _impossible("the covariance of the draws is singular")
    x, s = Preconditioner.scales(np.sqrt(variances)).apply(multiply(axes, x), multiply(axes, s))
    return x, s, 1.0 / variances


def _scale(draws: Array, standardize: bool) -> Array:
    """The mean absolute deviation of each coordinate, or 1."""
    if not standardize:
        return np.ones(draws.shape[1])
    scale: Array = np.mean(np.abs(draws - np.mean(draws, axis=0)), axis=0)
    if not scale.min() > 0:
        raise _impossible(f"coordinate {int(scale.argmin())} is the same in all draws")
    return scale


def _squared_length(draws: Array, preconditioner: str | float) -> float:
    if preconditioner == "id":
        return 1.0
    if preconditioner in ("med", "sclmed"):
        squared = _median_distance(draws) ** 2
        if not squared > 0:
            raise _impossible("more than half of the draws are the same")
        return squared if preconditioner == "med" else squared / float(np.log(min(_SAMPLE, len(draws))))
    try:
        squared = float(preconditioner)
    except ValueError:
        squared = 0.0
    if not 0 < squared < np.inf:
        raise InputError(
            f"Unknown preconditioner {preconditioner!r}.",
            "Choose id, med, sclmed, smpcov, or a squared length above 0.",
        )
    return squared


def _median_distance(draws: Array) -> float:
    if len(draws) > _SAMPLE:
        draws = draws[np.linspace(0, len(draws) - 1, _SAMPLE, dtype=int)]
    if len(draws) < 2:
        return 0.0
    apart = [np.sqrt(np.sum((draws[i + 1 :] - draw) ** 2, axis=1)) for i, draw in enumerate(draws)]
    return float(np.median(np.concatenate(apart)))


def _impossible(reason: str) -> InputError:
    return InputError(
        f"The preconditioner cannot be computed: {reason}.", 'Take "id" with standardize=False, or give coordinates.'
    )
