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
from steinstream._engine.jit import jit
from steinstream._engine.kernel_row import STORE, compute_row, new_lanes, store_arrays
from steinstream._engine.penalties import base_at_zero
from steinstream._typing import Array, Flags, Integers


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
    weights: Array  # (2,): 1, or 0 without scores; w


@jit
def compute_objective_row(kernel, subset, i) -> None:
    """Write G of draw i with all draws to ``subset.row``. Reference: `reference.objective_matrix`."""
    draw, tiles = np.zeros((2, subset.tiles.shape[1])), subset.tiles
    read_draw(tiles, i, draw)
    if subset.weights[0] > 0.0:
        compute_row(kernel, STORE, store_arrays(draw, tiles, subset.row, new_lanes()), None, 0, tiles.shape[0])
    else:
        subset.row[:] = 0.0
    if subset.weights[1] > 0.0:
        compute_base_row(kernel, subset, draw)
        for j in range(subset.row.shape[0]):
            subset.row[j] += subset.weights[1] * subset.base_row[j]


@jit
def compute_base_row(kernel, subset, draw) -> None:
    """Write phi of a draw with all draws to ``subset.base_row``. Reference: `kernels.Kernel.base_matrix`."""
    subset.base_row[:] = 0.0
    tiles, lanes = subset.tiles, np.zeros((2, subset.tiles.shape[3]))
    base_row(kernel, ADD_BASE, draw[0], tiles, subset.row, subset.base_row, lanes, 0, tiles.shape[0])


@jit
def add_stream_term(kernel, subset, counts, scale) -> None:
    """Add the stream term to the empty subset; the stream has the first draws ``counts[i]`` times each.

    ``scale`` is gamma times the mean of k0(x, x), or 1 without scores; w = scale / nu with nu the spread of the stream.

    Reference: `reference.objective_matrix`.
    """
    count, total = counts.shape[0], counts.sum()
    draw, means, spread = np.zeros((2, subset.tiles.shape[1])), np.zeros(count), 0.0
    for i in range(count):
        read_draw(subset.tiles, i, draw)
        compute_base_row(kernel, subset, draw)
        for j in range(count):
            means[i] += subset.base_row[j] * counts[j] / total
        spread += (subset.base_row[i] - means[i]) * counts[i] / total
    if spread <= 0.0:
        return
    subset.weights[1] = scale / spread
    for i in range(count):
        own = subset.weights[1] * base_at_zero(kernel)
        subset.diagonal[i] += own
        subset.half[i] += 0.5 * own - subset.chosen.shape[0] * subset.weights[1] * means[i]
        subset.sums[i] = subset.half[i]


@jit
def update_sums(kernel, subset, i, sign) -> None:
    """Insert draw i into the subset (``sign`` 1) or remove it (-1). Reference: `reference.subset_sums`."""
    compute_objective_row(kernel, subset, i)
    subset.taken[i] = sign > 0.0
    for j in range(subset.sums.shape[0]):
        subset.sums[j] += sign * subset.row[j]


@jit
def best_addition(subset) -> int:
    """Return the draw outside the subset that leaves the smallest objective if it is inserted.

    Reference: `reference.greedy_subset`.
    """
    best, smallest = -1, np.inf
    for i in range(subset.sums.shape[0]):
        if subset.sums[i] < smallest and not subset.taken[i]:
            best, smallest = i, subset.sums[i]
    return best


@jit
def energy(subset) -> float:
    """Return m^2 times the objective of the subset, up to a constant. Reference: `reference.subset_energy`."""
    total = 0.0
    for i in subset.chosen:
        total += subset.sums[i] - (subset.diagonal[i] - subset.half[i])
    return total


@jit
def choose(kernel, subset, indices) -> None:
    """Fill the empty subset with these draws. Storage bookkeeping."""
    for place, i in enumerate(indices):
        subset.chosen[place] = i
        update_sums(kernel, subset, i, 1.0)


@jit
def choose_greedily(kernel, subset, places) -> None:
    """Fill these places of ``chosen`` with the best additions, one after another.

    Reference: `reference.greedy_subset`.
    """
    for place in places:
        subset.chosen[place] = best_addition(subset)
        update_sums(kernel, subset, subset.chosen[place], 1.0)


@jit
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


@jit
def reselect(kernel, subset, trials) -> None:
    """For each row of ``trials``, re-select the draws at these places greedily; undo it unless that is better.

    Reference: `reference.reselect_subset`.
    """
    smallest = energy(subset)
    for places in trials:
        chosen, sums = subset.chosen.copy(), subset.sums.copy()
        for place in places:
            update_sums(kernel, subset, subset.chosen[place], -1.0)
        choose_greedily(kernel, subset, places)
        now = energy(subset)
        if now < smallest:
            smallest = now
        else:
            for place in places:
                subset.taken[subset.chosen[place]] = False
            subset.chosen[:], subset.sums[:] = chosen, sums
            for place in places:
                subset.taken[subset.chosen[place]] = True
