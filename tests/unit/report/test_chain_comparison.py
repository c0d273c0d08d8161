"""Differences are measured from the chain after burn-in, with the weights of the kept draws."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import steinstream as ss
from steinstream.report.chain_comparison import ChainComparison
from steinstream.report.chain_summary import summarise_chain


def normal(count=4000, dim=3):
    return np.random.default_rng(0).normal(size=(count, dim))


def test_burn_in_is_left_out_and_its_end_is_known():
    x = normal()
    x[:200] += np.linspace(50, 5, 200)[:, None]
    kept = ss.thin(x, -x, size=100)
    comparison = ChainComparison(kept, summarise_chain(kept, x))
    assert 150 < comparison.burn_in_ends[0] == kept.burn_in_ends[0] <= 256
    assert np.abs(comparison.summary.stream.mean).max() < 0.1
    assert comparison.deviation(x[:1])[0] > 20


def test_a_shifted_and_a_wide_parameter_differ_most():
    x = normal(dim=6)
    kept = ss.thin(x, -x, size=100)
    changed = replace(kept, draws=kept.draws * [1, 1, 3, 1, 1, 1] + np.array([0, 0, 0, 0, 2.0, 0]))
    comparison = ChainComparison(changed, summarise_chain(kept, None))
    assert comparison.most_different(2) == [2, 4] and comparison.most_different(9) == list(range(6))
    found = comparison.summary.difference
    assert found["mean"][4] == pytest.approx(2.0, abs=0.1) and found["sd"][2] == pytest.approx(2.0, abs=0.3)
    assert found["5%"][2] < -2 < 2 < found["95%"][2]


def test_differences_in_standard_errors_are_small_for_a_sound_set_and_large_for_a_shifted_parameter():
    x = normal(dim=6)
    kept = ss.thin(x, -x, size=100)
    assert ChainComparison(kept, summarise_chain(kept, x)).standard_errors.max() < 2
    shifted = ChainComparison(replace(kept, draws=kept.draws + np.eye(6)[2]), summarise_chain(kept, x))
    assert shifted.standard_errors[2] > shifted.limit > 3 > np.delete(shifted.standard_errors, 2).max()


def test_independent_draws_stay_within_the_limit():
    x = normal(20_000, dim=50)
    kept = ss.thin(x[:100], -x[:100], size=50)
    random = np.random.default_rng(1)
    for _ in range(20):
        rows = random.choice(20_000, 50, replace=False)
        comparison = ChainComparison(replace(kept, draws=x[rows]), summarise_chain(kept, x))
        assert comparison.standard_errors.max() < comparison.limit < 5


def test_without_a_chain_the_first_parameters_are_shown():
    x = normal()
    kept = replace(ss.thin(x, -x, size=50), stream=None)
    comparison = ChainComparison(kept, None)
    assert comparison.most_different(2) == [0, 1] and comparison.draws is kept.draws
    assert comparison.names == ("x0", "x1", "x2")
    with pytest.raises(ValueError, match="no chain"):
        _ = comparison.context
