"""Batches of a chain: means, variances and effective sample size are those of the stored chain."""

from __future__ import annotations

import numpy as np
import pytest

from steinstream.diagnostics.batch_means import BatchMeans, effective_draws
from tests.chains import autoregression


@pytest.mark.parametrize("count", [7, 32, 33, 1000])
def test_means_and_variances_are_those_of_the_batches(count):
    x = 1e6 + autoregression(count, 3, 0.5, count)
    batches = BatchMeans(np.array([2, 0]), 32)
    for first in range(0, count, 13):
        batches.add(x[first : first + 13])
    parts = x[: batches.count * batches.length, [2, 0]].reshape(batches.count, batches.length, 2)
    assert (batches.seen == count and 16 <= batches.count < 32) or count < 16
    assert batches.means == pytest.approx(parts.mean(axis=1), rel=1e-14)
    assert batches.variances == pytest.approx(parts.var(axis=1), rel=1e-6, abs=1e-9)


def test_a_stored_state_is_a_copy_and_continues():
    x = autoregression(500, 2, 0.5, 0)
    one, other = BatchMeans(np.arange(2), 32), BatchMeans(np.arange(2), 32)
    one.add(x[:200])
    state = one.state()
    one.add(x[200:])
    other.restore(state)
    other.add(x[200:])
    assert np.array_equal(one.means, other.means) and np.array_equal(one.variances, other.variances)


@pytest.mark.parametrize("rho", [0.0, 0.9])
def test_effective_draws_are_those_of_the_chain_within_a_factor(rho):
    x = autoregression(20_000, 1, rho, 1)
    batches = BatchMeans(np.arange(1), 128)
    batches.add(x)
    found = effective_draws(batches.means, batches.variances, np.full(batches.count, batches.length))
    assert found[0] == pytest.approx(20_000 * (1 - rho) / (1 + rho), rel=0.4)


def test_a_constant_column_has_as_many_effective_draws_as_draws():
    found = effective_draws(np.ones((8, 1)), np.zeros((8, 1)), np.full(8, 5))
    assert found.tolist() == [40.0]
