"""Modes whose mass changed are detected, and modes that kept it are not."""

from __future__ import annotations

import re
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


@pytest.mark.parametrize(("size", "is_found"), [(50, False), (400, True)])
def test_the_quantiles_say_whether_a_lost_tail_would_be_found(size, is_found):
    x = np.random.default_rng(0).normal(size=(8000, 2))
    step = len(x) // size
    sound = diagnose(x[::step], as_stream(x).ids[::step], as_stream(x))["quantiles"]
    assert ("a lost tail of 5%" in sound.detects) is is_found
    assert ("a lost tail of 5% would be missed" in sound.found) is not is_found
    rows = np.flatnonzero(x[:, 0] > np.quantile(x[:, 0], 0.05))[:: len(x) // size]
    assert diagnose(x[rows], as_stream(x).ids[rows], as_stream(x))["quantiles"].fired is is_found


# -- ranges ------------------------------------------------------------------------------------------------------------


def funnel(count, dim=10, seed=0):
    """Return draws of log tau ~ N(0, 0.5^2) and of parameters with the sd tau, and their scores."""
    random = np.random.default_rng(seed)
    log_tau, z = 0.5 * random.normal(size=(count, 1)), random.normal(size=(count, dim - 1))
    first = -4.0 * log_tau + (z**2).sum(axis=1, keepdims=True) - (dim - 1)
    return np.hstack([log_tau, np.exp(log_tau) * z]), np.hstack([first, -z / np.exp(log_tau)])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_scale_parameter_that_is_22_percent_too_narrow_is_found(seed):
    x, s = funnel(8000, seed=seed)
    kept = ss.thin(x, s, size=200, stream_weight=1.0)
    assert kept.diagnose().ok, kept.diagnose()
    narrow = kept.draws * np.where(np.arange(10) == 0, 0.78, 1.0)
    found = diagnose(narrow, kept.ids, kept.stream)
    assert found["spread"].fired and "sd of x0" in found["spread"].says, found


@pytest.mark.parametrize("dim", [3, 20])
@pytest.mark.parametrize("size", [100, 300])
def test_a_student_t_set_that_is_twice_too_wide_is_found_by_its_ranges(dim, size):
    random = np.random.default_rng(0)
    x = random.normal(size=(8000, dim)) / np.sqrt(random.chisquare(4, size=(8000, 1)) / 4)
    ids, stream, step = as_stream(x).ids, as_stream(x)._replace(scores=np.zeros((8000, 0))), 8000 // size
    assert diagnose(x[::step], ids[::step], stream).ok
    found = diagnose(2.0 * x[::step], ids[::step], stream)
    assert found["ranges"].fired and found["ranges"].says.endswith("the set is too wide")
    assert any(note.startswith(f"heavy tails in {dim} parameters (kurtosis") for note in found.notes)


def test_the_ranges_state_the_same_sensitivity_for_all_tails():
    random = np.random.default_rng(0)
    stated = []
    for x in (random.normal(size=(4000, 2)), random.standard_cauchy(size=(4000, 2))):
        found = diagnose(x[::10], as_stream(x).ids[::10], as_stream(x))
        stated.append([float(number) for number in re.findall(r"\d\.\d\d", found["ranges"].detects)])
    (narrow, wide), (heavy_narrow, heavy_wide) = stated
    assert 0.6 < heavy_narrow < narrow < 0.9 and 1.1 < wide < heavy_wide < 1.7


def test_discrete_parameters_do_not_fire_and_are_found_if_they_are_off():
    x = np.random.default_rng(0).poisson(2.0, size=(4000, 3)).astype(float)
    x[:, 2] = x[:, 2] > 2
    ids, stream = as_stream(x).ids, as_stream(x)._replace(scores=np.zeros((4000, 0)))
    assert diagnose(x[::20], ids[::20], stream).ok
    assert diagnose(x[::20] * [2, 1, 1], ids[::20], stream)["ranges"].fired
