"""Stein kernel over all pairs of given draws: n^2/2 evaluations in O(n d) memory.

Rows are independent and sums exact: any distribution over threads gives the same bits as the thinner.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from steinstream._engine import double_double
from steinstream._engine.kernel_row import (
    CACHE,
    EVALUATE,
    SUM,
    RowArrays,
    combine_lanes,
    compute_row,
    new_lanes,
    sum_arrays,
)
from steinstream._engine.simd import LANES
from steinstream._engine.translation import translated
from steinstream._typing import Array


class TiledDraws(NamedTuple):
    """Draws with multiplicities or masses, as kernel rows read them."""

    tiles: Array  # (tiles, d, 2, 16): draws and scores, padded with zeros
    draws: Array  # (n, 2, d): draws and scores
    copies: Array  # (16 tiles,): multiplicities or masses, padded with zeros


class SumsBefore(NamedTuple):
    """For each draw, the sum of copies * k0 over the draws before it, an exact pair, and k0 with itself."""

    high: Array
    low: Array
    diagonal: Array


def as_tiles(draws: Array, scores: Array) -> Array:
    """Arrange draws and scores (n, d) in tiles, the last one padded with zeros."""
    count, dim = draws.shape
    tiles = np.zeros((-(-count // LANES), dim, 2, LANES))
    lanes = tiles.transpose(0, 3, 2, 1)
    slot = np.arange(count)
    lanes[slot // LANES, slot % LANES, 0] = draws
    lanes[slot // LANES, slot % LANES, 1] = scores
    return tiles


def tiled(draws: Array, scores: Array, copies: Array) -> TiledDraws:
    """Arrange draws, scores (n, d) and multiplicities (n,) for kernel rows."""
    tiles = as_tiles(draws, scores)
    padded = np.zeros(len(tiles) * LANES)
    padded[: len(copies)] = copies
    return TiledDraws(tiles, np.stack([draws, scores], axis=1), padded)


def empty_sums(count: int) -> SumsBefore:
    """Return row sums of zero."""
    return SumsBefore(np.zeros(count), np.zeros(count), np.zeros(count))


@translated
def rows_before(kernel, points, begin, end, sums) -> None:
    """Compute the row sums of draws ``begin`` to ``end - 1``; ``points`` is a :class:`TiledDraws`.

    Reference: `reference.rows_before`.
    """
    draws, tiles, copies = points.draws, points.tiles, points.copies
    step = max(1, CACHE // (draws.shape[2] * 2 * LANES * 8))
    row, mask, spare, lanes = np.zeros(LANES), np.zeros(LANES), np.zeros(LANES), new_lanes()
    for start in range(0, (end - 1) // LANES + 1, step):
        for i in range(max(begin, start * LANES), end):
            count = min(step, i // LANES - start)
            if count > 0:
                compute_row(kernel, SUM, sum_arrays(draws[i], tiles, copies, lanes), None, start, start + count)
                more, rest, _ = combine_lanes(lanes)
                sums.high[i], sums.low[i] = double_double.add_pair(sums.high[i], sums.low[i], more, rest)
    for i in range(begin, end):  # the tile that contains the draw itself
        tile, lane = i // LANES, i % LANES
        for other in range(LANES):
            mask[other] = copies[tile * LANES + other] if other < lane else 0.0
        arrays = RowArrays(draws[i], tiles[tile : tile + 1], mask, spare, spare, row, lanes)
        compute_row(kernel, EVALUATE, arrays, None, 0, 1)
        more, rest, _ = combine_lanes(lanes)
        sums.high[i], sums.low[i] = double_double.add_pair(sums.high[i], sums.low[i], more, rest)
        sums.diagonal[i] = row[lane]


@translated
def cumulative_squared_ksd(sums, copies, out) -> float:
    """Write KSD^2 of the first 1, 2, ... draws, each copy of a state counted; return the last sum S.

    Reference: `reference.cumulative_squared_ksd`.
    """
    total, rest, count = 0.0, 0.0, 0
    for state in range(sums.high.shape[0]):
        influence, remainder = double_double.add(sums.high[state], sums.low[state], 0.5 * sums.diagonal[state])
        for _ in range(int(copies[state])):
            total, rest = double_double.add_pair(total, rest, 2.0 * influence, 2.0 * remainder)
            influence, remainder = double_double.add(influence, remainder, sums.diagonal[state])
            size = float(count + 1)
            out[count] = max(total, 0.0) / (size * size)
            count += 1
    return total
