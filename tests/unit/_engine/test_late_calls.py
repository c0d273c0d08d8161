"""Functions that are called late, and tuples that are passed by reference, behave as ordinary ones.

These tests, and those of the cache, fail if a version of numba changes what the engine relies on.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np
import pytest
from numba import types
from numba.core.datamodel import default_manager

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


def test_a_late_function_gets_its_arguments_and_returns_its_result():
    given = outer(3)
    assert call(given, 3) == 3 * 7.5 + 3.0 and given.inner.flags[0]
    assert call(outer(5), 2) == 2 * 22.5 + 1.0


@called_late(types.float64)
def height(outer):
    """Return the number of rows; only the next test calls it."""
    return float(outer.inner.matrix.shape[0])


@jit
def heights(outer, times) -> float:
    value = 0.0
    for _ in range(times):
        value += height(outer)
    return value


def test_a_late_function_is_compiled_when_it_is_called():
    function = late_calls._functions[f"{__name__}.height"]
    assert heights(outer(3), 0) == 0.0 and not function.overloads
    assert heights(outer(3), 3) == 9.0 and len(function.overloads) == 1
    assert heights(outer(5), 2) == 10.0 and len(function.overloads) == 1


def test_a_late_function_that_is_not_called_is_not_compiled():
    assert call(outer(1, enabled=False), 1) == 0.5
    assert not late_calls._functions[f"{__name__}.never"].overloads


def test_references_of_equal_layout_have_one_type():
    before = len(call.signatures)
    call(outer(4), 1)
    call(outer(7), 1)
    assert len(call.signatures) == max(before, 1)


@jit
def describe(outer) -> tuple[int, int, int, int, int, int, float]:
    matrix = outer.inner.matrix
    middle = matrix[1:3, 1]  # a view: uses the strides
    return (*matrix.shape, *matrix.strides, matrix.size, matrix.itemsize, middle.sum())


def test_an_array_that_is_passed_by_reference_is_complete_and_keeps_its_reference_count():
    given = outer(4)
    matrix = given.inner.matrix
    describe(given)
    before = sys.getrefcount(matrix)
    for _ in range(3):
        assert describe(given) == (*matrix.shape, *matrix.strides, matrix.size, matrix.itemsize, 3.0 + 5.0)
    assert sys.getrefcount(matrix) == before


def test_the_parts_of_an_array_in_memory_are_those_that_a_reference_reads():
    """`by_reference.read_field` sets the owners to null and loads all other parts."""
    model = default_manager[types.float64[:, ::1]]
    parts = [model.get_field_position(name) for name in ("meminfo", "parent", "nitems", "itemsize", "data")]
    assert sorted([*parts, *map(model.get_field_position, ("shape", "strides"))]) == [*range(7)]


def test_a_late_function_that_cannot_be_compiled_is_an_error_with_a_reason_in_the_log(caplog):
    with caplog.at_level("ERROR", logger="steinstream"), pytest.raises(RuntimeError, match="never could not be comp"):
        call(outer(1, nothing=1.0), 1)
    assert "never could not be compiled with numba" in caplog.text and "missing" in caplog.text
