"""Choosing some of many draws: greedily, by swaps, and by dropping a few and choosing greedily anew.

The state of a choice: ``chosen`` are the places of the draws, ``taken`` says of each draw whether it is chosen, and
``sums[i]`` is half k0(i, i) plus the kernel's sum of draw i over the chosen ones. A draw that comes or goes costs one
sweep over all. Sums are plain doubles, added up in a fixed order.
"""

from __future__ import annotations

import numpy as np

from steinstream._engine.baseline_loops import read_draw
from steinstream._engine.jit import jit
from steinstream._engine.kernel_row import ROW, sweep_tiles
from steinstream._engine.simd import LANES


@jit
def move(kernel, tiles, which, sign, taken, sums, row) -> None:
    """Let the sums take in a draw, or forget it."""
    draw, found = np.zeros((2, tiles.shape[1])), np.zeros((3, LANES))
    read_draw(tiles, which, draw)
    sweep_tiles(kernel, ROW, draw, tiles, row, row, row, row, found, None, 0, tiles.shape[0])
    taken[which] = sign > 0.0
    for i in range(sums.shape[0]):
        sums[i] += sign * row[i]


@jit
def best_free(taken, sums) -> int:
    """The draw that makes KSD smallest, of those that are not taken."""
    best, least = -1, np.inf
    for i in range(sums.shape[0]):
        if sums[i] < least and not taken[i]:
            best, least = i, sums[i]
    return best


@jit
def energy(kernel, tiles, chosen, taken, sums, row, half) -> float:
    """n^2 KSD^2 of the chosen draws."""
    total = 0.0
    for i in chosen:
        total += sums[i] - half[i]
    return total


@jit
def take(kernel, tiles, chosen, taken, sums, row, which) -> None:
    """Choose these."""
    for place, i in enumerate(which):
        chosen[place] = i
        move(kernel, tiles, i, 1.0, taken, sums, row)


@jit
def refill(kernel, tiles, chosen, taken, sums, row, places) -> None:
    """At these places of ``chosen`` put the best draws that are not taken, one after another."""
    for place in places:
        chosen[place] = best_free(taken, sums)
        move(kernel, tiles, chosen[place], 1.0, taken, sums, row)


@jit
def swap_each(kernel, tiles, chosen, taken, sums, row) -> bool:
    """Put the best draw in place of each chosen one in turn, or the same one again; whether there was a better one."""
    better = False
    for place in range(chosen.shape[0]):
        old = chosen[place]
        move(kernel, tiles, old, -1.0, taken, sums, row)
        best = best_free(taken, sums)
        if sums[best] < sums[old]:
            better, chosen[place] = True, best
            move(kernel, tiles, best, 1.0, taken, sums, row)
        else:
            taken[old] = True
            for i in range(sums.shape[0]):
                sums[i] += row[i]
    return better


@jit
def shake(kernel, tiles, chosen, taken, sums, row, half, drops) -> None:
    """For each row of ``drops`` put others at these places of ``chosen``, if that makes KSD smaller."""
    least = energy(kernel, tiles, chosen, taken, sums, row, half)
    for drop in drops:
        before, behind = chosen.copy(), sums.copy()
        for place in drop:
            move(kernel, tiles, chosen[place], -1.0, taken, sums, row)
        refill(kernel, tiles, chosen, taken, sums, row, drop)
        now = energy(kernel, tiles, chosen, taken, sums, row, half)
        if now < least:
            least = now
        else:
            for place in drop:
                taken[chosen[place]] = False
            chosen[:], sums[:] = before, behind
            for place in drop:
                taken[chosen[place]] = True
