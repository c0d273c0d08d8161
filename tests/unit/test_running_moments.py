"""Running moments: those of NumPy, in every division into blocks, and through a saved state."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steinstream import Moments
from steinstream.errors import InputError


def draws(count=120, dim=3, seed=0):
    return np.random.default_rng(seed).normal(size=(count, dim)) * [1.0, 1e3, 1e-3][:dim] + [1e6, 0.0, 1.0][:dim]


def arrays(moments):
    return {name: array.copy() for name, array in moments.state().items()}


def test_moments_are_those_of_numpy():
    x = draws()
    full, diagonal = Moments(3, full=True), Moments(3)
    full.add(x)
    diagonal.add(x)
    np.testing.assert_allclose(full.mean, x.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(full.covariance, np.cov(x, rowvar=False), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(full.variances, x.var(axis=0), rtol=1e-7)
    np.testing.assert_allclose(diagonal.variances, x.var(axis=0), rtol=1e-7)
    assert diagonal.covariance is None and full.count == diagonal.count == 120


@given(st.lists(st.integers(0, 40), min_size=1, max_size=6), st.booleans())
def test_every_division_into_blocks_gives_the_same_bits(sizes, full):
    x = draws(sum(sizes))
    whole, parts = Moments(3, full), Moments(3, full)
    whole.add(x)
    for block in np.split(x, np.cumsum(sizes)[:-1]):
        parts.add(block)
    for name, array in arrays(whole).items():
        np.testing.assert_array_equal(array, arrays(parts)[name])


def test_chains_are_pooled():
    x = draws().reshape(4, 30, 3)
    pooled = Moments.of(x)
    np.testing.assert_array_equal(pooled.mean, Moments.of(x.reshape(-1, 3)).mean)
    assert pooled.count == 120


def test_repeated_draws_are_counted_and_not_distinct():
    moments = Moments(1)
    moments.add([[1.0], [1.0], [2.0], [1.0], [1.0]])
    assert (moments.count, moments.distinct) == (5, 3)


def test_a_restored_state_continues_with_the_same_bits():
    x, whole, first, second = draws(), Moments(3, full=True), Moments(3, full=True), Moments(3, full=True)
    whole.add(x)
    first.add(x[:50])
    second.restore(arrays(first))
    first.add(x[:7])  # does not change the restored one
    second.add(x[50:])
    for name, array in arrays(whole).items():
        np.testing.assert_array_equal(array, arrays(second)[name])


def test_one_parameter_and_one_draw():
    moments = Moments(1, full=True)
    moments.add([[3.0]])
    assert moments.covariance.tolist() == [[0.0]] and moments.variances.tolist() == [0.0]
    assert Moments(2).variances.tolist() == [0.0, 0.0]  # before the first draw


def test_invalid_draws_are_refused_and_change_nothing():
    moments = Moments(2)
    moments.add([[1.0, 2.0]])
    with pytest.raises(InputError, match=r"shape \(n, 2\), got shape \(4, 3\)"):
        moments.add(np.zeros((4, 3)))
    with pytest.raises(InputError, match=r"must be finite, got .* in row 1"):
        moments.add([[0.0, 0.0], [np.nan, 1.0]])
    with pytest.raises(InputError, match=r"got shape \(3,\)"):
        Moments.of(np.zeros(3))
    assert moments.count == 1 and moments.mean.tolist() == [1.0, 2.0]
