"""KSD from second scores: unbiased where the selection's own scores are not, and seen by nobody before."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import steinstream as ss
from steinstream.discrepancy.ksd import squared_ksd_debiased
from tests.streams import kernels, streams
from tests.thinners import ksd_thinner

COORDINATES = {
    "identity": lambda dim: None,
    "scales": lambda dim: ss.Preconditioner.scales(np.geomspace(0.5, 2.0, dim)),
    "covariance": lambda dim: ss.Preconditioner.covariance(np.eye(dim) + 0.5),
    "centred": lambda dim: ss.Preconditioner(np.array(1.0), np.ones(dim)),
    "warmup": lambda dim: ss.Warmup(draws=9),
    "streaming": lambda dim: ss.Streaming(first=8),
}


def noisy(seed, draws, dim, sd):
    """Draws of a standard normal, their scores with noise, and once more with other noise."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(draws, dim))
    return x, -x + sd * random.normal(size=x.shape), -x + sd * random.normal(size=x.shape)


@pytest.mark.parametrize(("dim", "size", "passes"), [(2, 50, 1), (2, 50, 3), (8, 40, 1)])
def test_honest_where_the_reported_figure_is_not(dim, size, passes):
    squares = []
    for seed in range(60):
        x, s, check = noisy(seed, 1500, dim, 1.0)
        thinner = ksd_thinner(dim, size=size)
        for number in range(passes):
            if number:
                thinner.start_pass()
            thinner.extend(x, s, second_scores=check)
        kept = thinner.kept
        debiased = squared_ksd_debiased(
            kept.draws, kept.second_scores, kept.settings["second_scores_noise"], kept.kernel, kept.preconditioner
        )
        squares.append([ss.ksd(kept.draws, -kept.draws) ** 2, kept.ksd**2, debiased])
    true, reported, debiased = np.array(squares).T
    errors = debiased - true
    assert abs(errors.mean()) < 3.5 * errors.std() / np.sqrt(len(errors))
    assert errors.std() / np.sqrt(len(errors)) < 0.25 * true.mean()  # so that the line above could fail
    assert reported.mean() < (0.4 if dim == 2 else 0.95) * true.mean()


def test_minibatches():
    """SGLD on a Gaussian mean: scores of minibatches, checked with minibatches of their own.

    The chain is six times as wide as the posterior, so the scores are not those of its draws.
    """
    rows = np.random.default_rng(0).normal(1.0, 1.0, size=(2000, 2))

    def minibatch(x, generator):
        return 2000.0 * (rows[generator.integers(2000, size=40)].mean(axis=0) - x)

    sampler = ss.samplers.SGLD(None, step=2e-4, minibatch=minibatch, record="independent")
    _, block = sampler.sample(sampler.init(rows.mean(axis=0), seed=0), 1500)
    apart = np.random.default_rng(1)
    errors, gaps = [], []
    for _ in range(12):
        check = np.array([minibatch(x, apart) for x in block.draws])
        scores = np.array([minibatch(x, apart) for x in block.draws])
        thinner = ksd_thinner(2, size=30, preconditioner=ss.Preconditioner.length_scale(0.045), validate_scores=False)
        thinner.extend(block.draws, scores, second_scores=check)
        kept = thinner.kept
        true = ss.ksd(kept.draws, 2000.0 * (rows.mean(axis=0) - kept.draws), preconditioner=kept.preconditioner) ** 2
        debiased = squared_ksd_debiased(
            kept.draws, kept.second_scores, kept.settings["second_scores_noise"], kept.kernel, kept.preconditioner
        )
        errors.append(debiased - true)
        gaps.append(kept.ksd**2 - true)
    assert abs(np.mean(errors)) < 3.5 * np.std(errors) / np.sqrt(12)
    assert np.mean(gaps) < -4.0 * np.std(gaps) / np.sqrt(12)


@settings(max_examples=60, deadline=None)
@given(streams(max_dim=5, max_length=40), kernels, st.sampled_from(sorted(COORDINATES)), st.integers(1, 2), st.data())
def test_nothing_is_selected_by_the_checks_and_each_stays_with_its_draw(stream, kernel, name, candidates, data):
    x, s = stream
    check = s + np.random.default_rng(0).normal(size=s.shape)
    dim, cut = x.shape[1], data.draw(st.integers(0, len(x)))
    with_checks, without = (
        ksd_thinner(
            dim, kernel=kernel, preconditioner=COORDINATES[name](dim), candidates=candidates, validate_scores=False
        )
        for _ in range(2)
    )
    without.extend(x, s)
    with_checks.extend(x[:cut], s[:cut], second_scores=check[:cut])
    for row in range(cut, len(x)):
        with_checks.push(x[row], s[row], second_scores=check[row])
    kept, plain = with_checks.kept, without.kept
    if len(plain) == 0:
        return
    assert np.array_equal(kept.ids, plain.ids) and kept.ksd == plain.ksd
    assert np.array_equal(kept.draws, plain.draws) and np.array_equal(kept.scores, plain.scores)
    groups = np.unique(np.hstack([x, s]), axis=0, return_inverse=True)[1].ravel()
    for (_, draw), own in zip(
        kept.ids, kept.second_scores, strict=True
    ):  # draws of one state and score may share a check
        assert (check[groups == groups[draw]] == own).all(axis=1).any()
    if len(set(groups)) == len(x):
        assert np.array_equal(kept.second_scores, check[kept.ids[:, 1]])
    assert plain.second_scores is None and plain.ksd_debiased is None


@settings(max_examples=20, deadline=None)
@given(streams(max_dim=3, max_length=25), st.sampled_from(sorted(COORDINATES)))
def test_a_checkpoint_at_any_step_changes_nothing(tmp_path_factory, stream, name):
    x, s = stream
    path = tmp_path_factory.mktemp("checkpoint") / "run.npz"
    check = s + np.random.default_rng(0).normal(size=s.shape)
    through, resumed = (
        ksd_thinner(x.shape[1], preconditioner=COORDINATES[name](x.shape[1]), validate_scores=False) for _ in range(2)
    )
    through.extend(x, s, second_scores=check)
    for row in range(len(x)):
        resumed.push(x[row], s[row], second_scores=check[row])
        resumed.save(path)
        resumed = ss.Thinner.load(path)
    one, two = through.kept, resumed.kept
    assert (
        np.array_equal(one.second_scores, two.second_scores)
        and one.settings["second_scores_noise"] == two.settings["second_scores_noise"]
        and one.ksd_debiased == two.ksd_debiased
    )


def test_the_excess_is_the_noise_in_the_kernels_coordinates():
    random = np.random.default_rng(0)
    x = random.normal(size=(4000, 3))
    root = np.array([[1.0, 0.0, 0.0], [0.7, 0.5, 0.0], [0.0, -0.3, 2.0]])
    noise = random.normal(size=(2, 4000, 3)) @ root.T
    for kernel, phi in ((ss.IMQ(), 1.0), (ss.IMQ(c=2.0), 0.5), (ss.RBF(), 1.0)):
        for name in ("identity", "scales", "covariance"):
            thinner = ksd_thinner(3, kernel=kernel, size=20, preconditioner=COORDINATES[name](3))
            thinner.extend(x, -x + noise[0], second_scores=-x + noise[1])
            factor = thinner.preconditioner.factor
            factor = factor if factor.ndim == 2 else np.diag(np.broadcast_to(factor, 3))
            expected = phi * np.trace(factor.T @ root @ root.T @ factor)
            assert thinner.kept.settings["second_scores_noise"] == pytest.approx(expected, rel=0.05)


def test_without_noise_it_is_ksd():
    x = np.random.default_rng(0).normal(size=(500, 3))
    thinner = ksd_thinner(3, size=30)
    thinner.extend(x, -x, second_scores=-x)
    assert thinner.kept.settings["second_scores_noise"] == 0.0 and thinner.kept.ksd_debiased == pytest.approx(
        thinner.ksd, rel=1e-12
    )


def test_noise_is_learnt_once():
    x, s, check = noisy(0, 400, 2, 1.0)
    thinner = ksd_thinner(2, size=30)
    thinner.extend(x, s, second_scores=check)
    once = thinner.kept.settings["second_scores_noise"]
    thinner.start_pass()
    thinner.extend(x, s, second_scores=check[::-1])
    assert thinner.kept.settings["second_scores_noise"] == once


def test_copies_of_a_state_share_their_noise():
    """Every draw of the chain twice, all kept: on the diagonal noise counts four times for each pair."""
    x, s, check = noisy(0, 200, 2, 1.0)
    once, twice = ksd_thinner(2, growth="none"), ksd_thinner(2, growth="none")
    once.extend(x, s, second_scores=check)
    twice.extend(*(np.repeat(part, 2, axis=0) for part in (x, s)), second_scores=np.repeat(check, 2, axis=0))
    assert twice.kept.settings["second_scores_noise"] == pytest.approx(once.kept.settings["second_scores_noise"])
    assert twice.kept.ksd_debiased == pytest.approx(once.kept.ksd_debiased)


def test_an_estimate_below_zero_is_given_as_zero():
    values = []
    for seed in range(20):
        x, s, check = noisy(seed, 1000, 2, 3.0)
        thinner = ksd_thinner(2, size=40)
        thinner.extend(x, s, second_scores=check)
        values.append(thinner.kept.ksd_debiased)
    assert min(values) == 0.0 < max(values)


def test_checks_are_saved_with_the_draws(tmp_path):
    x, s, check = noisy(0, 300, 2, 0.5)
    thinner = ksd_thinner(2, size=20)
    thinner.extend(x, s, second_scores=check)
    thinner.kept.save(tmp_path / "kept.npz")
    with np.load(tmp_path / "kept.npz") as written:
        assert np.array_equal(written["second_scores"], thinner.kept.second_scores)
        noise = json.loads(str(written["settings"]))["second_scores_noise"]
        assert noise == thinner.kept.settings["second_scores_noise"]


def test_bad_checks_are_refused():
    x, s, check = noisy(0, 10, 2, 0.5)
    for given_first, then in ((check, None), (None, check)):
        thinner = ksd_thinner(2)
        thinner.extend(x, s, second_scores=given_first)
        with pytest.raises(ss.SteinstreamError, match="second scores"):
            thinner.extend(x, s, second_scores=then)
    with pytest.raises(ss.SteinstreamError, match="second scores"):
        ksd_thinner(2, initial=(x, s)).extend(x, s, second_scores=check)
    with pytest.raises(ss.SteinstreamError, match="shape"):
        ksd_thinner(2).extend(x, s, second_scores=check[:, :1])
    check[3, 1] = np.nan
    thinner = ksd_thinner(2)
    with pytest.raises(ss.SteinstreamError, match="draw 3 is nan"):
        thinner.extend(x, s, second_scores=check)
    assert thinner.seen == 0
    thinner.extend(x, s)  # the refused block changed nothing
    skipping = ksd_thinner(2, on_bad="skip")
    skipping.extend(x, s, second_scores=check)
    assert skipping.skipped == 1 and np.isfinite(skipping.kept.second_scores).all()


def test_order_and_weights_take_the_second_scores_along(tmp_path):
    rng = np.random.default_rng(3)
    draws = rng.normal(size=(600, 2))
    thinner = ksd_thinner(2, size=30)
    thinner.extend(draws, rng.normal(-draws, 0.5), second_scores=rng.normal(-draws, 0.5))
    kept = thinner.kept
    ordered, weighted = kept.ordered(), kept.weighted()
    place = {tuple(id): row for row, id in enumerate(kept.ids.tolist())}
    assert np.array_equal(ordered.second_scores, kept.second_scores[[place[tuple(id)] for id in ordered.ids.tolist()]])
    assert ordered.ksd_debiased == pytest.approx(kept.ksd_debiased, rel=1e-9)
    assert ordered.prefix(10).second_scores.shape == (10, 2) and ordered.prefix(10).bound is None
    square = (
        ss.ksd(kept.draws, kept.second_scores, weights=weighted.weights) ** 2
        - kept.settings["second_scores_noise"] * weighted.weights @ weighted.weights
    )
    assert weighted.ksd_debiased == pytest.approx(np.sqrt(max(square, 0.0)), rel=1e-9)
    weighted.save(tmp_path / "kept.npz")
    assert ss.Kept.load(tmp_path / "kept.npz").ksd_debiased == weighted.ksd_debiased
