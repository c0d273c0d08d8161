"""Slow and stuck chains are detected, and constant parameters are reported."""

from __future__ import annotations

import numpy as np
import pytest

import steinstream as ss
from steinstream.diagnostics import diagnose
from steinstream.diagnostics.mixing import check_constant
from steinstream.targets import Mixture
from tests.chains import as_stream, autoregression, fired


def test_a_chain_that_stops_is_stuck():
    x = autoregression(4000, 3, 0.5, 0)
    x[2500:] = x[2500]
    found = ss.thin(x, -x, validate_scores=False).diagnose()
    assert found["stuck"].fired and found["stuck"].value == pytest.approx(1500 / 4000, abs=0.01)
    assert "stuck" in fired(ss.thin(np.ones((500, 2)), np.ones((500, 2))).diagnose())


def test_many_short_chains_are_not_stuck():
    x = np.random.default_rng(0).normal(size=(1000, 4, 3))  # as (draws, chains, dimensions) is read
    found = ss.thin(x, -x).diagnose()
    assert found["stuck"].skipped == "chains of fewer than 20 draws"


def test_a_slow_chain_is_reported_and_not_used_for_comparisons():
    x = 0.01 * np.cumsum(np.random.default_rng(1).normal(size=(3000, 2)), axis=0)
    found = ss.thin(x, -x, validate_scores=False).diagnose()
    assert "slow" in fired(found) and {f.name for f in found.passed} <= {"constant", "size", "stuck", "drift"}
    assert found["mean"].skipped == "the stream has too few effective draws"
    assert "mean, quantiles, spread, ranges, directions (the stream has too few effective draws)" in found.verdict


def test_a_mode_visited_only_at_the_end_is_slow():
    x = autoregression(20_000, 2, 0.5, 0)
    x[19_000:] += 4.0
    target = Mixture([[0, 0], [4, 4]], covariances=1.0, weights=[0.95, 0.05])
    finding = ss.thin(x, target.scores(x)).diagnose()["slow"]
    assert finding.fired and 10 < finding.value < 30 and "the time spent near" in finding.says
    often = np.random.default_rng(0).permutation(x)
    assert ss.thin(often, target.scores(often), size=2000).diagnose()["slow"].value > 500


def test_a_constant_parameter_is_reported_and_the_others_are_checked():
    x = np.random.default_rng(0).normal(size=(2000, 3))
    x[:, 1] = 0.1
    found = ss.thin(x, -x, size=100).diagnose()
    assert fired(found) == {"constant"} and {"slow", "spread", "scores"} <= {f.name for f in found.passed}
    assert str(found["constant"]).startswith("constant: x1 is constant; remove it")
    shifted = diagnose(x[::10] + np.array([0, 0, 1]), as_stream(x).ids[::10], as_stream(x), ["a", "b", "c"])
    assert "of c " in shifted["mean"].says  # names stay with their parameters


def test_many_constant_parameters_are_listed_briefly():
    assert check_constant([f"x{j}" for j in range(8)]).says == "x0, x1, x2, x3, x4 and 3 more are constant"


@pytest.mark.parametrize(("size", "repeats"), [(3, 1), (10, 10)])
def test_a_set_of_few_distinct_draws_is_reported(size, repeats):
    x = np.random.default_rng(0).normal(size=(3000, 2))
    rows = np.repeat(np.arange(size) * 20, repeats)
    found = diagnose(x[rows], as_stream(x).ids[rows], as_stream(x))
    assert found["size"].fired and f"{size} distinct draws" in found["size"].says and "size" in found.verdict
    assert not diagnose(x[::150], as_stream(x).ids[::150], as_stream(x))["size"].fired


def test_three_draws_are_told_what_they_cannot_show():
    x = np.random.default_rng(0).normal(size=(5000, 2))
    found = ss.thin(x, -x, size=3).diagnose()
    assert not found.ok and found["mean"].sensitivity > 2.0
    assert {"regions", "quantiles", "ranges"} <= {one.name for one in found.skipped}
    assert "regions, quantiles, ranges (3 kept draws are too few)" in found.verdict
