"""Thinning where every draw has a factor: the kernel of two draws is f_x f_y k0(x, y).

For draws without scores (:mod:`steinstream.gradient_free`). The chain is there as a whole, and one draw after another
meets the kept ones, in the order of their arrival: O(kept * d) a step. Sums are exact, as in the thinner.
"""

from __future__ import annotations

import numpy as np

from steinstream._engine import double_double
from steinstream._engine.jit import inlined, jit
from steinstream._engine.kernel_pair import value_of
from steinstream._engine.thinning import TIE


@inlined
def _value(kernel, x, y, factor):
    """The Stein kernel of two draws (2, d) times a factor, on the kernel's grid."""
    shift = kernel[3] * (1.5 * 2.0**52)
    value = factor * value_of(kernel, x, y)
    rounded = (value + shift) - shift
    return rounded if abs(value) < shift else value


@inlined
def _total(high, low, size):
    """The sum of all influences, as a pair."""
    total, rest = 0.0, 0.0
    for i in range(size):
        total, rest = double_double.add_pair(total, rest, high[i], low[i])
    return total, rest


@inlined
def _square(total, size):
    """KSD^2 of so many draws with this sum of influences."""
    return max(total, 0.0) / (float(size) * float(size))


@jit
def thin_with_factors(kernel, draws, factors, floor, budget, share, monotone, cap, kept, sizes, squares) -> int:
    """Run draws (n, 2, d) past a set that begins empty; the places of those kept go to ``kept`` (n,), how many back.

    A step is that of :func:`steinstream._engine.thinning.thin_block`, with one candidate.
    """
    high, low, own = np.zeros(len(kept)), np.zeros(len(kept)), np.zeros(len(kept))
    size, before = 0, np.inf
    for t in range(draws.shape[0]):
        own[size] = _value(kernel, draws[t], draws[t], factors[t] * factors[t])
        total, rest = own[size], 0.0
        for i in range(size):
            value = _value(kernel, draws[t], draws[kept[i]], factors[t] * factors[kept[i]])
            high[i], low[i] = double_double.add(high[i], low[i], value)
            total, rest = double_double.add(total, rest, value)
        high[size], low[size], kept[size] = total, rest, t
        size += 1
        total, rest = _total(high, low, size)
        most = _square(total, size)
        if monotone:
            most = min(most, before)
        allowed = (most + budget[t] + share[t] / float(size * size)) * TIE
        while size > floor[t]:
            worst, influence = 0, -np.inf
            for i in range(size):
                if 2.0 * high[i] - own[i] > influence:
                    worst, influence = i, 2.0 * high[i] - own[i]
            without, less = double_double.add_pair(total, rest, -2.0 * high[worst], -2.0 * low[worst])
            without, less = double_double.add(without, less, own[worst])
            if size <= cap and _square(without, size - 1) > allowed:
                break
            gone = kept[worst]
            size -= 1
            for i in range(worst, size):
                high[i], low[i], own[i], kept[i] = high[i + 1], low[i + 1], own[i + 1], kept[i + 1]
            for i in range(size):
                value = _value(kernel, draws[gone], draws[kept[i]], factors[gone] * factors[kept[i]])
                high[i], low[i] = double_double.add(high[i], low[i], -value)
            total, rest = without, less
        before = _square(total, size)
        sizes[t], squares[t] = size, before
    return size
