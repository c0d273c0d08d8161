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


def largest(comparison):
    """Return the largest difference of each parameter in standard errors."""
    return np.max(np.abs(list(comparison.standard_errors.values())), axis=0)


def test_differences_in_standard_errors_are_small_for_a_sound_set_and_large_for_a_shifted_parameter():
    x = normal(dim=6)
    kept = ss.thin(x, -x, size=100)
    assert largest(ChainComparison(kept, summarise_chain(kept, x))).max() < 2
    shifted = ChainComparison(replace(kept, draws=kept.draws + np.eye(6)[2]), summarise_chain(kept, x))
    assert largest(shifted)[2] > shifted.limit > 3 > np.delete(largest(shifted), 2).max()
    found = shifted.standard_errors
    assert found["mean"][2] > 5 and found["50%"][2] > 5 and abs(found["sd"][2]) < 2


@pytest.mark.parametrize("factor", [0.7, 1.4])
def test_a_wrong_sd_is_beyond_the_limit_although_its_mean_is_right(factor):
    x = normal(dim=6)
    kept = ss.thin(x, -x, size=200)
    scales = np.where(np.arange(6) == 4, factor, 1.0)
    centre = kept.draws.mean(axis=0)
    changed = ChainComparison(replace(kept, draws=centre + scales * (kept.draws - centre)), summarise_chain(kept, x))
    differences = changed.standard_errors["sd"]
    assert abs(differences[4]) > changed.limit and np.sign(differences[4]) == np.sign(factor - 1.0)
    assert np.abs(np.delete(differences, 4)).max() < 2 and abs(changed.standard_errors["mean"][4]) < 2


def test_independent_draws_stay_within_the_limit():
    x = normal(20_000, dim=50)
    kept = ss.thin(x[:100], size=50)
    random = np.random.default_rng(1)
    for _ in range(20):
        rows = random.choice(20_000, 50, replace=False)
        comparison = ChainComparison(replace(kept, draws=x[rows]), summarise_chain(kept, x))
        assert largest(comparison).max() < comparison.limit < 5


def test_a_skewed_parameter_is_judged_by_its_own_noise():
    x = np.random.default_rng(2).gamma(2.0, size=(20_000, 20))
    kept = ss.thin(x[:100], size=50)
    random = np.random.default_rng(3)
    for _ in range(20):
        rows = random.choice(20_000, 100, replace=False)
        comparison = ChainComparison(
            replace(kept, draws=x[rows], ids=kept.ids[:1].repeat(100, 0)), summarise_chain(kept, x)
        )
        assert np.abs(comparison.standard_errors["sd"]).max() < comparison.limit


def test_a_constant_parameter_does_not_differ():
    x = normal(dim=2) * [1.0, 0.0]
    kept = ss.thin(x, size=50)
    assert largest(ChainComparison(kept, summarise_chain(kept, x)))[1] == 0


def test_without_a_chain_the_first_parameters_are_shown():
    x = normal()
    kept = replace(ss.thin(x, -x, size=50), stream=None)
    comparison = ChainComparison(kept, None)
    assert comparison.most_different(2) == [0, 1] and comparison.draws is kept.draws
    assert comparison.names == ("x0", "x1", "x2")
    with pytest.raises(ValueError, match="no chain"):
        _ = comparison.context
