"""Kernelized Stein discrepancy of points that are already there.

KSD^2 = (1/n^2) sum over all pairs of k0(x_i, x_j). It needs no normalising constant, and sees location, scale and
shape; it does not see the proportions of modes that lie far apart. With weights, sum w_i w_j k0(x_i, x_j).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steinstream import validation
from steinstream.errors import InputError
from steinstream.kernels import Kernel
from steinstream.preconditioning import Preconditioner, as_fixed

Array = NDArray[np.float64]


def ksd(
    points: ArrayLike,
    scores: ArrayLike,
    *,
    kernel: Kernel | None = None,
    preconditioner: Preconditioner | ArrayLike | None = None,
    weights: ArrayLike | None = None,
    progress: Callable[[float], None] | None = None,
) -> float:
    """KSD of points (n, d) with their scores: n^2/2 kernel evaluations, O(n d) memory, all cores.

    ``weights`` are non-negative numbers, one per point, in any unit; without them all points count alike.
    ``coordinates`` are the points' own unless given: :class:`~steinstream.Preconditioner`, scales (d,), a covariance.

    >>> points = np.array([[-1.0], [0.0], [1.0]])
    >>> round(ksd(points, -points), 4)
    0.3364
    >>> round(ksd(points, -points, weights=[1, 2, 1]), 4)
    0.3443
    """
    if weights is not None:
        return _weighted_ksd(points, scores, weights, kernel, preconditioner, progress)
    return float(cumulative_ksd(points, scores, kernel=kernel, preconditioner=preconditioner, progress=progress)[-1])


def normalised_ksd(
    points: ArrayLike,
    scores: ArrayLike,
    *,
    kernel: Kernel | None = None,
    preconditioner: Preconditioner | ArrayLike | None = None,
) -> float:
    """KSD times sqrt(n), the paper's measure that charges for size: constant in n for independent draws.

    >>> points = np.array([[-1.0], [0.0], [1.0]])
    >>> round(normalised_ksd(points, -points), 4)
    0.5826
    """
    return ksd(points, scores, kernel=kernel, preconditioner=preconditioner) * float(np.sqrt(len(np.asarray(points))))


def cumulative_ksd(
    points: ArrayLike,
    scores: ArrayLike,
    *,
    kernel: Kernel | None = None,
    preconditioner: Preconditioner | ArrayLike | None = None,
    progress: Callable[[float], None] | None = None,
) -> Array:
    """KSD of the first 1, 2, ..., n points, for the cost of the last one.

    Consecutive repeats are computed once. ``progress`` is called with the share done, from 0 to 1.

    >>> points = np.array([[-1.0], [0.0], [1.0]])
    >>> np.round(cumulative_ksd(points, -points), 4)
    array([1.4142, 0.6963, 0.3364])
    """
    x, s = _checked(points, scores, kernel)
    squares = np.zeros(len(x))
    x, s, copies = _states(x, s, np.ones(len(x)))
    sums = _row_sums(x, s, copies, kernel, preconditioner, progress)
    from steinstream._engine.pairwise import running_squares  # brings numba

    running_squares(*sums, copies, squares)
    root: Array = np.sqrt(squares)
    return root


def _weighted_ksd(
    points: ArrayLike,
    scores: ArrayLike,
    weights: ArrayLike,
    kernel: Kernel | None,
    preconditioner: Preconditioner | ArrayLike | None,
    progress: Callable[[float], None] | None,
) -> float:
    x, s = _checked(points, scores, kernel)
    w = np.asarray(weights, dtype=np.float64)
    if w.shape != (len(x),) or not (w >= 0).all() or not 0 < w.sum() < np.inf:
        raise InputError(f"Weights must be {len(x)} non-negative numbers with a positive sum.")
    x, s, w = _states(x, s, w / w.sum())
    high, low, diagonal = _row_sums(x, s, w, kernel, preconditioner, progress)
    return math.sqrt(max(math.fsum(np.concatenate([2.0 * w * high, 2.0 * w * low, w * w * diagonal])), 0.0))


def _checked(points: ArrayLike, scores: ArrayLike, kernel: Kernel | None) -> tuple[Array, Array]:
    x, s = validation.as_block(points, scores)
    if len(x) == 0:
        raise InputError("KSD needs at least one point, got none.")
    block = validation.Block(x, s, validation.consecutive(0, 0, len(x)))
    validation.usable(block, "raise", validation.as_kernel(kernel).linear > 0)
    return x, s


def _row_sums(
    x: Array,
    s: Array,
    copies: Array,
    kernel: Kernel | None,
    preconditioner: Preconditioner | ArrayLike | None,
    progress: Callable[[float], None] | None,
) -> tuple[Array, Array, Array]:
    """For each point the sum of copies * k0 over the points before it, as a pair, and k0 with itself."""
    from steinstream._engine.pairwise import as_tiles, rows_before  # brings numba

    fixed = Preconditioner.identity() if preconditioner is None else as_fixed(preconditioner)
    fixed.require(x.shape[1])
    x, s = fixed.apply(x, s)
    compiled = validation.as_kernel(kernel).compiled(x.shape[1])
    tiles, draws = as_tiles(x, s), np.stack([x, s], axis=1)
    padded = np.zeros(len(tiles) * tiles.shape[-1])
    padded[: len(copies)] = copies
    high, low, diagonal = (np.zeros(len(x)) for _ in range(3))

    def rows(begin: int, end: int) -> int:
        rows_before(compiled, tiles, draws, padded, begin, end, high, low, diagonal)
        return end * end - begin * begin

    spread_rows(rows, len(x), progress)
    return high, low, diagonal


def _states(x: Array, s: Array, weights: Array) -> tuple[Array, Array, Array]:
    """Distinct consecutive states and the sum of the weights of each."""
    new = np.ones(len(x), dtype=bool)
    new[1:] = (x[1:] != x[:-1]).any(axis=1) | (s[1:] != s[:-1]).any(axis=1)
    first = np.flatnonzero(new)
    return x[first], s[first], np.add.reduceat(weights, first)


def spread_rows(rows: Callable[[int, int], int], count: int, progress: Callable[[float], None] | None) -> None:
    """Run the rows in portions of about equal work on all cores; Ctrl-C is heard between portions."""
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
