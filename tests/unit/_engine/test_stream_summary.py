"""The base kernel of a row, and the summary of a stream by kernel halving, are those of the specification."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import steinstream as ss
from steinstream._engine import reference, stream_summary
from steinstream._engine.base_row import ADD_BASE, base_row, row_total
from steinstream._engine.compiled_kernel import compile_kernel
from steinstream._engine.jit import jit
from steinstream._engine.pairwise import tiled
from steinstream._engine.simd import LANES
from steinstream.discrepancy.mmd import StreamDistance
from tests.streams import kernels


@jit
def add_row(kernel, point, tiles, row, lanes):
    base_row(kernel, ADD_BASE, point, tiles, row, row, lanes, 0, tiles.shape[0])


@jit
def total(kernel, point, tiles, weights, lanes, count):
    return row_total(kernel, point, tiles, weights, lanes, count)


def add_all(kernel, summary, draws, first=0):
    ids = np.column_stack([np.zeros(len(draws), dtype=np.int64), np.arange(first, first + len(draws))])
    stream_summary.append_to_summary(kernel, summary, draws, draws, ids)


def sum_at(kernel, summary, point):
    return stream_summary.stream_sums(kernel, summary, point[None])[0]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(1, 9), kernels)
def test_a_row_of_the_base_kernel(seed, count, dim, kernel):
    rng = np.random.default_rng(seed)
    x, point, weights = rng.normal(size=(count, dim)), rng.normal(size=dim), rng.integers(1, 9, count).astype(float)
    points, lanes = tiled(x, x, weights), np.zeros((2, LANES))
    expected = reference.base_values(kernel, point[None], x)[0]
    row, grid = np.zeros(len(points.copies)), kernel.parameters(dim).base_grid
    add_row(compile_kernel(kernel, dim), point, points.tiles, row, lanes)
    assert row[:count] == pytest.approx(expected, abs=2 * grid)
    found = total(compile_kernel(kernel, dim), point, points.tiles, points.copies, lanes, count)
    assert found == pytest.approx(weights @ expected, abs=2 * grid * weights.sum())


@pytest.mark.parametrize("kernel", [ss.IMQ(), ss.RBF(h=2.0)], ids=str)
@pytest.mark.parametrize("count", [5, 1024, 3333])
def test_a_summary_is_the_specification(kernel, count):
    x = np.random.default_rng(count).normal(size=(count, 3))
    summary, expected = stream_summary.empty_summary(3, 3), reference.ReferenceSummary(kernel)
    add_all(compile_kernel(kernel, 3), summary, x)
    for draw in x:
        expected.add(draw)
    found = stream_summary.summary_draws(summary)
    assert found.levels.tolist() == [number for number, level in enumerate(expected.levels) for _ in level]
    assert found.seen == count and np.array_equal(x[found.ids[:, 1]], found.draws)
    assert found.weights.sum() == count
    assert np.array_equal(found.draws, np.concatenate([np.array(level) for level in expected.levels if level]))
    assert stream_summary.error_of_summary(found) == pytest.approx(expected.error, rel=1e-6, abs=1e-9)
    point = np.array([0.3, -1.0, 0.5])
    assert sum_at(compile_kernel(kernel, 3), summary, point) == pytest.approx(expected.sum(point), rel=1e-12)
    if count < 1000:
        pairs = stream_summary.sum_over_pairs(compile_kernel(kernel, 3), summary)
        assert pairs == pytest.approx(expected.sum_over_pairs(), rel=1e-12)


def normal(count, rng):
    return rng.normal(size=(count, 2))


def two_modes(count, rng):
    return rng.normal(size=(count, 2)) + 6.0 * (rng.random((count, 1)) < 0.3)


def correlated(count, rng):
    x = rng.normal(size=(count, 2))
    for t in range(1, count):
        x[t] = 0.9 * x[t - 1] + np.sqrt(0.19) * x[t]
    return x


def heavy_tails(count, rng):
    return rng.standard_t(4, size=(count, 5))


@pytest.mark.parametrize("make", [normal, two_modes, correlated, heavy_tails])
@pytest.mark.parametrize("count", [1500, 4000])
def test_the_error_of_a_summary_is_estimated(make, count):
    squares = []
    for seed in range(4):
        x = make(count, np.random.default_rng(seed))
        x = np.ascontiguousarray(x / (x.std(axis=0) * np.sqrt(2 * x.shape[1])))
        summary = stream_summary.empty_summary(x.shape[1], x.shape[1])
        add_all(compile_kernel(ss.IMQ(), x.shape[1]), summary, x)
        found = stream_summary.summary_draws(summary)
        exact = StreamDistance(ss.IMQ(), x, np.ones(count)).squared_mmd(found.draws, found.weights / count)
        squares.append((stream_summary.error_of_summary(found) ** 2, exact))
    estimated, exact = np.sqrt(np.mean(squares, axis=0))
    assert 0.8 < estimated / exact < 1.25


def test_a_summary_that_was_stored_continues_to_the_last_bit():
    kernel, x = compile_kernel(ss.IMQ(), 2), np.random.default_rng(0).normal(size=(5000, 2))
    whole, first = stream_summary.empty_summary(2, 2), stream_summary.empty_summary(2, 2)
    add_all(kernel, whole, x)
    add_all(kernel, first, x[:2500])
    content = stream_summary.summary_draws(first)
    second = stream_summary.with_space(stream_summary.filled_summary(content, content.draws), 2500)
    add_all(kernel, second, x[2500:], first=2500)
    for one, other in zip(stream_summary.summary_draws(whole), stream_summary.summary_draws(second), strict=True):
        assert np.array_equal(one, other)
    assert sum_at(kernel, whole, x[0]) == sum_at(kernel, second, x[0])


def test_a_summary_that_grows_is_that_with_space_from_the_start():
    kernel, x = compile_kernel(ss.IMQ(), 2), np.random.default_rng(0).normal(size=(9000, 2))
    whole, growing = stream_summary.empty_summary(2, 2), stream_summary.empty_summary(2, 2, 0)
    add_all(kernel, whole, x)
    first = 0
    for count in (1, 2, 30, 700, 1, 66, 200, 3000, 5000):
        growing = stream_summary.with_space(growing, count)
        add_all(kernel, growing, x[first : first + count], first)
        first += count
    assert first == len(x)
    used = int(whole.scalars.used)
    assert whole.scalars.tolist()[1:] == growing.scalars.tolist()[1:]  # the number of free slots differs
    for name in ("tiles", "weights", "raw", "ids"):
        count = used // LANES if name == "tiles" else used
        assert np.array_equal(getattr(whole, name)[:count], getattr(growing, name)[:count])
    assert np.array_equal(whole.members, growing.members) and np.array_equal(whole.counts, growing.counts)


def test_memory_of_a_summary_is_that_of_its_draws():
    small, full = stream_summary.empty_summary(1000, 1000, 2), stream_summary.empty_summary(1000, 1000)
    assert sum(array.nbytes for array in small) < 2e6
    later = stream_summary.with_space(small, 10**9)
    assert [array.shape for array in later] == [array.shape for array in full]
