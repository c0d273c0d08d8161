"""Helpers that compare thinners with each other and with the specification."""

from __future__ import annotations

import math

import numpy as np

import steinstream as ss
from steinstream import schedules


def ksd_thinner(dim, *config, **settings):
    """Return a thinner that selects by KSD alone, in the coordinates of the draws unless others are given."""
    defaults = {"preconditioner": ss.Preconditioner.identity(), "stream_weight": 0.0}
    return ss.Thinner(dim, *config, **{**defaults, **settings})


def thin_by_ksd(*arrays, **settings):
    """Run ss.thin with KSD alone as the objective."""
    return ss.thin(*arrays, **{"stream_weight": 0.0, **settings})


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


def groups(length, candidates):
    """Step, rows and ids of each group of candidates."""
    for t in range(1, length // candidates + 1):
        rows = slice((t - 1) * candidates, t * candidates)
        yield t, rows, [(0, i) for i in range(rows.start, rows.stop)]


def magnitude(reference):
    """Mean size of the kernel values of the kept draws."""
    return np.abs(reference.matrix()).mean()


def assert_same(a, b):
    """Two thinners have the same result, history and state, to the last bit."""
    one, two = a.kept, b.kept
    assert np.array_equal(one.ids, two.ids)
    assert np.array_equal(one.draws, two.draws)
    assert (one.scores is None) == (two.scores is None)
    assert one.scores is None or np.array_equal(one.scores, two.scores)
    assert one.ksd == two.ksd or len(one) == 0 or one.scores is None
    assert one.mmd == two.mmd or math.isnan(one.mmd)
    for left, right in zip(one.history, two.history, strict=True):
        assert np.array_equal(left, right, equal_nan=True)
    if a.state.dictionary is not None:
        assert same_arrays(a.state.dictionary.state(), b.state.dictionary.state())


def assert_same_in_parts(make, add, length, block, path, random):
    """Blocks, checkpoints between them and another order of storage give the same bits as one call."""
    whole, blocks, resumed, shuffled = (make() for _ in range(4))
    add(whole, slice(None))
    for first in range(0, length, block):
        for thinner in (blocks, resumed, shuffled):
            add(thinner, slice(first, first + block))
        resumed.save(path)
        resumed = ss.Thinner.load(path, **resumed.config.functions())
        if len(shuffled):
            shuffled.state.dictionary.restore(permuted(shuffled.state.dictionary.state(), random))
    for other in (blocks, resumed, shuffled):
        assert_same(whole, other)
        assert whole.pinned == other.pinned


def same_arrays(one, other):
    """Whether two nested dictionaries of arrays are equal."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same_arrays(one[name], other[name]) for name in one)
    return np.array_equal(one, other)


def permuted(state, random):
    """The state of a dictionary with its slots in a different order."""
    slots = list(range(len(state["copies"])))
    random.shuffle(slots)
    latest = int(state["latest"])
    labels = np.split(np.arange(len(state["ids"])), np.cumsum(state["copies"])[:-1])
    labels = np.concatenate([labels[slot] for slot in slots])
    return {
        **state,
        **{name: state[name][slots] for name in ("draws", "raw", "copies", "influence", "stream_sum") if name in state},
        **{name: state[name][labels] for name in ("ids", "cost", "pinned") if name in state},
        "latest": np.array(slots.index(latest) if latest >= 0 else latest),
    }


def replace_kept(reference, draws, scores, ids):
    """Replace the kept draws of the reference by these, without costs."""
    while reference.ids:
        reference.remove(0)
    for draw, score, id in zip(draws, scores, ids, strict=True):
        reference.insert(draw, score, id)
