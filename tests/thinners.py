"""Helpers that compare thinners with each other and with the specification."""

from __future__ import annotations

import math

import numpy as np

from steinstream import schedules


def floor_at(t, growth, initial=0, cap=None):
    """Smallest number of draws to keep at step t."""
    f = float(schedules.evaluate(schedules.growth(growth), np.array([float(t)]))[0])
    return max(1, math.ceil(min(f, t + initial, math.inf if cap is None else cap)))


def budget_at(t, budget, growth, size):
    """Budget of step t with this number of draws after the insertion."""
    if isinstance(budget, str) and budget.startswith("share:"):
        return float(budget.partition(":")[2]) / size**2
    schedule = schedules.budget(budget, schedules.growth(growth))
    return float(schedules.evaluate(schedule, np.array([float(t)]))[0])


def limits_at(t, growth, budget, size, cap=None, rule="paper"):
    """Settings of step t for the specification."""
    return {
        "floor": floor_at(t, growth, cap=cap),
        "budget": budget_at(t, budget, growth, size),
        "cap": cap,
        "rule": rule,
    }


def magnitude(reference):
    """Mean size of the kernel values of the kept draws."""
    return np.abs(reference.matrix()).mean()


def assert_same(a, b):
    """Two thinners have the same result, history and state, to the last bit."""
    one, two = a.kept, b.kept
    assert np.array_equal(one.ids, two.ids)
    assert np.array_equal(one.draws, two.draws)
    assert np.array_equal(one.scores, two.scores)
    assert one.ksd == two.ksd or len(one) == 0
    for left, right in zip(one.history, two.history, strict=True):
        assert np.array_equal(left, right)
    if a.state.dictionary is not None:
        left, right = a.state.dictionary.state(), b.state.dictionary.state()
        assert all(np.array_equal(left[name], right[name]) for name in left)


def permuted(state, random):
    """The state of a dictionary with its slots in a different order."""
    slots = list(range(len(state["copies"])))
    random.shuffle(slots)
    latest = int(state["latest"])
    labels = np.split(np.arange(len(state["ids"])), np.cumsum(state["copies"])[:-1])
    labels = np.concatenate([labels[slot] for slot in slots])
    return {
        **state,
        **{
            name: state[name][slots] for name in ("points", "raw", "copies", "influence", "stream_sum") if name in state
        },
        **{name: state[name][labels] for name in ("ids", "cost", "pinned") if name in state},
        "latest": np.array(slots.index(latest) if latest >= 0 else latest),
    }
