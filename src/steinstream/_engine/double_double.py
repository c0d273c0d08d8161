"""Sums without rounding: an unevaluated pair ``high + low`` of doubles, kept normalised.

Stein kernel values are rounded once to a fixed grid (:mod:`steinstream._engine.kernel_row`). Sums and differences of grid
values are again on the grid, so as long as they fit the pair's 106 bits every addition below is *exact*. Therefore

- the order of a sum does not matter: blocks, threads, storage order and vector width never change a bit;
- removing a point undoes its addition completely: nothing drifts, however long the stream;
- ``high`` is the exact sum correctly rounded, so equal influences compare equal and ties are real ties.

Values that do not fit, of draws with scores some million times too long, are dealt with in
:mod:`steinstream._engine.updates`.

Each function works on whatever adds: floats, numpy arrays, compiled code, and vector lanes that are being traced.
"""

from __future__ import annotations

from typing import Any

from numba.extending import register_jitable

#: Times the grid: 2^40 times the least that a draw can have with itself. With such kernel values sums begin to round.
WILD = 2.0**93


@register_jitable
def two_sum(a: Any, b: Any) -> Any:
    """``a + b`` as the rounded sum and its exact error (Knuth).

    >>> two_sum(1.0, 1e-20)
    (1.0, 1e-20)
    """
    total = a + b
    shadow = total - a
    return total, (a - (total - shadow)) + (b - shadow)


@register_jitable
def add(high: Any, low: Any, value: Any) -> Any:
    """The pair plus a double.

    >>> add(1e16, 1.0, 1.0), add(1e16, 1.0, -1e16)
    ((1.0000000000000002e+16, 0.0), (1.0, 0.0))
    """
    total, error = two_sum(high, value)
    rest = error + low
    high = total + rest
    return high, rest - (high - total)


@register_jitable
def add_pair(high: Any, low: Any, value: Any, rest: Any) -> Any:
    """The pair plus another pair.

    >>> add_pair(1e16, 1.0, 0.25, 0.0)
    (1.0000000000000002e+16, -0.75)
    """
    total, error = two_sum(high, value)
    rest = error + (low + rest)
    high = total + rest
    return high, rest - (high - total)
