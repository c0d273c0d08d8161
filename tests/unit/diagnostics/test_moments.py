"""Sets that are shifted, too narrow or too wide are detected."""

from __future__ import annotations

import numpy as np
import pytest

import steinstream as ss
from steinstream.diagnostics import diagnose
from steinstream.targets import Gaussian
from tests.chains import as_stream, fired


def test_identity_preconditioner_on_a_narrow_target_is_under_dispersed():
    x, s = Gaussian(np.zeros(2), [1.0, 1e-4]).sample(20_000, 0)
    finding = ss.thin(x, s, **ss.PAPER).diagnose()["spread"]
    assert finding.fired and finding.value < finding.threshold < 1 and "x1" in finding.says
    assert "at least" in finding.allowed and "too short" in finding.advice
    assert ss.thin(x, s).diagnose().ok


def test_a_set_that_is_too_wide_or_shifted_is_found():
    x = np.random.default_rng(0).normal(size=(4000, 3))
    ids, stream = as_stream(x).ids[::10], as_stream(x)
    wide = diagnose(x[::10] * [1, 1, 2], ids, stream)["spread"]
    assert wide.fired and wide.value > wide.threshold > 1 and "too long" in wide.advice
    shifted = diagnose(x[::10] + np.array([0, 0.7, 0]), ids, stream)
    assert shifted["mean"].fired and shifted["quantiles"].fired and "x1" in shifted["mean"].says
    assert "+0.7" in shifted["mean"].says


def test_a_set_that_is_correlated_is_found_although_each_parameter_has_its_width():
    x = np.random.default_rng(0).normal(size=(4000, 3))
    turned = x[::10] @ np.array([[1, 0.9, 0], [0, np.sqrt(1 - 0.81), 0], [0, 0, 1]])
    finding = diagnose(turned, as_stream(x).ids[::10], as_stream(x))["spread"]
    assert finding.fired and "the direction" in finding.says


def test_more_parameters_than_draws_do_not_fire():
    x = np.random.default_rng(0).normal(size=(120, 150))
    assert not fired(diagnose(x[::3], as_stream(x).ids[::3], as_stream(x))) & {"spread", "regions", "mean"}


def test_a_weight_of_three_is_worth_three_copies():
    x = np.random.default_rng(0).normal(size=(3000, 1))
    ids, stream = as_stream(x).ids, as_stream(x)
    copies = np.where(np.arange(300) < 100, 3, 1)
    rows = np.repeat(np.arange(300), copies)
    weighted = diagnose(x[:300], ids[:300], stream, weights=copies / 500)
    repeated = diagnose(x[rows], ids[rows], stream)
    for name in ("mean", "spread"):
        assert weighted[name].value == pytest.approx(repeated[name].value, rel=1e-9)
    assert weighted["mean"].threshold > repeated["mean"].threshold  # but they are not as good as 500 draws
