"""The loops of the baselines agree with the specification."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steinstream._engine import baseline_loops, reference
from steinstream._engine.compiled_kernel import compile_kernel
from steinstream._engine.pairwise import empty_sums, rows_before, tiled
from tests.streams import kernels


def chain(seed, count, dim=2):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, dim))
    return x, -x + 0.3 * rng.normal(size=x.shape)


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(1, 40), kernels)
def test_stein_thinning(seed, count, kernel):
    x, s = chain(seed, count)
    matrix, points = kernel.matrix(x, s, x, s), tiled(x, s, np.ones(count))
    sums = np.full(len(points.copies), np.inf)
    sums[:count] = 0.5 * np.diag(matrix)
    chosen = [int(np.argmin(sums))]
    for _ in range(4):
        chosen.append(baseline_loops.add_row(compile_kernel(kernel, 2), points.tiles, chosen[-1], sums))
    assert chosen == reference.stein_thinning(matrix, 5)


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(1, 40), kernels, st.integers(2, 9), st.integers(1, 40))
def test_a_reservoir(seed, count, kernel, size, block):
    """The size is at least 2: with one place, the first two draws are equally good, and rounding decides."""
    x, s = chain(seed, count)
    points, sums, compiled = tiled(x, s, np.ones(count)), empty_sums(count), compile_kernel(kernel, 2)
    rows_before(compiled, points, 0, count, sums)
    kept = baseline_loops.empty_reservoir(size, 2)
    for begin in range(0, count, block):
        baseline_loops.update_reservoir(compiled, points.draws, sums, kept, begin, min(begin + block, count))
    expected = reference.reservoir(kernel.matrix(x, s, x, s), size)
    assert kept.places[: len(expected)].tolist() == expected.tolist()


@given(st.integers(0, 2**32), kernels)
def test_pairs(seed, kernel):
    x, s = chain(seed, 9)
    one, other = np.random.default_rng(seed).integers(0, 9, (2, 20))
    out = np.zeros(20)
    baseline_loops.pairs(compile_kernel(kernel, 2), np.stack([x, s], axis=1), one, other, out)
    assert out == pytest.approx(kernel.matrix(x, s, x, s)[one, other], rel=1e-9, abs=1e-9)
