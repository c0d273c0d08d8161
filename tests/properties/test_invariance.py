"""Same stream, same settings, same bits, whatever the blocks, checkpoints and order of storage."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import steinstream as ss
from steinstream import schedules
from tests.streams import budgets, growths, kernels, rules, streams
from tests.thinners import assert_same, ksd_thinner, permuted

choices = st.fixed_dictionaries(
    {
        "kernel": kernels,
        "growth": growths,
        "budget": budgets,
        "rule": rules,
        "size": st.sampled_from([None, 6]),
        "candidates": st.integers(1, 3),
        "preconditioner": st.sampled_from(["identity", "scales", "covariance", "warmup"]),
    }
)


def make(dim, choice):
    choice = dict(choice)
    rng = np.random.default_rng(dim)
    root = rng.normal(size=(dim, dim))
    choice["preconditioner"] = {
        "identity": ss.Preconditioner.identity(),
        "scales": ss.Preconditioner.scales(rng.uniform(0.5, 2.0, dim)),
        "covariance": ss.Preconditioner.covariance(root @ root.T + np.eye(dim)),
        "warmup": ss.Warmup("auto", draws=7),
    }[choice["preconditioner"]]
    return ksd_thinner(dim, validate_scores=False, **choice)


@settings(max_examples=80, deadline=None)
@given(streams(max_dim=20, max_length=50), choices, st.data())
def test_blocks_do_not_matter(stream, choice, data):
    x, s = stream
    whole, blocks, one_by_one = (make(x.shape[1], choice) for _ in range(3))
    whole.extend(x, s)
    edges = sorted(data.draw(st.lists(st.integers(0, len(x)), max_size=6)))
    for begin, end in zip([0, *edges], [*edges, len(x)], strict=True):
        blocks.extend(x[begin:end], s[begin:end])
    for draw, score in zip(x, s, strict=True):
        one_by_one.push(draw, score)
    assert_same(whole, blocks)
    assert_same(whole, one_by_one)


@settings(max_examples=40, deadline=None)
@given(streams(max_dim=6, max_length=25), choices)
def test_a_checkpoint_at_any_step_changes_nothing(tmp_path_factory, stream, choice):
    x, s = stream
    path = tmp_path_factory.mktemp("checkpoint") / "run.npz"
    through = make(x.shape[1], choice)
    resumed = make(x.shape[1], choice)
    own = {
        name: value
        for name, value in (("growth", choice["growth"]), ("budget", choice["budget"]))
        if callable(value) or (value == "decaying" and callable(choice["growth"]))
    }
    if own.get("budget") == "decaying":
        own["budget"] = schedules.budget("decaying", choice["growth"])
    for draw, score in zip(x, s, strict=True):
        through.push(draw, score)
        resumed.save(path)
        resumed = ss.Thinner.load(path, **own)
        resumed.push(draw, score)
    assert_same(through, resumed)
    assert (through.steps, through.seen) == (resumed.steps, resumed.seen)


@settings(max_examples=60, deadline=None)
@given(streams(max_dim=10, max_length=60, min_length=4), kernels, growths, st.randoms(use_true_random=False))
def test_the_order_of_storage_does_not_matter(stream, kernel, growth, random):
    x, s = stream
    ordered, shuffled = (ksd_thinner(x.shape[1], kernel=kernel, growth=growth, validate_scores=False) for _ in range(2))
    for begin in range(0, len(x), 5):
        ordered.extend(x[begin : begin + 5], s[begin : begin + 5])
        shuffled.extend(x[begin : begin + 5], s[begin : begin + 5])
        shuffled.state.dictionary.restore(permuted(shuffled.state.dictionary.state(), random))
    assert_same(ordered, shuffled)


def test_a_rejected_draw_is_evaluated_again_after_the_set_has_changed():
    """At step 13 the far draw is rejected and, because the floor fell, a copy of another state is removed.

    At step 14 the far draw is repeated and, because the floor rose, kept.
    """
    far = np.array([3.0, 3.0])
    for seed in range(20):
        x = np.vstack([np.repeat(np.random.default_rng(seed).normal(size=(4, 2)), 3, axis=0), far, far, far])
        thinner = ksd_thinner(2, growth=lambda t: 11 if t == 13 else 12, validate_scores=False)
        thinner.extend(x, -x)
        kept = thinner.kept
        assert kept.ksd == ss.ksd(kept.draws, kept.scores)


@settings(max_examples=20, deadline=None)
@given(streams(max_dim=5, max_length=40), kernels)
def test_equal_states_give_equal_checkpoint_bytes(tmp_path_factory, stream, kernel):
    x, s = stream
    folder = tmp_path_factory.mktemp("bytes")
    a, b = (ksd_thinner(x.shape[1], kernel=kernel, validate_scores=False) for _ in range(2))
    a.extend(x, s)
    for draw, score in zip(x, s, strict=True):
        b.push(draw, score)
        b.save(folder / "b.npz")
        b = ss.Thinner.load(folder / "b.npz")
    a.save(folder / "a.npz")
    b.save(folder / "b.npz")
    assert (folder / "a.npz").read_bytes() == (folder / "b.npz").read_bytes()


@pytest.mark.parametrize(("draws", "size"), [(200_000, 20), (3000, 600)])
def test_a_checkpoint_of_sums_that_were_rounded_changes_nothing(tmp_path, draws, size):
    # Sums of the base kernel are exact for 2^17 terms: draws of the stream, or pairs of kept draws.
    x = np.random.default_rng(0).normal(size=(draws, 1)) + 1.0 / 3.0
    thinner = ss.Thinner(1, size=size, preconditioner=ss.Preconditioner.identity(), stream_weight=1.0)
    thinner.extend(x, -x)
    thinner.save(tmp_path / "a.npz")
    ss.Thinner.load(tmp_path / "a.npz").save(tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_a_schedule_that_is_a_function_must_be_given_again(tmp_path):
    thinner = ksd_thinner(2, growth=lambda t: 5.0)
    thinner.push([0.0, 1.0], [0.0, -1.0])
    thinner.save(tmp_path / "run.npz")
    with pytest.raises(ss.SteinstreamError, match="growth that is a function"):
        ss.Thinner.load(tmp_path / "run.npz")
    assert len(ss.Thinner.load(tmp_path / "run.npz", growth=lambda t: 5.0)) == 1


def test_no_drift_after_a_million_steps_and_a_start_beyond_the_exact_range():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(1_000_000, 2))
    s = -x
    x[:50] += 1000.0
    s[:50] = rng.normal(size=(50, 2)) * 1e6
    thinner = ksd_thinner(2, size=150, validate_scores=False)
    thinner.extend(x, s)
    kept = thinner.kept
    matrix = ss.IMQ().matrix(kept.draws, kept.scores, kept.draws, kept.scores)
    state = thinner.state.dictionary.state()
    influence = state["influence"].sum(axis=1)
    stored = state["draws"]
    order = np.lexsort(state["ids"].T[::-1][1:])
    row_sums = influence + 0.5 * (np.sum(stored[:, 2:] ** 2, axis=1) + 2)
    np.testing.assert_allclose(row_sums[order], matrix.sum(axis=1), rtol=1e-10)
    assert thinner.ksd**2 == pytest.approx(matrix.sum() / len(kept) ** 2, rel=1e-10)
    assert thinner.ksd == ss.ksd(kept.draws, kept.scores)
