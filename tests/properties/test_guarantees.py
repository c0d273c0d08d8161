"""The guarantees of the method hold at every step and in the mean; everything is recomputed."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from steinstream import schedules
from tests.streams import budgets, growths, kernels, streams
from tests.thinners import budget_at, floor_at, ksd_thinner


def square(kernel, x, s):
    matrix = kernel.matrix(x, s, x, s)
    return math.fsum(matrix.ravel()) / len(x) ** 2, np.abs(matrix).sum() / len(x) ** 2


@settings(max_examples=80, deadline=None)
@given(streams(max_dim=12, max_length=50), kernels, growths, budgets)
def test_no_step_costs_more_than_its_budget_and_none_keeps_fewer_than_its_floor(stream, kernel, growth, budget):
    x, s = stream
    thinner = ksd_thinner(x.shape[1], kernel=kernel, growth=growth, budget=budget, validate_scores=False)
    before = np.zeros((0, x.shape[1])), np.zeros((0, x.shape[1]))
    for t in range(1, len(x) + 1):
        thinner.push(x[t - 1], s[t - 1])
        enlarged = np.vstack([before[0], x[t - 1]]), np.vstack([before[1], s[t - 1]])
        kept = thinner.kept
        allowed, terms = square(kernel, *enlarged)
        allowed += budget_at(t, budget, growth, len(enlarged[0]))
        measured, more = square(kernel, kept.draws, kept.scores)
        assert measured <= allowed + 1e-12 * (terms + more)
        assert len(kept) >= floor_at(t, growth)
        before = kept.draws, kept.scores


@settings(max_examples=80, deadline=None)
@given(streams(max_dim=12, max_length=50), kernels, growths, st.sampled_from([0.0, 0.05]), st.integers(1, 3))
def test_under_the_monotone_rule_ksd_never_rises_above_the_floor(stream, kernel, growth, budget, candidates):
    x, s = stream
    thinner = ksd_thinner(
        x.shape[1],
        kernel=kernel,
        growth=growth,
        budget=budget,
        rule="monotone",
        candidates=candidates,
        validate_scores=False,
    )
    before = None
    for t in range(1, len(x) // candidates + 1):
        size = len(thinner)
        thinner.extend(*(part[(t - 1) * candidates : t * candidates] for part in (x, s)))
        measured, terms = square(kernel, thinner.kept.draws, thinner.kept.scores)
        floor = floor_at(t, growth)
        assert len(thinner) >= floor
        if size + 1 > floor and before is not None:
            assert measured <= before + budget + 1e-12 * terms
        before = measured


@settings(max_examples=100, deadline=None)
@given(streams(max_dim=10, max_length=30, min_length=2), kernels)
def test_removal_lemma(stream, kernel):
    """min_j KSD^2(D without j) <= (1 - 1/N^2) KSD^2(D) + mean diagonal / N^2 with N = |D| - 1."""
    x, s = stream
    count = len(x) - 1
    whole, terms = square(kernel, x, s)
    best = min(square(kernel, np.delete(x, j, 0), np.delete(s, j, 0))[0] for j in range(len(x)))
    diagonal = np.mean([kernel.matrix(x[j], s[j], x[j], s[j])[0, 0] for j in range(len(x))])
    assert best <= (1 - 1 / count**2) * whole + diagonal / count**2 + 1e-12 * terms


@settings(max_examples=60, deadline=None)
@given(streams(max_dim=8, max_length=40, min_length=8), kernels, st.integers(1, 6))
def test_a_hard_cap_holds_and_costs_at_most_what_the_removal_lemma_says(stream, kernel, size):
    x, s = stream
    thinner = ksd_thinner(x.shape[1], kernel=kernel, size=size, validate_scores=False)
    before = x[:0], s[:0]
    for t in range(1, len(x) + 1):
        thinner.push(x[t - 1], s[t - 1])
        kept = thinner.kept
        assert len(kept) == min(t, size)
        enlarged = np.vstack([before[0], x[t - 1]]), np.vstack([before[1], s[t - 1]])
        if t > size:
            whole, terms = square(kernel, *enlarged)
            diagonal = np.mean([kernel.matrix(a, b, a, b)[0, 0] for a, b in zip(*enlarged, strict=True)])
            assert square(kernel, kept.draws, kept.scores)[0] <= whole + diagonal / size**2 + 1e-12 * terms
        before = kept.draws, kept.scores


def mean_squares(growth, budget, lengths, repeats, candidates=1, dim=2):
    """E KSD^2 after each of the lengths, for independent draws of a standard normal."""
    squares = np.zeros((repeats, len(lengths)))
    for repeat in range(repeats):
        x = np.random.default_rng(repeat).normal(size=(lengths[-1] * candidates, dim))
        thinner = ksd_thinner(dim, growth=growth, budget=budget, candidates=candidates, history="all")
        thinner.extend(x, -x)
        squares[repeat] = thinner.history.ksd[np.array(lengths) - 1] ** 2
    return squares.mean(axis=0)


def test_mean_bound_for_independent_draws():
    """E KSD^2(D_n) <= n (kappa + eta) / f(n)^2 with the budget eta / |D|^2, for any number of candidates."""
    dim, eta, lengths = 2, 0.5, [50, 200, 800]
    kappa = 2.0 * dim  # E |s|^2 + d for the standard normal and IMQ with c = 1
    for growth, candidates in (("linear", 1), ("sqrt", 1), ("sqrt", 4)):
        n = np.array(lengths, dtype=float)
        bound = n * (kappa + eta) / schedules.growth(growth)(n) ** 2
        measured = mean_squares(growth, f"share:{eta}", lengths, 20, candidates, dim)
        assert (measured <= bound).all()


def test_rates_for_independent_draws():
    """Slopes of log KSD^2 on log n: about -1.6 for t/2, where the paper proves -1, and -1.1 for sqrt(t log t)."""
    lengths = [200, 400, 800, 1600, 3200]
    for growth, slope in (("linear", -1.6), ("sqrt", -1.1)):
        measured = np.polyfit(np.log(lengths), np.log(mean_squares(growth, 0.0, lengths, 12)), 1)[0]
        assert abs(measured - slope) < 0.2


def test_equal_is_within_a_budget_of_zero():
    """All copies of one state have the same KSD, however many: rounding must not turn equal into greater."""
    for seed in range(100):
        x = np.repeat(np.random.default_rng(seed).normal(size=(1, 3)), 9, axis=0)
        thinner = ksd_thinner(3, growth=lambda t: t if t < 9 else 1)
        thinner.extend(x, -x / 3.0)
        assert len(thinner) == 1
