"""Local search for a good subset of many draws: greedy selection, swaps, and partial re-selection.

Inserting a draw into the subset, or removing one, costs one kernel row over all draws. Sums are plain doubles, added in
a fixed order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from steinstream._engine.baseline_loops import read_draw
from steinstream._engine.jit import jit
from steinstream._engine.kernel_row import STORE, compute_row, new_lanes, store_arrays
from steinstream._typing import Array, Flags, Integers


class Subset(NamedTuple):
    """A subset of draws, with the kernel sums of all draws over it."""

    tiles: Array  # all draws
    chosen: Integers  # (size,): indices of the draws in the subset
    taken: Flags  # (n,): whether a draw is in the subset
    sums: Array  # (n,): k0(x, x) / 2 plus the sum of k0(x, y) over the subset
    half: Array  # (n,): k0(x, x) / 2; infinite for padding
    row: Array  # (n,): scratch


@jit
def update_sums(kernel, subset, i, sign) -> None:
    """Insert draw i into the subset (``sign`` 1) or remove it (-1).

    Reference: `reference.subset_sums`.
    """
    draw, tiles = np.zeros((2, subset.tiles.shape[1])), subset.tiles
    read_draw(tiles, i, draw)
    compute_row(kernel, STORE, store_arrays(draw, tiles, subset.row, new_lanes()), None, 0, tiles.shape[0])
    subset.taken[i] = sign > 0.0
    for j in range(subset.sums.shape[0]):
        subset.sums[j] += sign * subset.row[j]


@jit
def best_addition(subset) -> int:
    """Return the draw outside the subset that leaves the smallest KSD if it is inserted.

    Reference: `reference.greedy_subset`.
    """
    best, smallest = -1, np.inf
    for i in range(subset.sums.shape[0]):
        if subset.sums[i] < smallest and not subset.taken[i]:
            best, smallest = i, subset.sums[i]
    return best


@jit
def energy(subset) -> float:
    """Return n^2 KSD^2 of the subset.

    Reference: `reference.subset_energy`.
    """
    total = 0.0
    for i in subset.chosen:
        total += subset.sums[i] - subset.half[i]
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
    """For each row of ``trials``, re-select the draws at these places greedily; undo it unless KSD is smaller.

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
