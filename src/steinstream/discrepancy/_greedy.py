r"""Greedy selection of draws that minimises KSD: the next draw y minimises :math:`k_0(y, y) / 2 + \sum_i k_0(y, x_i)`.

The sum runs over the draws :math:`x_i` selected so far. This is Stein thinning (Riabiz et al., "Optimal thinning of
MCMC output", 2022); applied to all draws of a set it gives an order. The sums of all draws are updated after each
selection, so the cost is ``size`` kernel evaluations per draw, and the memory :math:`O(n d)`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from steinstream._typing import Array, Integers
from steinstream.kernels import PROFILES, Kernel
from steinstream.preconditioning import Preconditioner

#: Adds the kernel values of the draw at an index to all sums, and returns the index of the smallest sum.
AddRow = Callable[[int, Array], int]

_BLOCK = 8192  # draws that are transformed at once


def greedy_order(
    draws: Array, scores: Array, size: int, kernel: Kernel, preconditioner: Preconditioner, *, unique: bool
) -> Integers:
    """Return the indices of ``size`` draws (n, d) in order of selection; with ``unique`` none is selected twice."""
    from steinstream._engine.baseline_loops import add_row
    from steinstream._engine.compiled_kernel import compile_kernel
    from steinstream._engine.pairwise import as_tiles
    from steinstream._engine.simd import LANES

    total, dim = draws.shape
    tiles = np.zeros((-(-total // LANES), dim, 2, LANES))
    sums = np.full(len(tiles) * LANES, np.inf)  # of empty slots, which are never selected
    for start in range(0, total, _BLOCK):
        rows = slice(start, min(start + _BLOCK, total))
        x, s = preconditioner.apply(draws[rows], scores[rows])
        tiles[start // LANES : -(-rows.stop // LANES)] = as_tiles(x, s)
        sums[rows] = half_diagonal(kernel, x, s)
    return select_smallest(partial(add_row, compile_kernel(kernel, dim), tiles), sums, size, unique)


def select_smallest(add_row: AddRow, sums: Array, size: int, unique: bool) -> Integers:
    """Select the index of the smallest sum ``size`` times, adding the kernel values of each selected draw."""
    selected = np.zeros(size, dtype=np.int64)
    selected[0] = np.argmin(sums)
    for i in range(1, size):
        if unique:
            sums[selected[i - 1]] = np.inf
        selected[i] = add_row(selected[i - 1], sums)
    return selected


def half_diagonal(kernel: Kernel, points: Array, scores: Array) -> Array:
    """Compute k0(x, x) / 2, summed in order of the coordinates so that equal states have equal sums."""
    parameters = kernel.parameters(scores.shape[1])
    phi, slope, _ = PROFILES[parameters.profile](0.0, parameters.first, parameters.second)
    half = np.zeros(len(scores))
    for score in scores.T:
        half += 0.5 * (phi * score**2 + slope)
    if kernel.linear:
        half += 0.5 * kernel.linear_diagonal(scores, points)
    return half
