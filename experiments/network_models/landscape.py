"""The log density around a place: its Hessian, and the way up to the nearest mode."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from steinstream.targets import Array, Target

_NUDGE = 1e-3
_ROUNDS = 40
_CLOSE = 0.01  # below the top of the parabola


def curvature(target: Target, position: Array) -> Array:
    """Minus the Hessian (k, k) of the log density, from central differences of the score.

    >>> from steinstream.targets import Gaussian
    >>> curvature(Gaussian(np.zeros(2), np.array([[2.0, 0.0], [0.0, 0.5]])), np.ones(2)).round(6)
    array([[0.5, 0. ],
           [0. , 2. ]])
    """
    nudges = _NUDGE * np.eye(len(position))
    slopes = np.array([target.score(position - e) - target.score(position + e) for e in nudges]) / (2 * _NUDGE)
    return np.asarray((slopes + slopes.T) / 2)


def mode(target: Target, start: Array, report: Callable[[float], None] = lambda share: None) -> Array:
    """A local maximum of the log density near ``start``: Newton steps, damped until they lead up.

    >>> from steinstream.targets import Gaussian
    >>> mode(Gaussian(np.array([3.0, -1.0]), 0.01), np.zeros(2)).round(6)
    array([ 3., -1.])
    """
    position, height, damping = start.copy(), target.log_density(start), 0.0
    for number in range(_ROUNDS):
        report(number / _ROUNDS)
        score = target.score(position)
        bends, axes = np.linalg.eigh(curvature(target, position))
        bends = np.maximum(np.abs(bends), 1e-6 * np.abs(bends).max())
        slope = axes.T @ score
        if 0.5 * float(slope @ (slope / bends)) < _CLOSE:
            break
        for _ in range(20):
            there = position + axes @ (slope / (bends + damping))
            reached = target.log_density(there)
            if reached > height:
                position, height, damping = there, reached, damping / 10
                break
            damping = max(10 * damping, 0.1 * float(bends.max()))
        else:
            break  # as high as rounding lets one see
    return position
