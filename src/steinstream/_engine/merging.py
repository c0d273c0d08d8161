"""Draws with masses: sums of the Stein kernel over them, removal of the least important ones, and swaps.

The *row sum* of draw i is the sum of mass_j k0(i, j) over all draws j, i included; ``high + low`` is an exact pair.
With S the sum of mass_i times row sum i and W the sum of the masses, KSD^2 = S / W^2. A stream term adds a multiple
of the centred base kernel phi(x, y) - b(x) - b(y) + c to the kernel, where b(x) is the mean of phi(x, .) over the
union and c the mean of b: the sum over a subset is then its squared MMD to the union. Its part of the row sums is
stored separately. The objective is S / W^2 with both parts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from steinstream._engine import double_double
from steinstream._engine.jit import inlined, jit
from steinstream._engine.kernel_pair import profile_at
from steinstream._engine.kernel_row import (
    CACHE,
    EVALUATE,
    STORE,
    SUM,
    RowArrays,
    combine_lanes,
    compute_row,
    new_lanes,
    store_arrays,
    sum_arrays,
)
from steinstream._engine.simd import LANES, fma
from steinstream._engine.stream_summary import row_total
from steinstream._typing import Array, Integers


class WeightedDraws(NamedTuple):
    """Draws with masses."""

    draws: Array  # (n, 2, d): draws and scores
    masses: Array  # (n,)
    diagonal: Array  # (n,): k0(x, x), with the part of the stream term
    base_means: Array  # (n,): b
    base_mean: float  # c
    stream_weight: float  # factor of the centred base kernel; 0 without a stream term

    def take(self, places: Integers) -> WeightedDraws:
        """Return some of the draws."""
        return self._replace(
            draws=self.draws[places],
            masses=self.masses[places],
            diagonal=self.diagonal[places],
            base_means=self.base_means[places],
        )


class RowSums(NamedTuple):
    """Row sums of some draws over the same draws."""

    high: Array
    low: Array
    stream: Array  # part of the stream term

    def take(self, places: Integers) -> RowSums:
        """Return a copy of some of the row sums."""
        return RowSums(self.high[places], self.low[places], self.stream[places])


class DropLimits(NamedTuple):
    """When to stop dropping draws: at ``least`` draws, or at ``most`` or fewer if the objective would exceed
    ``allowed``.
    """

    least: int
    most: int
    allowed: float


@jit
def add_row_sums(kernel, points, draws, begin, end, sums) -> None:
    """Add the sums over the draws of ``points`` to the row sums of draws ``begin`` to ``end - 1`` of (n, 2, d).

    ``points`` is a :class:`~steinstream._engine.pairwise.TiledDraws` whose ``copies`` are masses.

    Reference: `reference.row_sums`.
    """
    tiles, masses = points.tiles, points.copies
    step, lanes = max(1, CACHE // (draws.shape[2] * 2 * LANES * 8)), new_lanes()
    for start in range(0, tiles.shape[0], step):
        stop = min(start + step, tiles.shape[0])
        for i in range(begin, end):
            compute_row(kernel, SUM, sum_arrays(draws[i], tiles, masses, lanes), None, start, stop)
            more, rest, _ = combine_lanes(lanes)
            sums.high[i], sums.low[i] = double_double.add_pair(sums.high[i], sums.low[i], more, rest)


@jit
def add_product(high, low, factor, value):
    """Add factor * value to a pair.

    Reference: `reference.row_sum`.
    """
    product = factor * value
    high, low = double_double.add(high, low, product)
    return double_double.add(high, low, fma(factor, value, -product))


@jit
def energy_of(masses, sums, alive) -> tuple[float, float]:
    """Return S and W of the draws that are ``alive``, without the stream term.

    Reference: `reference.energy`.
    """
    energy, rest, mass = 0.0, 0.0, 0.0
    for i in range(masses.shape[0]):
        if alive[i]:
            energy, rest = add_product(energy, rest, masses[i], sums.high[i])
            energy, rest = double_double.add(energy, rest, masses[i] * sums.low[i])
            mass += masses[i]
    return energy, mass


@jit
def energy_with_stream_term(masses, sums, alive) -> tuple[float, float]:
    """Return S and W of the draws that are ``alive``, with the stream term.

    Reference: `reference.energy`.
    """
    energy, mass = energy_of(masses, sums, alive)
    for i in range(alive.shape[0]):
        if alive[i]:
            energy += masses[i] * sums.stream[i]
    return energy, mass


@jit
def base_row_sums(kernel, tiles, masses, draws) -> Array:
    """Return the sum of mass * phi over the tiled draws for each of some draws (n, 2, d).

    Reference: `reference.base_values`.
    """
    lanes, sums = np.zeros((2, LANES)), np.zeros(draws.shape[0])
    for i in range(draws.shape[0]):
        sums[i] = row_total(kernel, draws[i, 0], tiles, masses, lanes, tiles.shape[0] * LANES)
    return sums


@inlined
def stream_product(kernel, pool, i, j):
    """Return the part of the stream term in the kernel of two draws.

    Reference: `reference.base_values`.
    """
    if pool.stream_weight == 0.0:
        return 0.0
    u = 0.0
    for k in range(pool.draws.shape[2]):
        difference = pool.draws[i, 0, k] - pool.draws[j, 0, k]
        u += difference * difference
    phi, _, _ = profile_at(kernel, u)
    return pool.stream_weight * (phi - pool.base_means[i] - pool.base_means[j] + pool.base_mean)


@jit
def add_to_sums(kernel, pool, i, mass, row, others, sums) -> None:
    """Add draw i with this mass to the row sums of the draws ``others``; subtract it if the mass is negative.

    Reference: `reference.row_sums`.
    """
    for k in range(others.shape[0]):
        sums.high[k], sums.low[k] = add_product(sums.high[k], sums.low[k], mass, row[k])
        sums.stream[k] += mass * stream_product(kernel, pool, i, others[k])


@jit
def drop(kernel, tiles, pool, sums, alive, limits) -> None:
    """Drop draws of the pool, each time the one without which the objective is smallest, of equals the first.

    Reference: `reference.drop_draws`.
    """
    masses, diagonal, high, low, stream = pool.masses, pool.diagonal, sums.high, sums.low, sums.stream
    count = alive.shape[0]
    row, lanes, every = np.zeros(tiles.shape[0] * LANES), new_lanes(), np.arange(count)
    energy, mass = energy_with_stream_term(masses, sums, alive)
    rest = 0.0
    for left in range(count, limits.least, -1):
        best, lowest = -1, np.inf
        for i in range(count):
            if alive[i]:
                gain = masses[i] * (2.0 * (high[i] + stream[i]) - masses[i] * diagonal[i])
                without = (energy - gain) / (mass - masses[i]) ** 2
                if without < lowest:
                    best, lowest = i, without
        if left <= limits.most and lowest > limits.allowed:
            break
        energy, rest = add_product(energy, rest, -2.0 * masses[best], high[best] + stream[best])
        energy, rest = double_double.add(energy, rest, masses[best] * (masses[best] * diagonal[best] - 2.0 * low[best]))
        mass -= masses[best]
        compute_row(kernel, STORE, store_arrays(pool.draws[best], tiles, row, lanes), None, 0, tiles.shape[0])
        add_to_sums(kernel, pool, best, -masses[best], row, every, sums)
        alive[best] = False


@jit
def swap(kernel, points, pool, kept, sums, order) -> int:
    """Offer each draw of the pool that is not kept, in this order, the place of a kept one; return the number of swaps.

    The kept draw to be replaced is the one whose removal then leaves the smallest objective. A swap is made only if it
    lowers the objective by more than rounding. ``points`` (:class:`~steinstream._engine.pairwise.TiledDraws`) holds the
    kept draws, ``kept`` their indices in the pool and ``sums`` their row sums; all three are updated.

    Reference: `reference.swap_draws`.
    """
    tiles, padded, masses, diagonal = points.tiles, points.copies, pool.masses, pool.diagonal
    size, every, slots = kept.shape[0], np.ones(kept.shape[0], dtype=np.bool_), tiles.shape[0] * LANES
    row, old_row, spare, lanes, swaps = np.zeros(slots), np.zeros(slots), np.zeros(slots), new_lanes(), 0
    is_kept = np.zeros(masses.shape[0], dtype=np.bool_)
    is_kept[kept] = True
    energy, mass = energy_with_stream_term(padded[:size], sums, every)
    for new in order:
        if is_kept[new]:
            continue
        arrays = RowArrays(pool.draws[new], tiles, padded, spare, spare, row, lanes)
        compute_row(kernel, EVALUATE, arrays, None, 0, tiles.shape[0])
        own, _, _ = combine_lanes(lanes)
        for i in range(size):
            spare[i] = stream_product(kernel, pool, new, kept[i])
            own += padded[i] * spare[i]
        more = masses[new] * (2.0 * own + masses[new] * diagonal[new])
        best, lowest = -1, energy / mass**2 * (1.0 - 1e-12)
        for i in range(size):
            with_new = sums.high[i] + sums.stream[i] + masses[new] * (row[i] + spare[i])
            gain = padded[i] * (2.0 * with_new - padded[i] * diagonal[kept[i]])
            without = (energy + more - gain) / (mass + masses[new] - padded[i]) ** 2
            if without < lowest:
                best, lowest = i, without
            spare[i] = 0.0
        if best < 0:
            continue
        old = kept[best]
        compute_row(kernel, STORE, store_arrays(pool.draws[old], tiles, old_row, lanes), None, 0, tiles.shape[0])
        add_to_sums(kernel, pool, new, masses[new], row, kept, sums)
        add_to_sums(kernel, pool, old, -masses[old], old_row, kept, sums)
        kept[best], padded[best] = new, masses[new]
        replace(kernel, points, pool, kept, sums, best)
        is_kept[old], is_kept[new] = False, True
        energy, mass = energy_with_stream_term(padded[:size], sums, every)
        swaps += 1
    return swaps


@jit
def replace(kernel, points, pool, kept, sums, slot) -> None:
    """Write the draw ``kept[slot]`` into its slot and compute its row sum over the kept draws.

    Reference: `reference.row_sums`.
    """
    tiles, padded, new, lanes = points.tiles, points.copies, kept[slot], new_lanes()
    tile, lane = slot // LANES, slot % LANES
    for k in range(pool.draws.shape[2]):
        tiles[tile, k, 0, lane], tiles[tile, k, 1, lane] = pool.draws[new, 0, k], pool.draws[new, 1, k]
    compute_row(kernel, SUM, sum_arrays(pool.draws[new], tiles, padded, lanes), None, 0, tiles.shape[0])
    sums.high[slot], sums.low[slot], _ = combine_lanes(lanes)
    sums.stream[slot] = 0.0
    for i in range(kept.shape[0]):
        sums.stream[slot] += padded[i] * stream_product(kernel, pool, new, kept[i])
