"""Schedules: values, text forms, and clear errors for names and numbers that are invalid."""

from __future__ import annotations

from types import FunctionType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steinstream import schedules
from steinstream.errors import InputError
from steinstream.schedules import Constant, Decaying, KeepAll, Linear, Power, Share, SquareRoot

STEPS = np.array([1.0, 2.0, 10.0, 1e6])
NAMED = [KeepAll(), Linear(), SquareRoot(), Power(0.5), Power(1.5), Constant(20), Constant(0.125)]


@pytest.mark.parametrize(
    ("schedule", "formula"),
    [
        (KeepAll(), lambda t: np.inf),
        (Linear(), lambda t: t / 2),
        (SquareRoot(), lambda t: np.sqrt(t * np.log(t))),
        (Power(1.3), lambda t: np.sqrt(t**1.3 * np.log(t)) / 2),
        (Constant(7), lambda t: 7.0),
        (Decaying(Linear()), lambda t: np.log(t) / (t / 2) ** 2),
        (Decaying(SquareRoot()), lambda t: 0.0 if t == 1 else np.log(t) / (t * np.log(t))),
        (Share(0.5), lambda t: 0.0),  # the thinner divides eta by the squared size of the set
    ],
    ids=lambda value: "formula" if isinstance(value, FunctionType) else str(value),
)
def test_values_are_those_of_the_formula(schedule, formula):
    expected = [formula(t) for t in STEPS]
    np.testing.assert_allclose(schedules.evaluate(schedule, STEPS), expected, rtol=1e-14)


def test_growth_never_decreases():
    t = np.arange(1.0, 5000.0)
    for schedule in NAMED:
        values = schedules.evaluate(schedule, t)
        assert (values[1:] >= values[:-1]).all() and values[0] >= 0


@pytest.mark.parametrize("schedule", NAMED, ids=str)
def test_the_text_form_of_a_growth_restores_it(schedule):
    assert schedules.growth(str(schedule)) == schedule
    assert schedules.name_of(schedule, schedule) == str(schedule)


@pytest.mark.parametrize("schedule", [Decaying(SquareRoot()), Constant(1e-3), Share(2.0)], ids=str)
def test_the_text_form_of_a_budget_restores_it(schedule):
    assert schedules.budget(str(schedule), SquareRoot()) == schedule
    assert schedules.name_of(schedule, SquareRoot()) == str(schedule)


@given(st.floats(0, 1e300, exclude_min=True))
def test_every_number_survives_its_text_form(value):
    assert schedules.budget(str(Share(value)), Linear()) == Share(value)
    assert schedules.growth(str(Constant(value))) == Constant(value)


def test_numbers_of_any_type_are_plain_floats():
    for value in (3, np.int64(3), np.float32(3.0), "3"):
        assert type(Constant(value).value) is float and Constant(value) == Constant(3.0)
    assert schedules.growth(3) == schedules.growth("3") == schedules.growth("constant:3") == Constant(3.0)


def test_functions_are_called_step_by_step_and_have_no_text_form():
    seen = []

    def own(t):
        seen.append(t)
        return 2 * t

    assert schedules.growth(own) is own and schedules.budget(own, own) is own
    assert schedules.evaluate(own, np.array([1.0, 4.0])).tolist() == [2.0, 8.0]
    assert seen == [1, 4] and all(type(t) is int for t in seen)
    assert schedules.name_of(own, own) is None
    assert schedules.name_of(Decaying(Linear()), SquareRoot()) is None  # "decaying" would restore another one
    with pytest.raises(InputError, match="not a number at step 4"):
        schedules.evaluate(lambda t: np.nan if t == 4 else 1.0, np.array([1.0, 4.0]))


@pytest.mark.parametrize(
    ("find", "choice", "words"),
    [
        (schedules.growth, "linar", r"Unknown growth 'linar'\. Did you mean linear\? Growths are none, linear, sqrt"),
        (schedules.growth, "pwoer:1.5", r"Unknown growth 'pwoer:1.5'\. Did you mean power\?"),
        (schedules.growth, "power", r"Unknown growth 'power'\. .*power:ALPHA"),
        (schedules.growth, "power:much", r"Unknown growth 'power:much'"),
        (schedules.growth, "sqrt:2", r"Unknown growth 'sqrt:2'"),
        (schedules.growth, None, "Unknown growth None"),
        (schedules.growth, "power:2", "between 0 and 2, got 2.0"),
        (schedules.growth, -1, "must not be negative, got -1.0"),
        (schedules.growth, "nan", "must not be negative, got nan"),
        (schedules.budget, "decayin", r"Unknown budget 'decayin'\. Did you mean decaying\? Budgets are decaying"),
        (schedules.budget, "share:", r"Unknown budget 'share:'"),
        (schedules.budget, "share:-1", "must not be negative, got -1.0"),
    ],
)
def test_invalid_names_and_numbers_are_refused_with_a_suggestion(find, choice, words):
    with pytest.raises(InputError, match=words):
        find(choice) if find is schedules.growth else find(choice, Linear())


@pytest.mark.parametrize("schedule", [Constant, Power, Share])
def test_a_parameter_that_is_no_number_is_refused(schedule):
    with pytest.raises(InputError, match=f"of {schedule.__name__} must be a number, got 'much'"):
        schedule("much")


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("20", "is not a number at step 3: it returned '20'"),
        (None, "is not a number at step 3: it returned None"),
        (np.ones(2), "is not a number at step 3"),
        (list(range(100)), "is not a number at step 3: it returned list"),
        (10**400, "is not a number at step 3: it returned int"),
        (1j, "is not a number at step 3"),
        (float("nan"), "is not a number at step 3"),
        (-0.5, r"is negative \(-0.5\) at step 3"),
        (-np.inf, r"is negative \(-inf\) at step 3"),
    ],
)
def test_a_function_that_does_not_return_a_number_of_at_least_0_is_refused(value, problem):
    with pytest.raises(InputError, match=problem):
        schedules.evaluate(lambda t: value if t == 3 else 1.0, np.arange(1.0, 6.0))
