"""Thresholds are the effect that matters or the noise, and each function has its own standard error."""

from __future__ import annotations

import numpy as np
import pytest

from steinstream.diagnostics.mcse import relative_noise, sensitivity, standard_error, threshold
from tests.chains import autoregression


def test_a_threshold_is_the_effect_or_the_noise():
    assert threshold(0.1, 0.01, 1) == 0.1
    assert threshold(0.1, 0.1, 1) == pytest.approx(0.1 * 3.291, abs=1e-3)  # 99.95 % quantile
    assert threshold(0.1, 0.1, 10) == pytest.approx(0.1 * 3.891, abs=1e-3)


def test_a_difference_as_large_as_the_sensitivity_exceeds_the_threshold_nine_times_of_ten():
    limit, noise = float(threshold(0.1, 0.05, 4)), 0.05
    measured = sensitivity(limit, noise) + noise * np.random.default_rng(0).normal(size=100_000)
    assert (measured > limit).mean() == pytest.approx(0.9, abs=0.005)


def test_the_relative_noise_follows_the_other_parameters_and_is_at_most_one():
    quiet = np.full(60, 0.2)
    quiet[7] = 4.0
    noise = relative_noise(quiet)
    assert noise[7] == pytest.approx(np.sqrt((59 * 0.04 + 10) / 69)) and noise[7] < noise[8] < 1.0
    assert (relative_noise(np.full(60, 3.0)) == 1.0).all() and relative_noise(np.array([5.0])) == 1.0
    assert np.isfinite(relative_noise(np.array([np.nan, np.inf, 0.1]))).all()


def test_random_subsets_exceed_the_thresholds_with_relative_noise_rarely():
    """The noise of the other parameters is an estimate: the rate is below five times the nominal one."""
    z = np.random.default_rng(0).normal(size=(20_000, 10))
    alarms = sum(bool((np.abs(row) > threshold(0.0, relative_noise(row), 10)).any()) for row in z[:4000])
    assert alarms <= 4000 * 0.005 + 3 * np.sqrt(4000 * 0.005)


def test_each_function_has_the_standard_error_of_its_own_autocorrelation():
    x = np.column_stack([autoregression(2000, 1, 0.9, 0), autoregression(2000, 1, 0.0, 1)])
    slow, fast = standard_error(x, 100)
    assert slow == pytest.approx(np.sqrt(19 / 2000 + 0.01), rel=0.2) and fast == pytest.approx(0.1, rel=0.1)
