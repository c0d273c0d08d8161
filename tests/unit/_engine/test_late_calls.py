"""Functions that are called late, and tuples that are passed by reference, behave as ordinary ones."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types

from steinstream._engine import late_calls
from steinstream._engine.by_reference import by_reference
from steinstream._engine.jit import jit
from steinstream._engine.late_calls import called_late


class Pair(NamedTuple):
    first: Any
    second: Any


@by_reference
class Inner(NamedTuple):
    matrix: Any
    flags: Any


@by_reference
class Outer(NamedTuple):
    inner: Inner
    factor: float
    enabled: bool
    nothing: Any


@called_late(types.float64)
def total(outer, add):
    """Return the sum of a matrix times a factor plus a number, and mark the first flag."""
    value = 0.0
    for i in range(outer.inner.matrix.shape[0]):
        for j in range(outer.inner.matrix.shape[1]):
            value += outer.inner.matrix[i, j]
    outer.inner.flags[0] = True
    return outer.factor * value + add


@called_late()
def never(outer):
    outer.factor.missing  # noqa: B018 (would not compile)


@jit
def call(outer, times) -> float:
    value = 0.0
    for i in range(times):
        value += total(outer, add=float(i))
    if outer.enabled and outer.nothing is not None:
        never(outer)
    return value


def outer(rows, enabled=True, nothing=None):
    inner = Inner(np.arange(2.0 * rows).reshape(rows, 2), np.zeros(1, dtype=np.bool_))
    return Outer(inner, 0.5, enabled, nothing)


def test_a_late_function_is_compiled_when_it_is_called():
    function = late_calls._functions[f"{__name__}.total"]
    given = outer(3)
    assert call(given, 0) == 0.0 and not function.overloads
    assert call(given, 3) == 3 * 7.5 + 3.0 and len(function.overloads) == 1
    assert given.inner.flags[0]
    assert call(outer(5), 2) == 2 * 22.5 + 1.0 and len(function.overloads) == 1


def test_a_late_function_that_is_not_called_is_not_compiled():
    assert call(outer(1, enabled=False), 1) == 0.5
    assert not late_calls._functions[f"{__name__}.never"].overloads


def test_references_of_equal_layout_have_one_type():
    before = len(call.signatures)
    call(outer(4), 1)
    call(outer(7), 1)
    assert len(call.signatures) == max(before, 1)
