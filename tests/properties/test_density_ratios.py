"""With density ratios r the kernel is r(x) r(y) k0(x, y), and everything that holds for k0 holds for it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import steinstream as ss
from steinstream._engine.jit import threads
from steinstream._engine.reference import Reference
from steinstream.errors import InputError
from steinstream.thinner.ingest import NewMarks
from steinstream.thinner.threads import ThreadChooser
from steinstream.validation import Block, consecutive_ids
from tests.properties.test_costs_and_pins import marks
from tests.streams import budgets, growths, kernels, rules, streams
from tests.thinners import assert_same, assert_same_in_parts, floor_at, groups, ksd_thinner, limits_at, magnitude

gammas = st.sampled_from([0.0, 0.3, 3.0])
costs_weights = st.sampled_from([0.0, 0.1, 5.0])


def with_ratios(x, s, seed=0):
    """Draws with a density ratio each, the same for equal draws."""
    projected = np.cos(7.0 * x @ np.random.default_rng(seed).normal(size=x.shape[1]))
    return Block(x, s, consecutive_ids(0, 0, len(x)), None, np.exp(projected)[:, None])


def extend(thinner, block, rows=slice(None), costs=None, pinned=None):
    """Add some of the draws, with their costs and pins."""
    parts = (None if each is None else each[rows] for each in (costs, pinned))
    thinner.extend_block(block.take(rows), NewMarks(*parts))


@settings(max_examples=120, deadline=None)
@given(
    st.data(),
    streams(max_dim=6, max_length=30),
    kernels,
    growths,
    budgets,
    st.sampled_from([None, 4, 9]),
    st.integers(1, 3),
    rules,
    costs_weights,
    gammas,
)
def test_keeps_the_same_draws_as_the_reference(
    data, stream, kernel, growth, budget, cap, candidates, rule, cost, gamma
):
    block = with_ratios(*stream)
    x, s, ratios = block.draws, block.scores, block.ratios[:, 0]
    costs, pinned = marks(data.draw, len(x), candidates)
    pinned[np.flatnonzero(pinned)[len(x) if cap is None else cap :]] = False
    costs *= cost > 0
    thinner = ksd_thinner(
        x.shape[1],
        kernel=kernel,
        growth=growth,
        budget=budget,
        rule=rule,
        size=cap,
        candidates=candidates,
        cost_weight=cost,
        stream_weight=gamma,
        validate_scores=False,
    )
    reference = Reference(kernel, stream_weight=gamma, cost_weight=cost)
    for t, group, names in groups(len(x), candidates):
        reference.step(
            x[group],
            s[group],
            names,
            **limits_at(t, growth, budget, len(reference.draws) + 1, cap, rule),
            costs=costs[group],
            pinned={(0, int(i)) for i in np.flatnonzero(pinned)},
            ratios=ratios[group],
        )
        extend(thinner, block, group, costs if cost else None, pinned)
        kept, scale = thinner.kept, magnitude(reference) + (reference.mmd_weight if gamma else 0.0)
        assert sorted(map(tuple, kept.ids.tolist())) == sorted(reference.ids), f"step {t}"
        assert set(thinner.pinned) == reference.pinned <= set(reference.ids)
        assert kept.ksd**2 == pytest.approx(reference.squared_ksd, rel=1e-9, abs=1e-12 * magnitude(reference))
        np.testing.assert_array_equal(kept.variables["ratio"].values, ratios[kept.ids[:, 1]])
        if not cost:
            assert thinner.objective == pytest.approx(reference.objective, rel=1e-9, abs=1e-12 * scale)


@settings(max_examples=40, deadline=None)
@given(
    st.data(),
    streams(max_dim=6, max_length=40),
    kernels,
    growths,
    gammas,
    costs_weights,
    st.integers(1, 3),
    st.integers(1, 9),
    st.randoms(use_true_random=False),
)
def test_blocks_checkpoints_and_the_order_of_storage_do_not_matter(
    tmp_path_factory, data, stream, kernel, growth, gamma, cost, candidates, size, random
):
    block, path = with_ratios(*stream), tmp_path_factory.mktemp("ratios") / "run.npz"
    costs, pinned = marks(data.draw, len(block.draws), candidates)
    dim = block.draws.shape[1]

    def make():
        return ksd_thinner(
            dim,
            kernel=kernel,
            growth=growth,
            stream_weight=gamma,
            cost_weight=cost,
            candidates=candidates,
            preconditioner=ss.Preconditioner.scales(np.linspace(0.5, 2.0, dim)),
            validate_scores=False,
        )

    def add(thinner, rows):
        extend(thinner, block, rows, costs if cost else None, pinned)

    assert_same_in_parts(make, add, len(block.draws), size, path, random)


@pytest.mark.skipif(threads() == 1, reason="a single thread")
@pytest.mark.parametrize("candidates", [1, 4])
def test_the_number_of_threads_does_not_matter(monkeypatch, candidates):
    x = np.random.default_rng(0).normal(size=(6000, 40))
    block, found = with_ratios(x, -x), []
    for number in (1, threads()):
        monkeypatch.setattr(ThreadChooser, "choose", lambda self, number=number: number)
        thinner = ksd_thinner(40, growth="none", candidates=candidates, stream_weight=0.5, validate_scores=False)
        extend(thinner, block)
        found.append(thinner)
    assert_same(*found)


@settings(max_examples=40, deadline=None)
@given(streams(max_dim=4, max_length=40, min_length=4), kernels, gammas, st.integers(2, 6), st.integers(1, 2))
def test_a_further_pass_never_increases_the_objective(stream, kernel, gamma, size, candidates):
    block = with_ratios(*stream)
    thinner = ksd_thinner(
        block.draws.shape[1],
        kernel=kernel,
        size=size,
        stream_weight=gamma,
        candidates=candidates,
        validate_scores=False,
    )
    extend(thinner, block)
    if not len(thinner):
        return
    for _ in range(2):
        thinner.start_pass()
        number, before = len(thinner), thinner.objective
        extend(thinner, block)
        scale = float(np.abs(block.ratios**2).max() * kernel.diagonal(block.scores, block.draws).max())
        assert len(thinner) == number
        assert thinner.objective <= before * (1.0 + 1e-9) + 1e-12 * scale


@settings(max_examples=40, deadline=None)
@given(streams(max_dim=6, max_length=25), kernels, growths, st.sampled_from([0.0, 0.05]), gammas, rules)
def test_no_step_costs_more_of_the_objective_than_its_budget(stream, kernel, growth, budget, gamma, rule):
    block = with_ratios(*stream)
    x, s, ratios = block.draws, block.scores, block.ratios[:, 0]
    thinner = ksd_thinner(
        x.shape[1], kernel=kernel, growth=growth, budget=budget, stream_weight=gamma, rule=rule, validate_scores=False
    )
    judge = Reference(kernel, stream_weight=gamma)
    for t in range(1, len(x) + 1):
        now = slice(t - 1, t)
        judge.observe(x[now], s[now], [(0, t - 1)], [0.0], ratios[now])
        before = judge.objective if judge.draws else math.inf
        judge.insert(x[t - 1], s[t - 1], (0, t - 1), ratio=ratios[t - 1])
        allowed = judge.objective if rule == "paper" else min(judge.objective, before)
        scale = magnitude(judge) + (judge.mmd_weight if gamma else 0.0)
        extend(thinner, block, now)
        rows = thinner.kept.ids[:, 1].tolist()
        for place in reversed([place for place, id in enumerate(judge.ids) if id[1] not in rows]):
            judge.remove(place)
        assert len(judge.ids) == len(rows) >= floor_at(t, growth)
        if rule == "paper" or len(rows) > floor_at(t, growth):
            assert judge.objective <= allowed + budget + 1e-12 * scale


def test_draws_with_ratios_and_draws_without_cannot_be_mixed():
    x = np.random.default_rng(0).normal(size=(20, 2))
    thinner = ksd_thinner(2, size=5)
    extend(thinner, with_ratios(x, -x))
    with pytest.raises(InputError, match="given with density ratios and others without"):
        thinner.extend(x, -x)
