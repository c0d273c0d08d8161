"""Thresholds are the effect that matters or the noise, and each function has its own standard error."""

from __future__ import annotations

import numpy as np
import pytest

from steinstream.diagnostics.mcse import standard_error, threshold
from tests.chains import autoregression


def test_a_threshold_is_the_effect_or_the_noise():
    assert threshold(0.1, 0.01, 1) == 0.1
    assert threshold(0.1, 0.1, 1) == pytest.approx(0.1 * 2.807, abs=1e-3)  # 99.75 % quantile
    assert threshold(0.1, 0.1, 10) == pytest.approx(0.1 * 3.481, abs=1e-3)


def test_each_function_has_the_standard_error_of_its_own_autocorrelation():
    x = np.column_stack([autoregression(2000, 1, 0.9, 0), autoregression(2000, 1, 0.0, 1)])
    slow, fast = standard_error(x, 100)
    assert slow == pytest.approx(np.sqrt(19 / 2000 + 0.01), rel=0.2) and fast == pytest.approx(0.1, rel=0.1)
