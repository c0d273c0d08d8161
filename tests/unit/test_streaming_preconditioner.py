"""Streaming preconditioners: their limit, what stays unchanged, and that no bit depends on the size of the blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import steinstream as ss
from steinstream.running_moments import Moments
from steinstream.thinner.config import ThinConfig
from steinstream.thinner.dictionary import Dictionary
from steinstream.thinner.layout import DrawLayout
from steinstream.validation import Block
from tests.streams import budgets, growths, kernels, rules, streams
from tests.thinners import assert_same, ksd_thinner, thin_by_ksd

following = st.builds(
    ss.Streaming,
    kind=st.sampled_from(["auto", "covariance", "scales"]),
    first=st.integers(4, 12),
    forget=st.sampled_from([None, 5]),
    centred=st.booleans(),
)
choices = st.fixed_dictionaries(
    {
        "preconditioner": following,
        "kernel": kernels,
        "growth": growths,
        "budget": budgets,
        "rule": rules,
        "size": st.sampled_from([None, 6]),
        "candidates": st.integers(1, 3),
    }
)


@settings(max_examples=50, deadline=None)
@given(streams(max_dim=8, max_length=40, min_length=2), st.booleans(), st.integers(0, 40))
def test_moments_are_those_of_the_draws_whatever_the_cut(stream, whole, cut):
    x, _ = stream
    at_once, in_two = Moments(x.shape[1], whole), Moments(x.shape[1], whole)
    at_once.add(x)
    in_two.add(x[:cut])
    in_two.add(x[cut:])
    for one, two in zip(at_once.state().values(), in_two.state().values(), strict=True):
        assert np.array_equal(one, two)
    size = np.abs(x).max() ** 2
    assert at_once.mean == pytest.approx(x.mean(axis=0), abs=1e-12 * size)
    assert np.allclose(at_once.variances, x.var(axis=0), atol=1e-12 * size)
    if whole:
        assert np.allclose(at_once.covariance, np.cov(x, rowvar=False).reshape(x.shape[1], -1), atol=1e-12 * size)
    assert at_once.count == len(x) and at_once.distinct == 1 + np.any(x[1:] != x[:-1], axis=1).sum()


@settings(max_examples=50, deadline=None)
@given(streams(max_dim=6, max_length=70), choices, st.data())
def test_blocks_do_not_matter(stream, choice, data):
    x, s = stream
    whole, blocks, one_by_one = (ksd_thinner(x.shape[1], validate_scores=False, **choice) for _ in range(3))
    whole.extend(x, s)
    edges = sorted(data.draw(st.lists(st.integers(0, len(x)), max_size=6)))
    for begin, end in zip([0, *edges], [*edges, len(x)], strict=True):
        blocks.extend(x[begin:end], s[begin:end])
    for draw, score in zip(x, s, strict=True):
        one_by_one.push(draw, score)
    for other in (blocks, one_by_one):
        assert_same(whole, other)
        assert whole.settings == other.settings and np.array_equal(
            whole.preconditioner.factor, other.preconditioner.factor
        )


def test_the_bound_does_not_depend_on_the_order_of_storage(tmp_path):
    for seed in range(5):
        x = np.random.default_rng(seed).normal(size=(60, 2))
        through, resumed = (ksd_thinner(2, size=7, kernel=ss.IMQ(c=2.0, beta=-0.3)) for _ in range(2))
        for draw in x:
            through.push(draw, -draw)
            resumed.save(tmp_path / "run.npz")
            resumed = ss.Thinner.load(tmp_path / "run.npz")
            resumed.push(draw, -draw)
            assert through.bound == resumed.bound


@settings(max_examples=25, deadline=None)
@given(streams(max_dim=4, max_length=45), choices.filter(lambda choice: not callable(choice["growth"])))
def test_a_checkpoint_at_any_step_changes_nothing(tmp_path_factory, stream, choice):
    x, s = stream
    path = tmp_path_factory.mktemp("checkpoint") / "run.npz"
    through, resumed = (ksd_thinner(x.shape[1], validate_scores=False, **choice) for _ in range(2))
    own = {"budget": choice["budget"]} if callable(choice["budget"]) else {}
    for draw, score in zip(x, s, strict=True):
        through.push(draw, score)
        resumed.save(path)
        resumed = ss.Thinner.load(path, **own)
        resumed.push(draw, score)
    assert_same(through, resumed)
    assert through.settings == resumed.settings
    assert np.array_equal(through.preconditioner.factor, resumed.preconditioner.factor)
    through.save(path)
    again = path.read_bytes()
    resumed.save(path)
    assert path.read_bytes() == again


@settings(max_examples=50, deadline=None)
@given(streams(max_dim=6, max_length=60, min_length=12), kernels, growths, st.integers(4, 10))
def test_after_a_change_all_is_as_if_the_draws_had_come_in_these_coordinates(stream, kernel, growth, first):
    x, s = stream
    thinner = ksd_thinner(
        x.shape[1], kernel=kernel, growth=growth, preconditioner=ss.Streaming(first=first), validate_scores=False
    )
    changed = first
    while 2 * changed <= len(x):
        changed *= 2
    assume(len(np.unique(x[changed // 2 : changed], axis=0)) > 1)  # else all stays as it is
    thinner.extend(x[:changed], s[:changed])  # the last of these steps ends with a change
    assert thinner.settings["preconditioner_changed"][-1] == changed
    points, scores, ids, *_ = thinner.state.dictionary.contents()
    order = np.argsort(ids[:, 2])
    config = ThinConfig(kernel=kernel, stream_weight=0.0)
    fresh = Dictionary(DrawLayout(x.shape[1]), config, thinner.preconditioner)
    fresh.insert_all(Block(points[order], scores[order], ids[order, :2]))
    expected, state = fresh.state(), thinner.state.dictionary.state()
    expected["ids"], state["ids"] = expected["ids"][:, :2], state["ids"][:, :2]
    assert all(np.array_equal(expected[name], state[name]) for name in expected)
    assert thinner.ksd == ss.ksd(points, scores, kernel=kernel, preconditioner=thinner.preconditioner)
    assert thinner.history.ksd[-1] == thinner.ksd == thinner.kept.ksd
    assert thinner.history.step[-1] == changed
    assert [tuple(id) for id in thinner.state.dictionary.arrived_after(changed - 1).tolist()] in (
        [],
        [(0, changed - 1)],
    )


@settings(max_examples=40, deadline=None)
@given(streams(max_dim=4, max_length=60, min_length=10), choices, st.integers(1, 9))
def test_following_the_steps_gives_what_is_kept(stream, choice, block):
    """Two chains by turns, the second one first, so that draws do not come in the order of their ids."""
    x, s = stream
    thinner, store = ksd_thinner(x.shape[1], validate_scores=False, **choice), set()
    for first in range(0, len(x), block):
        rows = slice(first, first + block)
        step = thinner.extend(x[rows], s[rows], chain=1 - (first // block) % 2)
        assert not store & set(step.added) and store >= set(step.dropped)
        store = (store | set(step.added)) - set(step.dropped)
    assert sorted(store) == [tuple(id) for id in thinner.kept.ids.tolist()]


def test_draws_are_measured_anew_in_the_order_they_came():
    """Repeats of a state come to one slot however their ids are ordered."""
    x = np.repeat(np.random.default_rng(0).normal(size=(10, 2)), 4, axis=0)
    ids = np.column_stack([np.tile([1, 0], 20), np.arange(40)])
    thinner = ksd_thinner(2, growth="none", preconditioner=ss.Streaming(first=40), validate_scores=False)
    thinner.extend(x, -x, ids=ids)
    assert thinner.settings["preconditioner_changed"] == [40]
    assert sorted(thinner.state.dictionary.state()["copies"]) == [4] * 10


def test_widths_are_right_with_no_setting_by_the_user():
    for seed in range(3):
        x = np.random.default_rng(seed).normal(size=(20_000, 2)) * [1.0, 0.01]
        s = -x / np.array([1.0, 1e-4])
        for size in (100, None):
            kept = [thin_by_ksd(x, s, size=size), thin_by_ksd(x, s, size=size, preconditioner="streaming")]
            for preconditioner in (ss.Streaming(), ss.Preconditioner.identity()):
                thinner = ksd_thinner(2, size=size, preconditioner=preconditioner)
                thinner.extend(x, s)
                kept.append(thinner.kept)
            ratios = [one.draws.std(axis=0) / [1.0, 0.01] for one in kept]
            for ratio in ratios[:3]:
                assert (np.abs(ratio - 1.0) < 0.1).all()
            assert ratios[3][1] < 0.95  # the identity does not see the narrow one
        assert np.array_equal(kept[1].ids, kept[2].ids)


def test_burn_in_is_forgotten():
    """The Goodwin posterior from far out: two coordinates are ten times as narrow as the others."""
    target = ss.targets.Goodwin.simulated(seed=0)
    sampler = ss.samplers.RandomWalk(target, step=0.01)
    _, block = sampler.sample(sampler.init(np.ones(4), seed=1), 12_800)
    x, s = block.draws, block.scores
    assert np.abs(x[0] - x[6400:].mean(axis=0)).max() > 50 * x[6400:].std(axis=0).min()
    thinner = ksd_thinner(4, size=100, preconditioner=ss.Streaming())
    thinner.extend(x, s)
    expected = ss.Preconditioner.estimate("auto", x[6400:12_800])
    assert thinner.preconditioner.factor == pytest.approx(expected.factor, rel=1e-9)
    kept = thinner.kept
    assert kept.ids[:, 1].min() > 1000
    assert (np.abs(kept.draws.std(axis=0) / x[6400:].std(axis=0) - 1.0) < 0.25).all()
    plain = ksd_thinner(4, size=100, preconditioner=ss.Preconditioner.identity())
    plain.extend(x, s)
    ours, theirs = (ss.ksd(one.draws, one.scores, preconditioner=expected) for one in (kept, plain.kept))
    assert ours < 0.5 * theirs


def test_a_drift_is_followed_and_soon_with_forget():
    """A chain that first moves in a tenth of the target's width."""
    x = np.random.default_rng(0).normal(size=(20_000, 2)) * [1.0, 5.0]
    x[:12_000] *= 0.1
    s = -x / np.array([1.0, 25.0])
    widths = {}
    for forget in (None, 1000):
        thinner = ksd_thinner(2, size=60, preconditioner=ss.Streaming("scales", forget=forget))
        thinner.extend(x, s)
        widths[forget] = thinner.preconditioner.factor / 2.0  # sqrt(2 d)
        assert thinner.kept.draws.std(axis=0) == pytest.approx([1.0, 5.0], rel=0.15)
    assert widths[1000] == pytest.approx([1.0, 5.0], rel=0.1)
    assert (widths[None] < [0.6, 3.0]).all()  # last estimated from draws 6400 to 12 800


def test_few_distinct_draws_and_a_direction_that_stands_still_are_no_trouble():
    x = np.zeros((400, 3))
    x[:, 0] = np.repeat(np.random.default_rng(0).normal(size=4), 100)
    x[:, 1] = 2.0 * x[:, 0]
    thinner = ksd_thinner(3, preconditioner=ss.Streaming(first=100), validate_scores=False)
    thinner.extend(x, -x)
    assert thinner.settings["preconditioner_changed"] == [400]  # before, each look saw one state only
    expected = ss.Preconditioner.estimate("auto", x[200:400])
    assert thinner.preconditioner.factor == pytest.approx(expected.factor)
    assert np.isfinite(thinner.ksd)


@pytest.mark.parametrize("forget", [None, 500])
def test_a_chain_that_is_stuck_keeps_its_coordinates(forget):
    x = np.random.default_rng(0).normal(size=(1599, 2)) * 1e-3
    thinner = ksd_thinner(2, size=20, preconditioner=ss.Streaming(first=100, forget=forget))
    thinner.extend(x, -x * 1e6)
    stuck = np.repeat(x[-1:], 3000, axis=0)
    thinner.extend(stuck, -stuck * 1e6)
    widths = np.diagonal(thinner.preconditioner.factor)
    assert ((widths > 1e-3) & (widths < 3e-3)).all()
    assert thinner.settings["preconditioner_changed"][-1] <= 2100  # the last look that saw two states


def test_a_chain_that_is_stuck_from_the_start_has_no_estimate():
    x = np.ones((400, 2))
    thinner = ksd_thinner(2, preconditioner=ss.Streaming(first=100), validate_scores=False)
    thinner.extend(x, -x)
    assert thinner.settings["preconditioner_changed"] == [] and str(thinner.preconditioner) == "identity"


def test_above_200_dimensions_only_variances_are_carried():
    x = np.random.default_rng(0).normal(size=(120, 201)) * np.geomspace(0.1, 10, 201)
    thinner = ksd_thinner(201, preconditioner=ss.Streaming(), validate_scores=False)
    thinner.extend(x, -x)
    assert thinner.preconditioner.factor == pytest.approx(ss.Preconditioner.estimate("auto", x[50:100]).factor)
    moments = thinner.state.estimator.state()["window"]["moments"]
    assert max(array.size for array in moments.values()) == 201


def test_select_and_extend_count_alike():
    x = np.random.default_rng(0).normal(size=(300, 2)) * [1.0, 20.0]
    s = -x / np.array([1.0, 400.0])
    groups, one = (ksd_thinner(2, candidates=m, preconditioner=ss.Streaming(first=50)) for m in (5, 1))
    groups.extend(x, s)
    for first in range(0, 300, 5):
        one.select(x[first : first + 5], s[first : first + 5])
    assert np.array_equal(groups.kept.ids, one.kept.ids) and groups.ksd == one.ksd
    assert groups.settings["preconditioner_changed"] == [10, 20, 40]


def test_with_forget_the_list_of_changes_stays_short():
    x = np.random.default_rng(0).normal(size=(5000, 1))
    thinner = ksd_thinner(1, size=5, preconditioner=ss.Streaming(first=20, forget=20))
    thinner.extend(x, -x)
    assert thinner.settings["preconditioner_changed"] == list(range(3020, 5001, 20))


def test_nonsense_is_refused():
    for make in (
        lambda: ss.Streaming("scale"),
        lambda: ss.Streaming("identity"),
        lambda: ss.Streaming(first=1),
        lambda: ss.Streaming(first=True),
        lambda: ss.Streaming(forget=0),
        lambda: ksd_thinner(2, preconditioner=ss.Preconditioner(np.array(1.0), centre=np.zeros(3))),
    ):
        with pytest.raises(ss.SteinstreamError):
            make()


def test_a_centre_moves_the_origin_and_nothing_else(tmp_path):
    mean = np.array([5.0, -3.0, 0.0])
    x = np.random.default_rng(0).normal(size=(400, 3)) + mean
    s = mean - x
    for kind in ("identity", "scale", "scales", "covariance"):
        plain, centred = (ss.Preconditioner.estimate(kind, x, centred=centred) for centred in (False, True))
        assert plain.centre is None and np.array_equal(plain.factor, centred.factor)
        assert np.array_equal(centred.centre, x.mean(axis=0))
        assert centred.apply(x, s)[0].mean(axis=0) == pytest.approx(0.0, abs=1e-12)
        assert np.array_equal(centred.apply(x, s)[1], plain.apply(x, s)[1])
        assert ss.ksd(x, s, preconditioner=centred) == pytest.approx(ss.ksd(x, s, preconditioner=plain), rel=1e-9)
        thinner = ksd_thinner(3, size=30, preconditioner=centred)
        thinner.extend(x[:200], s[:200])
        thinner.save(tmp_path / "run.npz")
        thinner = ss.Thinner.load(tmp_path / "run.npz")
        thinner.extend(x[200:], s[200:])
        whole = thin_by_ksd(x, s, size=30, preconditioner=centred)
        assert np.array_equal(thinner.kept.draws, whole.draws) and thinner.ksd == whole.ksd
        assert all((x == point).all(axis=1).any() for point in whole.draws)  # as given, bit for bit
    whole.save(tmp_path / "kept.npz")
    with np.load(tmp_path / "kept.npz") as written:
        assert np.array_equal(written["centre"], whole.preconditioner.centre)
