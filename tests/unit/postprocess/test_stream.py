"""Distances to a stream that is represented by weighted draws, and the joining of such streams."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import steinstream as ss
from steinstream.discrepancy.mmd import StreamDistance, summarise_points
from steinstream.postprocess._stream import compared, compress
from steinstream.preconditioning import Preconditioner

KERNEL = ss.IMQ()


def squared_mmd(x, v, y, w):
    """Squared MMD of two weighted samples from the definition."""
    v, w = v / v.sum(), w / w.sum()
    matrix = KERNEL.base_matrix
    return float(v @ matrix(x, x) @ v - 2 * v @ matrix(x, y) @ w + w @ matrix(y, y) @ w)


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(2, 60))
def test_squared_mmd_is_that_of_the_definition(seed, count, stream):
    rng = np.random.default_rng(seed)
    x, y, w = rng.normal(size=(count, 3)), rng.normal(size=(stream, 3)), rng.uniform(0.1, 5.0, stream)
    shares = rng.dirichlet(np.ones(count))
    distance = StreamDistance(KERNEL, y, w)
    expected = squared_mmd(x, shares, y, w)
    assert distance.squared_mmd(x, shares) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert shares @ distance.centred_matrix(x) @ shares == pytest.approx(expected, rel=1e-9, abs=1e-12)


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.integers(2, 300), st.integers(1, 100), st.booleans())
def test_compression_keeps_the_mass_and_stays_within_its_error(seed, count, most, levels):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(count, 2))
    weights = 2.0 ** rng.integers(0, 4, size=count) if levels else np.full(count, 3.0)
    rows, left, error = compress(KERNEL, points, weights, most)
    assert left.sum() == pytest.approx(weights.sum(), rel=1e-12)
    assert len(rows) <= most or len(np.unique(left)) == len(left)
    assert squared_mmd(points[rows], left, points, weights) <= error**2 * (1 + 1e-9) + 1e-14


def test_halving_loses_less_than_dropping_every_second_draw():
    points = np.random.default_rng(0).normal(size=(2048, 2))
    weights = np.ones(len(points))
    rows, left, error = compress(KERNEL, points, weights, 256)
    even = points[::8]
    assert squared_mmd(points[rows], left, points, weights) <= error**2
    assert error**2 < 0.2 * squared_mmd(even, np.ones(len(even)), points, weights)


def test_a_summary_of_points_is_that_of_a_thinner():
    draws = np.random.default_rng(4).normal(size=(3000, 2))
    rows, weights = summarise_points(KERNEL, draws)
    thinner = ss.Thinner(2, size=10, preconditioner="identity", kernel=KERNEL)
    thinner.extend(draws)
    summary = thinner.kept.stream_summary
    assert np.array_equal(draws[rows], summary.draws) and np.array_equal(weights, summary.weights)


def test_joined_streams_are_the_mixture_of_the_streams():
    rng = np.random.default_rng(1)
    sets = [ss.thin(rng.normal(size=(n, 2)) + shift, size=20) for n, shift in ((300, 0.0), (700, 2.0))]
    mass = np.array([3.0, 1.0])
    found = compared(sets, mass, KERNEL, Preconditioner.identity())
    assert found.error == 0.0
    points = np.concatenate([kept.stream_summary.draws for kept in sets])
    shares = np.concatenate(
        [
            m * kept.stream_summary.weights / kept.stream_summary.weights.sum()
            for kept, m in zip(sets, mass, strict=True)
        ]
    )
    assert squared_mmd(found.summary.draws, found.summary.weights, points, shares) == pytest.approx(0.0, abs=1e-15)


def test_a_set_without_a_summary_stands_for_its_stream():
    x = np.random.default_rng(2).normal(size=(300, 2))
    kept = ss.thin(x, -x, size=20, **ss.PAPER)
    found = compared([kept], np.array([1.0]), KERNEL, Preconditioner.identity())
    assert kept.stream_summary is None and np.array_equal(found.summary.draws, kept.draws)


def test_sets_compared_by_features_are_merged_by_features():
    rng = np.random.default_rng(3)
    sets = []
    for _ in range(2):
        draws = rng.normal(size=(800, 3))
        sets.append(ss.thin(draws, size=40, features=np.column_stack([draws[:, 0] ** 2, draws.sum(axis=1)])))
    kept = ss.merge(sets, size=30)
    assert kept.stream_summary.features is not None and kept.stream_summary.kept.shape == (30, 2)
    sketches = np.column_stack([kept.draws[:, 0] ** 2, kept.draws.sum(axis=1)])
    assert kept.stream_summary.kept == pytest.approx(sketches)
    mixed = ss.merge([sets[0], ss.thin(rng.normal(size=(800, 3)), size=40)], size=30)
    assert mixed.stream_summary.features is None
