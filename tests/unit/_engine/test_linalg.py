"""Products, triangular systems and matrices of kernel values agree with NumPy, for any number of rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from steinstream._engine.compiled_kernel import compile_kernel
from steinstream._engine.linalg import multiply, solve_cholesky, stein_matrix
from tests.streams import kernels, streams


@settings(max_examples=30)
@given(streams(max_dim=6, max_length=20), kernels)
def test_the_matrix_of_all_pairs(stream, kernel):
    x, s = stream
    matrix = stein_matrix(compile_kernel(kernel, x.shape[1]), x, s)
    assert matrix == pytest.approx(kernel.matrix(x, s, x, s), rel=1e-9, abs=1e-9 * np.abs(matrix).max())
    assert np.array_equal(matrix, matrix.T)


def test_products_do_not_depend_on_the_number_of_rows():
    rng = np.random.default_rng(0)
    matrix, rows = rng.normal(size=(7, 5)), rng.normal(size=(40, 7))
    product = multiply(matrix, rows)
    assert product == pytest.approx(rows @ matrix, rel=1e-12)
    assert all(np.array_equal(multiply(matrix, rows[i : i + 1])[0], product[i]) for i in range(40))


def test_triangular_systems_are_solved():
    rng = np.random.default_rng(1)
    root = rng.normal(size=(6, 6))
    matrix, right = root @ root.T + np.eye(6), rng.normal(size=(3, 6))
    solution = right.copy()
    solve_cholesky(np.linalg.cholesky(matrix), solution)
    assert solution == pytest.approx(np.linalg.solve(matrix, right.T).T, rel=1e-9)
