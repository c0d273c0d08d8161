r"""The least value of w^T K w over weights w >= 0 that sum to 1, with a certificate.

Any weights v at all have :math:`\sqrt{v^T K v} \ge \min_i (K w)_i / \sqrt{w^T K w}` (Cauchy-Schwarz), so that

    gap = 1 - min_i (K w)_i / (w^T K w)

is the share by which sqrt(w^T K w), the KSD, could still fall at most: the result is proven, whatever the way to it.

The way is a primal-dual interior point method with Mehrotra's corrector (S. Mehrotra, "On the implementation of a
primal-dual interior point method", SIAM J. Optim. 2, 1992): 5 to 40 rounds, each a Cholesky factor of K plus a
diagonal. K has to be positive semi-definite; it may be singular, and its rows of very different sizes. Memory: three
matrices besides K.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_ROUNDS = 100
_REFINEMENTS = 4
_EPS = float(np.finfo(np.float64).eps)


class Solution(NamedTuple):
    """Weights, the value w^T K w, the gap (see above) and the rounds it took."""

    weights: Array
    value: float
    gap: float
    rounds: int


class _State(NamedTuple):
    """Weights, multipliers of w >= 0 and of sum w = 1, and K w."""

    w: Array
    z: Array
    level: float
    slope: Array

    @property
    def value(self) -> float:
        """w^T K w."""
        return float(self.w @ self.slope)

    @property
    def excess(self) -> float:
        """w^T K w - min_i (K w)_i, which is 0 at the solution."""
        return self.value - float(self.slope.min())


def least(matrix: Array, tolerance: float = 1e-9) -> Solution:
    """Minimise w^T K w over the simplex until the gap is below the tolerance.

    It also ends where the gap is lost in rounding, as for a singular matrix whose least value is 0.

    >>> least(np.diag([1.0, 3.0, 0.5])).weights.round(6)
    array([0.3, 0.1, 0.6])
    """
    diagonal = np.diag(matrix)
    if diagonal.min() <= 0:  # such a point is all that is needed: its whole row is 0
        w = (diagonal <= 0) / np.count_nonzero(diagonal <= 0)
        return Solution(w, 0.0, 0.0, 0)
    size = np.sqrt(diagonal)
    now = best = _begin(matrix, size)
    rounds = 0
    while rounds < _ROUNDS and best.excess > tolerance * best.value:
        now, rounds = _round(matrix, size, now), rounds + 1
        stuck = now.excess > 0.5 * best.excess
        best = min(best, now, key=lambda state: state.excess)
        if stuck and _lost_in_rounding(now, size):
            break
    for unit in (len(size) * best.value, size**2):  # of z in terms of w: for stiff matrices, for rows of all sizes
        polished = _polished(matrix, size, best, best.w * unit > best.z)
        if polished.excess <= max(best.excess, tolerance * polished.value):
            best = polished
            break
    gap = best.excess / best.value if best.value > 0 else 0.0
    return Solution(best.w, max(best.value, 0.0), min(max(gap, 0.0), 1.0), rounds)


def _begin(matrix: Array, size: Array) -> _State:
    """Large rows get little weight; the multipliers fit it exactly."""
    w = (size.min() / size) ** 2
    w /= w.sum()
    slope = matrix @ w
    level = float(slope.min()) - 0.1 * abs(float(w @ slope))
    return _State(w, slope - level, level, slope)


def _lost_in_rounding(now: _State, size: Array) -> bool:
    """Whether rounding explains all of the gap; |K_ij| is at most size_i size_j."""
    return bool((now.slope >= now.value - 4.0 * _EPS * size * float(size @ now.w)).all())


def _round(matrix: Array, size: Array, now: _State) -> _State:
    """A Newton step towards w_i z_i = 0, then one towards w_i z_i = what the first one shows to be within reach."""
    from steinstream._engine.quadratic import solve_triangles  # brings numba

    w, z = now.w, now.z
    factor = _factor(matrix, size, z / w)
    ones = 1.0 / size[None]
    solve_triangles(factor, ones)
    ones = ones[0] / size

    def towards(product: Array | float) -> tuple[Array, Array, float]:
        """Changes of w, z and level that make w z this product and keep sum w = 1 and K w = z + level."""
        right = ((product / w - z) - (now.slope - now.level - z))[None] / size
        solve_triangles(factor, right)
        change = right[0] / size
        level = (1.0 - w.sum() - change.sum()) / ones.sum()
        change = change + level * ones
        return change, (product - w * z - z * change) / w, level

    mean = float(w @ z) / len(w)
    dw, dz, _ = towards(0.0)
    step = min(_reach(w, dw), _reach(z, dz))
    within = float((w + step * dw) @ (z + step * dz)) / len(w)
    dw, dz, level = towards((within / mean) ** 3 * mean - dw * dz)
    step = min(1.0, 0.995 * min(_reach(w, dw), _reach(z, dz)))
    w = w + step * dw
    w /= w.sum()
    return _State(w, z + step * dz, now.level + step * level, matrix @ w)


def _factor(matrix: Array, size: Array, extra: Array) -> Array:
    """Cholesky factor of K + extra, with rows and columns scaled to a unit diagonal of K."""
    scaled = matrix / np.outer(size, size)
    diagonal = scaled.ravel()[:: len(size) + 1]
    diagonal += extra / size**2
    ridge = len(size) * _EPS
    while True:
        diagonal += ridge
        try:
            return np.asarray(np.linalg.cholesky(scaled), dtype=np.float64)
        except np.linalg.LinAlgError:  # rounding made it indefinite
            ridge *= 100.0


def _reach(values: Array, change: Array) -> float:
    """The share of the change, at most all of it, after which the first value is zero."""
    falling = change < 0
    return min(1.0, float(np.min(-values[falling] / change[falling], initial=np.inf)))


def _polished(matrix: Array, size: Array, now: _State, chosen: NDArray[np.bool_]) -> _State:
    """The best weights for those chosen, and zero for the others, which are on their way there."""
    from steinstream._engine.quadratic import solve_triangles

    left = np.flatnonzero(chosen)
    if len(left) == 0:
        return now
    block, unit, w = matrix[np.ix_(left, left)], size[left], now.w[left]
    factor = _factor(block, unit, np.zeros(len(left)))
    for _ in range(_REFINEMENTS):  # each makes up for the ridge in the factor
        right = np.stack([block @ w, np.ones(len(left))]) / unit
        solve_triangles(factor, right)
        change, ones = right / unit
        w = w - change + ones * (1.0 - w.sum() + change.sum()) / ones.sum()
    best = np.zeros(len(size))
    best[left] = np.maximum(w, 0.0)
    best /= best.sum()
    return now._replace(w=best, slope=matrix @ best)
