"""Modes whose mass changed are detected, and modes that kept it are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import steinstream as ss
from steinstream.diagnostics import diagnose
from steinstream.targets import Mixture
from tests.chains import as_stream, fired


def two_modes(distance, small, left, size, dim=2):
    """Return a kept set with the fraction ``left`` in the mode that has ``small`` of the stream, and a good set."""
    target = Mixture(
        [np.zeros(dim), np.full(dim, distance / np.sqrt(dim))], covariances=1.0, weights=[1 - small, small]
    )
    x, s = target.sample(8000, 3)
    inside = x.sum(axis=1) / np.sqrt(dim) > distance / 2
    few = round(left * size)
    whole = ss.thin(x, s, size=size)
    thinned = [ss.thin(x[~inside], s[~inside], size=size - few)]
    thinned += [ss.thin(x[inside], s[inside], size=few)] if few else []
    draws, scores, ids = (np.vstack([getattr(k, name) for k in thinned]) for name in ("draws", "scores", "ids"))
    return replace(whole, draws=draws, scores=scores, ids=ids), whole


@pytest.mark.parametrize("distance", [4, 6, 8])
@pytest.mark.parametrize(("small", "left", "size"), [(0.2, 0.01, 100), (0.2, 0.01, 500), (0.05, 0.0, 500)])
def test_a_mode_that_lost_mass_is_found_and_one_that_did_not_is_not(distance, small, left, size):
    lost, whole = two_modes(distance, small, left, size)
    finding = lost.diagnose()["regions"]
    assert finding.fired and finding.value > finding.threshold and "of the stream" in str(finding)
    assert whole.diagnose().ok, whole.diagnose()


def test_a_mode_is_found_in_many_dimensions():
    lost, _ = two_modes(6, 0.2, 0.01, 200, dim=38)
    assert "regions" in fired(lost.diagnose())


def test_a_missing_tail_is_found_by_the_quantiles():
    x = np.random.default_rng(0).normal(size=(8000, 2))
    rows = np.flatnonzero(x[:, 1] < np.quantile(x[:, 1], 0.93))[:2000]
    finding = diagnose(x[rows], as_stream(x).ids[rows], as_stream(x))["quantiles"]
    assert finding.fired and "100% of the kept draws lie below the 95% quantile of x1" in finding.says
    assert finding.allowed == f"Cohen's h {finding.value:.2g}, at most {finding.threshold:.2g}"
