"""Local search for a good subset of many draws: greedy selection, swaps, and partial re-selection.

Let G = k0 + w phi be the kernel of the objective and b(x) the mean of w phi(x, y) over all draws y. For a subset of m
draws, m^2 times the objective is the sum over its draws i of (sum_j G_ij) - 2 m b_i, up to a constant. Hence a draw
costs G_ii / 2 - m b_i + sum_j G_ij: ``sums``, with ``half`` = G_ii / 2 - m b_i. Without a stream term w and b are 0.

Inserting a draw into the subset, or removing one, costs one kernel row over all draws. Sums are plain doubles, added in
a fixed order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from steinstream._engine.base_row import ADD_BASE, base_row
from steinstream._engine.baseline_loops import read_draw
from steinstream._engine.by_reference import by_reference
from steinstream._engine.compiled_kernel import CompiledKernel
from steinstream._engine.jit import inlined
from steinstream._engine.kernel_row import STORE, compute_row, new_lanes, store_arrays
from steinstream._engine.late_calls import called_late
from steinstream._engine.penalties import base_at_zero
from steinstream._engine.simd import LANES
from steinstream._engine.translation import translated
from steinstream._typing import Array, Flags, Integers


@by_reference
class Subset(NamedTuple):
    """A subset of draws, with the kernel sums of all draws over it."""

    tiles: Array  # all draws
    chosen: Integers  # (size,): indices of the draws in the subset
    taken: Flags  # (n,): whether a draw is in the subset
    sums: Array  # (n,): ``half`` plus the sum of G over the subset
    half: Array  # (n,): G(x, x) / 2 - m b(x); infinite for padding
    diagonal: Array  # (n,): G(x, x); infinite for padding
    row: Array  # (n,): scratch
    base_row: Array  # (n,): scratch
    draw: Array  # (2, d): scratch
    stein: float  # 1, or 0 without scores
    stream_weight: float  # w


def empty_subset(tiles: Array, diagonal: Array, size: int, stein: float = 1.0) -> Subset:
    """Return an empty subset of draws in tiles, for ``size`` of them and without a stream term.

    ``diagonal`` holds k0(x, x) of each draw. ``stein`` is 0 for draws without scores.
    """
    slots = len(tiles) * LANES
    own = np.full(slots, np.inf)  # padding is never the best draw
    own[: len(diagonal)] = diagonal
    return Subset(
        tiles=tiles,
        chosen=np.zeros(size, dtype=np.int64),
        taken=np.zeros(slots, dtype=np.bool_),
        sums=0.5 * own,
        half=0.5 * own,
        diagonal=own,
        row=np.zeros(slots),
        base_row=np.zeros(slots),
        draw=np.zeros((2, tiles.shape[1])),
        stein=stein,
        stream_weight=0.0,
    )


@inlined
def compute_base_row(kernel, subset) -> None:
    """Write phi of ``subset.draw`` with all draws to ``subset.base_row``.

    Reference: `kernels.Kernel.base_matrix`.
    """
    for j in range(subset.base_row.shape[0]):
        subset.base_row[j] = 0.0
    tiles, lanes = subset.tiles, np.zeros((2, LANES))
    base_row(kernel, ADD_BASE, subset.draw[0], tiles, subset.row, subset.base_row, lanes, 0, tiles.shape[0])


@called_late()
def update_sums(kernel, subset, i, sign) -> None:
    """Insert draw i into the subset (``sign`` 1) or remove it (-1); ``subset.row`` receives G of it with all draws.

    Reference: `reference.subset_sums`, `reference.objective_matrix`.
    """
    tiles, row, sums = subset.tiles, subset.row, subset.sums
    read_draw(tiles, i, subset.draw)
    if subset.stein > 0.0:
        compute_row(kernel, STORE, store_arrays(subset.draw, tiles, row, new_lanes()), None, 0, tiles.shape[0])
    else:
        for j in range(row.shape[0]):
            row[j] = 0.0
    if subset.stream_weight > 0.0:
        compute_base_row(kernel, subset)
        for j in range(row.shape[0]):
            row[j] += subset.stream_weight * subset.base_row[j]
    subset.taken[i] = sign > 0.0
    for j in range(sums.shape[0]):
        sums[j] += sign * row[j]


@inlined
def best_addition(subset) -> int:
    """Return the draw outside the subset that leaves the smallest objective if it is inserted.

    Reference: `reference.greedy_subset`.
    """
    best, smallest = 0, np.inf
    while subset.taken[best]:  # a first choice, in case that no sum is finite
        best += 1
    for i in range(subset.sums.shape[0]):
        if subset.sums[i] < smallest and not subset.taken[i]:
            best, smallest = i, subset.sums[i]
    return best


@translated
def energy(subset) -> float:
    """Return m^2 times the objective of the subset, up to a constant. Reference: `reference.subset_energy`."""
    total = 0.0
    for place in range(subset.chosen.shape[0]):
        i = subset.chosen[place]
        total += subset.sums[i] - (subset.diagonal[i] - subset.half[i])
    return total


def with_stream_term(kernel: CompiledKernel, subset: Subset, counts: Array, scale: float) -> Subset:
    """Return the empty subset with a stream term; the stream has the first draws ``counts[i]`` times each.

    ``scale`` is gamma times the mean of k0(x, x), or 1 without scores; w = scale / nu with nu the spread of the stream.

    Reference: `reference.objective_matrix`.
    """
    count, size, means = len(counts), len(subset.chosen), np.zeros(len(counts))
    spread = _fill_means(kernel, subset, counts, float(counts.sum()), means)
    if spread <= 0.0:
        return subset
    weight = scale / spread
    own = weight * base_at_zero(kernel)
    subset.diagonal[:count] += own
    subset.half[:count] += 0.5 * own - size * weight * means
    subset.sums[:count] = subset.half[:count]
    return subset._replace(stream_weight=weight)


@translated
def _fill_means(kernel, subset, counts, total, means) -> float:
    """Write the means of phi over the stream and return nu.

    Reference: `reference.objective_matrix`.
    """
    spread = 0.0
    for i in range(counts.shape[0]):
        read_draw(subset.tiles, i, subset.draw)
        compute_base_row(kernel, subset)
        mean = 0.0
        for j in range(counts.shape[0]):
            mean += subset.base_row[j] * counts[j] / total
        means[i] = mean
        spread += (subset.base_row[i] - mean) * counts[i] / total
    return spread


def choose(kernel: CompiledKernel, subset: Subset, indices: Integers) -> None:
    """Fill the empty subset with these draws."""
    subset.chosen[:] = indices
    _update_all(kernel, subset, indices, 1.0)


@translated
def _update_all(kernel, subset, indices, sign) -> None:
    """Insert or remove these draws.

    Reference: `reference.subset_sums`.
    """
    for place in range(indices.shape[0]):
        update_sums(kernel, subset, indices[place], sign)


@translated
def choose_greedily(kernel, subset, places) -> None:
    """Fill these places of ``chosen`` with the best additions, one after another.

    Reference: `reference.greedy_subset`.
    """
    for each in range(places.shape[0]):
        best = best_addition(subset)
        subset.chosen[places[each]] = best
        update_sums(kernel, subset, best, 1.0)


@translated
def swap_each(kernel, subset) -> bool:
    """Replace each draw of the subset in turn by the best draw; return whether any draw changed.

    Reference: `reference.swap_subset`.
    """
    changed = False
    for place in range(subset.chosen.shape[0]):
        old = subset.chosen[place]
        update_sums(kernel, subset, old, -1.0)
        best = best_addition(subset)
        if subset.sums[best] < subset.sums[old]:
            changed, subset.chosen[place] = True, best
            update_sums(kernel, subset, best, 1.0)
        else:
            subset.taken[old] = True
            for i in range(subset.sums.shape[0]):
                subset.sums[i] += subset.row[i]
    return changed


def reselect(kernel: CompiledKernel, subset: Subset, trials: Integers) -> None:
    """For each row of ``trials``, re-select the draws at these places greedily; undo it unless that is better.

    Reference: `reference.reselect_subset`.
    """
    smallest = energy(subset)
    for places in trials:
        before = [(array, array.copy()) for array in (subset.chosen, subset.taken, subset.sums)]
        _update_all(kernel, subset, subset.chosen[places], -1.0)
        choose_greedily(kernel, subset, places)
        now = energy(subset)
        if now < smallest:
            smallest = now
        else:
            for array, values in before:
                array[:] = values
