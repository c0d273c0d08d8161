r"""Minimisation of w^T K w over weights w >= 0 with sum 1, with a certificate of optimality.

All weights v satisfy :math:`\sqrt{v^T K v} \ge \min_i (K w)_i / \sqrt{w^T K w}` (Cauchy-Schwarz). Therefore

    gap = 1 - min_i (K w)_i / (w^T K w)

bounds the relative amount by which sqrt(w^T K w), the KSD, could still decrease. The certificate holds for any w, no
matter how it was found.

The method is a primal-dual interior point method with Mehrotra's corrector (S. Mehrotra, "On the implementation of a
primal-dual interior point method", SIAM J. Optim. 2, 1992): 5 to 40 iterations, each with one Cholesky factorisation of
K plus a diagonal. K must be positive semi-definite; it may be singular, and its rows may differ in scale. Memory: three
matrices in addition to K.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from steinstream._typing import Array, Flags

_MAX_ITERATIONS = 100
_TOLERANCE = 1e-9  # gap at which the iteration ends
_REFINEMENTS = 4
_EPS = float(np.finfo(np.float64).eps)


class Solution(NamedTuple):
    """Weights, the value w^T K w, and the gap: see the module docstring."""

    weights: Array
    value: float
    gap: float


class _Iterate(NamedTuple):
    """Weights w, multipliers z of w >= 0 and ``level`` of sum w = 1, and the gradient K w."""

    w: Array
    z: Array
    level: float
    gradient: Array

    @property
    def value(self) -> float:
        """w^T K w."""
        return float(self.w @ self.gradient)

    @property
    def excess(self) -> float:
        """w^T K w - min_i (K w)_i, which is 0 at the solution."""
        return self.value - float(self.gradient.min())


def minimise_on_simplex(matrix: Array) -> Solution:
    """Minimise w^T K w over the simplex, for a positive semi-definite matrix K.

    Returns
    -------
    Solution
        Weights, minimum and gap. The iteration ends at a gap of 1e-9, or if the remaining gap is within rounding
        error, as for a singular matrix with minimum 0.

    Examples
    --------
    >>> minimise_on_simplex(np.diag([1.0, 3.0, 0.5])).weights.round(6)
    array([0.3, 0.1, 0.6])
    """
    diagonal = np.diag(matrix)
    if diagonal.min() <= 0:  # a PSD matrix has a zero row there: all weight on it attains the minimum 0
        w = (diagonal <= 0) / np.count_nonzero(diagonal <= 0)
        return Solution(w, 0.0, 0.0)
    scale = np.sqrt(diagonal)
    now = best = _initial(matrix, scale)
    for _ in range(_MAX_ITERATIONS):
        if best.excess <= _TOLERANCE * best.value:
            break
        now = _iterate(matrix, scale, now)
        stalled = now.excess > 0.5 * best.excess
        best = min(best, now, key=lambda iterate: iterate.excess)
        if stalled and _within_rounding(now, scale):
            break
    # The active set is where w times a unit exceeds z: one unit for stiff matrices, one for rows of different scale.
    for unit in (len(scale) * best.value, scale**2):
        polished = _polish(matrix, scale, best, best.w * unit > best.z)
        if polished.excess <= max(best.excess, _TOLERANCE * polished.value):
            best = polished
            break
    gap = best.excess / best.value if best.value > 0 else 0.0
    return Solution(best.w, max(best.value, 0.0), min(max(gap, 0.0), 1.0))


def _initial(matrix: Array, scale: Array) -> _Iterate:
    """Start with small weights on large rows, and multipliers that satisfy K w = z + level."""
    w = (scale.min() / scale) ** 2
    w /= w.sum()
    gradient = matrix @ w
    level = float(gradient.min()) - 0.1 * abs(float(w @ gradient))
    return _Iterate(w, gradient - level, level, gradient)


def _within_rounding(now: _Iterate, scale: Array) -> bool:
    """Whether rounding explains the whole gap; |K_ij| is at most scale_i scale_j."""
    return bool((now.gradient >= now.value - 4.0 * _EPS * scale * float(scale @ now.w)).all())


def _iterate(matrix: Array, scale: Array, now: _Iterate) -> _Iterate:
    """Take a predictor step towards w_i z_i = 0 and a corrector step towards the products that it shows attainable."""
    from steinstream._engine.linalg import solve_cholesky  # imports numba

    w, z = now.w, now.z
    factor = _factorise(matrix, scale, z / w)
    ones = 1.0 / scale[None]
    solve_cholesky(factor, ones)
    ones = ones[0] / scale

    def direction(product: Array | float) -> tuple[Array, Array, float]:
        """Changes of w, z and level with w z = product, sum w = 1 and K w = z + level."""
        right = ((product / w - z) - (now.gradient - now.level - z))[None] / scale
        solve_cholesky(factor, right)
        change = right[0] / scale
        level = (1.0 - w.sum() - change.sum()) / ones.sum()
        change = change + level * ones
        return change, (product - w * z - z * change) / w, level

    mean = float(w @ z) / len(w)
    dw, dz, _ = direction(0.0)
    step = min(_max_step(w, dw), _max_step(z, dz))
    predicted = float((w + step * dw) @ (z + step * dz)) / len(w)
    dw, dz, level = direction((predicted / mean) ** 3 * mean - dw * dz)
    step = min(1.0, 0.995 * min(_max_step(w, dw), _max_step(z, dz)))
    w = w + step * dw
    w /= w.sum()
    return _Iterate(w, z + step * dz, now.level + step * level, matrix @ w)


def _factorise(matrix: Array, scale: Array, extra: Array) -> Array:
    """Cholesky factor of K + diag(extra), with rows and columns scaled to a unit diagonal of K."""
    scaled = matrix / np.outer(scale, scale)
    diagonal = scaled.ravel()[:: len(scale) + 1]
    diagonal += extra / scale**2
    ridge = len(scale) * _EPS
    while True:
        diagonal += ridge
        try:
            return np.asarray(np.linalg.cholesky(scaled), dtype=np.float64)
        except np.linalg.LinAlgError:  # indefinite because of rounding
            ridge *= 100.0


def _max_step(values: Array, change: Array) -> float:
    """Largest step, at most 1, for which no value becomes negative."""
    falling = change < 0
    return min(1.0, float(np.min(-values[falling] / change[falling], initial=np.inf)))


def _polish(matrix: Array, scale: Array, now: _Iterate, active: Flags) -> _Iterate:
    """Set the weights outside ``active`` to 0 and solve for the others."""
    from steinstream._engine.linalg import solve_cholesky

    indices = np.flatnonzero(active)
    if len(indices) == 0:
        return now
    block, unit, w = matrix[np.ix_(indices, indices)], scale[indices], now.w[indices]
    factor = _factorise(block, unit, np.zeros(len(indices)))
    for _ in range(_REFINEMENTS):  # iterative refinement, because the factor includes a ridge
        right = np.stack([block @ w, np.ones(len(indices))]) / unit
        solve_cholesky(factor, right)
        change, ones = right / unit
        w = w - change + ones * (1.0 - w.sum() + change.sum()) / ones.sum()
    best = np.zeros(len(scale))
    best[indices] = np.maximum(w, 0.0)
    best /= best.sum()
    return now._replace(w=best, gradient=matrix @ best)
