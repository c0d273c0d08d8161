"""The compiled engine keeps the same draws as the specification, which recomputes everything at every step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import steinstream as ss
from steinstream._engine.reference import Reference, cumulative_squared_ksd
from tests.streams import budgets, growths, kernels, rules, streams
from tests.thinners import floor_at, groups, ksd_thinner, limits_at, magnitude


@settings(max_examples=150, deadline=None)
@given(streams(), kernels, growths, budgets, st.sampled_from([None, 1, 4, 9]), st.integers(1, 4), rules)
def test_keeps_the_same_draws_as_the_reference(stream, kernel, growth, budget, cap, candidates, rule):
    x, s = stream
    thinner = ksd_thinner(
        x.shape[1],
        kernel=kernel,
        growth=growth,
        budget=budget,
        rule=rule,
        size=cap,
        candidates=candidates,
        validate_scores=False,
    )
    reference = Reference(kernel)
    for t, group, names in groups(len(x), candidates):
        before = set(reference.ids)
        limits = limits_at(t, growth, budget, len(reference.draws) + 1, cap, rule)
        reference.step(x[group], s[group], names, **limits)
        step = thinner.extend(x[group], s[group])
        kept = thinner.kept
        assert sorted(map(tuple, kept.ids.tolist())) == sorted(reference.ids), f"step {t}"
        assert set(step.added) == set(reference.ids) - before
        assert set(step.dropped) == before - set(reference.ids)
        assert step.size == len(reference.draws)
        assert kept.ksd**2 == pytest.approx(reference.squared_ksd, rel=1e-9, abs=1e-12 * magnitude(reference))
        assert np.array_equal(kept.draws, x[[draw for _, draw in sorted(reference.ids)]])


@settings(max_examples=40, deadline=None)
@given(streams(max_dim=6), st.integers(1, 6), kernels)
def test_an_initial_set_counts_towards_the_floor(stream, initial, kernel):
    x, s = stream
    start = np.random.default_rng(len(x)).normal(size=(initial, x.shape[1]))
    thinner = ksd_thinner(x.shape[1], kernel=kernel, growth="linear", initial=(start, -start), validate_scores=False)
    reference = Reference(kernel)
    for i, point in enumerate(start):
        reference.insert(point, -point, (-1, i))
    for t in range(1, len(x) + 1):
        reference.step(x[t - 1 : t], s[t - 1 : t], [(0, t - 1)], floor=floor_at(t, "linear", initial), budget=0.0)
        thinner.push(x[t - 1], s[t - 1])
        assert sorted(map(tuple, thinner.kept.ids.tolist())) == sorted(reference.ids)


@settings(max_examples=40, deadline=None)
@given(streams(max_dim=8, min_length=2), st.integers(2, 7), kernels)
def test_select_takes_the_best_candidate(stream, group, kernel):
    x, s = stream
    thinner = ksd_thinner(x.shape[1], kernel=kernel, validate_scores=False)
    reference = Reference(kernel)
    for t, first in enumerate(range(0, len(x), group), start=1):
        part = slice(first, first + group)
        names = [(0, i) for i in range(first, min(first + group, len(x)))]
        reference.step(x[part], s[part], names, floor=floor_at(t, "sqrt"), budget=0.0)
        thinner.select(x[part], s[part])
        assert sorted(map(tuple, thinner.kept.ids.tolist())) == sorted(reference.ids)
    assert thinner.steps == -(-len(x) // group)


@settings(max_examples=60, deadline=None)
@given(streams(max_length=60), kernels)
def test_ksd_of_arrays_is_the_definition(stream, kernel):
    x, s = stream
    matrix = kernel.matrix(x, s, x, s)
    expected = cumulative_squared_ksd(matrix)
    measured = ss.cumulative_ksd(x, s, kernel=kernel) ** 2
    np.testing.assert_allclose(measured, expected, rtol=1e-9, atol=1e-12 * np.abs(matrix).mean())
    assert ss.ksd(x, s, kernel=kernel) == np.sqrt(measured[-1]) or len(x) == 0


@settings(max_examples=40, deadline=None)
@given(streams(max_length=60), kernels, growths)
def test_the_reported_ksd_is_that_of_the_kept_draws_bit_for_bit(stream, kernel, growth):
    x, s = stream
    thinner = ksd_thinner(x.shape[1], kernel=kernel, growth=growth, validate_scores=False)
    thinner.extend(x, s)
    kept = thinner.kept
    assert kept.ksd == ss.ksd(kept.draws, kept.scores, kernel=kernel)
