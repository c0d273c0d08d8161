"""What weights need: the Stein kernel of all pairs as a matrix, and the solution of triangular systems."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from steinstream._engine.jit import jit
from steinstream._engine.kernel_row import ROW, sweep_tiles
from steinstream._engine.pairwise import as_tiles
from steinstream._engine.simd import LANES
from steinstream.kernels import Compiled

Array = NDArray[np.float64]


def stein_matrix(kernel: Compiled, points: Array, scores: Array) -> Array:
    """k0 of every point with every other, (n, n); symmetric to the last bit."""
    matrix = np.empty((len(points), len(points)))
    _fill(kernel, as_tiles(points, scores), np.stack([points, scores], axis=1), matrix)
    return matrix


@jit
def _fill(kernel, tiles, draws, matrix):
    row, found = np.zeros(tiles.shape[0] * LANES), np.zeros((3, LANES))
    for i in range(draws.shape[0]):
        sweep_tiles(kernel, ROW, draws[i], tiles, row, row, row, row, found, None, 0, tiles.shape[0])
        for j in range(draws.shape[0]):
            matrix[i, j] = row[j]


@jit
def solve_triangles(lower, right) -> None:
    """Put the solution of L L^T x = b in the place of each row b of ``right``."""
    for k in range(right.shape[0]):
        x = right[k]
        for i in range(lower.shape[0]):
            line, total = lower[i], 0.0
            for j in range(i):
                total += line[j] * x[j]
            x[i] = (x[i] - total) / line[i]
        for i in range(lower.shape[0] - 1, -1, -1):
            line, value = lower[i], x[i] / lower[i, i]
            x[i] = value
            for j in range(i):
                x[j] -= line[j] * value
