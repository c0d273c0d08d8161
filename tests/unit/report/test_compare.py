"""Differences are measured from the chain after burn-in, with the weights of the kept draws."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import steinstream as ss
from steinstream.report.chain_summary import summarise_chain
from steinstream.report.compare import ChainComparison, weighted_quantiles


def normal(count=4000, dim=3):
    return np.random.default_rng(0).normal(size=(count, dim))


def test_burn_in_is_left_out_and_its_end_is_known():
    x = normal()
    x[:200] += np.linspace(50, 5, 200)[:, None]
    kept = ss.thin(x, -x, size=100)
    comparison = ChainComparison(kept, summarise_chain(kept, x))
    assert 150 < comparison.burn_in_ends[0] <= 200
    assert np.abs(comparison.differences.chain_mean).max() < 0.1
    assert comparison.deviation(x[:1])[0] > 20


def test_a_shifted_and_a_wide_parameter_differ_most():
    x = normal(dim=6)
    kept = ss.thin(x, -x, size=100)
    changed = replace(kept, draws=kept.draws * [1, 1, 3, 1, 1, 1] + np.array([0, 0, 0, 0, 2.0, 0]))
    comparison = ChainComparison(changed, summarise_chain(kept, None))
    assert comparison.most_different(2) == [2, 4] and comparison.most_different(9) == list(range(6))
    found = comparison.differences
    assert found.shift[4] == pytest.approx(2.0, abs=0.1) and found.ratio[2] == pytest.approx(3.0, abs=0.3)
    assert found.quantiles[0, 2] < -2 < 2 < found.quantiles[2, 2]


def test_without_a_chain_the_first_parameters_are_shown():
    x = normal()
    kept = replace(ss.thin(x, -x, size=50), stream=None)
    comparison = ChainComparison(kept, None)
    assert comparison.most_different(2) == [0, 1] and comparison.draws is kept.draws
    assert comparison.names == ("x0", "x1", "x2")
    with pytest.raises(ValueError, match="no chain"):
        _ = comparison.context


def test_quantiles_follow_the_weights():
    x = np.arange(1.0, 101.0)[:, None]
    equal = weighted_quantiles(x, np.full(100, 0.01))[:, 0]
    assert equal == pytest.approx([5.5, 50.5, 95.5])
    last = weighted_quantiles(x, np.r_[np.zeros(90), np.full(10, 0.1)])[:, 0]
    assert last[1] == pytest.approx(95.5) and last[0] >= 90
