"""Further passes over a chain: KSD never rises, the number kept stays, no draw is kept twice, cuts change no bit."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import steinstream as ss
from steinstream._engine.reference import Reference
from steinstream.baselines import stein_thinning
from steinstream.thinner.local_search import Selection
from steinstream.thinner.passes import choose_from_sample
from steinstream.validation import Block, consecutive_ids
from tests.streams import budgets, growths, kernels, rules, streams
from tests.thinners import assert_same, ksd_thinner, replace_kept, thin_by_ksd

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
POSTERIORS = sorted((DATA / "posteriordb").glob("*.npz")) if DATA.exists() else []

choices = st.fixed_dictionaries(
    {
        "preconditioner": st.sampled_from(
            [None, ss.Preconditioner.length_scale(2.0), ss.Warmup(draws=7), ss.Streaming(first=5)]
        ),
        "kernel": kernels,
        "growth": growths.filter(lambda growth: not callable(growth)),
        "budget": budgets.filter(lambda budget: not callable(budget)),
        "rule": rules,
        "size": st.sampled_from([None, 6]),
        "candidates": st.integers(1, 3),
    }
)


def make(dim, choice):
    return ksd_thinner(dim, validate_scores=False, history="all", **choice)


@settings(max_examples=60, deadline=None)
@given(streams(max_dim=8, max_length=40, min_length=3), choices)
def test_ksd_never_rises_and_the_number_kept_stays(stream, choice):
    x, s = stream
    thinner = make(x.shape[1], choice)
    thinner.extend(x, s)
    for number in (2, 3):
        thinner.start_pass()
        began, size, before = thinner.steps, len(thinner), thinner.ksd
        thinner.extend(x, s)
        history = thinner.history
        later = history.step > began
        assert (history.size[later] == size).all()
        assert (np.diff([before, *history.ksd[later]]) <= 0.0).all()  # to the last bit
        kept = thinner.kept
        assert kept.settings["passes"] == number and thinner.seen == len(x)
        assert len(np.unique(kept.ids, axis=0)) == len(kept) == size
        assert np.array_equal(kept.draws, x[kept.ids[:, 1]]) and np.array_equal(kept.scores, s[kept.ids[:, 1]])
        assert kept.ksd == ss.ksd(kept.draws, kept.scores, kernel=kept.kernel, preconditioner=kept.preconditioner)
        assert kept.settings["ksd_after_passes"][-2:] == [before, kept.ksd]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 4), kernels, st.integers(1, 8), st.integers(1, 3))
def test_a_pass_is_what_is_written_down(seed, dim, kernel, size, candidates):
    """Against the slow reference, which receives only the draws that are offered; all states are different."""
    x = np.random.default_rng(seed).normal(size=(25, dim))
    s = -x + np.random.default_rng(seed + 1).normal(size=x.shape)
    thinner = ksd_thinner(x.shape[1], kernel=kernel, size=size, candidates=candidates, validate_scores=False)
    thinner.extend(x, s)
    reference = Reference(kernel)
    replace_kept(reference, thinner.kept.draws, thinner.kept.scores, map(tuple, thinner.kept.ids.tolist()))
    resting = set(reference.ids)
    thinner.start_pass()
    thinner.extend(x, s)
    offered = [i for i in range(len(x)) if (0, i) not in resting]
    for first in range(0, len(offered) // candidates * candidates, candidates):
        rows = offered[first : first + candidates]
        names = [(0, i) for i in rows]
        reference.step(x[rows], s[rows], names, floor=len(resting), budget=0.0, cap=len(resting))
    assert sorted(reference.ids) == [tuple(id) for id in thinner.kept.ids.tolist()]


@settings(max_examples=40, deadline=None)
@given(streams(max_dim=6, max_length=40, min_length=3), choices, st.lists(st.integers(0, 40), max_size=5))
def test_blocks_do_not_matter(stream, choice, edges):
    x, s = stream
    whole, blocks = make(x.shape[1], choice), make(x.shape[1], choice)
    edges = sorted(min(edge, len(x)) for edge in edges)
    for number in range(3):
        if number:
            whole.start_pass()
            blocks.start_pass()
        whole.extend(x, s)
        for begin, end in zip([0, *edges], [*edges, len(x)], strict=True):
            blocks.extend(x[begin:end], s[begin:end])
    assert_same(whole, blocks)
    assert whole.settings == blocks.settings


@settings(max_examples=15, deadline=None)
@given(streams(max_dim=4, max_length=20, min_length=3), choices)
def test_a_checkpoint_at_any_step_changes_nothing(tmp_path_factory, stream, choice):
    x, s = stream
    path = tmp_path_factory.mktemp("checkpoint") / "run.npz"
    through, resumed = make(x.shape[1], choice), make(x.shape[1], choice)
    for number in range(2):
        if number:
            through.start_pass()
            resumed.start_pass()
        for draw, score in zip(x, s, strict=True):
            through.push(draw, score)
            resumed.save(path)
            resumed = ss.Thinner.load(path)
            resumed.push(draw, score)
    assert_same(through, resumed)
    assert (
        through.settings == resumed.settings
        and through.current_pass.received == resumed.current_pass.received == len(x)
    )


@settings(max_examples=30, deadline=None)
@given(streams(max_dim=4, max_length=40, min_length=3), choices, st.integers(1, 9))
def test_following_the_steps_gives_what_is_kept(stream, choice, block):
    x, s = stream
    thinner, store = make(x.shape[1], choice), set()
    for number in range(3):
        steps = [thinner.start_pass()] if number else []
        for first in range(0, len(x), block):
            steps.append(thinner.extend(x[first : first + block], s[first : first + block]))
        for step in steps:
            assert not store & set(step.added) and store >= set(step.dropped)
            store = (store | set(step.added)) - set(step.dropped)
    assert sorted(store) == [tuple(id) for id in thinner.kept.ids.tolist()]


def chain_of(dim, count, seed, chains=2):
    x = np.random.default_rng(seed).normal(size=(chains, count, dim)) * np.geomspace(0.1, 10.0, dim)
    return x, -x / np.geomspace(0.1, 10.0, dim) ** 2


def test_passes_by_number():
    x, s = chain_of(3, 800, 0)
    once = thin_by_ksd(x, s, size=30)
    assert thin_by_ksd(x, s, size=30, passes=1).ksd == once.ksd
    thrice = thin_by_ksd(x, s, size=30, passes=3)
    by_hand = ksd_thinner(3, size=30, preconditioner=once.preconditioner)
    for number in range(3):
        if number:
            by_hand.start_pass()
        for chain in (0, 1):
            by_hand.extend(x[chain], s[chain], chain=chain)
    assert np.array_equal(by_hand.kept.ids, thrice.ids) and by_hand.ksd == thrice.ksd < once.ksd
    grown = thin_by_ksd(x, s)  # and without a size: as many as the growth has left
    again = thin_by_ksd(x, s, passes=2)
    assert len(again) == len(grown) and again.ksd < grown.ksd and again.settings["config"]["growth"] is None


def test_auto_begins_well_and_stops_in_time():
    for seed in range(3):
        x, s = chain_of(4, 2000, seed)
        for size in (20, 100):
            kept = thin_by_ksd(x, s, size=size, passes="auto")
            assert len(kept) == size and 1 <= kept.settings["passes"] <= 10 and kept.bound is None
            assert kept.ksd < thin_by_ksd(x, s, size=size).ksd
            ends = kept.settings.get("ksd_after_passes", [kept.ksd])
            assert all(after < 0.99 * before for before, after in pairwise(ends[:-1]))
            for (chain, draw), point in zip(kept.ids, kept.draws, strict=True):
                assert np.array_equal(point, x[chain, draw])
    too_many = thin_by_ksd(x, s, size=2500, passes="auto")  # the sample is too small to begin with
    once = thin_by_ksd(x, s, size=2500)
    assert len(too_many) == 2500 and too_many.ksd < once.ksd and too_many.bound == once.bound
    assert thin_by_ksd(x, s, passes="auto", preconditioner="streaming").ksd > 0
    few = thin_by_ksd(x[:, :5], s[:, :5], size=30, passes="auto")
    assert len(few) == 10 and few.settings["passes"] == 2


def test_a_start_with_a_sample_for_any_number_of_passes():
    x, s = chain_of(4, 2000, 0)
    sampled, streamed, auto = (
        thin_by_ksd(x, s, size=60, start=start, passes=passes)
        for start, passes in (("sample", 1), ("stream", "auto"), (None, "auto"))
    )
    assert sampled.settings["passes"] == 1 and sampled.bound is None and streamed.bound is not None
    assert sampled.ksd < thin_by_ksd(x, s, size=60).ksd
    assert auto.settings.get("ksd_after_passes", [auto.ksd])[0] == sampled.ksd
    assert streamed.settings["ksd_after_passes"][0] == thin_by_ksd(x, s, size=60).ksd
    for wrong in ({}, {"size": 5, "growth": "sqrt"}, {"size": 5, "preconditioner": "streaming"}):
        remedy = "Leave out what does not fit" if wrong else "Set size"
        with pytest.raises(ss.SteinstreamError, match=f"needs a fixed size, .* {remedy}"):
            thin_by_ksd(x, s, start="sample", **wrong)
    with pytest.raises(ss.SteinstreamError, match="start must be"):
        thin_by_ksd(x, s, size=5, start="greedy")


def test_the_start_is_better_than_the_greedy_choice_and_no_draw_is_in_it_twice():
    x = np.random.default_rng(0).normal(size=(700, 6))
    sample = Block(x, -x, consecutive_ids(3, 10, 700))
    within = ss.Preconditioner.length_scale(2.0)
    greedy = Selection(sample, ss.ThinConfig(size=15), within).greedy()
    ids = stein_thinning(x, -x, 15, preconditioner=within, validate_scores=False)
    assert np.array_equal(greedy.block().ids[:, 1], 10 + np.sort(ids[:, 1]))
    blocks = [
        greedy.block(),
        greedy.swap().block(),
        greedy.shake().block(),
        choose_from_sample(ss.ThinConfig(size=15, stream_weight=0.0), within, sample).draws,
    ]
    values = [ss.ksd(block.draws, block.scores, preconditioner=within) for block in blocks]
    assert values == sorted(values, reverse=True) and values[2] < values[1] < values[0]
    assert greedy.energy == pytest.approx(15**2 * values[2] ** 2)
    for block in blocks:
        assert len(np.unique(block.ids, axis=0)) == 15
        assert np.array_equal(block.draws, x[block.ids[:, 1] - 10])
    assert choose_from_sample(ss.ThinConfig(size=351, stream_weight=0.0), within, sample) is None


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.integers(1, 6), st.booleans())
def test_each_swap_takes_the_draw_that_leaves_the_least_ksd(seed, size, greedily):
    x = np.random.default_rng(seed).normal(size=(20, 2))
    matrix = ss.IMQ().matrix(x, -x, x, -x)
    one = Selection(Block(x, -x, consecutive_ids(0, 0, 20)), ss.ThinConfig(size=size), ss.Preconditioner.identity())
    chosen = (one.greedy() if greedily else one.even()).chosen.tolist()
    energy = lambda places: matrix[np.ix_(places, places)].sum()  # noqa: E731
    assert one.energy == pytest.approx(energy(chosen), abs=1e-9)
    for _ in range(10):  # as many rounds as a swap makes at most
        for place in range(size):
            rest = [*chosen[:place], *chosen[place + 1 :]]
            free = [i for i in range(20) if i not in rest]
            chosen[place] = min(free, key=lambda i: energy([*rest, i]))
    one.swap()
    assert one.energy == pytest.approx(energy(chosen), abs=1e-9) and sorted(one.chosen) == sorted(chosen)


def test_bad_draws_are_counted_once():
    x, s = chain_of(2, 300, 0, chains=1)
    s[0, 7] = np.nan
    kept = thin_by_ksd(x, s, size=20, passes=3, on_bad="skip")
    assert kept.settings["seen"] == 300 and kept.settings["skipped"] == 1


def test_nonsense_is_refused():
    with pytest.raises(ss.SteinstreamError, match="No draws are kept"):
        ksd_thinner(2).start_pass()
    with pytest.raises(ss.SteinstreamError, match="one step takes 2"):
        thin_by_ksd([[1.0]], [[-1.0]], size=1, candidates=2, passes=3)
    x, s = chain_of(2, 50, 0)
    for passes in (0, -1, True, 1.5, "twice", "0", None):
        with pytest.raises(ss.SteinstreamError, match="passes must be"):
            thin_by_ksd(x, s, size=5, passes=passes)


@pytest.mark.skipif(not POSTERIORS, reason="reference posteriors are not available")
@pytest.mark.parametrize("path", POSTERIORS, ids=lambda path: path.stem)
def test_on_real_posteriors_auto_is_below_stein_thinning(path):
    with np.load(path) as arrays:
        x, s = arrays["draws"], arrays["scores"]
    for size in (20, 100, 500):
        kept = thin_by_ksd(x, s, size=size, passes="auto")
        chain, draw = stein_thinning(x, s, size, preconditioner=kept.preconditioner).T
        assert kept.ksd < ss.ksd(x[chain, draw], s[chain, draw], preconditioner=kept.preconditioner)
