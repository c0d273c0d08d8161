"""Wrong correlations are detected, and the check is skipped if it could not find anything."""

from __future__ import annotations

import numpy as np

from steinstream.diagnostics import diagnose
from tests.chains import as_stream


def test_a_set_that_is_correlated_is_found_although_each_parameter_has_its_width():
    x = np.random.default_rng(0).normal(size=(4000, 3))
    turned = x[::10] @ np.array([[1, 0.9, 0], [0, np.sqrt(1 - 0.81), 0], [0, 0, 1]])
    found = diagnose(turned, as_stream(x).ids[::10], as_stream(x))
    assert found["directions"].fired and "the direction" in found["directions"].says
    assert not found["spread"].fired


def test_one_parameter_or_more_parameters_than_draws_are_skipped():
    x = np.random.default_rng(0).normal(size=(400, 30))
    ids, stream = as_stream(x).ids[::20], as_stream(x)
    assert diagnose(x[::20], ids, stream)["directions"].skipped == "20 kept draws for 30 parameters"
    one = stream._replace(draws=x[:, :1], scores=-x[:, :1])
    assert diagnose(x[::20, :1], ids, one)["directions"].skipped == "a single parameter"


def test_heavy_tails_in_a_small_set_are_excused_and_this_is_stated():
    x = np.random.default_rng(0).standard_cauchy(size=(3000, 3))
    finding = diagnose(x[::30], as_stream(x).ids[::30], as_stream(x))["directions"]
    assert not finding.fired and "below" not in finding.detects
