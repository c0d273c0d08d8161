"""The searches among what is kept: who is the least influential, who goes first of several copies.

Without a guide a search goes by influences; with one by keys (:mod:`steinstream._engine.penalties`), costs included.
"""

from __future__ import annotations

import numpy as np

from steinstream._engine import double_double
from steinstream._engine.jit import inlined
from steinstream._engine.kernel_row import GREATEST as TOP
from steinstream._engine.kernel_row import SCALE, WEIGHT, collect
from steinstream._engine.penalties import NEW_TILTED, lean, tilted
from steinstream._engine.simd import LANES, fused
from steinstream._engine.state import GREATEST, NONE, OWN, SLOTS


@inlined
def own_key(store, guide):
    """What the search goes by, for the draw that was weighed."""
    if guide is None:
        return store.sums[OWN]
    return guide.numbers[NEW_TILTED]


@inlined
def greatest_of(store, guide):
    """The greatest influence."""
    if guide is not None:
        lean(store, guide)
        return greatest_key(store, guide, None)
    found, high = store.found, store.high
    for lane in range(LANES):
        found[TOP, lane] = -np.inf
    top = found[TOP]
    for first in range(0, store.counts[SLOTS], LANES):
        some = high[first : first + LANES]
        for lane in range(LANES):
            top[lane] = some[lane] if some[lane] > top[lane] else top[lane]
    _, _, greatest = collect(found)
    return greatest


@inlined
def greatest_with_row(store, guide):
    """The greatest influence if the latest state's kernel values were added once more."""
    if guide is not None:
        return greatest_key(store, guide, store.row)
    high, low, row, found = store.high, store.low, store.row, store.found
    for lane in range(LANES):
        found[TOP, lane] = -np.inf
    top = found[TOP]
    for first in range(0, store.counts[SLOTS], LANES):
        some, rest, more = high[first : first + LANES], low[first : first + LANES], row[first : first + LANES]
        for lane in range(LANES):
            influence, _ = double_double.add(some[lane], rest[lane], more[lane])
            top[lane] = influence if influence > top[lane] else top[lane]
    _, _, greatest = collect(found)
    return greatest


@inlined
def greatest_key(store, guide, row):
    """Make all keys; the greatest one, costs included. ``row`` is None, or kernel values to add to the influences."""
    high, low, found, keys, count = store.high, store.low, store.found, guide.keys, guide.lean.shape[0]
    for lane in range(LANES):
        found[TOP, lane] = -np.inf
    top, weight, scale, parts = found[TOP], guide.numbers[WEIGHT], guide.numbers[SCALE], guide.parts
    for first in range(0, store.counts[SLOTS], LANES):
        some, rest, key = high[first : first + LANES], low[first : first + LANES], keys[first : first + LANES]
        dear, waves = guide.dear[first : first + LANES], guide.waves[first // LANES]
        for part in range(4):
            for lane in range(LANES):
                parts[part, lane] = 0.0
        for m in range(count):
            factor, line, total = guide.lean[m], waves[m], parts[m % 4]
            for lane in range(LANES):
                total[lane] = fused(factor, line[lane], total[lane])
        for lane in range(LANES):
            product = np.float64((parts[0, lane] + parts[1, lane]) + (parts[2, lane] + parts[3, lane]))
            influence = some[lane]
            if row is not None:
                influence, _ = double_double.add(some[lane], rest[lane], row[first + lane])
            key[lane] = fused(weight, product, influence)
            with_cost = fused(scale, dear[lane], key[lane])
            top[lane] = with_cost if with_cost > top[lane] else top[lane]
    _, _, greatest = collect(found)
    return greatest


@inlined
def least_influential(store, guide):
    """The slot with the greatest influence, or key; of several the one with the smallest id. None if all are pinned."""
    if np.isnan(store.sums[GREATEST]):
        store.sums[GREATEST] = greatest_of(store, guide)
    best, greatest = NONE, store.sums[GREATEST]
    if guide is not None:
        return with_key(store, guide, greatest)
    slots, high = store.counts[SLOTS], store.high
    for first in range(0, slots, LANES):
        hits = 0
        some = high[first : first + LANES]
        for lane in range(LANES):
            hits += some[lane] == greatest
        if hits > 0:
            for slot in range(first, min(first + LANES, slots)):
                if high[slot] == greatest and (best == NONE or precedes(store, guide, slot, best)):
                    best = slot
    return best


@inlined
def with_key(store, guide, greatest):
    """The slot with this key, costs included; of several the one with the smallest id. None where all are pinned."""
    best, slots, scale = NONE, store.counts[SLOTS], guide.numbers[SCALE]
    if greatest == -np.inf:
        return best
    for first in range(0, slots, LANES):
        hits = 0
        key, dear = guide.keys[first : first + LANES], guide.dear[first : first + LANES]
        for lane in range(LANES):
            hits += fused(scale, dear[lane], key[lane]) == greatest
        if hits > 0:
            for slot in range(first, min(first + LANES, slots)):
                if tilted(guide, slot) == greatest and (best == NONE or precedes(store, guide, slot, best)):
                    best = slot
    return best


@inlined
def precedes(store, guide, slot, other):
    """Whether the id of the slot's draw that goes first comes before the other's."""
    ids, mine, its = store.ids, first_to_go(store, guide, slot), first_to_go(store, guide, other)
    return ids[mine, 0] < ids[its, 0] or (ids[mine, 0] == ids[its, 0] and ids[mine, 1] < ids[its, 1])


@inlined
def first_to_go(store, guide, slot):
    """The label of the copy that goes first: the oldest, unless there is a guide."""
    if guide is None:
        return store.oldest[slot]
    return guide.going[slot]
