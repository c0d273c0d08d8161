"""With the stream term the kept draws represent the stream, and all guarantees hold for the objective."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import steinstream as ss
from steinstream._engine.jit import threads
from steinstream._engine.penalties import PENALTY_SCALARS
from steinstream._engine.reference import Reference, recent_mean
from steinstream.thinner.threads import ThreadChooser
from tests.streams import budgets, growths, kernels, rules, streams
from tests.thinners import (
    assert_same_in_parts,
    floor_at,
    groups,
    ksd_thinner,
    limits_at,
    magnitude,
    replace_kept,
    thin_by_ksd,
)

gammas = st.sampled_from([0.05, 0.3, 3.0])


def mixture(count, seed, distance=6.0, share=0.2, dim=2):
    """Independent draws of two standard normals, and which of them are of the first."""
    rng = np.random.default_rng(seed)
    first = rng.random(count) < share
    far = np.zeros(dim)
    far[0] = distance
    x = rng.normal(size=(count, dim)) + np.where(first[:, None], 0.0, far)
    other = 1.0 / (1.0 + share / (1.0 - share) * np.exp(distance * (distance / 2 - x[:, 0])))
    return x, other[:, None] * far - x, first


@pytest.mark.parametrize("how", [{"growth": "sqrt"}, {"size": 100}])
@pytest.mark.parametrize("fitted", [False, True])
def test_modes_far_apart_keep_their_share(how, fitted):
    plain, compared, costs = [], [], []
    for seed in range(3):
        x, s, first = mixture(8000, seed)
        preconditioner = ss.Preconditioner.estimate("covariance", x) if fitted else None
        thinners = [ksd_thinner(2, preconditioner=preconditioner, stream_weight=on, **how) for on in (0.0, 1.0)]
        for thinner, errors in zip(thinners, (plain, compared), strict=True):
            thinner.extend(x, s)
            errors.append(first[thinner.kept.ids[:, 1]].mean() - first.mean())
        costs.append(thinners[1].ksd / thinners[0].ksd)
        assert thinners[1].mmd < 0.03 and math.isnan(thinners[0].mmd)
    assert max(map(abs, plain)) > 0.04, "the plain thinner does not know of proportions"
    assert max(map(abs, compared)) < 0.02
    assert np.mean(costs) < 2.5


@settings(max_examples=60, deadline=None)
@given(
    streams(max_dim=8, max_length=30),
    kernels,
    growths,
    budgets,
    st.sampled_from([None, 4, 9]),
    st.integers(1, 3),
    rules,
    gammas,
)
def test_keeps_the_same_draws_as_the_reference(stream, kernel, growth, budget, cap, candidates, rule, gamma):
    x, s = stream
    thinner = ksd_thinner(
        x.shape[1],
        kernel=kernel,
        growth=growth,
        budget=budget,
        rule=rule,
        size=cap,
        candidates=candidates,
        stream_weight=gamma,
        validate_scores=False,
    )
    reference = Reference(kernel, stream_weight=gamma)
    for t, group, names in groups(len(x), candidates):
        limits = limits_at(t, growth, budget, len(reference.draws) + 1, cap, rule)
        reference.step(x[group], s[group], names, **limits)
        thinner.extend(x[group], s[group])
        kept = thinner.kept
        assert sorted(map(tuple, kept.ids.tolist())) == sorted(reference.ids), f"step {t}"
        assert kept.ksd == ss.ksd(kept.draws, kept.scores, kernel=kernel), "KSD is reported plain, bit for bit"
        assert kept.ksd**2 == pytest.approx(reference.squared_ksd, rel=1e-9, abs=1e-12 * magnitude(reference))
        scale = magnitude(reference) + reference.mmd_weight
        assert thinner.objective == pytest.approx(reference.objective, rel=1e-9, abs=1e-12 * scale)


@settings(max_examples=40, deadline=None)
@given(streams(max_dim=6, max_length=25), kernels, growths, st.sampled_from([0.0, 0.05]), gammas, rules)
def test_no_step_costs_more_of_the_objective_than_its_budget(stream, kernel, growth, budget, gamma, rule):
    x, s = stream
    thinner = ksd_thinner(
        x.shape[1], kernel=kernel, growth=growth, budget=budget, stream_weight=gamma, rule=rule, validate_scores=False
    )
    judge = Reference(kernel, stream_weight=gamma)
    for t in range(1, len(x) + 1):
        judge.observe(x[t - 1 : t], s[t - 1 : t], [(0, t - 1)], [0.0])
        before = judge.objective if judge.draws else math.inf
        judge.insert(x[t - 1], s[t - 1], (0, t - 1))
        allowed = judge.objective if rule == "paper" else min(judge.objective, before)
        terms = magnitude(judge) + judge.mmd_weight
        thinner.push(x[t - 1], s[t - 1])
        rows = thinner.kept.ids[:, 1]
        replace_kept(judge, x[rows], s[rows], [(0, int(row)) for row in rows])
        floor = floor_at(t, growth)
        assert len(rows) >= floor
        if rule == "paper" or len(rows) > floor:
            assert judge.objective <= allowed + budget + 1e-12 * terms


@settings(max_examples=40, deadline=None)
@given(
    streams(max_dim=6, max_length=40),
    kernels,
    growths,
    gammas,
    st.integers(1, 3),
    st.integers(1, 9),
    st.randoms(use_true_random=False),
)
def test_blocks_checkpoints_and_the_order_of_storage_do_not_matter(
    tmp_path_factory, stream, kernel, growth, gamma, candidates, block, random
):
    x, s = stream
    path = tmp_path_factory.mktemp("stream") / "run.npz"
    preconditioner = ss.Preconditioner.scales(np.linspace(0.5, 2.0, x.shape[1]))

    def make():
        return ksd_thinner(
            x.shape[1],
            kernel=kernel,
            growth=growth,
            stream_weight=gamma,
            candidates=candidates,
            preconditioner=preconditioner,
            validate_scores=False,
        )

    def add(thinner, rows):
        thinner.extend(x[rows], s[rows])

    assert_same_in_parts(make, add, len(x), block, path, random)


@pytest.mark.skipif(threads() is None, reason="one core, or no OpenMP or TBB for numba here")
@pytest.mark.parametrize("candidates", [1, 10])
def test_threads_change_nothing(monkeypatch, candidates):
    x, s, _ = mixture(3600, 0, dim=60)
    results = []
    for workers in (None, 2):
        chosen = []
        monkeypatch.setattr(ThreadChooser, "choose", lambda self, n=workers, calls=chosen: calls.append(1) or n)
        thinner = ksd_thinner(
            60, size=3300 // candidates, candidates=candidates, stream_weight=1.0, validate_scores=False
        )
        for part in (slice(0, 3400), slice(3400, None)):
            thinner.extend(x[part], s[part])
        results.append((thinner.ksd, thinner.mmd, thinner.kept.ids.tolist()))
        assert chosen, "large sweeps are shared"
    assert results[0] == results[1]


def test_warmup_initial_draws_and_select_go_with_the_stream_term():
    x, s, _ = mixture(2000, 1)
    waiting = ksd_thinner(2, size=30, stream_weight=1.0, preconditioner=ss.Warmup("covariance", 500))
    waiting.extend(x, s)
    known = ksd_thinner(
        2, size=30, stream_weight=1.0, preconditioner=ss.Preconditioner.estimate("covariance", x[250:500])
    )
    known.extend(x, s)
    assert np.array_equal(waiting.kept.ids, known.kept.ids) and waiting.mmd == known.mmd

    begun = ksd_thinner(2, stream_weight=1.0, growth=5, initial=(x[:4] + 50.0, s[:4]), validate_scores=False)
    begun.extend(x[:1], s[:1])
    assert stream_draws(begun) == 1, "the initial set is not part of the stream"

    one, two = (ksd_thinner(2, stream_weight=1.0, size=20, candidates=candidates) for candidates in (1, 5))
    for first in range(0, 500, 5):
        one.select(x[first : first + 5], s[first : first + 5])
    two.extend(x[:500], s[:500])
    assert np.array_equal(one.kept.ids, two.kept.ids)


@pytest.mark.parametrize("how", [{"growth": "sqrt"}, {"size": 100}])
def test_coordinates_that_follow_the_stream_keep_shares_too(how):
    errors = []
    for seed in range(3):
        x, s, first = mixture(8000, seed)
        x, s = x * [100.0, 0.01], s / [100.0, 0.01]
        thinner = ksd_thinner(2, preconditioner=ss.Streaming(), stream_weight=1.0, **how)
        thinner.extend(x, s)
        errors.append(first[thinner.kept.ids[:, 1]].mean() - first.mean())
    assert max(map(abs, errors)) < 0.02


@pytest.mark.parametrize("kernel", [ss.IMQ(), ss.RBF(linear=0.1)])
def test_with_a_streaming_preconditioner_the_objective_is_that_of_the_whole_stream(kernel):
    """While the summary holds every draw, the sums are exact. kappa: draws kept at the last change, and draws since."""
    x = np.random.default_rng(0).normal(size=(300, 2)) * [3.0, 0.1]
    s, gamma = -x / np.array([9.0, 0.01]), 0.3
    streaming = ss.Streaming(first=20, centred=True)
    thinner = ksd_thinner(2, kernel=kernel, preconditioner=streaming, stream_weight=gamma, growth=15)
    since, changes = [], 0
    for t, (draw, score) in enumerate(zip(x, s, strict=True), start=1):
        thinner.push(draw, score)
        since.append(t - 1)
        kept = thinner.kept
        if len(thinner.settings["preconditioner_changed"]) > changes:
            changes, since = changes + 1, kept.ids[:, 1].tolist()
        stream, scores = kept.preconditioner.apply(x[:t], s[:t])
        phi, rows = kernel.base_matrix(stream, stream), kept.ids[:, 1]
        squared_mmd = phi[np.ix_(rows, rows)].mean() - 2 * phi[rows].mean() + phi.mean()
        kappa = recent_mean(kernel.diagonal(scores[since], stream[since]))
        trusted = thinner.config.stream_weight * thinner.settings["trust"]
        added = trusted * kappa * squared_mmd / (phi[0, 0] - phi.mean()) if t > 1 else 0.0
        assert thinner.mmd == pytest.approx(math.sqrt(max(squared_mmd, 0.0)), rel=1e-6, abs=1e-5)
        assert thinner.objective == pytest.approx(kept.ksd**2 + added, rel=1e-8)
    assert changes == 4


@settings(max_examples=30, deadline=None)
@given(streams(max_dim=4, max_length=40, min_length=3), kernels, growths, gammas, st.integers(1, 3))
def test_later_passes_never_raise_the_objective_and_add_no_draw_to_the_stream(
    stream, kernel, growth, gamma, candidates
):
    x, s = stream
    thinner = ksd_thinner(
        x.shape[1], kernel=kernel, growth=growth, stream_weight=gamma, candidates=candidates, validate_scores=False
    )
    thinner.extend(x, s)
    if not len(thinner):
        return
    stream = thinner.state.dictionary.state()["stream"]
    for _ in range(2):
        thinner.start_pass()
        size = len(thinner)
        for draw, score in zip(x, s, strict=True):
            before = thinner.objective
            thinner.push(draw, score)
            terms = scale_of(thinner, x, s, gamma)
            assert len(thinner) == size and thinner.objective <= before + 1e-12 * terms
    assert np.array_equal(thinner.state.dictionary.state()["stream"], stream)
    assert stream_draws(thinner) == len(x) // candidates * candidates


def stream_draws(thinner):
    """Number of draws in the stream."""
    state = thinner.state.dictionary.state()
    return dict(zip(PENALTY_SCALARS.names, state["penalty_scalars"], strict=True))["count"]


def scale_of(thinner, x, s, gamma):
    """Size of the terms of the objective."""
    kept, judge = thinner.kept, Reference(thinner.config.kernel, stream_weight=gamma)
    judge.observe(x, s, [(0, i) for i in range(len(x))], np.zeros(len(x)))
    matrix = judge.kernel.matrix(kept.draws, kept.scores, kept.draws, kept.scores)
    return np.abs(matrix).mean() + judge.mmd_weight


def test_auto_goes_on_as_long_as_the_objective_falls():
    x, s, first = mixture(3000, 3)
    kept = thin_by_ksd(x, s, size=40, stream_weight=1.0, passes="auto")
    once = thin_by_ksd(x, s, size=40, stream_weight=1.0)
    assert kept.settings["passes"] > 1 and abs(first[kept.ids[:, 1]].mean() - first.mean()) < 0.03
    assert kept.mmd < once.mmd or kept.ksd < once.ksd


def test_no_bound_is_given_with_costs_or_pins():
    x, s, _ = mixture(500, 5)
    plain, compared, priced, pinned = (
        ksd_thinner(2, size=20, stream_weight=on, cost_weight=cost) for on, cost in ((0, 0), (1, 0), (1, 1), (1, 0))
    )
    plain.extend(x, s)
    compared.extend(x, s, pinned=np.zeros(len(x), dtype=bool))
    priced.extend(x, s, costs=np.ones(len(x)))
    pinned.extend(x, s, pinned=np.arange(len(x)) == 7)
    assert plain.bound is not None and compared.bound is not None and compared.kept.bound == compared.bound
    assert priced.bound is None and pinned.bound is None


def test_a_stream_without_proportions_is_thinned_as_without_the_stream_term():
    x = np.repeat(np.array([[1.0, -2.0]]), 50, axis=0)
    plain, compared = (ksd_thinner(2, growth=5, stream_weight=on, validate_scores=False) for on in (0.0, 1.0))
    for thinner in (plain, compared):
        thinner.extend(x, -x)
    assert np.array_equal(plain.kept.ids, compared.kept.ids) and compared.mmd == 0.0


def test_gamma_has_no_unit():
    """In coordinates that differ by a factor of a thousand, with a kernel as wide, the same draws are kept."""
    x, s, _ = mixture(3000, 2)
    ids = []
    for factor in (1.0, 1024.0):
        thinner = ksd_thinner(2, kernel=ss.IMQ(c=factor), size=40, stream_weight=0.3)
        thinner.extend(x * factor, s / factor)
        ids.append(thinner.kept.ids)
    assert np.array_equal(*ids)


def test_invalid_weights_are_rejected():
    for value in (-1.0, float("nan"), float("inf"), "yes", None):
        with pytest.raises(ss.SteinstreamError, match="stream_weight must be a number of at least 0"):
            ksd_thinner(2, stream_weight=value)


def test_a_summary_keeps_the_mean_embedding_and_the_number_of_draws():
    rng = np.random.default_rng(6)
    for count in (1023, 1024, 6000, 40_000):
        x = rng.normal(size=(count, 3))
        thinner = ksd_thinner(3, size=5, stream_weight=1.0)
        thinner.extend(x, -x)
        state = thinner.state.dictionary.state()
        draws, weights = state["stream"], 2.0 ** state["stream_levels"]
        assert weights.sum() == count and len(draws) < 3000
        if count < 1024:
            assert np.array_equal(draws, x)
        probe = rng.normal(size=(400, 3))
        error = ss.IMQ().base_matrix(probe, draws) @ weights / count - ss.IMQ().base_matrix(probe, x).mean(axis=1)
        evenly = x[:: max(1, count // len(draws))]
        other = ss.IMQ().base_matrix(probe, evenly).mean(axis=1) - ss.IMQ().base_matrix(probe, x).mean(axis=1)
        assert np.abs(error).max() < 0.005
        assert count < 6000 or np.sqrt((error**2).mean()) < 0.3 * np.sqrt((other**2).mean())


@pytest.mark.parametrize("seed", range(3))
def test_long_streams_are_summarised_as_the_reference_does(seed):
    """Halving included: 1300 draws are beyond the capacity of the first level."""
    x = np.random.default_rng(seed).normal(size=(1300, 2))
    thinner = ksd_thinner(2, size=7, stream_weight=1.0, candidates=1 + seed)
    reference = Reference(ss.IMQ(), stream_weight=1.0)
    step = 1 + seed
    for first in range(0, len(x) - step + 1, step):
        rows = slice(first, first + step)
        names = [(0, i) for i in range(rows.start, rows.stop)]
        reference.step(x[rows], -x[rows], names, floor=min(7, first // step + 1), budget=0.0, cap=7)
    thinner.extend(x, -x)
    assert sorted(map(tuple, thinner.kept.ids.tolist())) == sorted(reference.ids)
    draws = [draw for level in reference.summary.levels for draw in level]
    assert np.array_equal(thinner.state.dictionary.state()["stream"], np.array(draws))
    running = thinner.state.dictionary.squared_mmd
    assert running == pytest.approx(max(reference.squared_mmd(range(7)), 0.0), rel=1e-7, abs=1e-12)
    assert thinner.objective == pytest.approx(thinner.ksd**2 + reference.mmd_weight * thinner.mmd**2, rel=1e-9)


@pytest.mark.parametrize("gap", [0.5, 4.0])
@pytest.mark.parametrize("with_scores", [True, False])
def test_chains_that_follow_each_other_are_all_represented(gap, with_scores):
    centres = gap * np.arange(4)  # the chains disagree
    x = np.random.default_rng(0).normal(size=(4, 1000, 2))
    x[..., 0] += centres[:, None]
    weights = np.exp(-0.5 * (x[..., :1] - centres) ** 2)
    means = weights @ centres / weights.sum(axis=-1)
    scores = -x
    scores[..., 0] += means
    thinner = ss.Thinner(2, size=200, preconditioner=ss.Streaming())
    for chain in range(4):
        thinner.extend(x[chain], scores[chain] if with_scores else None, chain=chain)
    kept, every = thinner.kept, x.reshape(-1, 2)
    sd = every.std(axis=0)
    np.testing.assert_array_less(np.abs(kept.draws.mean(axis=0) - every.mean(axis=0)) / sd, 0.1)
    np.testing.assert_allclose(kept.draws.std(axis=0) / sd, 1.0, atol=0.1)
    if gap > 2:  # chains that do not overlap
        assert np.bincount(kept.ids[:, 0], minlength=4).min() >= 35
