"""Dropping, swapping and halving draws with masses agrees with the specification."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steinstream._engine import base_row, merging, reference
from steinstream._engine.compiled_kernel import compile_kernel
from steinstream._engine.pairwise import as_tiles, tiled
from tests.streams import kernels


def pool(seed, count, kernel, has_scores, compared):
    """Draws with masses for the engine, and the matrix of the specification."""
    rng = np.random.default_rng(seed)
    x, base, stream = rng.normal(size=(count, 3)), rng.normal(size=(count, 2)), rng.normal(size=(30, 2)) + 0.3
    s = -x + 0.3 * rng.normal(size=x.shape) if has_scores else np.zeros_like(x)
    masses, shares = rng.uniform(0.5, 2.0, count), rng.dirichlet(np.ones(30))
    weight = 0.7 if compared else 0.0
    means, mean = kernel.base_matrix(base, stream) @ shares, float(shares @ kernel.base_matrix(stream, stream) @ shares)
    matrix = weight * (kernel.base_matrix(base, base) - means[:, None] - means + mean)
    if has_scores:
        matrix += kernel.matrix(x, s, x, s)
    draws = np.stack([x, s], axis=1)
    diagonal = np.diag(matrix).copy()
    return merging.WeightedDraws(draws, base, masses, diagonal, means, mean, float(has_scores), weight), matrix


def compiled(kernel):
    return compile_kernel(kernel, 3), compile_kernel(kernel, 2)


def sums_of(kernel, draws, rows):
    """Row sums of some draws of a pool over the same draws, and the draws in slots."""
    some = draws.take(rows)
    x, s = some.draws[:, 0], some.draws[:, 1]
    phi = kernel.base_matrix(some.base, some.base)
    centred = phi - some.base_means[:, None] - some.base_means + some.base_mean
    sums = merging.RowSums(np.zeros(len(rows)), np.zeros(len(rows)), draws.stream_weight * centred @ some.masses)
    if draws.stein:
        merging.add_row_sums(compile_kernel(kernel, 3), tiled(x, s, some.masses), some.draws, 0, len(rows), sums)
    return merging.Slots(as_tiles(x, s), base_row.base_tiles(some.base), base_row.padded(some.masses)), sums


terms = st.sampled_from([(True, False), (True, True), (False, True)])  # scores, stream term
cases = given(st.integers(0, 2**32), st.integers(2, 20), kernels, terms)


@settings(max_examples=40)
@cases
def test_row_sums_and_energy(seed, count, kernel, has):
    draws, matrix = pool(seed, count, kernel, *has)
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
def test_draws_are_dropped_as_specified(seed, count, kernel, has):
    draws, matrix = pool(seed, count, kernel, *has)
    least = 1 + seed % count
    total, mass = reference.energy(matrix, draws.masses, range(count))
    for most, allowed in ((least, math.inf), (count, 1.2 * total / mass**2)):
        slots, sums = sums_of(kernel, draws, np.arange(count))
        alive = np.ones(count, dtype=bool)
        merging.drop(compiled(kernel), slots, draws, sums, alive, merging.DropLimits(least, most, allowed))
        expected = reference.drop_draws(matrix, draws.masses, least, most, allowed)
        assert np.flatnonzero(alive).tolist() == expected
        left = reference.row_sums(matrix[np.ix_(expected, expected)], draws.masses[expected])
        assert (sums.high + sums.stream)[expected] == pytest.approx(left, rel=1e-8, abs=1e-8)


@settings(max_examples=40)
@cases
def test_draws_are_swapped_as_specified(seed, count, kernel, has):
    draws, matrix = pool(seed, count, kernel, *has)
    rng = np.random.default_rng(seed + 1)
    order = rng.permutation(count)
    kept = np.sort(rng.permutation(count)[: 1 + seed % count])
    expected, swaps = reference.swap_draws(matrix, draws.masses, kept.tolist(), order.tolist())
    slots, sums = sums_of(kernel, draws, kept)
    assert merging.swap(compiled(kernel), slots, draws, kept, sums, order) == swaps
    assert kept.tolist() == expected
    assert slots.masses[: len(kept)].tolist() == draws.masses[kept].tolist()
    left = reference.row_sums(matrix[np.ix_(kept, kept)], draws.masses[kept])
    assert sums.high + sums.stream == pytest.approx(left, rel=1e-8, abs=1e-8)


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.integers(1, 40), kernels)
def test_halving_selects_the_specified_half_and_reports_its_distance(seed, pairs, kernel):
    base = np.random.default_rng(seed).normal(size=(2 * pairs, 2))
    selected = np.zeros(len(base), dtype=bool)
    square = merging.halve(compile_kernel(kernel, 2), base_row.base_tiles(base), base, selected)
    summary = reference.ReferenceSummary(kernel)
    summary.levels[0] = list(base)
    summary.halve(0)
    assert np.array_equal(base[selected], np.array(summary.levels[1]))
    signs = np.where(selected, 1.0, -1.0)
    assert square == pytest.approx(signs @ kernel.base_matrix(base, base) @ signs, rel=1e-9, abs=1e-9)


@given(st.integers(0, 2**32), st.integers(1, 40), kernels)
def test_the_matrix_of_the_base_kernel(seed, count, kernel):
    base = np.random.default_rng(seed).normal(size=(count, 2))
    values = base_row.base_matrix(compile_kernel(kernel, 2), base_row.base_tiles(base), base)[:, :count]
    assert values == pytest.approx(kernel.base_matrix(base, base), abs=1e-10)  # rounded to a grid
