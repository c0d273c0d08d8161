"""Row sums over all pairs agree with the specification and do not depend on their division into parts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steinstream._engine import reference
from steinstream._engine.compiled_kernel import compile_kernel
from steinstream._engine.linalg import multiply, solve_cholesky, stein_matrix
from steinstream._engine.pairwise import cumulative_squared_ksd, empty_sums, rows_before, tiled
from tests.streams import kernels, streams


@settings(max_examples=40)
@given(streams(max_dim=8, max_length=60), kernels, st.integers(0, 60))
def test_row_sums(stream, kernel, cut):
    x, s = stream
    copies = np.random.default_rng(len(x)).integers(1, 4, len(x)).astype(float)
    points, whole, parts = tiled(x, s, copies), empty_sums(len(x)), empty_sums(len(x))
    compiled, cut = compile_kernel(kernel, x.shape[1]), min(cut, len(x))
    rows_before(compiled, points, 0, len(x), whole)
    for begin, end in ((0, cut), (cut, len(x))):
        if begin < end:
            rows_before(compiled, points, begin, end, parts)
    assert all(np.array_equal(a, b) for a, b in zip(whole, parts, strict=True))
    matrix = kernel.matrix(x, s, x, s)
    scale = 1e-12 * np.abs(matrix).sum() * copies.max()
    assert whole.high == pytest.approx(reference.rows_before(matrix, copies), abs=scale)
    assert whole.diagonal == pytest.approx(np.diag(matrix), rel=1e-9)
    squares = np.zeros(int(copies.sum()))
    cumulative_squared_ksd(whole, copies, squares)
    repeated = np.repeat(np.arange(len(x)), copies.astype(int))
    expected = reference.cumulative_squared_ksd(matrix[np.ix_(repeated, repeated)])
    assert squares == pytest.approx(expected, rel=1e-9, abs=1e-12 * np.abs(matrix).mean())


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
