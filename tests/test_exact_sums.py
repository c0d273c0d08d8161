"""Sums of grid values are exact, whatever their order and size."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import steinstream as ss
from steinstream._engine import double_double
from steinstream._engine.jit import jit
from steinstream._engine.kernel_row import ROW, sweep_tiles
from steinstream._engine.pairwise import as_tiles
from steinstream.kernels import Compiled


@jit
def one_row(kernel, move, draw, tiles, copies, row, found):
    """Kernel values of one point with sixteen others."""
    sweep_tiles(kernel, move, draw, tiles, copies, copies, copies, row, found, None, 0, 1)


LINEAR = ss.IMQ(linear=0.3)

integers = st.integers(-(2**52), 2**52)


def on_a_grid(integer, exponent):
    return float(integer) * 2.0**exponent


values = st.builds(on_a_grid, integers, st.sampled_from([-60, -40, -20, -10]))


@given(st.lists(values, max_size=60))
def test_a_pair_holds_the_exact_sum_and_its_rounding(numbers):
    high, low = 0.0, 0.0
    for number in numbers:
        high, low = double_double.add(high, low, number)
    total = sum(map(Fraction, numbers), Fraction(0))
    assert Fraction(high) + Fraction(low) == total
    assert high == float(total)


@given(st.lists(values, max_size=40), st.randoms())
def test_order_does_not_matter(numbers, random):
    shuffled = list(numbers)
    random.shuffle(shuffled)
    sums = []
    for order in (numbers, shuffled):
        pair = (0.0, 0.0)
        for number in order:
            pair = double_double.add_pair(*pair, number, 0.0)
        sums.append(pair)
    assert sums[0] == sums[1]


@given(st.lists(values, min_size=1, max_size=30))
def test_taking_away_undoes_adding(numbers):
    start = double_double.add(1.25, 0.0, numbers[0])
    pair = start
    for number in numbers:
        pair = double_double.add(*pair, number)
    for number in numbers:
        pair = double_double.add(*pair, -number)
    assert pair == start


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 60), st.integers(0, 2**32), st.sampled_from([ss.IMQ(), ss.RBF(), ss.IMQ(beta=-0.2), LINEAR]))
def test_kernel_values_are_symmetric_and_close_to_the_formula(dim, seed, kernel):
    rng = np.random.default_rng(seed)
    x, s = rng.normal(size=(2, 16, dim)) * rng.choice([1e-3, 1.0, 30.0])
    tiles, row, found, none = as_tiles(x, s), np.zeros(16), np.zeros((3, 16)), np.zeros(16)

    rows = []
    for i in range(16):
        one_row(kernel.compiled(dim), ROW, np.stack([x[i], s[i]]), tiles, none, row, found)
        rows.append(row.copy())
    matrix = np.array(rows)
    assert np.array_equal(matrix, matrix.T)
    expected = kernel.matrix(x, s, x, s)
    terms = np.abs(s) @ np.abs(s).T + dim + np.abs(expected)
    terms = terms * (1.0 + kernel.linear * (np.abs(x) @ np.abs(x).T))
    assert (np.abs(matrix - expected) <= 1e-14 * dim * (terms + np.abs(x).sum() * np.abs(s).max())).all()
    grid = kernel.compiled(dim).grid
    assert np.array_equal(np.round(matrix * 2 / grid), matrix * 2 / grid)


@given(st.floats(0.0, 700.0))
def test_vector_exp_is_accurate(u):
    """With one huge score the RBF kernel value is exp(-u) times that score, up to terms we know."""
    row, found, none = np.zeros(16), np.zeros((3, 16)), np.zeros(16)
    tiles = np.zeros((1, 1, 2, 16))
    tiles[0, 0, 1, :] = 1.0
    x, s = np.array([np.sqrt(u)]), np.array([1e12])
    one_row(Compiled(2, 1.0, 0.0, 2.0**-1070), ROW, np.stack([x, s]), tiles, none, row, found)
    square = x[0] * x[0]  # not x[0] ** 2, which is off by one unit now and then
    phi = np.exp(-square)
    expected = phi * s[0] + 2 * phi * ((s[0] - 1.0) * x[0] + 1.0) - 4 * phi * square
    np.testing.assert_allclose(row, expected, rtol=2e-15)


@pytest.mark.parametrize("huge", [1e4, 1e8, 1e12, 1e16, 1e40, 1e90])
@pytest.mark.parametrize("settings", [{}, {"anchor": 1.0}, {"candidates": 3}, {"kernel": ss.RBF()}], ids=str)
def test_of_a_wild_start_nothing_is_left_in_any_sum(huge, settings):
    x = np.random.default_rng(5).normal(size=(900, 3))
    x[1::3] = x[::3]  # some come twice
    s = -x
    s[:60] *= huge ** np.linspace(1.0, 0.5, 60)[:, None]
    thinner = ss.Thinner(3, size=30, validate_scores=False, **settings)
    thinner.extend(x, s)
    kept = thinner.kept
    assert kept.ids[:, 1].min() >= 60
    fresh = ss.Thinner(3, validate_scores=False, **settings | {"candidates": 1}, initial=(kept.draws, kept.scores))
    now, anew = thinner._kept_set.state(), fresh._kept_set.state()
    assert thinner.ksd == fresh.ksd and np.array_equal(now["total"][:2], anew["total"][:2])
    assert {*map(tuple, now["influence"])} == {*map(tuple, anew["influence"])}
