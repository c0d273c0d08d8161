"""Exact sums as unevaluated pairs ``high + low`` of doubles, always normalised.

Stein kernel values are rounded once to a fixed grid (:mod:`steinstream._engine.kernel_row`). Sums and differences of
multiples of the grid are again multiples of it. As long as they fit the 106 bits of a pair, every addition below is
*exact*. It follows that

- the order of a sum does not matter: block size, threads, storage order and vector width never change a bit;
- removing a draw undoes its insertion completely: nothing drifts, however long the stream;
- ``high`` is the exact sum, correctly rounded, so that equal influences compare equal.

:mod:`steinstream._engine.updates` handles values beyond the exact range.

The functions work on anything that can be added: floats, NumPy arrays, compiled code, and vector lanes.
"""

from __future__ import annotations

from typing import Any

from steinstream._engine.jit import shared

#: Upper end of the exact range, in units of the grid: 2^40 times the smallest possible k0(x, x).
EXACT_RANGE = 2.0**93


@shared
def two_sum(a: Any, b: Any) -> Any:
    """Return ``a + b`` as the rounded sum and its exact error (Knuth).

    Reference: `math.fsum`.

    >>> two_sum(1.0, 1e-20)
    (1.0, 1e-20)
    """
    total = a + b
    shadow = total - a
    return total, (a - (total - shadow)) + (b - shadow)


@shared
def add(high: Any, low: Any, value: Any) -> Any:
    """Add a double to a pair.

    Reference: `math.fsum`.

    >>> add(1e16, 1.0, 1.0), add(1e16, 1.0, -1e16)
    ((1.0000000000000002e+16, 0.0), (1.0, 0.0))
    """
    total, error = two_sum(high, value)
    rest = error + low
    high = total + rest
    return high, rest - (high - total)


@shared
def add_pair(high: Any, low: Any, value: Any, rest: Any) -> Any:
    """Add a pair to a pair.

    Reference: `math.fsum`.

    >>> add_pair(1e16, 1.0, 0.25, 0.0)
    (1.0000000000000002e+16, -0.75)
    """
    total, error = two_sum(high, value)
    rest = error + (low + rest)
    high = total + rest
    return high, rest - (high - total)
