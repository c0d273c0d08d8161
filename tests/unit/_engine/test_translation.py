"""A translated function returns the bits that numba returns for the same function, and Python."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pytest

from steinstream._engine import double_double
from steinstream._engine.by_reference import by_reference
from steinstream._engine.jit import inlined, jit
from steinstream._engine.state import new_record
from steinstream._engine.translation import translated

NUMBERS = np.array([3, 1, 4, 1, 5])
RECORD = np.dtype([("count", np.int64), ("total", np.float64)])


@by_reference
class Inner(NamedTuple):
    values: Any
    counts: Any


@by_reference
class Outer(NamedTuple):
    inner: Inner
    matrix: Any
    flags: Any
    factor: float
    enabled: bool
    nothing: Any
    scalars: Any


class Pair(NamedTuple):
    first: Any
    second: Any


def outer(seed=0, nothing=None):
    random = np.random.default_rng(seed)
    inner = Inner(random.normal(size=7), np.arange(5))
    flags = np.zeros(4, dtype=np.bool_)
    return Outer(inner, random.normal(size=(3, 4)), flags, 0.3, True, nothing, new_record(RECORD))


def arithmetic(outer, a, b, i) -> tuple[float, float, float, float, int, int, int, int]:
    power, square = abs(a) ** b, a**2
    smooth = math.log(abs(a)) + math.exp(-abs(b)) + np.sqrt(abs(a)) + np.exp(-square)
    quotient, rest = i // 3, i % 3
    return power, -square / (a - b), smooth, 2.0**-40 * i + float(i) / 7, quotient, rest, i // 16, i % 16 - int(a)


def control(outer, a, b, i) -> tuple[float, int, bool]:
    total, steps, found = 0.0, 0, False
    for row in range(outer.matrix.shape[0]):
        line = outer.matrix[row]
        for column in range(0, line.shape[0], 2):
            if line[column] < 0.0:
                continue
            total += line[column] if outer.enabled and line[column] < 1.0 else b
            steps += line[column] > a
        if total > 3.0:
            break
    while True:
        steps += 1
        if steps > i or (steps == 3 and not found):
            found = found or steps == 3
            if steps > i:
                break
    return total, steps, found


@inlined
def first_above(values, bound, nothing):
    """Return place and value of the first number above a bound."""
    if nothing is not None:
        return 0, 0.0
    for place in range(values.shape[0]):
        if values[place] > bound:
            return place, values[place]
    return -1, -np.inf


@inlined
def both(values):
    return Pair(values[1:3], values)


def calls(outer, a, b, i) -> tuple[int, float, float, float, float]:
    place, value = first_above(outer.inner.values, a, outer.nothing)
    pair = both(outer.inner.values)
    high, low = double_double.add(value, 0.0, 1e-20)
    top = max(min(pair.first[0], pair.second[2]), np.nan, a)
    return place, high, low, top, float(NUMBERS[i % 5] + outer.inner.counts[2])


def scratch(outer, a, b, i) -> tuple[float, float]:
    total, last = 0.0, 0.0
    for row in range(2, -1, -1):
        lanes, part = np.zeros((2, 3)), outer.matrix[row][:2]
        lanes[1, row] += part[1] * b
        for k in range(3):
            total = total * a + lanes[1, k]
        last = lanes[1, 0]
    return total, last


def writes(outer, a, b, i) -> float:
    scalars, matrix, own = outer.scalars, outer.matrix, outer.factor
    matrix[1, 2] = matrix[0, 0] = a
    matrix[1, 1] *= b
    matrix[2, 3], matrix[2, 2] = matrix[2, 2], matrix[2, 3]
    outer.flags[1] = outer.flags[0] or a < b
    scalars.total += a
    scalars.count, scalars.total = i, scalars.total * own
    if np.isnan(b):
        return 0.0
    return scalars.total if outer.flags[1] else -scalars.total


def written(outer):
    return [outer.matrix.tolist(), outer.flags.tolist(), outer.scalars.tolist()]


@pytest.mark.parametrize("function", [arithmetic, control, calls, scratch, writes])
def test_a_translated_function_returns_the_same_bits_as_numba(function):
    ours, numbas = translated(function), jit(function)
    for seed, (a, b, i) in enumerate([(0.7, 1.3, 17), (-1.5, 0.2, 3), (2.5, -0.1, 4), (0.1, 0.1, -5)]):
        one, two = outer(seed), outer(seed)
        result = ours(one, a, b, i)
        assert repr(result) == repr(numbas(two, a, b, i))
        assert repr(written(one)) == repr(written(two))


def test_a_test_of_none_selects_the_code_when_it_is_translated():
    ours = translated(calls)
    assert ours(outer(), 0.0, 0.0, 0)[0] >= 0
    assert ours(outer(nothing=1.0), 0.0, 0.0, 0)[:2] == (0, 1e-20)


def add_up(values) -> float:
    total = 0.0
    for i in range(values.shape[0]):
        total += values[i]
    return total


def test_an_array_that_is_not_contiguous_is_refused():
    ours = translated(add_up)
    assert ours(np.arange(4.0)) == 6.0
    with pytest.raises(TypeError, match="contiguous"):
        ours(np.arange(4.0)[::2])


def distance(pair) -> float:
    return pair.first[0] - pair.second[0]


def test_a_named_tuple_may_be_passed_by_value():
    ours = translated(distance)
    assert ours(Pair(np.ones(2), np.zeros(2))) == 1.0
    assert ours(Pair(np.ones(2), np.arange(2))) == 1.0


def narrow(a) -> int:
    count = 0
    count += a
    return count


def test_a_variable_does_not_change_its_type():
    with pytest.raises(TypeError, match="cannot convert float64 to int64"):
        translated(narrow)(0.5)
