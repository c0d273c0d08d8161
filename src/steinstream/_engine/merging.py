"""Draws with masses: sums of the Stein kernel over them, dropping those that matter least, swapping better ones in.

``high + low`` of draw i is the sum of mass_j k0(i, j) over all draws j, itself included: its *row sum*. With S the sum
of mass_i times row sum i, and W that of the masses, KSD^2 = S / W^2. An anchor adds a multiple of <g_i, g_j> to the
kernel, where the g (n, 2 M) are waves less their mean; ``pull`` is its part of the row sums, and ``diagonal`` is
k0(x, x) with its part. The objective is S / W^2 with all of it.
"""

from __future__ import annotations

import numpy as np

from steinstream._engine import double_double
from steinstream._engine.jit import jit
from steinstream._engine.kernel_row import CACHE, LOOK, ROW, WEIGH, collect, sweep_tiles
from steinstream._engine.simd import LANES, fused


@jit
def add_cross_terms(kernel, tiles, masses, draws, begin, end, high, low) -> None:
    """To the row sums of draws begin .. end - 1 of (n, 2, d) add those over the draws in the tiles."""
    step = max(1, CACHE // (draws.shape[2] * 2 * LANES * 8))
    spare, found = np.zeros(LANES), np.zeros((3, LANES))
    for start in range(0, tiles.shape[0], step):
        count = min(step, tiles.shape[0] - start)
        for i in range(begin, end):
            sweep_tiles(
                kernel, LOOK, draws[i], tiles[start : start + count], masses[start * LANES :], spare, spare, spare,
                found, None, 0, count,
            )  # fmt: skip
            more, rest, _ = collect(found)
            high[i], low[i] = double_double.add_pair(high[i], low[i], more, rest)


@jit
def add_product(high, low, factor, value):
    """The pair plus factor * value."""
    product = factor * value
    high, low = double_double.add(high, low, product)
    return double_double.add(high, low, fused(factor, value, -product))


@jit
def energy_of(masses, high, low, alive) -> tuple[float, float]:
    """S and W of the draws that are alive, without the anchor."""
    energy, rest, mass = 0.0, 0.0, 0.0
    for i in range(masses.shape[0]):
        if alive[i]:
            energy, rest = add_product(energy, rest, masses[i], high[i])
            energy, rest = double_double.add(energy, rest, masses[i] * low[i])
            mass += masses[i]
    return energy, mass


@jit
def objective(masses, high, low, pull, alive) -> tuple[float, float]:
    """S and W with the anchor."""
    energy, mass = energy_of(masses, high, low, alive)
    for i in range(alive.shape[0]):
        if alive[i]:
            energy += masses[i] * pull[i]
    return energy, mass


@jit
def take_in(row, mass, waves, which, others, anchor, high, low, pull) -> None:
    """Let the row sums of others take in a draw with this mass, or give it back if that is negative."""
    for i in range(others.shape[0]):
        high[i], low[i] = add_product(high[i], low[i], mass, row[i])
        product = 0.0
        for m in range(waves.shape[1]):
            product += waves[which, m] * waves[others[i], m]
        pull[i] += mass * anchor * product


@jit
def drop(kernel, tiles, draws, masses, diagonal, waves, anchor, high, low, pull, alive, least, most, allowed) -> None:
    """Drop draws, each time the one without which the objective is least, of equals the first.

    It ends with ``least`` draws, or with ``most`` or fewer where the next would raise the objective above ``allowed``.
    """
    count = alive.shape[0]
    row, found, every = np.zeros(tiles.shape[0] * LANES), np.zeros((3, LANES)), np.arange(count)
    energy, mass = objective(masses, high, low, pull, alive)
    rest = 0.0
    for left in range(count, least, -1):
        best, lowest = -1, np.inf
        for i in range(count):
            if alive[i]:
                gain = masses[i] * (2.0 * (high[i] + pull[i]) - masses[i] * diagonal[i])
                without = (energy - gain) / (mass - masses[i]) ** 2
                if without < lowest:
                    best, lowest = i, without
        if left <= most and lowest > allowed:
            break
        energy, rest = add_product(energy, rest, -2.0 * masses[best], high[best] + pull[best])
        energy, rest = double_double.add(energy, rest, masses[best] * (masses[best] * diagonal[best] - 2.0 * low[best]))
        mass -= masses[best]
        sweep_tiles(kernel, ROW, draws[best], tiles, row, row, row, row, found, None, 0, tiles.shape[0])
        take_in(row, -masses[best], waves, best, every, anchor, high, low, pull)
        alive[best] = False


@jit
def swap(kernel, tiles, draws, masses, diagonal, waves, anchor, order, kept, high, low, pull, alive) -> int:
    """Offer every dropped draw, in this order, the place of the kept one whose loss costs least then; how many came in?

    ``kept`` are the places of those in the tiles, whose row sums these are; all else is of all draws. The objective
    only falls: a swap that would leave it as it is, but for rounding, is not made.
    """
    size, every = kept.shape[0], np.ones(kept.shape[0], dtype=np.bool_)
    padded, row, out = (
        np.zeros(tiles.shape[0] * LANES),
        np.zeros(tiles.shape[0] * LANES),
        np.zeros(tiles.shape[0] * LANES),
    )
    spare, found, swaps = np.zeros(tiles.shape[0] * LANES), np.zeros((3, LANES)), 0
    padded[:size] = masses[kept]
    energy, mass = objective(padded[:size], high, low, pull, every)
    for new in order:
        if alive[new]:
            continue
        sweep_tiles(kernel, WEIGH, draws[new], tiles, padded, spare, spare, row, found, None, 0, tiles.shape[0])
        own, _, _ = collect(found)
        for i in range(size):
            product = 0.0
            for m in range(waves.shape[1]):
                product += waves[new, m] * waves[kept[i], m]
            spare[i] = anchor * product
            own += padded[i] * spare[i]
        more = masses[new] * (2.0 * own + masses[new] * diagonal[new])
        best, lowest = -1, energy / mass**2 * (1.0 - 1e-12)
        for i in range(size):
            with_new = high[i] + pull[i] + masses[new] * (row[i] + spare[i])
            gain = padded[i] * (2.0 * with_new - padded[i] * diagonal[kept[i]])
            without = (energy + more - gain) / (mass + masses[new] - padded[i]) ** 2
            if without < lowest:
                best, lowest = i, without
            spare[i] = 0.0
        if best < 0:
            continue
        old = kept[best]
        sweep_tiles(kernel, ROW, draws[old], tiles, out, out, out, out, found, None, 0, tiles.shape[0])
        take_in(row, masses[new], waves, new, kept, anchor, high, low, pull)
        take_in(out, -masses[old], waves, old, kept, anchor, high, low, pull)
        replace(kernel, tiles, draws, masses, waves, anchor, kept, padded, high, low, pull, best, new, found, row)
        alive[old], alive[new] = False, True
        energy, mass = objective(padded[:size], high, low, pull, every)
        swaps += 1
    return swaps


@jit
def replace(
    kernel, tiles, draws, masses, waves, anchor, kept, padded, high, low, pull, slot, new, found, spare
) -> None:
    """Put a draw into a slot, with the row sum it has among the draws that are then kept."""
    tile, lane = slot // LANES, slot % LANES
    for k in range(draws.shape[2]):
        tiles[tile, k, 0, lane], tiles[tile, k, 1, lane] = draws[new, 0, k], draws[new, 1, k]
    kept[slot], padded[slot] = new, masses[new]
    sweep_tiles(kernel, LOOK, draws[new], tiles, padded, spare, spare, spare, found, None, 0, tiles.shape[0])
    high[slot], low[slot], _ = collect(found)
    pull[slot] = 0.0
    for i in range(kept.shape[0]):
        product = 0.0
        for m in range(waves.shape[1]):
            product += waves[new, m] * waves[kept[i], m]
        pull[slot] += padded[i] * anchor * product
