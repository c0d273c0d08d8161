"""With an anchor the kept draws have the stream's proportions, and everything else that is promised still holds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import Reference
from streams import budgets, growths, kernels, rules, streams
from test_engine_against_reference import budget_at, floor_at, magnitude
from test_invariance import permuted, same

import steinstream as ss
from steinstream import schedules
from steinstream._engine import fourier_features, penalties
from steinstream._engine.jit import threads
from steinstream.kernels import PROFILES
from steinstream.thinner._pace import Pace

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
    plain, anchored, costs = [], [], []
    for seed in range(3):
        x, s, first = mixture(8000, seed)
        preconditioner = ss.Preconditioner.estimate("covariance", x) if fitted else None
        thinners = [ss.Thinner(2, preconditioner=preconditioner, anchor=on, **how) for on in (False, True)]
        for thinner, errors in zip(thinners, (plain, anchored), strict=True):
            thinner.extend(x, s)
            errors.append(first[thinner.kept.ids[:, 1]].mean() - first.mean())
        costs.append(thinners[1].ksd / thinners[0].ksd)
        assert thinners[1].mmd < 0.03 and math.isnan(thinners[0].mmd)
    assert max(map(abs, plain)) > 0.04, "the plain thinner does not know of proportions"
    assert max(map(abs, anchored)) < 0.02
    assert np.mean(costs) < 1.4, "and that costs little KSD"


@settings(max_examples=60, deadline=None)
@given(
    streams(max_dim=8, max_length=30), kernels, growths, budgets, st.sampled_from([None, 4, 9]), st.integers(1, 3),
    rules, gammas,
)  # fmt: skip
def test_keeps_the_same_draws_as_the_reference(stream, kernel, growth, budget, cap, candidates, rule, gamma):
    x, s = stream
    thinner = ss.Thinner(
        x.shape[1], kernel=kernel, growth=growth, budget=budget, rule=rule, size=cap, candidates=candidates,
        anchor=gamma, validate_scores=False,
    )  # fmt: skip
    reference = Reference(kernel, anchor=gamma)
    for t in range(1, len(x) // candidates + 1):
        group = slice((t - 1) * candidates, t * candidates)
        names = [(0, i) for i in range(group.start, group.stop)]
        size = len(reference.points) + 1
        reference.step(
            x[group], s[group], names, floor_at(t, growth, cap=cap), budget_at(t, budget, growth, size), cap, rule
        )
        thinner.extend(x[group], s[group])
        kept = thinner.kept
        assert sorted(map(tuple, kept.ids.tolist())) == sorted(reference.ids), f"step {t}"
        assert kept.ksd == ss.ksd(kept.draws, kept.scores, kernel=kernel), "KSD is reported plain, bit for bit"
        assert kept.ksd**2 == pytest.approx(reference.square, rel=1e-9, abs=1e-12 * magnitude(reference))
        weight = reference.weight
        if weight > 0:
            pairs = fourier_features.PAIRS
            assert thinner.mmd**2 * weight * pairs == pytest.approx(reference.gap(reference.points), rel=1e-6, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(streams(max_dim=6, max_length=25), kernels, growths, st.sampled_from([0.0, 0.05]), gammas, rules)
def test_no_step_costs_more_of_the_objective_than_its_budget(stream, kernel, growth, budget, gamma, rule):
    x, s = stream
    thinner = ss.Thinner(
        x.shape[1], kernel=kernel, growth=growth, budget=budget, anchor=gamma, rule=rule, validate_scores=False
    )
    judge = Reference(kernel, anchor=gamma)
    for t in range(1, len(x) + 1):
        judge.stream.append((x[t - 1], s[t - 1], 0.0))
        before = judge.objective if judge.points else math.inf
        judge.add(x[t - 1], s[t - 1], (0, t - 1))
        allowed = judge.objective if rule == "paper" else min(judge.objective, before)
        terms = magnitude(judge) + judge.weight
        thinner.push(x[t - 1], s[t - 1])
        rows = thinner.kept.ids[:, 1]
        judge.points, judge.scores, judge.ids = list(x[rows]), list(s[rows]), [(0, int(row)) for row in rows]
        judge.costs = [0.0] * len(rows)
        floor = max(1, math.ceil(min(float(schedules.evaluate(thinner.growth, np.array([float(t)]))[0]), t)))
        assert len(rows) >= floor
        if rule == "paper" or len(rows) > floor:
            assert judge.objective <= allowed + budget + 1e-12 * terms


@settings(max_examples=40, deadline=None)
@given(
    streams(max_dim=6, max_length=40), kernels, growths, gammas, st.integers(1, 3), st.integers(1, 9),
    st.randoms(use_true_random=False),
)  # fmt: skip
def test_blocks_checkpoints_and_the_order_of_storage_do_not_matter(
    tmp_path_factory, stream, kernel, growth, gamma, candidates, block, random
):
    x, s = stream
    path = tmp_path_factory.mktemp("anchor") / "run.npz"
    preconditioner = ss.Preconditioner.scales(np.linspace(0.5, 2.0, x.shape[1]))

    def make():
        return ss.Thinner(
            x.shape[1], kernel=kernel, growth=growth, anchor=gamma, candidates=candidates, preconditioner=preconditioner,
            validate_scores=False,
        )  # fmt: skip

    whole, blocks, resumed, shuffled = (make() for _ in range(4))
    whole.extend(x, s)
    for first in range(0, len(x), block):
        part = slice(first, first + block)
        for thinner in (blocks, resumed, shuffled):
            thinner.extend(x[part], s[part])
        resumed.save(path)
        resumed = ss.Thinner.load(path, **({"growth": growth} if callable(growth) else {}))
        if shuffled.size:
            shuffled._dictionary.restore(permuted(shuffled._dictionary.state(), random))
    for other in (blocks, resumed, shuffled):
        same(whole, other)
        assert whole.mmd == other.mmd or len(whole.kept) == 0


@pytest.mark.skipif(threads() is None, reason="one core, or no OpenMP or TBB for numba here")
@pytest.mark.parametrize("candidates", [1, 10])
def test_threads_change_nothing(monkeypatch, candidates):
    x, s, _ = mixture(3600, 0, dim=60)
    results = []
    for workers in (None, 2):
        chosen = []
        monkeypatch.setattr(Pace, "choose", lambda self, workers=workers, chosen=chosen: chosen.append(1) or workers)
        thinner = ss.Thinner(60, size=3300 // candidates, candidates=candidates, anchor=True, validate_scores=False)
        for part in (slice(0, 3400), slice(3400, None)):
            thinner.extend(x[part], s[part])
        results.append((thinner.ksd, thinner.mmd, thinner.kept.ids.tolist()))
        assert chosen, "large sweeps are shared"
    assert results[0] == results[1]


def test_warmup_initial_draws_and_select_go_with_an_anchor():
    x, s, _ = mixture(2000, 1)
    waiting = ss.Thinner(2, size=30, anchor=True, preconditioner=ss.Warmup("covariance", 500))
    waiting.extend(x, s)
    known = ss.Thinner(2, size=30, anchor=True, preconditioner=ss.Preconditioner.estimate("covariance", x[250:500]))
    known.extend(x, s)
    assert np.array_equal(waiting.kept.ids, known.kept.ids) and waiting.mmd == known.mmd

    begun = ss.Thinner(2, anchor=True, growth=5, initial=(x[:4] + 50.0, s[:4]), validate_scores=False)
    begun.extend(x[:1], s[:1])
    assert begun._dictionary._guide.numbers[penalties.COUNT] == 1, "what one begins with is no part of the stream"

    one, two = (ss.Thinner(2, anchor=True, size=20) for _ in range(2))
    for first in range(0, 500, 5):
        one.select(x[first : first + 5], s[first : first + 5])
    two.candidates = 5
    two.extend(x[:500], s[:500])
    assert np.array_equal(one.kept.ids, two.kept.ids)


@pytest.mark.parametrize("how", [{"growth": "sqrt"}, {"size": 100}])
def test_coordinates_that_follow_the_stream_keep_shares_too(how):
    errors = []
    for seed in range(3):
        x, s, first = mixture(8000, seed)
        x, s = x * [100.0, 0.01], s / [100.0, 0.01]
        thinner = ss.Thinner(2, preconditioner=ss.Streaming(), anchor=True, **how)
        thinner.extend(x, s)
        errors.append(first[thinner.kept.ids[:, 1]].mean() - first.mean())
    assert max(map(abs, errors)) < 0.02


@pytest.mark.parametrize("kernel", [ss.IMQ(), ss.RBF(linear=0.1)])
def test_with_coordinates_that_follow_the_stream_the_objective_is_what_is_written_down(kernel):
    """Frequencies of the first estimate, for draws after it; kappa of what was kept at the last and of draws since."""
    x = np.random.default_rng(0).normal(size=(300, 2)) * [3.0, 0.1]
    s, gamma = -x / np.array([9.0, 0.01]), 0.3
    thinner = ss.Thinner(2, kernel=kernel, preconditioner=ss.Streaming(first=20, centred=True), anchor=gamma, growth=15)
    turns, stream, since, changes = None, [], [], 0
    for t, (draw, score) in enumerate(zip(x, s, strict=True), start=1):
        thinner.push(draw, score)
        stream.append(t - 1)
        since.append(t - 1)
        kept = thinner.kept
        if len(thinner.settings["preconditioner_changed"]) > changes:
            changes, since = changes + 1, kept.ids[:, 1].tolist()
            if turns is None:
                turns, stream = fourier_features.frequencies(kernel, 2, kept.preconditioner.factor), []
        if turns is None or not stream:
            assert math.isnan(thinner.mmd) and math.sqrt(thinner.objective) == kept.ksd
            continue
        mean = fourier_features.features(x[stream], turns).mean(axis=0)
        apart = fourier_features.features(kept.draws, turns).mean(axis=0) - mean
        points, scores = kept.preconditioner.apply(x[since], s[since])
        kappa = math.exp(np.log(kernel.diagonal(scores, points)).mean())
        spread = fourier_features.PAIRS - mean @ mean
        added = gamma * kappa * (apart @ apart) / spread if len(stream) > 1 else 0.0
        assert thinner.mmd == pytest.approx(math.sqrt(apart @ apart / fourier_features.PAIRS), rel=1e-5, abs=1e-6)
        assert thinner.objective == pytest.approx(kept.ksd**2 + added, rel=1e-5)
    assert changes == 4


@settings(max_examples=30, deadline=None)
@given(streams(max_dim=4, max_length=40, min_length=3), kernels, growths, gammas, st.integers(1, 3))
def test_later_passes_never_raise_the_objective_and_hear_no_draw_twice(stream, kernel, growth, gamma, candidates):
    x, s = stream
    thinner = ss.Thinner(
        x.shape[1], kernel=kernel, growth=growth, anchor=gamma, candidates=candidates, validate_scores=False
    )
    thinner.extend(x, s)
    if not len(thinner):
        return
    heard = thinner._dictionary._guide.stream.copy()
    for _ in range(2):
        thinner.start_pass()
        size = len(thinner)
        for draw, score in zip(x, s, strict=True):
            before = thinner.objective
            thinner.push(draw, score)
            terms = magnitude_of(thinner)
            assert len(thinner) == size and thinner.objective <= before + 1e-6 * terms
    now = thinner._dictionary._guide
    assert np.array_equal(now.stream, heard) and now.numbers[penalties.COUNT] == len(x) // candidates * candidates


def magnitude_of(thinner):
    """The size of the terms of which the objective is made."""
    kept, (weight, *_) = thinner.kept, thinner._dictionary._guide.numbers
    matrix = thinner.kernel.matrix(kept.draws, kept.scores, kept.draws, kept.scores)
    return np.abs(matrix).mean() + weight * fourier_features.PAIRS


def test_auto_goes_on_as_long_as_the_objective_falls():
    x, s, first = mixture(3000, 3)
    kept = ss.thin(x, s, size=40, anchor=True, passes="auto")
    once = ss.thin(x, s, size=40, anchor=True)
    assert kept.settings["passes"] > 1 and abs(first[kept.ids[:, 1]].mean() - first.mean()) < 0.03
    assert kept.settings["mmd"] < once.settings["mmd"] or kept.ksd < once.ksd
    with pytest.raises(ss.SteinstreamError, match="no anchor, costs or pins"):
        ss.thin(x, s, size=40, anchor=True, start="sample")


def test_sums_over_streams_add_up():
    """So that thinners of several chains can be joined."""
    x, s, _ = mixture(600, 4)
    whole, one, two = (ss.Thinner(2, anchor=True, growth=20) for _ in range(3))
    whole.extend(x, s)
    one.extend(x[:250], s[:250])
    two.extend(x[250:], s[250:])
    sums = [thinner._dictionary._guide.stream for thinner in (whole, one, two)]
    assert np.array_equal(sums[0], sums[1] + sums[2]), "to the last bit"


def test_no_bound_is_given_where_ksd_is_not_all():
    x, s, _ = mixture(500, 5)
    plain, anchored = (ss.Thinner(2, size=20, anchor=on) for on in (False, True))
    for thinner in (plain, anchored):
        thinner.extend(x, s)
    assert plain.bound is not None and anchored.bound is None and anchored.kept.bound is None


def test_a_stream_without_proportions_is_thinned_as_without_an_anchor():
    x = np.repeat(np.array([[1.0, -2.0]]), 50, axis=0)
    plain, anchored = (ss.Thinner(2, growth=5, anchor=on, validate_scores=False) for on in (False, True))
    for thinner in (plain, anchored):
        thinner.extend(x, -x)
    assert np.array_equal(plain.kept.ids, anchored.kept.ids) and anchored.mmd == 0.0


def test_gamma_has_no_unit():
    """In coordinates that differ by a factor of a thousand, with a kernel as wide, the same draws are kept."""
    x, s, _ = mixture(3000, 2)
    ids = []
    for factor in (1.0, 1024.0):
        thinner = ss.Thinner(2, kernel=ss.IMQ(c=factor), size=40, anchor=0.3)
        thinner.extend(x * factor, s / factor)
        ids.append(thinner.kept.ids)
    assert np.array_equal(*ids)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([ss.IMQ(), ss.IMQ(c=2.0, beta=-0.3), ss.RBF(), ss.RBF(h=0.5)]), st.integers(1, 12))
def test_many_waves_are_the_base_kernel(kernel, dim):
    x = np.random.default_rng(dim).normal(size=(6, dim))
    waves = fourier_features.features(x, fourier_features.frequencies(kernel, dim, np.array(1.0), 4096))
    compiled = kernel.compiled(dim)
    u = ((x[:, None] - x[None]) ** 2).sum(axis=-1)
    phi = PROFILES[compiled.profile](u, compiled.first, compiled.second)[0]
    assert waves @ waves.T / 4096 == pytest.approx(phi / phi[0, 0], abs=0.05)


@given(st.floats(-1e6, 1e6))
def test_waves_are_cosine_and_sine(turns):
    exact = turns - round(turns)  # of an angle in turns nothing else matters
    cosine, sine = fourier_features.wave(turns)
    assert cosine == pytest.approx(math.cos(2 * math.pi * exact), abs=0.51 * fourier_features.GRID)
    assert sine == pytest.approx(math.sin(2 * math.pi * exact), abs=0.51 * fourier_features.GRID)
    assert fourier_features.wave(-turns) == (cosine, -sine) or abs(abs(exact) - 0.5) < 1e-9


def test_says_no_to_nonsense():
    for value in (-1.0, float("nan"), float("inf"), "yes", None):
        with pytest.raises(ss.SteinstreamError, match="anchor"):
            ss.Thinner(2, anchor=value)
    assert ss.Thinner(2, anchor=True).anchor == fourier_features.DEFAULT
