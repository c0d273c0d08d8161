"""Scores that do not match the draws are reported when the result is first read; sound chains raise no warning."""

from __future__ import annotations

import numpy as np
import pytest

import steinstream as ss
from steinstream.integrations import generic
from steinstream.samplers import MALA, RandomWalk
from steinstream.targets import Functions, Gaussian, Mixture, Tempered
from tests.thinners import ksd_thinner, thin_by_ksd


def normal(count=2000, dim=3, seed=0):
    return np.random.default_rng(seed).normal(size=(count, dim))


def student(dim, freedom):
    return Functions(
        lambda x: -0.5 * (freedom + dim) * float(np.log1p(x @ x / freedom)),
        lambda x: -(freedom + dim) * x / (freedom + x @ x),
    )


PLACE = np.arange(5)
SOUND = {
    "normal 1": (Gaussian(np.zeros(1), 1.0), 1, 1.5),
    "normal 2": (Gaussian(np.zeros(2), 1.0), 2, 1.2),
    "normal 10": (Gaussian(np.zeros(10), 1.0), 10, 0.9),
    "far off": (Gaussian(np.full(3, 100.0), 1.0), 3, 1.0),
    "correlated": (Gaussian(np.zeros(5), 0.7 ** np.abs(PLACE[:, None] - PLACE)), 5, 0.6),
    "narrow": (Gaussian(np.zeros(2), [1.0, 0.09]), 2, 0.4),
    "two modes": (Mixture([[0, 0], [3, 0]], covariances=1.0, weights=[0.7, 0.3]), 2, 1.2),
    "modes far apart": (Mixture([[0, 0], [9, 0]], covariances=1.0), 2, 1.2),
    "tempered": (Tempered(Gaussian(np.zeros(2), 1.0), 0.5), 2, 1.5),
    "Student": (student(3, 4.0), 3, 0.8),
}


@pytest.mark.parametrize("length", [100, 300, 4000])
@pytest.mark.parametrize("name", SOUND)
def test_sound_chains_pass_in_silence(name, length):
    target, dim, step = SOUND[name]
    sampler = MALA(target, step=step)
    start = np.full(dim, 100.0) if name == "far off" else np.zeros(dim)
    _, block = sampler.sample(sampler.init(start, seed=dim), length + 200)
    thin_by_ksd(block.draws[200:], block.scores[200:], size=20)  # a warning is an error here


def test_burn_in_and_a_chain_that_crawls_are_no_fault_of_the_scores():
    target = Gaussian(np.zeros(2), 1.0)
    for sampler, start in ((MALA(target, step=1.0), 50.0), (RandomWalk(target, step=0.02), 3.0)):
        _, block = sampler.sample(sampler.init(np.full(2, start), seed=0), 3000)
        thin_by_ksd(block.draws, block.scores, size=20)


WIDTHS = np.array([1.0, 2.0, 3.0])
WRONG = {
    "rows shuffled": (lambda x: (x, -np.random.default_rng(1).permutation(x)), "different order"),
    "columns swapped": (lambda x: (x * WIDTHS, (-x / WIDTHS)[:, [1, 0, 2]]), "different order"),
    "mean loss": (lambda x: (x, -x / 1000), "multiply them by the number of data"),
    "doubled": (lambda x: (x, -2 * x), "another density"),
    "halved": (lambda x: (x, -x / 2), "another density"),
    "half-normal": (lambda x: (abs(x), -abs(x)), r"constrained: thin log\(x\)"),
    "exponential": (lambda x: (np.exp(x), -x), r"constrained: thin log\(x\)"),
    "between 0 and 1": (lambda x: (1 / (1 + np.exp(-x)), -x), r"constrained: thin logit\(x\)"),
    "one negated": (lambda x: (x, -x * [1, -1, 1]), "sign of this score is probably wrong"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_scores_are_reported_with_their_likely_cause(name):
    make, cause = WRONG[name]
    draws, scores = make(normal())
    with pytest.warns(ss.ScoresWarning, match=rf"for x\d, the mean of .* expected -1 .*{cause}") as told:
        kept = ss.thin(draws, scores, size=20)
    assert len(told) == 1 and len(kept) == 20 and told[0].filename == __file__
    ss.thin(draws, scores, size=20, validate_scores=False)


def test_draws_far_from_zero_do_not_look_constrained():
    x = normal()
    with pytest.warns(ss.ScoresWarning, match="different order"):
        thin_by_ksd(x + 100, -np.random.default_rng(1).permutation(x), size=20)


def test_a_short_chain_tells_nothing():
    x = normal(199)
    thin_by_ksd(x, -2 * x, size=20)


def test_a_thinner_says_it_once_and_diagnose_says_it_itself():
    x = normal()
    thinner = ksd_thinner(3, size=20)
    thinner.extend(x, -2 * x)
    assert thinner.diagnose()["scores"].fired
    with pytest.warns(ss.ScoresWarning):
        assert len(thinner.kept) == 20
    assert len(thinner.kept) == 20


def test_integrations_tell_it_too():
    x = normal()
    with pytest.warns(ss.ScoresWarning):
        kept = generic.thin(((draw, -2 * draw) for draw in x), size=20)
    assert len(kept) == 20


def test_scores_that_fit_are_not_examined_in_detail(monkeypatch):
    x = normal(6000, 10)
    thinner = ksd_thinner(10, size=20, preconditioner=None)
    thinner.extend(x, -x)
    monkeypatch.setattr("steinstream.thinner.sanity_checks.diagnose_scores", lambda stream: pytest.fail("examined"))
    assert len(thinner.kept) == 20
