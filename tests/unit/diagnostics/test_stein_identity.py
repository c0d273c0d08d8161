"""Scores of another density are detected, with the likely cause."""

from __future__ import annotations

import numpy as np
import pytest

import steinstream as ss
from steinstream.diagnostics import diagnose, diagnose_scores
from steinstream.diagnostics.stein_identity import is_suspicious
from tests.chains import as_stream

WIDTHS = np.array([1.0, 2.0, 3.0])
WRONG = {
    "rows shuffled": (lambda x: (x, -np.random.default_rng(1).permutation(x)), "different order"),
    "columns swapped": (lambda x: (x * WIDTHS, (-x / WIDTHS)[:, [1, 0, 2]]), "different order"),
    "mean loss": (lambda x: (x, -x / 1000), "multiply them by the number of data"),
    "doubled": (lambda x: (x, -2 * x), "another density"),
    "halved": (lambda x: (x, -x / 2), "another density"),
    "half-normal": (lambda x: (abs(x), -abs(x)), "constrained: thin log(x)"),
    "exponential": (lambda x: (np.exp(x), -x), "constrained: thin log(x)"),
    "between 0 and 1": (lambda x: (1 / (1 + np.exp(-x)), -x), "constrained: thin logit(x)"),
    "one negated": (lambda x: (x, -x * [1, -1, 1]), "sign of this score"),
    "far from zero": (lambda x: (x + 100, -np.random.default_rng(1).permutation(x)), "different order"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_scores_are_reported_with_their_likely_cause(name):
    make, cause = WRONG[name]
    draws, scores = make(np.random.default_rng(0).normal(size=(2000, 3)))
    finding = diagnose_scores(as_stream(draws, scores))
    assert finding.fired and cause in finding.advice
    assert finding.says.startswith("for x") and finding.says.endswith(", expected -1")
    assert is_suspicious(draws, scores)


def test_right_scores_are_neither_suspicious_nor_reported():
    x = np.random.default_rng(0).normal(size=(2000, 3))
    assert not is_suspicious(x, -x) and not diagnose_scores(as_stream(x)).fired


def langevin(seed, count=4000, dim=30):
    """Return a Langevin chain of a normal distribution, too short for the directions that are not narrow."""
    rng, precision = np.random.default_rng(seed), np.geomspace(1.0, 1000.0, dim)
    rotation, step = np.linalg.qr(rng.normal(size=(dim, dim)))[0], 1e-4
    z, draws = rng.normal(size=dim) / np.sqrt(precision), np.empty((count, dim))
    for t in range(count):
        z = z - 0.5 * step * precision * z + np.sqrt(step) * rng.normal(size=dim)
        draws[t] = z
    return draws @ rotation, -(draws * precision) @ rotation


@pytest.mark.parametrize("seed", range(5))
def test_scores_of_a_mean_loss_are_found_in_a_slow_chain(seed):
    x, s = langevin(seed)
    right, wrong = (diagnose(x[::40], as_stream(x).ids[::40], as_stream(x, part)) for part in (s, s / 50))
    assert right["slow"].fired and not right["scores"].fired
    assert "less than 0.2 times as large" in right["scores"].detects
    assert wrong["scores"].fired and "multiply them by the number of data" in wrong["scores"].advice
    assert "expected -1" in wrong["scores"].says
    with pytest.warns(ss.ScoresWarning, match="gradients of a mean loss"):
        ss.thin(x, s / 50, size=50)


def autoregressive(seed, rho, count=4000, dim=20):
    """Return a stationary chain of a standard normal distribution that is equally slow in all directions."""
    rng = np.random.default_rng(seed)
    x = np.empty((count, dim))
    x[0] = rng.normal(size=dim)
    for t in range(1, count):
        x[t] = rho * x[t - 1] + np.sqrt(1 - rho**2) * rng.normal(size=dim)
    return x


@pytest.mark.parametrize("rho", [0.99, 0.995, 0.998])
@pytest.mark.parametrize("seed", range(3))
def test_scores_of_a_mean_loss_are_found_by_all_parameters_together(seed, rho):
    x = autoregressive(seed, rho)
    wrong = diagnose_scores(as_stream(x, -x / 50))
    assert wrong.fired and "multiply them by the number of data" in wrong.advice
    assert not diagnose_scores(as_stream(x, -x)).fired


def test_scores_of_a_wide_target_that_is_not_explored_are_not_too_small():
    for seed in range(10):
        x = np.cumsum(np.random.default_rng(seed).normal(size=(1000, 10)), axis=0)
        assert not diagnose_scores(as_stream(x, -x / 1e6)).fired


def test_a_stream_that_is_slow_in_all_directions_gives_no_answer():
    for seed in range(20):
        x = np.cumsum(np.random.default_rng(seed).normal(size=(1000, 3)), axis=0)
        assert diagnose_scores(as_stream(x)).skipped == "the stream has too few effective draws"


def test_a_chain_that_stops_has_no_wrong_scores():
    for seed in range(5):
        x = np.random.default_rng(seed).normal(size=(2000, 10))
        x[1000:] = x[1000]
        assert diagnose_scores(as_stream(x)).skipped


def test_draws_without_scores_give_no_answer():
    x = np.random.default_rng(0).normal(size=(1000, 2))
    assert diagnose_scores(as_stream(x)._replace(scores=np.zeros((1000, 0)))).skipped == "no scores"


def test_one_negated_parameter_is_found_although_the_sum_is_plausible():
    x = np.random.default_rng(0).normal(size=(3000, 10))
    with pytest.warns(ss.ScoresWarning, match="x4"):
        found = ss.thin(x, -x * np.where(np.arange(10) == 4, -1, 1), size=300).diagnose()
    finding = found["scores"]
    assert finding.fired and "x4" in finding.says and "sign" in finding.advice
    assert finding.allowed == "tolerance 0.4; 1 of 10 parameters affected"


def test_scores_of_another_scale_are_found_and_explain_the_other_findings():
    x = np.random.default_rng(0).normal(size=(3000, 4))
    found = ss.thin(x, -3.0 * x, size=300, validate_scores=False).diagnose()
    finding = found["scores"]
    assert finding.fired and finding.value == pytest.approx(2.0, abs=0.3) and "another density" in finding.advice
    assert f"score is {-1 - finding.value:.3g}, expected -1 (tolerance 0.4; 4 of 4 parameters affected)" in str(finding)
    assert found["spread"].fired and found["spread"].advice == "probably a consequence of scores"
