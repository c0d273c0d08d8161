"""The moves that change what is kept: weigh a draw, keep it or turn it away, remove another.

The latest state's kernel values stay: a repeated draw needs no new ones, and a draw that is turned away costs one sweep
and changes nothing.

Where there is a guide (:mod:`steinstream._engine.penalties`), it is told of every move.

Sums are exact as long as no kernel value is wild (:func:`is_wild`). With wild ones, of a start far out, they round;
when these draws are removed the sums are computed anew, so that nothing of them is left.
"""

from __future__ import annotations

import numba
import numpy as np

from steinstream._engine import double_double
from steinstream._engine.argmax import first_to_go, greatest_of, greatest_with_row, own_key
from steinstream._engine.jit import inlined, jit
from steinstream._engine.kernel_pair import value_of
from steinstream._engine.kernel_row import CACHE, LOOK, REMOVE, ROW, WEIGH, collect, sweep_tiles
from steinstream._engine.penalties import (
    add_waves,
    key_of_latest,
    lean,
    lean_with_latest,
    mark,
    move_slot,
    note_key,
    put_waves,
    reconsider,
)
from steinstream._engine.simd import LANES
from steinstream._engine.state import (
    DRAWS,
    FREE,
    GREATEST,
    LATEST,
    NONE,
    OTHERS,
    OWN,
    OWN_LOW,
    SLOTS,
    TOTAL,
    TOTAL_LOW,
    WORST,
)


@inlined
def is_full(store):
    """Whether the next insertion needs more room."""
    return store.counts[SLOTS] == store.copies.shape[0] or store.counts[FREE] == NONE


@inlined
def sweep(store, kernel, guide, move, draw, slots, workers):
    """One draw (2, d) against the first ``slots`` states: the exact sum of kernel values and the greatest influence.

    With ``workers`` (a number, or None) large sweeps are shared among threads; the sums being exact, nothing changes.
    """
    tiles = (slots + LANES - 1) // LANES
    if tiles == 0:
        return 0.0, 0.0, -np.inf
    if workers is not None:  # noqa: SIM102 (alone, numba drops this branch where workers is None)
        if worth_sharing(slots, draw.shape[1]):
            return sweep_shared(store, kernel, guide, move, draw, tiles, workers)
    sweep_tiles(
        kernel, move, draw, store.tiles, store.copies, store.high, store.low, store.row, store.found,
        guide, 0, tiles,
    )  # fmt: skip
    return collect(store.found)


@jit
def worth_sharing(slots, dim) -> bool:
    """Whether so many kernel evaluations take longer than waking another thread (measured: some 15 microseconds)."""
    return bool(slots * (dim + 8) >= 200_000)


@jit(parallel=True)
def sweep_shared(store, kernel, guide, move, draw, tiles, workers):
    """The sweep, cut into one piece per worker."""
    parts = min(workers, tiles)  # a sweep runs over one tile at least
    found = np.zeros((parts, 3, LANES))
    for part in numba.prange(parts):
        sweep_tiles(
            kernel, move, draw, store.tiles, store.copies, store.high, store.low, store.row, found[part],
            guide, part * tiles // parts, (part + 1) * tiles // parts,
        )  # fmt: skip
    high, low, greatest = 0.0, 0.0, -np.inf
    for part in range(parts):
        more, rest, top = collect(found[part])
        high, low = double_double.add_pair(high, low, more, rest)
        greatest = max(greatest, top)
    return high, low, greatest


@inlined
def put(store, slot):
    """Write the draw into a spare slot, where it counts for nothing yet."""
    tile, lane = slot // LANES, slot % LANES
    for k in range(store.draw.shape[1]):
        store.tiles[tile, k, 0, lane] = store.draw[0, k]
        store.tiles[tile, k, 1, lane] = store.draw[1, k]
    store.copies[slot] = 0.0
    store.high[slot] = -np.inf
    store.low[slot] = 0.0


@inlined
def holds(store, slot):
    """Whether the slot's state is exactly the draw's."""
    if slot == NONE:
        return False
    tile, lane = slot // LANES, slot % LANES
    for k in range(store.draw.shape[1]):
        if store.tiles[tile, k, 0, lane] != store.draw[0, k] or store.tiles[tile, k, 1, lane] != store.draw[1, k]:
            return False
    return True


@inlined
def repeats(draws, scores, i):
    """Whether this draw is exactly the one before it."""
    for k in range(draws.shape[1]):
        if draws[i, k] != draws[i - 1, k]:
            return False
    for k in range(draws.shape[1]):  # noqa: SIM110 (numba has no all())
        if scores[i, k] != scores[i - 1, k]:
            return False
    return True


@inlined
def influences(store, kernel, draws, scores, first, last, sums):
    """Write the influence that each of the draws first .. last - 1 would have into ``sums`` (m, 2), as exact pairs.

    Kept draws are read a cacheful at a time, once for all. A draw that repeats the one before has its influence.
    """
    tiles = (store.counts[SLOTS] + LANES - 1) // LANES
    step = max(1, CACHE // (draws.shape[1] * 2 * LANES * 8))
    for candidate in range(first, last):
        take(store, draws, scores, candidate)
        sums[candidate - first, 0], sums[candidate - first, 1] = 0.5 * with_itself(store, kernel, store.draw), 0.0
    for begin in range(0, tiles, step):
        for candidate in range(first, last):
            if candidate == first or not repeats(draws, scores, candidate):
                take(store, draws, scores, candidate)
                sweep_tiles(
                    kernel, LOOK, store.draw, store.tiles, store.copies, store.high, store.low, store.row, store.found,
                    None, begin, min(begin + step, tiles),
                )  # fmt: skip
                more, rest, _ = collect(store.found)
                pair = double_double.add_pair(sums[candidate - first, 0], sums[candidate - first, 1], more, rest)
                sums[candidate - first, 0], sums[candidate - first, 1] = pair
    for candidate in range(first + 1, last):
        if repeats(draws, scores, candidate):
            for part in range(2):
                sums[candidate - first, part] = sums[candidate - first - 1, part]


@inlined
def with_itself(store, kernel, draw):
    """The kernel value of a draw (2, d) with itself, as a sweep computes it."""
    row = store.self_row
    for k in range(draw.shape[1]):
        store.alone[0, k, 0, 0] = draw[0, k]
        store.alone[0, k, 1, 0] = draw[1, k]
    sweep_tiles(kernel, ROW, draw, store.alone, row, row, row, row, store.found, None, 0, 1)
    return row[0]


@inlined
def take(store, draws, scores, new):
    """Make this the draw at hand."""
    for k in range(draws.shape[1]):
        store.draw[0, k] = draws[new, k]
        store.draw[1, k] = scores[new, k]


@jit
def influence_of(store, kernel, draws, scores, candidate):
    """The influence that a draw would have if it were added, rounded. Changes nothing: threads may share the store."""
    dim = draws.shape[1]
    found, row, draw, alone = np.zeros((3, LANES)), np.zeros(LANES), np.zeros((2, dim)), np.zeros((1, dim, 2, LANES))
    for k in range(dim):
        draw[0, k] = alone[0, k, 0, 0] = draws[candidate, k]
        draw[1, k] = alone[0, k, 1, 0] = scores[candidate, k]
    sweep_tiles(kernel, ROW, draw, alone, row, row, row, row, found, None, 0, 1)
    high, low = 0.5 * row[0], 0.0
    tiles = (store.counts[SLOTS] + LANES - 1) // LANES
    if tiles > 0:
        sweep_tiles(
            kernel, LOOK, draw, store.tiles, store.copies, store.high, store.low, store.row, found, None, 0, tiles
        )  # fmt: skip
        more, rest, _ = collect(found)
        high, _ = double_double.add_pair(more, rest, high, low)
    return high


@inlined
def weigh(store, kernel, guide, draws, scores, new, alone, workers):
    """Make this draw the latest: what would its influence be, and the greatest of the others, if it were added?

    ``alone`` says that the others do not matter, which saves a pass for a repeated state. A guide must know its waves.
    """
    sums, slots, slot = store.sums, store.counts[SLOTS], store.counts[LATEST]
    take(store, draws, scores, new)
    lean_with_latest(store, guide)
    if not holds(store, slot):
        put(store, slots)
        put_waves(guide, slots)
        high, low, sums[OTHERS] = sweep(store, kernel, guide, WEIGH, store.draw, slots + 1, workers)
        sums[OWN], sums[OWN_LOW] = double_double.add(high, low, 0.5 * store.row[slots])
        store.counts[LATEST] = slots
    elif slot < slots:  # it repeats a state that is kept
        sums[OWN], sums[OWN_LOW] = double_double.add(store.high[slot], store.low[slot], store.row[slot])
        sums[OTHERS] = np.nan
        if not alone:
            aside, store.high[slot] = store.high[slot], -np.inf
            sums[OTHERS] = greatest_with_row(store, guide)
            store.high[slot] = aside
    elif guide is not None:  # it repeats a draw that was turned away: the same influences, but other keys
        sums[OTHERS] = greatest_with_row(store, guide)
    key_of_latest(store, guide, new)


@inlined
def keep(store, guide, ids, raw, new, step):
    """Add the draw that was weighed, with its id and what else belongs to it."""
    sums, slots, slot = store.sums, store.counts[SLOTS], store.counts[LATEST]
    apply_row(store, 1.0)
    if slot == slots:
        for k in range(raw.shape[1]):
            store.raw[slot, k] = raw[new, k]
        store.oldest[slot] = NONE
        store.counts[SLOTS] += 1
    store.high[slot], store.low[slot] = sums[OWN], sums[OWN_LOW]
    store.copies[slot] += 1.0
    attach(store, guide, slot, ids, new, step)
    sums[TOTAL], sums[TOTAL_LOW] = double_double.add_pair(
        sums[TOTAL], sums[TOTAL_LOW], 2.0 * sums[OWN], 2.0 * sums[OWN_LOW]
    )
    sums[WORST] = max(sums[WORST], store.row[slot])
    add_waves(guide, slot, 1.0)
    note_key(guide, slot)
    own = own_key(store, guide)
    sums[GREATEST] = own if own >= sums[OTHERS] else sums[OTHERS]  # not a number until somebody asks


@inlined
def turn_away(store, guide, ids, new, step, dropped, at):
    """Leave things as they are, and log who went: the draw that was weighed, or a kept copy of it."""
    slot = store.counts[LATEST]
    if slot < store.counts[SLOTS]:
        attach(store, guide, slot, ids, new, step)
        detach(store, guide, slot, dropped, at)
    else:
        dropped[at, 0], dropped[at, 1], dropped[at, 2] = ids[new, 0], ids[new, 1], step


@inlined
def remove(store, kernel, guide, slot, dropped, at, workers):
    """Remove a copy of a state and log its id."""
    sums = store.sums
    high, low = store.high[slot], store.low[slot]
    sums[TOTAL], sums[TOTAL_LOW] = double_double.add_pair(sums[TOTAL], sums[TOTAL_LOW], -2.0 * high, -2.0 * low)
    copy_state(store, slot)
    latest = slot == store.counts[LATEST]
    add_waves(guide, slot, -1.0)
    detach(store, guide, slot, dropped, at)
    store.copies[slot] -= 1.0
    if store.copies[slot] == 0.0:
        vacate(store, guide, slot)
    elif store.counts[LATEST] == store.counts[SLOTS]:  # what was weighed for a draw that was turned away holds no more
        store.counts[LATEST] = NONE
    if latest:
        apply_row(store, -1.0)
        sums[GREATEST] = greatest_of(store, guide)
    else:
        lean(store, guide)
        _, _, sums[GREATEST] = sweep(store, kernel, guide, REMOVE, store.removed, store.counts[SLOTS], workers)
    if is_wild(kernel, sums[WORST]) and calm(store, kernel):
        sums[GREATEST] = greatest_of(store, guide)


@inlined
def is_wild(kernel, value):
    """Whether a kernel value is so large that sums with it round."""
    return value > kernel[3] * double_double.WILD


@jit
def calm(store, kernel) -> bool:
    """Compute the sums anew if what was wild has gone, or left only what is so much less that its sums are spoilt."""
    slots, sums, worst = store.counts[SLOTS], store.sums, 0.0
    for slot in range(slots):
        copy_state(store, slot)
        worst = max(worst, value_of(kernel, store.removed, store.removed))
    if is_wild(kernel, worst) and worst > sums[WORST] * 2.0**-40:
        return False
    sums[TOTAL], sums[TOTAL_LOW], sums[WORST] = 0.0, 0.0, worst
    for slot in range(slots):
        copy_state(store, slot)
        high, low, _ = sweep(store, kernel, None, LOOK, store.removed, slots, None)
        for _ in range(int(store.copies[slot])):
            sums[TOTAL], sums[TOTAL_LOW] = double_double.add_pair(sums[TOTAL], sums[TOTAL_LOW], high, low)
        store.high[slot], store.low[slot] = double_double.add(
            high, low, -0.5 * with_itself(store, kernel, store.removed)
        )
    return True


@inlined
def attach(store, guide, slot, ids, new, step):
    """One more copy of the slot's state, with this draw's id."""
    label = store.counts[FREE]
    store.counts[FREE] = store.following[label]
    store.ids[label, 0], store.ids[label, 1], store.ids[label, 2] = ids[new, 0], ids[new, 1], step
    store.following[label] = NONE
    if store.oldest[slot] == NONE:
        store.oldest[slot] = label
    else:
        store.following[store.newest[slot]] = label
    store.newest[slot] = label
    store.counts[DRAWS] += 1
    mark(guide, slot, label, new)


@inlined
def detach(store, guide, slot, dropped, at):
    """One copy less of the slot's state."""
    label = first_to_go(store, guide, slot)
    for k in range(3):
        dropped[at, k] = store.ids[label, k]
    store.ids[label, 2] = NONE
    if label == store.oldest[slot]:
        store.oldest[slot] = store.following[label]
    else:
        before = store.oldest[slot]
        while store.following[before] != label:
            before = store.following[before]
        store.following[before] = store.following[label]
        if store.newest[slot] == label:
            store.newest[slot] = before
    store.following[label] = store.counts[FREE]
    store.counts[FREE] = label
    store.counts[DRAWS] -= 1
    reconsider(store, guide, slot)


@inlined
def vacate(store, guide, slot):
    """Fill the slot with the last one, which becomes spare."""
    last = store.counts[SLOTS] - 1
    if slot != last:
        to_tile, to_lane, tile, lane = slot // LANES, slot % LANES, last // LANES, last % LANES
        for k in range(store.draw.shape[1]):
            store.tiles[to_tile, k, 0, to_lane] = store.tiles[tile, k, 0, lane]
            store.tiles[to_tile, k, 1, to_lane] = store.tiles[tile, k, 1, lane]
        for k in range(store.raw.shape[1]):
            store.raw[slot, k] = store.raw[last, k]
        store.copies[slot], store.row[slot] = store.copies[last], store.row[last]
        store.high[slot], store.low[slot] = store.high[last], store.low[last]
        store.oldest[slot], store.newest[slot] = store.oldest[last], store.newest[last]
        move_slot(guide, slot, last)
    store.copies[last] = 0.0
    store.high[last] = -np.inf
    if store.counts[LATEST] == last and slot != last:
        store.counts[LATEST] = slot
    elif store.counts[LATEST] == slot or store.counts[LATEST] > last:
        store.counts[LATEST] = NONE
    store.counts[SLOTS] = last


@inlined
def apply_row(store, sign):
    """Add the latest state's kernel values to the influences, or take them out."""
    high, low, row = store.high, store.low, store.row
    for slot in range(store.counts[SLOTS]):
        high[slot], low[slot] = double_double.add(high[slot], low[slot], sign * row[slot])


@inlined
def copy_state(store, slot):
    """The slot's state, where a sweep can read it."""
    tile, lane = slot // LANES, slot % LANES
    for k in range(store.draw.shape[1]):
        store.removed[0, k] = store.tiles[tile, k, 0, lane]
        store.removed[1, k] = store.tiles[tile, k, 1, lane]


@jit
def refresh(store, kernel) -> None:
    """Compute what is not written into a checkpoint: the greatest influence, the latest state's kernel values."""
    store.sums[GREATEST] = greatest_of(store, None)
    if store.counts[LATEST] != NONE:
        copy_state(store, store.counts[LATEST])
        sweep(store, kernel, None, ROW, store.removed, store.counts[SLOTS], None)
