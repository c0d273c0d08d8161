"""The step rule: floor, budget, monotone rule, cap and ties, in Python and in compiled code."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from steinstream._engine import reference
from steinstream._engine.jit import jit
from steinstream._engine.step_rule import NO_CAP, StepLimits, allowed_objective, may_remove, removal_limit

objectives = st.floats(0.0, 10.0)
sizes = st.integers(1, 12)


@jit
def compiled_limit(before, after, size, limits):
    """The rule as the engine uses it."""
    return removal_limit(allowed_objective(before, after, size, limits, 0), size, limits, 0)


@given(objectives, objectives, sizes, st.floats(0.0, 1.0), st.floats(0.0, 5.0), st.booleans(), sizes, st.data())
def test_the_rule_is_the_specification(before, after, size, budget, share, monotone, floor, data):
    cap = data.draw(st.one_of(st.none(), st.integers(floor, 12)))
    limits = StepLimits(
        np.array([floor]), np.array([budget]), np.array([share]), monotone, NO_CAP if cap is None else cap
    )
    previous = before if size > 1 else math.inf
    total, rule = budget + share / size**2, "monotone" if monotone else "paper"
    expected = reference.removal_limit(reference.allowed_objective(previous, after, total, rule), size, floor, cap)
    measured = removal_limit(allowed_objective(before, after, size, limits, 0), size, limits, 0)
    assert measured == compiled_limit(before, after, size, limits)
    assert math.isclose(measured, expected, rel_tol=1e-15)


def test_an_equal_objective_is_permitted_with_a_budget_of_zero():
    limits = StepLimits(np.array([1]), np.zeros(1), np.zeros(1))
    limit = removal_limit(allowed_objective(math.inf, 0.1, 3, limits, 0), 3, limits, 0)
    assert may_remove(0.1, limit) and may_remove(np.nextafter(0.1, 1.0), limit) and not may_remove(0.1 + 1e-12, limit)


def test_limits_of_some_steps():
    limits = StepLimits(np.arange(1, 5), np.arange(4.0), np.zeros(4), True, 7)
    part = limits.part(slice(1, 3))
    assert part.floor.tolist() == [2, 3] and part.budget.tolist() == [1.0, 2.0]
    assert part.monotone and part.cap == 7 and limits.part(slice(0, 4)) is limits
