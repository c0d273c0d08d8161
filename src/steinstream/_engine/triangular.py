"""Rows times a matrix, summed in one fixed order: a BLAS sums in another order for one row than for many."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from steinstream._engine.jit import jit


@jit
def _multiply(matrix, rows, out):
    for i in range(rows.shape[0]):
        result = out[i]
        for k in range(matrix.shape[0]):
            factor, line = rows[i, k], matrix[k]
            for j in range(matrix.shape[1]):
                result[j] += factor * line[j]


def multiply(matrix: NDArray[np.float64], rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """``rows @ matrix``."""
    out = np.zeros((rows.shape[0], matrix.shape[1]))
    _multiply(np.ascontiguousarray(matrix), np.ascontiguousarray(rows), out)
    return out
