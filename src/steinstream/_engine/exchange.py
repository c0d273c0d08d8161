"""Choosing some of many draws: greedily, and by dropping a few and choosing greedily anew.

``sums[i]`` is half k0(i, i) plus the kernel's sum of draw i over the chosen ones. A draw chosen or dropped costs one
sweep over all. Sums are plain doubles, added up in a fixed order.
"""

from __future__ import annotations

import numpy as np

from steinstream._engine.greedy import read_draw
from steinstream._engine.jit import jit
from steinstream._engine.lanes import LANES
from steinstream._engine.sweep import ROW, sweep_tiles


@jit
def add(kernel, tiles, which, sign, sums, row) -> None:
    """Let the sums take in a draw, or forget it."""
    draw, found = np.zeros((2, tiles.shape[1])), np.zeros((3, LANES))
    read_draw(tiles, which, draw)
    sweep_tiles(kernel, ROW, draw, tiles, row, row, row, row, found, None, 0, tiles.shape[0])
    for i in range(sums.shape[0]):
        sums[i] += sign * row[i]


@jit
def refill(kernel, tiles, chosen, places, taken, sums, row) -> None:
    """At these places of ``chosen`` put the best draws that are not taken, one after another."""
    for place in places:
        best, least = -1, np.inf
        for i in range(sums.shape[0]):
            if sums[i] < least and not taken[i]:
                best, least = i, sums[i]
        chosen[place], taken[best] = best, True
        add(kernel, tiles, best, 1.0, sums, row)


@jit
def energy(chosen, half, sums) -> float:
    """n^2 KSD^2 of the chosen draws."""
    total = 0.0
    for i in chosen:
        total += sums[i] - half[i]
    return total


@jit
def shake(kernel, tiles, half, chosen, drops) -> None:
    """For each row of ``drops`` put others at these places of ``chosen``, if that makes KSD smaller."""
    sums, row, taken = half.copy(), np.zeros(half.shape[0]), np.zeros(half.shape[0], dtype=np.bool_)
    for i in chosen:
        add(kernel, tiles, i, 1.0, sums, row)
        taken[i] = True
    least = energy(chosen, half, sums)
    for drop in drops:
        before, behind = chosen.copy(), sums.copy()
        for place in drop:
            add(kernel, tiles, chosen[place], -1.0, sums, row)
            taken[chosen[place]] = False
        refill(kernel, tiles, chosen, drop, taken, sums, row)
        now = energy(chosen, half, sums)
        if now < least:
            least = now
        else:
            for place in drop:
                taken[chosen[place]] = False
            chosen[:], sums[:] = before, behind
            for place in drop:
                taken[chosen[place]] = True
