"""The bound on E KSD^2 is the recursion of the theorem, it holds, and it is None where nothing is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import steinstream as ss
from steinstream import schedules
from steinstream._engine import reference
from steinstream.planning import Bound
from tests.streams import budgets, growths, kernels, streams
from tests.thinners import ksd_thinner, limits_at, thin_by_ksd


@settings(max_examples=60, deadline=None)
@given(streams(max_dim=5, max_length=60), kernels, growths, budgets, st.sampled_from([None, 1, 6]), st.integers(1, 3))
def test_the_bound_is_the_recursion(stream, kernel, growth, budget, size, candidates):
    x, s = stream
    choice = {"kernel": kernel, "growth": growth, "budget": budget, "size": size, "candidates": candidates}
    thinner = ksd_thinner(x.shape[1], history="all", validate_scores=False, **choice)
    thinner.extend(x, s)
    if len(thinner) == 0:
        assert thinner.bound is None
        return
    sizes, used = thinner.history.size, slice(0, thinner.steps * candidates)
    steps = [limits_at(t, growth, budget, n + 1, size) for t, n in enumerate([0, *sizes[:-1]], start=1)]
    kappa = reference.recent_mean(kernel.diagonal(s[used], x[used]))
    diagonal = kernel.diagonal(thinner.kept.scores, thinner.kept.draws).mean()
    floors, budgets = ([step[name] for step in steps] for name in ("floor", "budget"))
    expected = reference.bound(sizes, floors, budgets, size, kappa, diagonal)
    assert thinner.bound == pytest.approx(expected, rel=1e-9)
    assert thinner.kept.bound == thinner.bound == thinner.settings["bound"]


def mean_squares(repeats, draws, dim, **choice):
    """Mean of KSD^2 and of the bound's square over independent streams of a standard normal, after all draws."""
    squares = np.zeros((repeats, 2))
    for repeat in range(repeats):
        x = np.random.default_rng(repeat).normal(size=(draws, dim))
        thinner = ksd_thinner(dim, **choice)
        thinner.extend(x, -x)
        squares[repeat] = thinner.ksd**2, thinner.bound**2
    return squares.mean(axis=0)


@pytest.mark.parametrize(
    ("dim", "choice"),
    [
        (2, {"size": 10}),
        (2, {"size": 50}),
        (10, {"size": 50}),
        (10, {"size": 50, "candidates": 4}),
        (10, {"size": 60, "growth": "sqrt"}),
        (2, {"growth": "sqrt", "budget": "share:1"}),
        (10, {"growth": "sqrt"}),
        (2, {"growth": "linear", "budget": 1e-4}),
    ],
)
def test_the_bound_holds_in_the_mean(dim, choice):
    measured, bound = mean_squares(20, 1500, dim, **choice)
    assert measured <= 1.02 * bound  # where next to nothing goes the two are equal, but for chance
    if dim == 10:
        assert bound <= 1.5 * measured  # and it is worth something


@pytest.mark.parametrize(("dim", "size"), [(3, 100), (10, 50)])
def test_the_bound_holds_for_the_default_objective(dim, size):
    """The weight of the stream term changes during the run, and the stream with every draw."""
    squares = []
    for repeat in range(6):
        x = np.random.default_rng(repeat).normal(size=(2500, dim))
        thinner = ss.Thinner(dim, size=size)
        thinner.extend(x, -x)
        squares.append((thinner.objective, thinner.ksd**2, thinner.bound**2))
    objective, ksd, bound = np.mean(squares, axis=0)
    assert ksd <= objective <= bound


def test_the_limit_of_a_hard_cap():
    """((N - 1) kappa + (N + 1) D) / (2 N^2), and never more than kappa / N."""
    x = np.random.default_rng(0).normal(size=(20_000, 3))
    for size in (5, 40):
        thinner = ksd_thinner(3, size=size)
        thinner.extend(x, -x)
        kappa, diagonal = 6.0, ss.IMQ().diagonal(thinner.kept.scores).mean()
        limit = ((size - 1) * kappa + (size + 1) * diagonal) / (2 * size**2)
        assert thinner.bound**2 == pytest.approx(min(limit, kappa / size), rel=0.03)


def test_with_growth_the_bound_is_that_of_the_plan():
    """Where the set is as large as the growth requires, at every step: planning's theorem for sizes that are known."""
    x = np.random.default_rng(0).normal(size=(3000, 2))
    thinner = ksd_thinner(2, growth="sqrt", budget="share:1", history="all")
    thinner.extend(x, -x)
    t = thinner.history.step.astype(float)
    floor = np.maximum(np.ceil(np.minimum(schedules.growth("sqrt")(t), t)), 1)
    assert (thinner.history.size == floor).mean() > 0.9
    planned = 5.0 * Bound(schedules.growth("sqrt"), "planned").at(3000).sampling
    assert thinner.bound**2 == pytest.approx(planned, rel=0.05)


def test_burn_in_does_not_stay_in_the_bound():
    x = np.random.default_rng(0).normal(size=(5000, 2))
    s = -x
    s[:500] *= 1e4
    thinner = ksd_thinner(2, size=50, validate_scores=False)
    thinner.extend(x, s)
    assert thinner.bound < 0.3


def test_nothing_is_promised_where_nothing_is_known():
    x = np.random.default_rng(0).normal(size=(2000, 2))
    thinner = ksd_thinner(2, size=20)
    assert thinner.bound is None
    thinner.extend(x, -x)
    once = thinner.bound
    thinner.start_pass()
    thinner.extend(x, -x)
    assert thinner.bound == once and thinner.kept.settings["bound"] == once  # further passes cannot raise KSD
    assert thin_by_ksd(x, -x, size=20, passes="auto").bound is None  # begun with draws of the chain itself


def test_a_set_to_begin_with_is_where_the_bound_begins():
    x = np.random.default_rng(0).normal(size=(400, 2))
    far = x[:30] + 5.0
    thinner = ksd_thinner(2, size=30, initial=(far, -far))
    start = ss.ksd(far, -far)
    thinner.extend(x[:1], -x[:1])
    assert 0.9 * start < thinner.bound <= start
    following = ksd_thinner(2, size=30, preconditioner=ss.Streaming(first=100))
    following.extend(x[:100], -x[:100])
    assert following.bound is None  # coordinates have just changed: no draw has been measured in them
    start = following.ksd
    following.extend(x[100:101], -x[100:101])
    assert 0.9 * start < following.bound <= start
