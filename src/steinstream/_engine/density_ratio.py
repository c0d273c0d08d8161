"""Thinning with a factor per draw: the Stein kernel of two draws is r_x r_y k0(x, y).

Used for draws without scores (:mod:`steinstream.gradient_free`), where r is the ratio of two densities. The whole chain
is given; one draw after another is compared with the kept ones, in the order of arrival, at a cost of O(kept * d) per
step. Sums are exact, as in the thinner. The stream term is w times the squared MMD to the whole chain,

    MMD^2 = P / n^2 - 2 B / n + c

for n kept draws, with P the sum of the base kernel phi over all pairs, B the sum of the means b of phi over the chain,
and c the mean of b over the chain.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from steinstream._engine import double_double
from steinstream._engine.compiled_kernel import CompiledKernel
from steinstream._engine.jit import inlined
from steinstream._engine.kernel_pair import profile_at, value_of
from steinstream._engine.objective import mean_over_pairs
from steinstream._engine.step_rule import StepLimits, allowed_objective, may_remove, removal_limit
from steinstream._engine.thinning import StepLog
from steinstream._engine.translation import translated
from steinstream._typing import Array, Integers


class WholeStream(NamedTuple):
    """Distance to a chain that is known from the beginning."""

    means: Array  # (n,): b of each draw
    mean: float  # c
    weight: float  # w; 0 without a stream term


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
def _base_value(kernel, draws, stream, i, j):
    """Return phi of two draws, rounded to its grid; 0 without a stream term.

    Reference: `reference.base_values`.
    """
    if stream.weight == 0.0:
        return 0.0
    u, shift = 0.0, kernel.base_grid * (1.5 * 2.0**52)
    for k in range(draws.shape[2]):
        difference = draws[i, 0, k] - draws[j, 0, k]
        u += difference * difference
    phi, _, _ = profile_at(kernel, u)
    return (phi + shift) - shift


@inlined
def _total(high, low, size):
    """Return the sum of all row sums as a pair.

    Reference: `reference.row_sum`.
    """
    total, rest = 0.0, 0.0
    for i in range(size):
        total, rest = double_double.add_pair(total, rest, high[i], low[i])
    return total, rest


@inlined
def _squared_mmd(stream, pairs, means, size):
    """Return the squared MMD from P and B.

    Reference: `reference.Reference.squared_mmd`.
    """
    return pairs / (float(size) * float(size)) - 2.0 * (means / float(size)) + stream.mean


def thin_with_ratios(
    kernel: CompiledKernel,
    draws: Array,
    ratios: Array,
    stream: WholeStream,
    limits: StepLimits,
    kept: Integers,
    log: StepLog,
) -> int:
    """Thin draws (n, 2, d), starting from an empty set; write the places of the kept ones and return their number.

    ``kept`` (n,) receives the places, ``log`` size, KSD^2 and squared MMD after each step.
    """
    draws, ratios = np.ascontiguousarray(draws), np.ascontiguousarray(ratios)
    return int(_thin(kernel, draws, ratios, stream, limits, kept, log, np.zeros((4, len(kept)))))


@translated
def _thin(kernel, draws, ratios, stream, limits, kept, log, scratch) -> int:
    """Run the steps: those of :func:`steinstream._engine.thinning.thin_block` with one candidate.

    Reference: `reference.Reference.step`.
    """
    weight, means, high, low, own, base = stream.weight, stream.means, scratch[0], scratch[1], scratch[2], scratch[3]
    size, before, phi = 0, np.inf, _base_value(kernel, draws, stream, 0, 0)
    for t in range(draws.shape[0]):
        own[size] = _value(kernel, draws, ratios, t, t)
        total, rest, base[size] = own[size], 0.0, phi
        for i in range(size):
            value = _value(kernel, draws, ratios, t, kept[i])
            high[i], low[i] = double_double.add(high[i], low[i], value)
            total, rest = double_double.add(total, rest, value)
            value = _base_value(kernel, draws, stream, t, kept[i])
            base[i] += value
            base[size] += value
        high[size], low[size], kept[size] = total, rest, t
        size += 1
        total, rest = _total(high, low, size)
        pairs, sum_of_means = 0.0, 0.0
        for i in range(size):
            pairs += base[i]
            sum_of_means += means[kept[i]]
        after = mean_over_pairs(total, size) + weight * _squared_mmd(stream, pairs, sum_of_means, size)
        allowed = allowed_objective(before, after, size, limits, t)
        while True:
            limit = removal_limit(allowed, size, limits, t)
            if limit == -np.inf:
                break
            worst, largest, share = 0, -np.inf, float(size - 1)
            for i in range(size):
                key = 2.0 * high[i] - own[i] + weight * (2.0 * (base[i] - share * means[kept[i]]) - phi)
                if key > largest:
                    worst, largest = i, key
            without, less = double_double.add_pair(total, rest, -2.0 * high[worst], -2.0 * low[worst])
            without, less = double_double.add(without, less, own[worst])
            fewer, others = pairs - 2.0 * base[worst] + phi, sum_of_means - means[kept[worst]]
            left = mean_over_pairs(without, size - 1) + weight * _squared_mmd(stream, fewer, others, size - 1)
            if not may_remove(left, limit):
                break
            removed = kept[worst]
            size -= 1
            for i in range(worst, size):
                high[i], low[i], own[i], kept[i] = high[i + 1], low[i + 1], own[i + 1], kept[i + 1]
                base[i] = base[i + 1]
            for i in range(size):
                value = _value(kernel, draws, ratios, removed, kept[i])
                high[i], low[i] = double_double.add(high[i], low[i], -value)
                base[i] -= _base_value(kernel, draws, stream, removed, kept[i])
            total, rest, pairs, sum_of_means = without, less, fewer, others
        log.sizes[t], log.squared_ksd[t] = size, mean_over_pairs(total, size)
        log.squared_mmd[t] = max(_squared_mmd(stream, pairs, sum_of_means, size), 0.0) if weight > 0.0 else np.nan
        before = log.squared_ksd[t] + weight * _squared_mmd(stream, pairs, sum_of_means, size)
    return size
