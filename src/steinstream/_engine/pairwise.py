"""The Stein kernel over all pairs of given points: n^2/2 evaluations in O(n d) memory.

Rows are independent, sums exact: any split over threads gives the same bits as the thinner itself.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from steinstream._engine import double_double
from steinstream._engine.jit import jit
from steinstream._engine.kernel_row import CACHE, LOOK, WEIGH, collect, sweep_tiles
from steinstream._engine.simd import LANES


def as_tiles(points: NDArray[np.float64], scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Points and scores (n, d) as the tiles that a sweep reads, the last one filled up with zeros."""
    count, dim = points.shape
    tiles = np.zeros((-(-count // LANES), dim, 2, LANES))
    lanes = tiles.transpose(0, 3, 2, 1)
    slot = np.arange(count)
    lanes[slot // LANES, slot % LANES, 0] = points
    lanes[slot // LANES, slot % LANES, 1] = scores
    return tiles


@jit
def rows_before(kernel, tiles, draws, copies, begin, end, high, low, diagonal) -> None:
    """For rows begin .. end - 1 of draws (n, 2, d): the sum of copies * k0 over the rows before, and k0 with itself."""
    dim = draws.shape[2]
    step = max(1, CACHE // (dim * 2 * LANES * 8))
    row, found, mask, spare = np.zeros(LANES), np.zeros((3, LANES)), np.zeros(LANES), np.zeros(LANES)
    for start in range(0, (end - 1) // LANES + 1, step):
        for i in range(max(begin, start * LANES), end):
            count = min(step, i // LANES - start)
            if count > 0:
                sweep_tiles(
                    kernel, LOOK, draws[i], tiles[start : start + count], copies[start * LANES :], spare, spare, row,
                    found, None, 0, count,
                )  # fmt: skip
                more, rest, _ = collect(found)
                high[i], low[i] = double_double.add_pair(high[i], low[i], more, rest)
    for i in range(begin, end):  # the tile that holds the row itself
        tile, lane = i // LANES, i % LANES
        for other in range(LANES):
            mask[other] = copies[tile * LANES + other] if other < lane else 0.0
        sweep_tiles(
            kernel, WEIGH, draws[i], tiles[tile : tile + 1], mask, spare, spare, row, found, None, 0, 1
        )  # fmt: skip
        more, rest, _ = collect(found)
        high[i], low[i] = double_double.add_pair(high[i], low[i], more, rest)
        diagonal[i] = row[lane]


@jit
def running_squares(high, low, diagonal, copies, squares) -> float:
    """KSD^2 of the first 1, 2, ... draws, copies of a state counted one by one; returns the last sum S."""
    total, rest, count = 0.0, 0.0, 0
    for state in range(high.shape[0]):
        influence, remainder = double_double.add(high[state], low[state], 0.5 * diagonal[state])
        for _ in range(int(copies[state])):
            total, rest = double_double.add_pair(total, rest, 2.0 * influence, 2.0 * remainder)
            influence, remainder = double_double.add(influence, remainder, diagonal[state])
            size = float(count + 1)
            squares[count] = max(total, 0.0) / (size * size)
            count += 1
    return total
