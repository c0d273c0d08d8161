"""Weights that move a set away from the stream are detected, and sound weights are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import steinstream as ss
from steinstream.diagnostics.mcse import standard_error, threshold
from steinstream.targets import Mixture
from tests.chains import fired


def test_weights_count_in_the_comparison():
    target = Mixture([[0, 0], [6, 0]], covariances=1.0, weights=[0.8, 0.2])
    x, s = target.sample(20_000, seed=1)
    kept = ss.thin(x, s, **ss.PAPER)
    assert {"regions", "mean"} <= fired(kept.diagnose())
    assert kept.weighted(like=x, effective_share=0.0).diagnose().ok
    all_in_one_draw = replace(kept, weights=np.eye(1, len(kept)).ravel()).diagnose()
    assert all_in_one_draw["weights"].fired
    independent = threshold(0.1, standard_error(kept.stream.draws, len(kept)), 2)
    assert all_in_one_draw["mean"].threshold <= independent.max()  # not more lenient


@pytest.mark.parametrize("distance", [6, 8])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_weights_that_spoil_the_proportions_are_found(distance, seed):
    """Weights of least KSD leave 0.02 to 0.04 of a mode of 0.2."""
    x, s = Mixture([[0, 0], [distance, 0]], covariances=1.0, weights=[0.8, 0.2]).sample(20_000, seed)
    kept = ss.thin(x, s, size=100)
    assert kept.diagnose().ok and kept.weighted().diagnose().ok
    config = {**kept.settings["config"], "stream_weight": 0.0}
    by_ksd = replace(kept, settings={**kept.settings, "config": config})  # as if KSD alone had selected the same draws
    found = by_ksd.weighted(effective_share=0.0).diagnose()
    assert found["weights"].fired and "like=" in found["weights"].advice
    assert len(found.fired) > 1 and all(one.cause == "weights" for one in found.fired[1:])
    assert kept.weighted(like=x).diagnose().ok


@pytest.mark.parametrize(("dim", "size"), [(1, 300), (2, 50), (10, 300)])
def test_sound_weights_do_not_fire(dim, size):
    x = np.random.default_rng(dim).normal(size=(10_000, dim))
    kept = ss.thin(x, -x, size=size)
    for weighted in (kept.weighted(), kept.weighted(like=x)):
        found = weighted.diagnose()
        assert found.ok and not found["weights"].skipped, found


def test_weights_on_a_handful_of_draws_are_found():
    x = np.random.default_rng(0).normal(size=(4000, 2))
    kept = ss.thin(x, -x, size=100)
    weights = np.full(100, 1e-9)
    weights[[0, 1, 2, 3]] = 0.25
    found = replace(kept, weights=weights / weights.sum()).diagnose()
    assert found["weights"].fired and found["weights"].value > found["weights"].threshold
