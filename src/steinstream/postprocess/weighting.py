r"""Weights of the kept draws that minimise the objective, not far from equal, with a certificate of optimality.

The weights are non-negative, have sum 1, and minimise

.. math:: w^T M w + \lambda \sum_i w_i^2 , \qquad w^T M w = \mathrm{KSD}^2 + \text{stream term},

the objective by which the draws were kept, plus a penalty. The penalty is the smallest one with which the effective
size 1 / sum w_i^2 is at least a share of the number of draws, 95 % by default. The stream is that of the summary in the
kept set, or a given chain. Draws without scores are weighted by the stream term alone.

Draws that were selected by the objective need little correction. Without a bound on the effective size the objective
falls further, but errors of quantiles and distances rise: the weights then fit the noise of the stream. Weights that
minimise KSD alone, that add a linear term to the Stein kernel, or that match means and variances of the chain make
other errors larger. experiments/weights measures this.

Signed weights are not supported: their estimates can lie outside the range of the function. Memory is four matrices
(n, n), 32 n^2 bytes, and the time is that of about 100 Cholesky factorisations: 2 s for 1000 draws.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from steinstream import validation
from steinstream._typing import Array
from steinstream.discrepancy.ksd import ksd
from steinstream.discrepancy.mmd import summarise_points
from steinstream.errors import InputError
from steinstream.kernels import as_kernel
from steinstream.postprocess._simplex_qp import Solution, minimise_on_simplex
from steinstream.postprocess._stream import compared, largest_stream_weight, objective_terms
from steinstream.preconditioning import Preconditioner
from steinstream.result import Kept, SummarisedStream
from steinstream.thinner.config import ThinConfig

EFFECTIVE_SHARE = 0.95  # default
_MAX_DRAWS = 10_000
_TOLERANCE = 0.01  # of the effective size, relative to the number of draws
_STEPS = 20  # largest number of penalties that are tried
_SMALLEST, _LARGEST = -9.0, 3.0  # exponents of the penalties, relative to the mean diagonal


def optimise_weights(
    kept: Kept, like: SummarisedStream | ArrayLike | None = None, effective_share: float = EFFECTIVE_SHARE
) -> Kept:
    """Give the kept draws, at most 10 000, the weights that minimise the objective.

    Copies of a state that was kept several times have equal weights. ``like`` is the chain without its burn-in, (n, d)
    or (chains, n, d), or its summary, by default that in the kept set. With a chain, the stream term is used even if
    the set was kept by KSD alone. ``effective_share`` is the smallest effective size, relative to the number of draws.

    Returns
    -------
    Kept
        The same draws with weights; ``settings["weights"]["gap"]`` bounds the relative amount by which the square root
        of the objective with the penalty could still decrease.

    Raises
    ------
    InputError
        If the set is empty or too large, or if an argument does not fit it.
    """
    if len(kept) == 0:
        raise InputError("The kept set is empty and cannot be weighted.", "Push draws first.")
    if (
        isinstance(effective_share, bool)
        or not isinstance(effective_share, int | float)
        or not 0 <= effective_share < 1
    ):
        raise InputError(f"effective_share must be a number from 0 to below 1, got {effective_share!r}.")
    if len(kept) > _MAX_DRAWS:
        raise InputError(
            f"Weights for {len(kept)} draws would take {32e-9 * len(kept) ** 2:.0f} GB of memory.",
            f"Keep {_MAX_DRAWS} draws or fewer: thin with size=....",
        )
    gamma = None
    if like is not None:
        gamma = largest_stream_weight([kept]) or ThinConfig().stream_weight
        kept = replace(kept, stream_summary=like if isinstance(like, SummarisedStream) else _summary_of(kept, like))
    rows = kept.draws if kept.scores is None else np.hstack([kept.draws, kept.scores])
    _, first, inverse, copies = np.unique(rows, axis=0, return_index=True, return_inverse=True, return_counts=True)
    matrix = objective_terms(kept, gamma).matrix()
    equal = float(matrix.mean())
    matrix = matrix[np.ix_(first, first)]
    solution, penalty = _with_effective_size(matrix, copies.astype(np.float64), effective_share * len(kept))
    weights = (solution.weights / copies)[inverse.ravel()]
    details: dict[str, object] = {
        "effective_share": float(effective_share),
        "like": "stream" if like is None else "chain",
        "objective": float(solution.weights @ matrix @ solution.weights),
        "equal_weights_objective": equal,
        "penalty": penalty,
        "gap": solution.gap,
    }
    return with_weights(kept, weights, details)


def _summary_of(kept: Kept, like: ArrayLike) -> SummarisedStream:
    """Summarise a chain (n, d) or (chains, n, d) in the coordinates of the kept set."""
    values = validation.as_floats(like, "like")
    dim = kept.draws.shape[1]
    if values.ndim not in (2, 3) or values.shape[-1] != dim or values.size == 0:
        raise InputError(
            f"like has shape {values.shape}, but the kept draws have {dim} dimensions.",
            f"Pass the chain: (n, {dim}) or (chains, n, {dim}).",
        )
    if not np.isfinite(values).all():
        raise InputError("The draws given as like must be finite.")
    draws = values.reshape(-1, dim)
    rows, weights = summarise_points(
        as_kernel(kept.kernel), (kept.preconditioner or Preconditioner.identity()).apply_to_draws(draws)
    )
    return SummarisedStream(draws[rows], weights)


def _with_effective_size(matrix: Array, copies: Array, least: float) -> tuple[Solution, float]:
    """Minimise w^T M w plus the smallest penalty that leaves this effective size; return the penalty, too.

    The effective size of n draws in few states, with ``copies`` each, is that of the draws.
    """
    penalised = matrix.copy()
    diagonal = penalised.ravel()[:: len(matrix) + 1]
    before, scale = diagonal.copy(), float(diagonal.mean()) or 1.0

    def solve(penalty: float) -> tuple[Solution, float]:
        diagonal[:] = before + penalty / copies
        found = minimise_on_simplex(penalised)
        return found, float(1.0 / np.sum(found.weights**2 / copies))

    solution, size = solve(0.0)
    if size >= least * (1.0 - 1e-12):
        return solution, 0.0
    low, high, total = _SMALLEST, _LARGEST, float(copies.sum())
    best, penalty = solve(scale * 10.0**high)[0], scale * 10.0**high
    for _ in range(_STEPS):
        middle = 0.5 * (low + high)
        solution, size = solve(scale * 10.0**middle)
        if size < least:
            low = middle
            continue
        high, best, penalty = middle, solution, scale * 10.0**middle
        if size < least + _TOLERANCE * total:
            break
    return best, penalty


def with_weights(kept: Kept, weights: Array, details: dict[str, object]) -> Kept:
    """Return the same draws with these weights, their KSD and MMD; ``details`` become ``settings["weights"]``."""
    value = math.nan
    if kept.scores is not None:
        value = ksd(kept.draws, kept.scores, kernel=kept.kernel, preconditioner=kept.preconditioner, weights=weights)
    mmd = math.nan
    if kept.stream_summary is not None:
        preconditioner = kept.preconditioner or Preconditioner.identity()
        streams = compared([kept], np.ones(1), as_kernel(kept.kernel), preconditioner)
        mmd = math.sqrt(streams.stream.squared_mmd(streams.base, weights))
    settings = {name: value for name, value in kept.settings.items() if name != "bound"}  # valid for equal weights only
    return replace(kept, weights=weights, ksd=value, mmd=mmd, bound=None, settings={**settings, "weights": details})
