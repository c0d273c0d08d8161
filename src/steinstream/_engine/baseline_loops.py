"""Loops of the methods that are compared with ours: one draw against a whole chain, and a reservoir of fixed size.

Sums over the chain are plain doubles, one per draw and added to in order of selection, so that equal states have equal
sums. The reservoir, which also subtracts, uses exact pairs. One thread: sharing a sweep over 10^5 or 10^6 draws between
two gained nothing (measured), for the chain has to come from memory.
"""

from __future__ import annotations

import numpy as np

from steinstream._engine import double_double
from steinstream._engine.jit import inlined, jit
from steinstream._engine.kernel_pair import profile_at, value_of
from steinstream._engine.kernel_row import ROW, sweep_tiles
from steinstream._engine.simd import LANES

_PIECE = 64  # tiles whose kernel values stay in the first-level cache until they are added


@jit
def fill_tiles(tiles, start, points, scores) -> None:
    """Write draws into the slots from ``start`` on."""
    for i in range(points.shape[0]):
        write_draw(tiles, start + i, points[i], scores[i])


@inlined
def write_draw(tiles, slot, point, score):
    """Write a draw into its slot."""
    tile, lane = slot // LANES, slot % LANES
    for k in range(point.shape[0]):
        tiles[tile, k, 0, lane] = point[k]
        tiles[tile, k, 1, lane] = score[k]


@inlined
def read_draw(tiles, slot, draw):
    """Read a draw (2, d) out of its slot."""
    tile, lane = slot // LANES, slot % LANES
    for k in range(draw.shape[1]):
        draw[0, k] = tiles[tile, k, 0, lane]
        draw[1, k] = tiles[tile, k, 1, lane]


@jit
def add_row(kernel, tiles, chosen, sums) -> int:
    """Add k0(., chosen) to the sums of all slots; the first slot with the least sum."""
    draw, found = np.zeros((2, tiles.shape[1])), np.zeros((3, LANES))
    row, least = np.zeros(_PIECE * LANES), np.zeros(LANES)
    read_draw(tiles, chosen, draw)
    best, where = np.inf, 0
    for start in range(0, tiles.shape[0], _PIECE):
        count = min(_PIECE, tiles.shape[0] - start)
        sweep_tiles(kernel, ROW, draw, tiles[start : start + count], row, row, row, row, found, None, 0, count)
        least[:] = np.inf
        for at in range(0, count * LANES, LANES):
            some, more = sums[start * LANES + at : start * LANES + at + LANES], row[at : at + LANES]
            for lane in range(LANES):
                some[lane] += more[lane]
                least[lane] = some[lane] if some[lane] < least[lane] else least[lane]
        if least.min() < best:
            best, where = least.min(), start * LANES
    while sums[where] != best and where + 1 < sums.shape[0]:
        where += 1
    return where


@jit
def pairs(kernel, draws, one, other, out) -> None:
    """The Stein kernel of the draws ``one[i]`` and ``other[i]`` of (n, 2, d)."""
    for i in range(out.shape[0]):
        out[i] = value_of(kernel, draws[one[i]], draws[other[i]])


@jit
def add_weighted_row(kernel, weights, columns, chosen, sums) -> int:
    """As ``add_row`` for draws (2, d, n), each coordinate's part of the Stein kernel with a weight of its own."""
    parts = np.zeros((4, _PIECE * LANES))
    best, where = np.inf, 0
    for start in range(0, sums.shape[0], _PIECE * LANES):
        stop = min(start + _PIECE * LANES, sums.shape[0])
        count = stop - start
        u, squares, cross, scores = parts[0, :count], parts[1, :count], parts[2, :count], parts[3, :count]
        parts[:] = 0.0
        for k in range(weights.shape[0]):
            point, score = columns[0, k, start:stop], columns[1, k, start:stop]
            add_distances(weights[k], columns[0, k, chosen], point, u, squares)
            add_products(weights[k], columns[0, k, chosen], columns[1, k, chosen], point, score, cross, scores)
        some = sums[start:stop]
        add_values(kernel, u, squares, cross, scores, some)
        for i in range(count):
            if some[i] < best:
                best, where = some[i], start + i
    return where


# A loop each: of more arrays at once the compiler cannot tell that they do not overlap.
@inlined
def add_distances(weight, here, there, u, squares):
    """One coordinate's part of the squared distances, without and with its weight."""
    for i in range(there.shape[0]):
        apart = here - there[i]
        u[i] += apart * apart
        squares[i] += weight * (apart * apart)


@inlined
def add_products(weight, here, slope_here, there, slope_there, cross, scores):
    """One coordinate's part of <s_x - s_y, x - y> + d and of <s_x, s_y>."""
    for i in range(there.shape[0]):
        cross[i] += weight * (1.0 + (slope_here - slope_there[i]) * (here - there[i]))
        scores[i] += weight * (slope_here * slope_there[i])


@inlined
def add_values(kernel, u, squares, cross, scores, sums):
    """The kernel values that these parts make."""
    for i in range(sums.shape[0]):
        phi, slope, curvature = profile_at(kernel, u[i])
        sums[i] += phi * scores[i] + slope * cross[i] - curvature * squares[i]


@jit
def swap_in(kernel, draws, begin, end, past, rest, own, slots, tiles, places) -> None:
    """Run draws begin .. end - 1 of a chain (n, 2, d) past a reservoir, which then holds those at ``places``.

    ``past`` and ``rest`` are the sums of each draw's kernel values with the draws before it, ``own`` the value with
    itself. For each slot ``slots`` has the kernel's sum over the reservoir and over the chain so far, both as pairs,
    and its value with itself.
    """
    inside, inside_rest, toward, toward_rest, diagonal = slots[0], slots[1], slots[2], slots[3], slots[4]
    size = places.shape[0]
    row, found, gone = np.zeros(tiles.shape[0] * LANES), np.zeros((3, LANES)), np.zeros((2, draws.shape[2]))
    for t in range(begin, end):
        held, share = min(t, size), size / (t + 1.0)
        _row(kernel, draws[t], tiles, row, found)
        total, low, worst, most = 0.0, 0.0, 0, -np.inf
        for j in range(held):
            total, low = double_double.add(total, low, row[j])
            toward[j], toward_rest[j] = double_double.add(toward[j], toward_rest[j], row[j])
            inside[j], inside_rest[j] = double_double.add(inside[j], inside_rest[j], row[j])
            excess = inside[j] - 0.5 * diagonal[j] - share * toward[j]
            if excess > most:
                worst, most = j, excess
        total, low = double_double.add(total, low, own[t])
        seen, seen_rest = double_double.add(past[t], rest[t], own[t])
        comes = t < size or most >= total - 0.5 * own[t] - share * seen
        if t < size:
            worst = t
        elif comes:
            total, low = double_double.add(total, low, -row[worst])
            read_draw(tiles, worst, gone)
            _row(kernel, gone, tiles, row, found)
        if t >= size:  # whoever goes takes its kernel values along
            for j in range(size):
                inside[j], inside_rest[j] = double_double.add(inside[j], inside_rest[j], -row[j])
        if comes:
            write_draw(tiles, worst, draws[t, 0], draws[t, 1])
            inside[worst], inside_rest[worst] = total, low
            toward[worst], toward_rest[worst] = seen, seen_rest
            diagonal[worst], places[worst] = own[t], t


@inlined
def _row(kernel, draw, tiles, row, found):
    """Kernel values of a draw with every slot."""
    sweep_tiles(kernel, ROW, draw, tiles, row, row, row, row, found, None, 0, tiles.shape[0])
