"""Thinning with a factor per draw: the kernel of two draws is r_x r_y k0(x, y).

Used for draws without scores (:mod:`steinstream.gradient_free`), where r is the ratio of two densities. The whole chain
is given; one draw after another is compared with the kept ones, in the order of arrival, at a cost of O(kept * d) per
step. Sums are exact, as in the thinner.
"""

from __future__ import annotations

import numpy as np

from steinstream._engine import double_double
from steinstream._engine.jit import inlined, jit
from steinstream._engine.kernel_pair import value_of
from steinstream._engine.objective import mean_over_pairs
from steinstream._engine.step_rule import allowed_objective, may_remove, removal_limit


@inlined
def _value(kernel, draws, ratios, i, j):
    """Return r_i r_j k0(i, j), rounded to the grid of the kernel.

    Reference: `reference.Reference.matrix`.
    """
    shift = kernel.grid * (1.5 * 2.0**52)
    value = (ratios[i] * ratios[j]) * value_of(kernel, draws[i], draws[j])
    rounded = (value + shift) - shift
    return rounded if abs(value) < shift else value


@inlined
def _total(high, low, size):
    """Return the sum of all row sums as a pair.

    Reference: `reference.row_sum`.
    """
    total, rest = 0.0, 0.0
    for i in range(size):
        total, rest = double_double.add_pair(total, rest, high[i], low[i])
    return total, rest


@jit
def thin_with_ratios(kernel, draws, ratios, limits, kept, log) -> int:
    """Thin draws (n, 2, d), starting from an empty set; write the places of the kept ones and return their number.

    ``kept`` (n,) receives the places, ``log`` (:class:`~steinstream._engine.thinning.StepLog`) size and KSD^2 after
    each step. A step is that of :func:`steinstream._engine.thinning.thin_block` with one candidate.

    Reference: `reference.Reference.step`.
    """
    high, low, own = np.zeros(len(kept)), np.zeros(len(kept)), np.zeros(len(kept))
    size, before = 0, np.inf
    for t in range(draws.shape[0]):
        own[size] = _value(kernel, draws, ratios, t, t)
        total, rest = own[size], 0.0
        for i in range(size):
            value = _value(kernel, draws, ratios, t, kept[i])
            high[i], low[i] = double_double.add(high[i], low[i], value)
            total, rest = double_double.add(total, rest, value)
        high[size], low[size], kept[size] = total, rest, t
        size += 1
        total, rest = _total(high, low, size)
        allowed = allowed_objective(before, mean_over_pairs(total, size), size, limits, t)
        while True:
            limit = removal_limit(allowed, size, limits, t)
            if limit == -np.inf:
                break
            worst, largest = 0, -np.inf
            for i in range(size):
                if 2.0 * high[i] - own[i] > largest:
                    worst, largest = i, 2.0 * high[i] - own[i]
            without, less = double_double.add_pair(total, rest, -2.0 * high[worst], -2.0 * low[worst])
            without, less = double_double.add(without, less, own[worst])
            if not may_remove(mean_over_pairs(without, size - 1), limit):
                break
            removed = kept[worst]
            size -= 1
            for i in range(worst, size):
                high[i], low[i], own[i], kept[i] = high[i + 1], low[i + 1], own[i + 1], kept[i + 1]
            for i in range(size):
                value = _value(kernel, draws, ratios, removed, kept[i])
                high[i], low[i] = double_double.add(high[i], low[i], -value)
            total, rest = without, less
        before = mean_over_pairs(total, size)
        log.sizes[t], log.squared_ksd[t] = size, before
    return size
