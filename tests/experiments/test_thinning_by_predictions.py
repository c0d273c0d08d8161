"""The numbers of docs/network-errors.md are those of the committed runs, and support what the page says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments.networks import predictions
from experiments.networks.predictions import DEFAULT, KSD, PREDICTIONS, SIZES, STRIDE, UNSCORED, WORK

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "network-errors.md").read_text()


@pytest.fixture(scope="module")
def errors():
    return predictions.read()


def test_the_table_is_on_the_page(errors):
    assert predictions.table(errors) in PAGE
    assert {len(values) for values in errors.values()} == {WORK}


def test_the_table_of_the_subspace_is_on_the_page():
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    from experiments.networks import subspace

    assert subspace.table() in PAGE


def test_the_page_states_what_was_measured(errors):
    """Mean a fifth, sd below half, quantiles about three quarters; scores change little, weights are worse."""
    for size in SIZES:
        own, stride, scored, ksd, default = (
            errors[method, size].mean(axis=0) for method in (UNSCORED, STRIDE, PREDICTIONS, KSD, DEFAULT)
        )
        mean, sd, quantiles = own / stride
        assert mean < 0.22 and sd < 0.5 and 0.6 < quantiles < 0.8
        assert np.all(np.abs(scored - own) < 0.1 * stride)
        assert (np.array([ksd, default])[:, 1:] > stride[1:]).all()


def test_errors_are_measured_in_sds_of_the_reference():
    predicted = np.random.default_rng(0).normal(2.0, 3.0, size=(4000, 5))
    reference = predictions.statistics(predicted)
    assert predictions.errors_of(predicted, reference) == [0.0, 0.0, 0.0]
    mean, sd, quantiles = predictions.errors_of(predicted + 3.0, reference)
    assert mean == pytest.approx(1.0, abs=0.05) and sd == pytest.approx(0.0) and quantiles == pytest.approx(mean)
    assert predictions.errors_of(2.0 * predicted, reference)[1] == pytest.approx(1.0)


def test_draws_are_thinned_by_their_features():
    draws = np.random.default_rng(0).normal(size=(600, 4))
    features = draws[:, :1] ** 2
    kept = predictions.thinned(draws, 20, scores=None, features=features)
    assert len(kept) == 20 and abs(features[kept].mean() - features.mean()) < 0.2
