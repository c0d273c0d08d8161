"""Loops of the baseline methods: one draw against a whole chain, and a reservoir of fixed size.

Sums over the chain are plain doubles, one per draw and added to in order of selection, so that equal states have equal
sums. The reservoir, which also subtracts, uses exact pairs. The loops use one thread: with 10^5 or 10^6 draws two
threads were not faster (measured), because the chain has to be read from memory.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from steinstream._engine import double_double
from steinstream._engine.compiled_kernel import CompiledKernel
from steinstream._engine.jit import inlined
from steinstream._engine.kernel_pair import value_of
from steinstream._engine.kernel_row import STORE, compute_row, new_lanes, store_arrays
from steinstream._engine.pairwise import SumsBefore
from steinstream._engine.simd import LANES
from steinstream._engine.translation import translated
from steinstream._typing import Array, Integers

_PART = 64  # tiles whose kernel values remain in the first-level cache until they are added


# -- tiles ---------------------------------------------------------------------------------------------------------


@inlined
def write_draw(tiles, slot, draw, score):
    """Write a draw into a slot. Storage bookkeeping."""
    tile, lane = slot // LANES, slot % LANES
    for k in range(draw.shape[0]):
        tiles[tile, k, 0, lane] = draw[k]
        tiles[tile, k, 1, lane] = score[k]


@inlined
def read_draw(tiles, slot, draw):
    """Read a draw (2, d) from a slot. Storage bookkeeping."""
    tile, lane = slot // LANES, slot % LANES
    for k in range(draw.shape[1]):
        draw[0, k] = tiles[tile, k, 0, lane]
        draw[1, k] = tiles[tile, k, 1, lane]


# -- Stein thinning and kernel thinning ----------------------------------------------------------------------------


def add_row(kernel: CompiledKernel, tiles: Array, chosen: int, sums: Array) -> int:
    """Add k0(., chosen) to the sums of all slots; return the first slot with the smallest sum."""
    return int(_add_row(kernel, tiles, chosen, sums, np.zeros((2, tiles.shape[1]))))


@translated
def _add_row(kernel, tiles, chosen, sums, draw) -> int:
    """Do what :func:`add_row` does; ``draw`` is scratch.

    Reference: `reference.stein_thinning`.
    """
    row, smallest, lanes = np.zeros(_PART * LANES), np.zeros(LANES), new_lanes()
    read_draw(tiles, chosen, draw)
    best, slot = np.inf, 0
    for start in range(0, tiles.shape[0], _PART):
        stop = min(start + _PART, tiles.shape[0])
        compute_row(kernel, STORE, store_arrays(draw, tiles[start:stop], row, lanes), None, 0, stop - start)
        for lane in range(LANES):
            smallest[lane] = np.inf
        for tile in range(start, stop):
            part, values = sums[tile * LANES : (tile + 1) * LANES], row[(tile - start) * LANES : (_PART * LANES)]
            for lane in range(LANES):
                part[lane] += values[lane]
                smallest[lane] = min(smallest[lane], part[lane])
        here = np.inf
        for lane in range(LANES):
            here = min(here, smallest[lane])
        if here < best:
            best, slot = here, start * LANES
    while sums[slot] != best and slot + 1 < sums.shape[0]:
        slot += 1
    return slot


@translated
def pairs(kernel, draws, one, other, out) -> None:
    """Write the Stein kernel of the draws ``one[i]`` and ``other[i]`` of (n, 2, d).

    Reference: `kernels.Kernel.matrix`.
    """
    for i in range(out.shape[0]):
        out[i] = value_of(kernel, draws[one[i]], draws[other[i]])


# -- reservoir -----------------------------------------------------------------------------------------------------


class Reservoir(NamedTuple):
    """A set of fixed size, with kernel sums over itself and over the chain so far, both as exact pairs."""

    tiles: Array  # the draws
    places: Integers  # (size,): their indices in the chain
    inside: Array  # (size,): sum of k0 over the reservoir
    inside_low: Array
    toward: Array  # (size,): sum of k0 over the chain
    toward_low: Array
    diagonal: Array  # (size,): k0(x, x)


def empty_reservoir(size: int, dim: int) -> Reservoir:
    """Return a reservoir without draws."""
    sums = (np.zeros(size) for _ in range(5))
    return Reservoir(np.zeros((-(-size // LANES), dim, 2, LANES)), np.zeros(size, dtype=np.int64), *sums)


def update_reservoir(
    kernel: CompiledKernel, draws: Array, sums: SumsBefore, reservoir: Reservoir, begin: int, end: int
) -> None:
    """Offer draws ``begin`` to ``end - 1`` of a chain (n, 2, d) to the reservoir.

    ``sums`` holds the kernel sums of each draw over those before it, and its value with itself.
    """
    row, removed = np.zeros(len(reservoir.tiles) * LANES), np.zeros((2, draws.shape[2]))
    _update_reservoir(kernel, draws, sums, reservoir, begin, end, row, removed)


@translated
def _update_reservoir(kernel, draws, sums, reservoir, begin, end, row, removed) -> None:
    """Do what :func:`update_reservoir` does; ``row`` and ``removed`` are scratch.

    Reference: `reference.reservoir`.
    """
    tiles, places, diagonal = reservoir.tiles, reservoir.places, reservoir.diagonal
    inside, inside_low, toward = reservoir.inside, reservoir.inside_low, reservoir.toward
    toward_low, size, lanes = reservoir.toward_low, places.shape[0], new_lanes()
    for t in range(begin, end):
        held, share = min(t, size), size / (t + 1.0)
        own = sums.diagonal[t]
        compute_row(kernel, STORE, store_arrays(draws[t], tiles, row, lanes), None, 0, tiles.shape[0])
        total, low, worst, most = 0.0, 0.0, 0, -np.inf
        for j in range(held):
            total, low = double_double.add(total, low, row[j])
            toward[j], toward_low[j] = double_double.add(toward[j], toward_low[j], row[j])
            inside[j], inside_low[j] = double_double.add(inside[j], inside_low[j], row[j])
            excess = inside[j] - 0.5 * diagonal[j] - share * toward[j]
            if excess > most:
                worst, most = j, excess
        total, low = double_double.add(total, low, own)
        seen, seen_low = double_double.add(sums.high[t], sums.low[t], own)
        enters = t < size or most >= total - 0.5 * own - share * seen
        if t < size:
            worst = t
        elif enters:
            total, low = double_double.add(total, low, -row[worst])
            read_draw(tiles, worst, removed)
            compute_row(kernel, STORE, store_arrays(removed, tiles, row, lanes), None, 0, tiles.shape[0])
        if t >= size:  # subtract the kernel values of the removed draw, which may be the new one
            for j in range(size):
                inside[j], inside_low[j] = double_double.add(inside[j], inside_low[j], -row[j])
        if enters:
            write_draw(tiles, worst, draws[t, 0], draws[t, 1])
            inside[worst], inside_low[worst] = total, low
            toward[worst], toward_low[worst] = seen, seen_low
            diagonal[worst], places[worst] = own, t
