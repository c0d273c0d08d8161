"""Row sums over all pairs agree with the specification and do not depend on their division into parts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steinstream._engine import reference
from steinstream._engine.compiled_kernel import compile_kernel
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
