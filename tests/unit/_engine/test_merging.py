"""Dropping and swapping draws with masses agrees with the specification."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steinstream._engine import merging, reference
from steinstream._engine.pairwise import tiled
from tests.streams import kernels


def pool(seed, count, kernel, compared):
    """Draws with masses for the engine, and the matrix of the specification."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 3))
    s = -x + 0.3 * rng.normal(size=x.shape)
    masses = rng.uniform(0.5, 2.0, count)
    weight, phi = 0.7 if compared else 0.0, kernel.base_matrix(x, x)
    means = phi @ masses / masses.sum()
    mean = float(means @ masses / masses.sum())
    matrix = kernel.matrix(x, s, x, s) + weight * (phi - means[:, None] - means + mean)
    draws = np.stack([x, s], axis=1)
    return merging.WeightedDraws(draws, masses, np.diag(matrix).copy(), means, mean, weight), matrix


def sums_of(kernel, draws, rows):
    """Row sums of some draws of a pool over the same draws, and the draws in tiles."""
    some = draws.take(rows)
    points = tiled(some.draws[:, 0], some.draws[:, 1], some.masses)
    phi = kernel.base_matrix(some.draws[:, 0], some.draws[:, 0])
    centred = phi - some.base_means[:, None] - some.base_means + some.base_mean
    sums = merging.RowSums(np.zeros(len(rows)), np.zeros(len(rows)), draws.stream_weight * centred @ some.masses)
    merging.add_row_sums(kernel.compiled(3), points, some.draws, 0, len(rows), sums)
    return points, sums


cases = given(st.integers(0, 2**32), st.integers(2, 20), kernels, st.booleans())


@settings(max_examples=40)
@cases
def test_row_sums_and_energy(seed, count, kernel, compared):
    draws, matrix = pool(seed, count, kernel, compared)
    _, sums = sums_of(kernel, draws, np.arange(count))
    assert sums.high + sums.stream == pytest.approx(reference.row_sums(matrix, draws.masses), rel=1e-9, abs=1e-9)
    alive = np.random.default_rng(seed).random(count) < 0.7
    alive[0] = True
    some = np.flatnonzero(alive)
    _, sums = sums_of(kernel, draws, some)
    every = np.ones(len(some), dtype=bool)
    measured = merging.energy_with_stream_term(draws.masses[some], sums, every)
    assert measured == pytest.approx(reference.energy(matrix, draws.masses, some.tolist()), rel=1e-9, abs=1e-9)


@settings(max_examples=40)
@cases
def test_draws_are_dropped_as_specified(seed, count, kernel, compared):
    draws, matrix = pool(seed, count, kernel, compared)
    least = 1 + seed % count
    total, mass = reference.energy(matrix, draws.masses, range(count))
    for most, allowed in ((least, math.inf), (count, 1.2 * total / mass**2)):
        points, sums = sums_of(kernel, draws, np.arange(count))
        alive = np.ones(count, dtype=bool)
        merging.drop(kernel.compiled(3), points.tiles, draws, sums, alive, merging.DropLimits(least, most, allowed))
        expected = reference.drop_draws(matrix, draws.masses, least, most, allowed)
        assert np.flatnonzero(alive).tolist() == expected
        left = reference.row_sums(matrix[np.ix_(expected, expected)], draws.masses[expected])
        assert (sums.high + sums.stream)[expected] == pytest.approx(left, rel=1e-8, abs=1e-8)


@settings(max_examples=40)
@cases
def test_draws_are_swapped_as_specified(seed, count, kernel, compared):
    draws, matrix = pool(seed, count, kernel, compared)
    rng = np.random.default_rng(seed + 1)
    order = rng.permutation(count)
    kept = np.sort(rng.permutation(count)[: 1 + seed % count])
    expected, swaps = reference.swap_draws(matrix, draws.masses, kept.tolist(), order.tolist())
    points, sums = sums_of(kernel, draws, kept)
    assert merging.swap(kernel.compiled(3), points, draws, kept, sums, order) == swaps
    assert kept.tolist() == expected
    assert points.copies[: len(kept)].tolist() == draws.masses[kept].tolist()
    left = reference.row_sums(matrix[np.ix_(kept, kept)], draws.masses[kept])
    assert sums.high + sums.stream == pytest.approx(left, rel=1e-8, abs=1e-8)
