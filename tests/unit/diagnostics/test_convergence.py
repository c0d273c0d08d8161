"""ESS and R-hat agree with their definitions; drift and disagreement of chains are detected."""

from __future__ import annotations

import numpy as np
import pytest

import steinstream as ss
from steinstream.diagnostics.convergence import Parts, autocorrelation_time, effective_sample_size, r_hat
from tests.chains import autoregression


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_ess_of_an_autoregression_is_n_over_tau(rho):
    x = autoregression(4096, 30, rho, 1)
    expected = 4096 * (1 - rho) / (1 + rho)
    assert 0.75 * expected < np.median(effective_sample_size(x)) < 1.1 * expected


def test_ess_of_a_constant_is_one():
    x = np.random.default_rng(0).normal(size=(2000, 3))
    x[:, 1] = 0.1
    assert effective_sample_size(x)[1] == 1.0 and autocorrelation_time(x)[1] == 2000


def test_r_hat_is_the_textbook_one():
    pieces = list(np.random.default_rng(0).normal(size=(6, 50, 2)) + np.arange(6)[:, None, None] * 0.3)
    parts = Parts.from_arrays(pieces)
    for j in range(2):
        means = [piece[:, j].mean() for piece in pieces]
        within = np.mean([piece[:, j].var(ddof=1) for piece in pieces])
        assert parts.r_hat[j] == pytest.approx(np.sqrt(49 / 50 + np.var(means, ddof=1) / within))


def test_r_hat_of_constant_parts_is_one_if_they_agree_and_infinite_otherwise():
    lengths, nothing = np.array([10.0, 10.0]), np.zeros(2)
    assert r_hat(np.array([[1.0, 1.0], [1.0, 2.0]]), lengths, nothing).tolist() == [1.0, np.inf]


def test_parts_that_agree_exceed_the_tolerance_at_the_false_alarm_rate():
    alarms = 0
    for seed in range(200):
        parts = Parts.from_arrays(np.split(autoregression(400, 3, 0.7, seed), 4))
        alarms += bool((parts.r_hat > parts.tolerance(3)).any())
    assert alarms <= 3  # 1 is expected


def test_a_last_quarter_that_wandered_off_is_drift():
    x = autoregression(4000, 3, 0.5, 0)
    x[3000:, 1] += 3.0
    finding = ss.thin(x, -x).diagnose()["drift"]
    assert finding.fired and "last quarter" in finding.says and "x1" in finding.says


def test_chains_in_two_modes_disagree_and_good_ones_agree():
    x = np.stack([autoregression(1500, 2, 0.5, seed) for seed in range(4)])
    assert ss.thin(x, -x).diagnose().ok
    x[3] += 6.0
    found = ss.thin(x, -x, validate_scores=False).diagnose()
    assert found["chains"].fired and found["chains"].value > 1.3
