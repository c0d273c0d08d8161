r"""Optimal weights of the kept draws: non-negative, with sum 1, with a certificate of optimality.

KSD alone prefers sets that are too narrow, the more so in many dimensions, and weights that minimise KSD alone increase
this bias. Two terms can therefore be added to the Stein kernel matrix K before w^T K w is minimised, the first of them
by default; KSD itself may then increase. With ``linear=0`` and without ``like``, KSD is minimised.

- ``linear``: the Stein kernel of the base kernel b (1 + <x, y>),

  .. math:: b \left[ \langle s_x, s_y \rangle (1 + \langle x, y \rangle) + \langle s_x, x \rangle
            + \langle s_y, y \rangle + d \right]

  in the preconditioned, centred coordinates of the kept set. It penalises every deviation that linear vector fields
  detect. For a Gaussian target these are deviations of the mean and of all second moments, d (d + 3) / 2 numbers, and
  there must be more draws than that. For other targets they are combinations of draws and scores.
- ``like``: the squared distance of the weighted means and variances from those of a chain, in standard deviations of
  the chain, times a large factor. For every target the weighted moments then agree with the chain as well as
  non-negative weights allow, and among all such weights KSD^2 plus the linear term is minimal.

Signed weights are not supported: their estimates can lie outside the range of the function. Memory is four matrices
(n, n), 32 n^2 bytes, and the time is that of about 20 Cholesky factorisations: 0.4 s for 1000 draws, 7 to 10 s and
300 MB for 3000.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from steinstream._typing import Array
from steinstream.discrepancy import ksd
from steinstream.errors import InputError
from steinstream.gradient_free import reject_ratios
from steinstream.kernels import IMQ
from steinstream.postprocess._simplex_qp import minimise_on_simplex
from steinstream.preconditioning import Preconditioner
from steinstream.result import Kept
from steinstream.running_moments import Moments

LINEAR, LINEAR_LIKE = 30.0, 1.0  # default factor of the linear term, without and with ``like``
_MATCH = 1e4  # factor of the distance from the moments of the chain, relative to KSD^2 with equal weights
_MAX_DRAWS = 10_000


def optimise_weights(kept: Kept, linear: float | None = None, like: Moments | ArrayLike | None = None) -> Kept:
    """Give the kept draws the weights that minimise the objective.

    Copies of a state that was kept several times have equal weights.

    Parameters
    ----------
    kept : Kept
        The kept draws, at most 10 000.
    linear : float, optional
        Factor of the linear term. Default: 30, or 1 with ``like``.
    like : Moments or array_like of shape (n, d) or (chains, n, d), optional
        A chain without its burn-in, or its moments, which the weighted draws reproduce.

    Returns
    -------
    Kept
        The same draws with weights; ``settings["weights"]["gap"]`` bounds the relative amount by which the square root
        of the objective could still decrease.

    Raises
    ------
    InputError
        If the set is empty or too large, if its draws were kept without scores, or if an argument does not fit them.

    """
    if len(kept) == 0:
        raise InputError("The kept set is empty and cannot be weighted.", "Push draws first.")
    reject_ratios(kept, "A weight")
    if linear is None:
        linear = LINEAR if like is None else LINEAR_LIKE
    if not 0 <= linear < np.inf:
        raise InputError(f"linear must be a number of at least 0, got {linear!r}.")
    if len(kept) > _MAX_DRAWS:
        raise InputError(
            f"Weights for {len(kept)} draws would take {32e-9 * len(kept) ** 2:.0f} GB of memory.",
            f"Keep {_MAX_DRAWS} draws or fewer: thin with size=....",
        )
    moments = like if like is None or isinstance(like, Moments) else Moments.of(like)
    if moments is not None and moments.count == 0:
        raise InputError("The moments given as like have no draws.", "Add the draws of the chain first.")
    if moments is not None and len(moments.mean) != kept.draws.shape[1]:
        raise InputError(
            f"The draws given as like have {len(moments.mean)} dimensions, the kept draws {kept.draws.shape[1]}."
        )
    states, inverse, copies = np.unique(
        np.hstack([kept.draws, kept.scores]), axis=0, return_inverse=True, return_counts=True
    )
    points, scores = (np.ascontiguousarray(half) for half in np.hsplit(states, 2))
    solution = minimise_on_simplex(objective_matrix(kept, points, scores, linear, moments))
    details: dict[str, object] = {
        "linear": float(linear),
        "like": None if moments is None else f"{moments.count} draws",
        "gap": solution.gap,
    }
    return with_weights(kept, (solution.weights / copies)[inverse.ravel()], details)


def with_weights(kept: Kept, weights: Array, details: dict[str, object]) -> Kept:
    """Return the same draws with these weights and their KSD; ``details`` become ``settings["weights"]``."""
    value = ksd(kept.draws, kept.scores, kernel=kept.kernel, preconditioner=kept.preconditioner, weights=weights)
    settings = {name: value for name, value in kept.settings.items() if name != "bound"}  # valid for equal weights only
    return replace(kept, weights=weights, ksd=value, bound=None, settings={**settings, "weights": details})


def objective_matrix(kept: Kept, points: Array, scores: Array, linear: float, moments: Moments | None) -> Array:
    """Return the matrix of the quadratic form that the weights minimise."""
    from steinstream._engine.linalg import stein_matrix  # imports numba

    x, s = (kept.preconditioner or Preconditioner.identity()).apply(points, scores)
    matrix = stein_matrix((kept.kernel or IMQ()).compiled(x.shape[1]), x, s)
    scale = float(matrix.mean())
    if linear:
        matrix += linear * linear_term(x - x.mean(axis=0), s)
    if moments is not None:
        sd = np.where(moments.variances > 0, np.sqrt(moments.variances), 1.0)
        z = (points - moments.mean) / sd
        deviations = np.hstack([z, z**2 - moments.variances / sd**2])
        matrix += (_MATCH * scale) * (deviations @ deviations.T)
    return matrix


def linear_term(x: Array, s: Array) -> Array:
    """Compute <s_x, s_y> (1 + <x, y>) + <s_x, x> + <s_y, y> + d for all pairs."""
    products = np.sum(s * x, axis=1)
    matrix: Array = x @ x.T
    matrix += 1.0
    matrix *= s @ s.T
    matrix += products[:, None] + products + x.shape[1]
    return matrix
