"""Draws with masses: sums of the objective over them, removal of the least important ones, and swaps.

The *row sum* of draw i is the sum of mass_j k0(i, j) over all draws j, i included; ``high + low`` is an exact pair.
With S the sum of mass_i times row sum i and W the sum of the masses, KSD^2 = S / W^2. The stream term adds a multiple
of the centred base kernel phi(x, y) - b(x) - b(y) + c to the kernel, where b(x) is the mean of phi(x, .) over a stream
and c the mean of b over the stream: the sum over a subset is then its squared MMD to the stream. Its part of the row
sums is stored separately. The objective is S / W^2 with both parts. Draws without scores have the second part alone.

The base kernel is evaluated at *base vectors*, which are the draws or their features in the coordinates of the kernel.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from steinstream._engine import double_double
from steinstream._engine.base_row import ADD_BASE, base_row, row_total
from steinstream._engine.compiled_kernel import CompiledKernel
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
from steinstream._engine.translation import translated
from steinstream._typing import Array, Flags, Integers


class WeightedDraws(NamedTuple):
    """Draws with masses."""

    draws: Array  # (n, 2, d): draws and scores
    base: Array  # (n, q): base vectors
    masses: Array  # (n,)
    diagonal: Array  # (n,): k0(x, x), with the part of the stream term
    base_means: Array  # (n,): b
    base_mean: float  # c
    stein: float  # 1, or 0 without scores
    stream_weight: float  # factor of the centred base kernel; 0 without a stream term

    def take(self, places: Integers) -> WeightedDraws:
        """Return some of the draws."""
        return self._replace(
            draws=self.draws[places],
            base=self.base[places],
            masses=self.masses[places],
            diagonal=self.diagonal[places],
            base_means=self.base_means[places],
        )


class Slots(NamedTuple):
    """Some of the draws as kernel rows read them, padded with zeros."""

    tiles: Array  # (tiles, d, 2, 16): draws and scores
    base_tiles: Array  # (tiles, q, 16): base vectors
    masses: Array  # (16 tiles,)


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


@translated
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
    """Add factor * value to a pair. Reference: `reference.row_sum`."""
    product = factor * value
    high, low = double_double.add(high, low, product)
    return double_double.add(high, low, fma(factor, value, -product))


@translated
def energy_of(masses, sums, alive) -> tuple[float, float]:
    """Return S and W of the draws that are ``alive``, without the stream term. Reference: `reference.energy`."""
    energy, rest, mass = 0.0, 0.0, 0.0
    for i in range(masses.shape[0]):
        if alive[i]:
            energy, rest = add_product(energy, rest, masses[i], sums.high[i])
            energy, rest = double_double.add(energy, rest, masses[i] * sums.low[i])
            mass += masses[i]
    return energy, mass


@translated
def energy_with_stream_term(masses, sums, alive) -> tuple[float, float]:
    """Return S and W of the draws that are ``alive``, with the stream term. Reference: `reference.energy`."""
    energy, mass = energy_of(masses, sums, alive)
    for i in range(alive.shape[0]):
        if alive[i]:
            energy += masses[i] * sums.stream[i]
    return energy, mass


def halve(kernel: CompiledKernel, tiles: Array, base: Array, selected: Flags) -> float:
    """Select one of every two consecutive base vectors (2 r, q), as in `stream_summary.halve_level`.

    ``tiles`` holds the same vectors; ``selected`` (2 r,) receives which ones. Returns the squared norm of the sum of
    phi(selected, .) - phi(forgotten, .).
    """
    return float(_halve(kernel, tiles, base, selected, np.zeros(len(tiles) * LANES)))


@translated
def _halve(kernel, tiles, base, selected, signs) -> float:
    """Do what :func:`halve` does; ``signs`` are zeros, one per slot. Reference: `reference.ReferenceSummary.halve`."""
    lanes, square = np.zeros((2, LANES)), 0.0
    own, _, _ = profile_at(kernel, 0.0)
    for first in range(0, base.shape[0], 2):
        product = row_total(kernel, base[first], tiles, signs, lanes, first)
        product -= row_total(kernel, base[first + 1], tiles, signs, lanes, first)
        signs[first] = 1.0 if product <= 0.0 else -1.0
        signs[first + 1] = -signs[first]
        square += 2.0 * signs[first] * product + 2.0 * (own - unrounded_phi(kernel, base, first, first + 1))
        selected[first], selected[first + 1] = product <= 0.0, product > 0.0
    return max(square, 0.0)


@inlined
def unrounded_phi(kernel, base, i, j):
    """Return phi of two base vectors.

    Reference: `reference.base_values`.
    """
    u = 0.0
    for k in range(base.shape[1]):
        difference = base[i, k] - base[j, k]
        u += difference * difference
    phi, _, _ = profile_at(kernel, u)
    return phi


@inlined
def stream_row(kernels, slots, pool, new, others, lanes, row):
    """Write the part of the stream term in the kernel of a draw with the draws ``others``, which fill the slots.

    Reference: `reference.base_values`.
    """
    if pool.stream_weight == 0.0:
        return
    for k in range(others.shape[0]):
        row[k] = 0.0
    base_row(
        kernels[1], ADD_BASE, pool.base[new], slots.base_tiles, slots.masses, row, lanes, 0, slots.base_tiles.shape[0]
    )
    for k in range(others.shape[0]):
        centred = row[k] - pool.base_means[new] - pool.base_means[others[k]] + pool.base_mean
        row[k] = pool.stream_weight * centred


@inlined
def add_to_sums(mass, row, stream, sums) -> None:
    """Add a draw with this mass and this kernel row to row sums; subtract it if the mass is negative.

    Reference: `reference.row_sums`.
    """
    for k in range(sums.high.shape[0]):
        sums.high[k], sums.low[k] = add_product(sums.high[k], sums.low[k], mass, row[k])
        sums.stream[k] += mass * stream[k]


def drop(
    kernels: tuple[CompiledKernel, CompiledKernel],
    slots: Slots,
    pool: WeightedDraws,
    sums: RowSums,
    alive: Flags,
    limits: DropLimits,
) -> None:
    """Drop draws of the pool, each time the one without which the objective is smallest, of equals the first.

    ``kernels`` is a pair: the kernel of the draws and that of the base vectors. ``slots`` holds the whole pool.
    """
    _drop(kernels, slots, pool, sums, alive, limits, np.arange(len(alive)), np.zeros((2, len(slots.tiles) * LANES)))


@translated
def _drop(kernels, slots, pool, sums, alive, limits, every, scratch) -> None:
    """Do what :func:`drop` does; ``every`` are the indices of the pool. Reference: `reference.drop_draws`."""
    masses, diagonal, high, low, stream = pool.masses, pool.diagonal, sums.high, sums.low, sums.stream
    count, tiles, row, shift = alive.shape[0], slots.tiles, scratch[0], scratch[1]
    lanes, base_lanes = new_lanes(), np.zeros((2, LANES))
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
        if pool.stein > 0.0:
            compute_row(kernels[0], STORE, store_arrays(pool.draws[best], tiles, row, lanes), None, 0, tiles.shape[0])
        stream_row(kernels, slots, pool, best, every, base_lanes, shift)
        add_to_sums(-masses[best], row, shift, sums)
        alive[best] = False


def swap(
    kernels: tuple[CompiledKernel, CompiledKernel],
    slots: Slots,
    pool: WeightedDraws,
    kept: Integers,
    sums: RowSums,
    order: Integers,
) -> int:
    """Offer each draw of the pool that is not kept, in this order, the place of a kept one; return the number of swaps.

    The kept draw to be replaced is the one whose removal then leaves the smallest objective. A swap is made only if it
    lowers the objective by more than rounding. ``slots`` holds the kept draws, ``kept`` their indices in the pool and
    ``sums`` their row sums; all three are updated.
    """
    every, is_kept = np.ones(len(kept), dtype=np.bool_), np.zeros(len(pool.masses), dtype=np.bool_)
    is_kept[kept] = True
    scratch = np.zeros((4, len(slots.tiles) * LANES))
    return int(_swap(kernels, slots, pool, kept, sums, np.ascontiguousarray(order), every, is_kept, scratch))


@translated
def _swap(kernels, slots, pool, kept, sums, order, every, is_kept, scratch) -> int:
    """Do what :func:`swap` does; ``every`` is true for each kept draw, ``is_kept`` for those of the pool.

    Reference: `reference.swap_draws`.
    """
    tiles, own_masses, masses, diagonal = slots.tiles, slots.masses, pool.masses, pool.diagonal
    row, old_row, spare, shift, size = scratch[0], scratch[1], scratch[2], scratch[3], kept.shape[0]
    lanes, base_lanes, swaps = new_lanes(), np.zeros((2, LANES)), 0
    energy, mass = energy_with_stream_term(own_masses[:size], sums, every)
    for place in range(order.shape[0]):
        new = order[place]
        if is_kept[new]:
            continue
        own = 0.0
        if pool.stein > 0.0:
            arrays = RowArrays(pool.draws[new], tiles, own_masses, spare, spare, row, lanes)
            compute_row(kernels[0], EVALUATE, arrays, None, 0, tiles.shape[0])
            own, _, _ = combine_lanes(lanes)
        stream_row(kernels, slots, pool, new, kept, base_lanes, shift)
        for i in range(size):
            own += own_masses[i] * shift[i]
        more = masses[new] * (2.0 * own + masses[new] * diagonal[new])
        best, lowest = -1, energy / mass**2 * (1.0 - 1e-12)
        for i in range(size):
            with_new = sums.high[i] + sums.stream[i] + masses[new] * (row[i] + shift[i])
            gain = own_masses[i] * (2.0 * with_new - own_masses[i] * diagonal[kept[i]])
            without = (energy + more - gain) / (mass + masses[new] - own_masses[i]) ** 2
            if without < lowest:
                best, lowest = i, without
        if best < 0:
            continue
        old = kept[best]
        add_to_sums(masses[new], row, shift, sums)
        if pool.stein > 0.0:
            of_old = store_arrays(pool.draws[old], tiles, old_row, lanes)
            compute_row(kernels[0], STORE, of_old, None, 0, tiles.shape[0])
        stream_row(kernels, slots, pool, old, kept, base_lanes, shift)
        add_to_sums(-masses[old], old_row, shift, sums)
        kept[best], own_masses[best] = new, masses[new]
        replace(kernels, slots, pool, kept, sums, best, shift)
        is_kept[old], is_kept[new] = False, True
        energy, mass = energy_with_stream_term(own_masses[:size], sums, every)
        swaps += 1
    return swaps


@inlined
def replace(kernels, slots, pool, kept, sums, slot, shift) -> None:
    """Write the draw ``kept[slot]`` into its slot and compute its row sum over the kept draws; ``shift`` is scratch.

    Reference: `reference.row_sums`.
    """
    tiles, masses, new = slots.tiles, slots.masses, kept[slot]
    tile, lane = slot // LANES, slot % LANES
    for k in range(pool.draws.shape[2]):
        tiles[tile, k, 0, lane], tiles[tile, k, 1, lane] = pool.draws[new, 0, k], pool.draws[new, 1, k]
    for k in range(pool.base.shape[1]):
        slots.base_tiles[tile, k, lane] = pool.base[new, k]
    if pool.stein > 0.0:
        lanes = new_lanes()
        compute_row(kernels[0], SUM, sum_arrays(pool.draws[new], tiles, masses, lanes), None, 0, tiles.shape[0])
        sums.high[slot], sums.low[slot], _ = combine_lanes(lanes)
    sums.stream[slot] = 0.0
    if pool.stream_weight > 0.0:
        stream_row(kernels, slots, pool, new, kept, np.zeros((2, LANES)), shift)
        for i in range(kept.shape[0]):
            sums.stream[slot] += masses[i] * shift[i]
