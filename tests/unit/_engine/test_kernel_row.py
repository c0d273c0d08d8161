"""Kernel values of the vector code agree with the formula, are symmetric and lie on the grid."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import steinstream as ss
from steinstream._engine.compiled_kernel import compile_kernel
from steinstream._engine.jit import jit
from steinstream._engine.kernel_row import STORE, compute_row, new_lanes, store_arrays
from steinstream._engine.pairwise import as_tiles


@jit
def one_row(kernel, draw, tiles, row):
    """Kernel values of one draw with sixteen others."""
    compute_row(kernel, STORE, store_arrays(draw, tiles, row, new_lanes()), None, 0, 1)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 60),
    st.integers(0, 2**32),
    st.sampled_from([ss.IMQ(), ss.RBF(), ss.IMQ(beta=-0.2), ss.IMQ(linear=0.3)]),
)
def test_kernel_values_are_symmetric_and_close_to_the_formula(dim, seed, kernel):
    rng = np.random.default_rng(seed)
    x, s = rng.normal(size=(2, 16, dim)) * rng.choice([1e-3, 1.0, 30.0])
    tiles, row = as_tiles(x, s), np.zeros(16)

    rows = []
    for i in range(16):
        one_row(compile_kernel(kernel, dim), np.stack([x[i], s[i]]), tiles, row)
        rows.append(row.copy())
    matrix = np.array(rows)
    assert np.array_equal(matrix, matrix.T)
    expected = kernel.matrix(x, s, x, s)
    terms = np.abs(s) @ np.abs(s).T + dim + np.abs(expected)
    terms = terms * (1.0 + kernel.linear * (np.abs(x) @ np.abs(x).T))
    assert (np.abs(matrix - expected) <= 1e-14 * dim * (terms + np.abs(x).sum() * np.abs(s).max())).all()
    grid = kernel.parameters(dim).grid
    assert np.array_equal(np.round(matrix * 2 / grid), matrix * 2 / grid)


@given(st.floats(0.0, 700.0))
def test_vector_exp_is_accurate(u):
    """With one huge score the RBF kernel value is exp(-u) times that score, up to terms we know."""
    row = np.zeros(16)
    tiles = np.zeros((1, 1, 2, 16))
    tiles[0, 0, 1, :] = 1.0
    x, s = np.array([np.sqrt(u)]), np.array([1e12])
    kernel = compile_kernel(ss.RBF(h=0.5), 1)._replace(grid=2.0**-1070)  # exp(-u), not rounded
    one_row(kernel, np.stack([x, s]), tiles, row)
    square = x[0] * x[0]  # not x[0] ** 2, which is off by one unit now and then
    phi = np.exp(-square)
    expected = phi * s[0] + 2 * phi * ((s[0] - 1.0) * x[0] + 1.0) - 4 * phi * square
    np.testing.assert_allclose(row, expected, rtol=2e-15)
