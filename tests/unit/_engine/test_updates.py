"""Updates leave no rounding errors in the sums, even after kernel values beyond the exact range."""

from __future__ import annotations

import numpy as np
import pytest

import steinstream as ss
from tests.thinners import ksd_thinner


@pytest.mark.parametrize("huge", [1e4, 1e8, 1e12, 1e16, 1e40, 1e90])
@pytest.mark.parametrize("settings", [{}, {"stream_weight": 1.0}, {"candidates": 3}, {"kernel": ss.RBF()}], ids=str)
def test_a_start_beyond_the_exact_range_leaves_nothing_in_any_sum(huge, settings):
    x = np.random.default_rng(5).normal(size=(900, 3))
    x[1::3] = x[::3]  # some are repeated
    s = -x
    s[:60] *= huge ** np.linspace(1.0, 0.5, 60)[:, None]
    thinner = ksd_thinner(3, size=30, validate_scores=False, **settings)
    thinner.extend(x, s)
    kept = thinner.kept
    assert kept.ids[:, 1].min() >= 60
    fresh = ksd_thinner(3, validate_scores=False, **settings | {"candidates": 1}, initial=(kept.draws, kept.scores))
    now, again = thinner.state.dictionary.state(), fresh.state.dictionary.state()
    assert thinner.ksd == fresh.ksd and np.array_equal(now["total"][:2], again["total"][:2])
    assert {*map(tuple, now["influence"])} == {*map(tuple, again["influence"])}
