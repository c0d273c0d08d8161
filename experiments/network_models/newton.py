"""Hessian of a log density, and its nearest mode by damped Newton steps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from steinstream._typing import Array
from steinstream.targets import Target

_STEP = 1e-3  # of finite differences
_ITERATIONS = 40
_TOLERANCE = 0.01  # predicted increase of the log density at which the search ends


def negative_hessian(target: Target, position: Array) -> Array:
    """Return minus the Hessian (k, k) of the log density, from central differences of the score.

    Returns
    -------
    ndarray
        Symmetric matrix (k, k).

    Examples
    --------
    >>> from steinstream.targets import Gaussian
    >>> negative_hessian(Gaussian(np.zeros(2), np.array([[2.0, 0.0], [0.0, 0.5]])), np.ones(2)).round(6)
    array([[0.5, 0. ],
           [0. , 2. ]])
    """
    steps = _STEP * np.eye(len(position))
    rows = np.array([target.score(position - step) - target.score(position + step) for step in steps]) / (2 * _STEP)
    return np.asarray((rows + rows.T) / 2)


def find_mode(target: Target, start: Array, progress: Callable[[float], None] = lambda fraction: None) -> Array:
    """Return a local maximum of the log density near ``start``, by damped Newton steps.

    Returns
    -------
    ndarray
        Position (k,) of the maximum.

    Examples
    --------
    >>> from steinstream.targets import Gaussian
    >>> find_mode(Gaussian(np.array([3.0, -1.0]), 0.01), np.zeros(2)).round(6)
    array([ 3., -1.])
    """
    position, height, damping = start.copy(), target.log_density(start), 0.0
    for iteration in range(_ITERATIONS):
        progress(iteration / _ITERATIONS)
        score = target.score(position)
        curvatures, axes = np.linalg.eigh(negative_hessian(target, position))
        curvatures = np.maximum(np.abs(curvatures), 1e-6 * np.abs(curvatures).max())
        slope = axes.T @ score
        if 0.5 * float(slope @ (slope / curvatures)) < _TOLERANCE:
            break
        for _ in range(20):
            proposal = position + axes @ (slope / (curvatures + damping))
            reached = target.log_density(proposal)
            if reached > height:
                position, height, damping = proposal, reached, damping / 10
                break
            damping = max(10 * damping, 0.1 * float(curvatures.max()))
        else:
            break  # no increase within rounding errors
    return position
