"""Products and triangular systems in a fixed order of summation, and the matrix of Stein kernel values.

A BLAS sums in a different order for one row than for many; these loops do not.
"""

from __future__ import annotations

import numpy as np

from steinstream._engine.compiled_kernel import CompiledKernel
from steinstream._engine.kernel_row import STORE, compute_row, new_lanes, store_arrays
from steinstream._engine.pairwise import as_tiles
from steinstream._engine.simd import LANES
from steinstream._engine.translation import translated
from steinstream._typing import Array


def multiply(matrix: Array, rows: Array) -> Array:
    """Return ``rows @ matrix``."""
    out = np.zeros((rows.shape[0], matrix.shape[1]))
    _multiply(np.ascontiguousarray(matrix), np.ascontiguousarray(rows), out)
    return out


@translated
def _multiply(matrix, rows, out):
    """Add ``rows @ matrix`` to ``out``. Reference: `numpy.matmul`."""
    for i in range(rows.shape[0]):
        result = out[i]
        for k in range(matrix.shape[0]):
            factor, line = rows[i, k], matrix[k]
            for j in range(matrix.shape[1]):
                result[j] += factor * line[j]


@translated
def solve_cholesky(lower, right) -> None:
    """Replace each row b of ``right`` by the solution of L L^T x = b. Reference: `numpy.linalg.solve`."""
    for k in range(right.shape[0]):
        x = right[k]
        for i in range(lower.shape[0]):
            line, total = lower[i], 0.0
            for j in range(i):
                total += line[j] * x[j]
            x[i] = (x[i] - total) / line[i]
        for i in range(lower.shape[0] - 1, -1, -1):
            value = x[i] / lower[i, i]
            x[i] = value
            for j in range(i):
                x[j] -= lower[i, j] * value


def stein_matrix(kernel: CompiledKernel, draws: Array, scores: Array) -> Array:
    """Return k0 of all pairs of draws, (n, n); symmetric to the last bit."""
    tiles, count = as_tiles(draws, scores), len(draws)
    matrix = np.zeros((count, len(tiles) * LANES))
    _fill(kernel, tiles, np.stack([draws, scores], axis=1), matrix)
    return np.ascontiguousarray(matrix[:, :count])


@translated
def _fill(kernel, tiles, draws, matrix):
    """Write the kernel values of all pairs, with those of the padding.

    Reference: `kernels.Kernel.matrix`.
    """
    lanes = new_lanes()
    for i in range(draws.shape[0]):
        compute_row(kernel, STORE, store_arrays(draws[i], tiles, matrix[i], lanes), None, 0, tiles.shape[0])
