r"""Kernelized Stein discrepancy (KSD) of draws that are in memory.

With weights :math:`w_i` of sum 1, by default 1 / n,

.. math:: \mathrm{KSD}^2 = \sum_{ij} w_i w_j \, k_0(x_i, x_j) .

KSD does not need the normalising constant of the target. It detects errors of location, scale and shape, but not wrong
proportions of modes that are far apart.

**Noisy scores.** Scores a = s + e with noise e (minibatches) make the KSD of a selected set too small: draws with
favourable noise are more likely to be kept. Let every draw have a second score c = s + f, whose noise f is independent
of e, has mean 0 and does not influence the selection. :math:`k_0(x, y)` is linear in each score, so for two different
draws

.. math:: E\, k_0(x_i, x_j; c_i, c_j) = k_0(x_i, x_j; s_i, s_j) .

The diagonal :math:`k_0(x, x) = \phi(0) |s|^2 - 2 \phi'(0) d` is too large by :math:`\phi(0) E |f|^2`. (The product
:math:`a^T c` in place of :math:`c^T c` would not help, because a was used for the selection.) Over the whole stream,
:math:`(a - c) / \sqrt 2` has the covariance of the noise, if e and f have the same covariance. Hence in coordinates
with factor L, if :math:`m_g` kept draws share one state and one second score,

.. math:: \widehat{KSD^2} = \frac{1}{n^2} \left( \sum_{ij} k_0(x_i, x_j; c_i, c_j) - \phi(0)\, v \sum_g m_g^2 \right),
          \qquad v = \mathrm{tr}(L^T \mathrm{Cov}[(a - c) / \sqrt 2]\, L) .

With a linear term b in the kernel, :math:`\phi(0)` becomes :math:`\phi(0) + b (1 + |x_g|^2)`. The estimate is unbiased
if the noise over the kept draws is as large as over the stream. Its error is of the order of v / n, so the estimate of
a small :math:`\mathrm{KSD}^2` may be negative; the reported KSD is then 0.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from steinstream import validation
from steinstream._typing import Array
from steinstream.errors import InputError
from steinstream.kernels import Kernel, as_kernel
from steinstream.preconditioning import Preconditioner, Streaming, Warmup, as_preconditioner, needs_covariance
from steinstream.running_moments import Moments

if TYPE_CHECKING:
    from steinstream._engine.pairwise import SumsBefore

FractionProgress = Callable[[float], None]


def ksd(
    draws: ArrayLike,
    scores: ArrayLike,
    *,
    kernel: Kernel | str | None = None,
    preconditioner: Preconditioner | ArrayLike | None = None,
    weights: ArrayLike | None = None,
    progress: FractionProgress | None = None,
) -> float:
    """Compute the KSD of draws.

    Parameters
    ----------
    draws : array_like
        Draws, (n, d).
    scores : array_like
        Scores, (n, d).
    kernel : Kernel or str, optional
        Base kernel. Default: `IMQ`.
    preconditioner : Preconditioner or array_like, optional
        Preconditioner, scales (d,) or covariance (d, d). Default: the identity.
    weights : array_like, optional
        Non-negative weights, (n,), in any unit. Default: equal weights.
    progress : callable, optional
        Called with the fraction of the work that is done.

    Returns
    -------
    float
        The KSD. The cost is :math:`n^2 / 2` kernel evaluations on all cores and :math:`O(n d)` memory.

    Raises
    ------
    InputError
        If the draws are not finite, their shapes differ, or the weights are invalid.

    Examples
    --------
    >>> draws = np.array([[-1.0], [0.0], [1.0]])
    >>> round(ksd(draws, -draws), 4)
    0.3364
    >>> round(ksd(draws, -draws, weights=[1, 2, 1]), 4)
    0.3443
    """
    if weights is None:
        return float(cumulative_ksd(draws, scores, kernel=kernel, preconditioner=preconditioner, progress=progress)[-1])
    kernel = as_kernel(kernel)
    x, s = _validated(draws, scores, kernel)
    w = validation.as_weights(weights, len(x))
    x, s, w = _merge_repeats(x, s, w / w.sum())
    high, low, diagonal = _row_sums(x, s, w, kernel, _fixed(preconditioner, x.shape[1]), progress)
    return math.sqrt(max(math.fsum(np.concatenate([2.0 * w * high, 2.0 * w * low, w * w * diagonal])), 0.0))


def normalised_ksd(
    draws: ArrayLike,
    scores: ArrayLike,
    *,
    kernel: Kernel | str | None = None,
    preconditioner: Preconditioner | ArrayLike | None = None,
) -> float:
    r"""Compute :math:`\sqrt n \, \mathrm{KSD}`, the normalised KSD. For independent draws it does not depend on n.

    Parameters
    ----------
    draws : array_like
        Draws, (n, d).
    scores : array_like
        Scores, (n, d).
    kernel : Kernel or str, optional
        Base kernel. Default: `IMQ`.
    preconditioner : Preconditioner or array_like, optional
        Preconditioner, scales (d,) or covariance (d, d). Default: the identity.

    Returns
    -------
    float
        The normalised KSD.

    Examples
    --------
    >>> draws = np.array([[-1.0], [0.0], [1.0]])
    >>> round(normalised_ksd(draws, -draws), 4)
    0.5826
    """
    return ksd(draws, scores, kernel=kernel, preconditioner=preconditioner) * float(np.sqrt(len(np.asarray(draws))))


def cumulative_ksd(
    draws: ArrayLike,
    scores: ArrayLike,
    *,
    kernel: Kernel | str | None = None,
    preconditioner: Preconditioner | ArrayLike | None = None,
    progress: FractionProgress | None = None,
) -> Array:
    """Compute the KSD of the first 1, 2, ..., n draws, at the cost of the last one.

    Parameters
    ----------
    draws : array_like
        Draws, (n, d). Consecutive repeats are evaluated once.
    scores : array_like
        Scores, (n, d).
    kernel : Kernel or str, optional
        Base kernel. Default: `IMQ`.
    preconditioner : Preconditioner or array_like, optional
        Preconditioner, scales (d,) or covariance (d, d). Default: the identity.
    progress : callable, optional
        Called with the fraction of the work that is done.

    Returns
    -------
    array
        The n values, (n,).

    Examples
    --------
    >>> draws = np.array([[-1.0], [0.0], [1.0]])
    >>> np.round(cumulative_ksd(draws, -draws), 4)
    array([1.4142, 0.6963, 0.3364])
    """
    kernel = as_kernel(kernel)
    x, s = _validated(draws, scores, kernel)
    squares = np.zeros(len(x))
    x, s, copies = _merge_repeats(x, s, np.ones(len(x)))
    sums = _row_sums(x, s, copies, kernel, _fixed(preconditioner, x.shape[1]), progress)
    from steinstream._engine.pairwise import cumulative_squared_ksd  # loads numba

    cumulative_squared_ksd(sums, copies, squares)
    return np.asarray(np.sqrt(squares))


# -- noisy scores ------------------------------------------------------------------------------------------------------


class SecondScoreNoise:
    """Variance of the noise of second scores, estimated from the whole stream.

    The preconditioner decides whether the full covariance is needed.
    """

    def __init__(self, dim: int, preconditioner: Preconditioner | Warmup | Streaming) -> None:
        full = needs_covariance("auto", dim)
        if isinstance(preconditioner, Preconditioner):
            full = full or preconditioner.factor.ndim == 2
        else:
            full = full or needs_covariance(preconditioner.kind, dim)
        self._differences = Moments(dim, full)

    def add(self, scores: Array, second_scores: Array) -> None:
        """Add draws of the stream, with both scores, (n, d) each."""
        self._differences.add(scores - second_scores)

    def diagonal_excess(self, kernel: Kernel, preconditioner: Preconditioner) -> float:
        """Return phi(0) v, the increase of k0(x, x) by the noise; at the origin if the kernel has a linear term."""
        factor, covariance = preconditioner.factor, self._differences.covariance
        if covariance is not None and factor.ndim == 2:
            twice = float(np.sum(factor * (covariance @ factor)))
        else:
            twice = float(np.sum(self._differences.variances * factor**2))
        return float(kernel.square_factor(np.zeros((1, len(self._differences.mean))))[0]) * twice / 2.0

    def state(self) -> dict[str, Any]:
        """Return the moments for a checkpoint."""
        return self._differences.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from the result of `state`."""
        self._differences.restore(state)


def squared_ksd_debiased(
    draws: Array,
    second_scores: Array,
    diagonal_excess: float,
    kernel: Kernel,
    preconditioner: Preconditioner,
    weights: Array | None = None,
) -> float:
    """Estimate KSD^2 without bias from second scores.

    ``diagonal_excess`` is the increase of k0(x, x) by the noise: `SecondScoreNoise.diagonal_excess`. Weights have sum
    1.

    Returns
    -------
    float
        The estimate, which may be negative.

    Examples
    --------
    >>> from steinstream.kernels import IMQ
    >>> draws = np.array([[-1.0], [1.0]])
    >>> f"{squared_ksd_debiased(draws, -draws, 0.1, IMQ(), Preconditioner.identity()):.3f}"  # KSD^2 - 0.1 / 2
    '0.485'
    """
    each = np.full(len(draws), 1.0 / len(draws)) if weights is None else weights
    _, first, group = np.unique(np.hstack([draws, second_scores]), axis=0, return_index=True, return_inverse=True)
    mass = np.bincount(group.ravel(), weights=each)
    states, _ = preconditioner.apply(draws[first], second_scores[first])
    factor = kernel.square_factor(states) / kernel.square_factor(np.zeros_like(states))  # 1 without a linear term
    square = ksd(draws, second_scores, kernel=kernel, preconditioner=preconditioner, weights=weights) ** 2
    return square - diagonal_excess * float(factor @ mass**2)


# -- sums over pairs ---------------------------------------------------------------------------------------------------


def _validated(draws: ArrayLike, scores: ArrayLike, kernel: Kernel) -> tuple[Array, Array]:
    x, s = validation.as_draws_and_scores(draws, scores)
    if len(x) == 0:
        raise InputError("KSD needs at least one draw, got none.")
    block = validation.Block(x, s, validation.consecutive_ids(0, 0, len(x)))
    validation.finite_rows(block, "raise", kernel.linear > 0)
    return x, s


def _fixed(preconditioner: Preconditioner | ArrayLike | None, dim: int) -> Preconditioner:
    fixed = Preconditioner.identity() if preconditioner is None else as_preconditioner(preconditioner)
    fixed.require(dim)
    return fixed


def _row_sums(
    x: Array, s: Array, copies: Array, kernel: Kernel, preconditioner: Preconditioner, progress: FractionProgress | None
) -> SumsBefore:
    """Return for each draw the sum of copies * k0 over the preceding draws, as a pair of doubles, and k0(x, x)."""
    from steinstream._engine.compiled_kernel import compile_kernel  # loads numba
    from steinstream._engine.pairwise import empty_sums, rows_before, tiled

    x, s = preconditioner.apply(x, s)
    compiled = compile_kernel(kernel, x.shape[1])
    points, sums = tiled(x, s, copies), empty_sums(len(x))

    def rows(begin: int, end: int) -> int:
        rows_before(compiled, points, begin, end, sums)
        return end * end - begin * begin

    run_rows_in_threads(rows, len(x), progress)
    return sums


def _merge_repeats(x: Array, s: Array, weights: Array) -> tuple[Array, Array, Array]:
    """Return distinct consecutive states with the sums of their weights."""
    new = np.ones(len(x), dtype=bool)
    new[1:] = (x[1:] != x[:-1]).any(axis=1) | (s[1:] != s[:-1]).any(axis=1)
    first = np.flatnonzero(new)
    return x[first], s[first], np.add.reduceat(weights, first)


def run_rows_in_threads(rows: Callable[[int, int], int], count: int, progress: FractionProgress | None) -> None:
    """Evaluate rows of a triangular sum on all cores, in portions of equal work.

    ``rows(begin, end)`` evaluates some rows and returns the number of evaluations.
    """
    from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

    portions = max(1, min(count // 64, 200))
    edges = np.ceil(count * np.sqrt(np.arange(portions + 1) / portions)).astype(int)
    done = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        waiting = {pool.submit(rows, *map(int, pair)) for pair in pairwise(edges)}
        try:
            while waiting:
                ready, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                done += sum(portion.result() for portion in ready)
                if progress is not None:
                    progress(done / count**2)
        finally:
            for portion in waiting:
                portion.cancel()
