r"""Weights for what is kept: non-negative, of sum 1, such that KSD^2 and what is added to it are least, with a proof.

Plain KSD is content with sets that are too narrow, the more so in many dimensions, and weights that only lower it make
that worse. Two terms can be added to the Stein kernel matrix K before w^T K w is made small, the first of them by
default; KSD itself may rise then. With ``linear=0`` and no ``like`` it is KSD that is least.

- ``linear``: the Stein kernel of a base kernel b (1 + <x, y>),

  .. math:: b \left[ \langle s_x, s_y \rangle (1 + \langle x, y \rangle) + \langle s_x, x \rangle
            + \langle s_y, y \rangle + d \right]

  in the kept set's coordinates, centred. It charges for everything that linear vector fields can see; for a Gaussian
  target these are its means and all its second moments, d (d + 3) / 2 of them, and there must be more draws than that;
  for other targets they are combinations of draws and scores.
- ``like``: the squared distance of the weighted means and variances from those of a chain, in its standard deviations,
  times a large factor. Whatever the target, they then agree with the chain's as well as non-negative weights allow, and
  among all weights for which they do KSD^2 plus the linear term is least.

Signed weights are not offered: their estimates can leave the range of the function. Memory is four matrices (n, n),
32 n^2 bytes, and time about that of 20 Cholesky factors: 0.4 s for 1000 draws, 7 to 10 s and 300 MB for 3000.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steinstream.errors import InputError
from steinstream.gradient_free import reject_ratios
from steinstream.kernels import IMQ
from steinstream.postprocess._simplex_qp import Solution, least
from steinstream.preconditioning import Preconditioner
from steinstream.result import Kept
from steinstream.running_moments import Moments

Array = NDArray[np.float64]

LINEAR, LINEAR_LIKE = 30.0, 1.0  # factor of the linear term, alone and where the chain's moments are matched anyway
_MATCH = 1e4  # factor of the distance from the chain's moments, in units of KSD^2 with equal weights
_MOST = 10_000


def weigh(kept: Kept, linear: float | None = None, like: Moments | ArrayLike | None = None) -> Kept:
    """The same draws with weights. A state that was kept several times shares its weight among its copies.

    ``like`` is a chain (n, d) or (chains, n, d) without its burn-in, or its :class:`Moments`.
    """
    if len(kept) == 0:
        raise InputError("Nothing is kept yet, so there is nothing to weigh.", "Push draws first.")
    reject_ratios(kept, "A weight")
    if linear is None:
        linear = LINEAR if like is None else LINEAR_LIKE
    if not 0 <= linear < np.inf:
        raise InputError(f"linear must be a number of at least 0, got {linear!r}.")
    if len(kept) > _MOST:
        raise InputError(
            f"Weights for {len(kept)} draws would take {32e-9 * len(kept) ** 2:.0f} GB of memory.",
            f"Keep {_MOST} draws or fewer: thin with size=....",
        )
    moments = like if like is None or isinstance(like, Moments) else Moments.of(like)
    if moments is not None and moments.count == 0:
        raise InputError("There are no draws in the moments to be like.", "Add the chain's draws to them first.")
    if moments is not None and len(moments.mean) != kept.draws.shape[1]:
        raise InputError(
            f"The draws to be like have {len(moments.mean)} dimensions, what is kept has {kept.draws.shape[1]}."
        )
    both, inverse, copies = np.unique(
        np.hstack([kept.draws, kept.scores]), axis=0, return_inverse=True, return_counts=True
    )
    points, scores = (np.ascontiguousarray(half) for half in np.hsplit(both, 2))
    solution = least(objective(kept, points, scores, linear, moments))
    weights = (solution.weights / copies)[inverse.ravel()]
    return weighted_by(kept, weights, {"linear": float(linear), **_about(solution, moments)})


def weighted_by(kept: Kept, weights: Array, about: dict[str, object]) -> Kept:
    """The same draws with these weights, and their KSD."""
    from steinstream.discrepancy import ksd

    value = ksd(kept.draws, kept.scores, kernel=kept.kernel, preconditioner=kept.preconditioner, weights=weights)
    settings = {name: value for name, value in kept.settings.items() if name != "bound"}  # which is of equal weights
    return replace(kept, weights=weights, ksd=value, bound=None, settings={**settings, "weights": about})


def _about(solution: Solution, moments: Moments | None) -> dict[str, object]:
    """What is worth remembering."""
    return {"like": None if moments is None else f"{moments.count} draws", "gap": solution.gap}


def objective(kept: Kept, points: Array, scores: Array, linear: float, moments: Moments | None) -> Array:
    """The matrix of the quadratic form that the weights make small."""
    from steinstream._engine.quadratic import stein_matrix  # brings numba

    x, s = (kept.preconditioner or Preconditioner.identity()).apply(points, scores)
    matrix = stein_matrix((kept.kernel or IMQ()).compiled(x.shape[1]), x, s)
    scale = float(matrix.mean())
    if linear:
        matrix += linear * linear_term(x - x.mean(axis=0), s)
    if moments is not None:
        spread = np.where(moments.variances > 0, np.sqrt(moments.variances), 1.0)
        z = (points - moments.mean) / spread
        away = np.hstack([z, z**2 - moments.variances / spread**2])
        matrix += (_MATCH * scale) * (away @ away.T)
    return matrix


def linear_term(x: Array, s: Array) -> Array:
    """<s_x, s_y> (1 + <x, y>) + <s_x, x> + <s_y, y> + d for all pairs."""
    along = np.sum(s * x, axis=1)
    matrix: Array = x @ x.T
    matrix += 1.0
    matrix *= s @ s.T
    matrix += along[:, None] + along + x.shape[1]
    return matrix
