"""Updates of the kept draws: evaluate a draw, insert it or reject it, remove another one.

The kernel values with the latest state are stored: a repeated draw needs no new ones, and a draw that is rejected costs
one row and changes nothing. Every update is passed on to the penalties (:mod:`steinstream._engine.penalties`).

Sums are exact as long as all kernel values are within the exact range (:func:`beyond_exact_range`). Larger values, for
example of a start far out in the tails, are rounded; the sums are recomputed from scratch once such draws have been
removed, so that no rounding error remains.
"""

from __future__ import annotations

import numba
import numpy as np
from numba import types

from steinstream._engine import double_double
from steinstream._engine.argmax import first_removed, largest_value, largest_value_with_row, new_value
from steinstream._engine.jit import inlined, shared
from steinstream._engine.kernel_pair import value_of
from steinstream._engine.kernel_row import (
    EVALUATE,
    STORE,
    SUBTRACT,
    SUM,
    LaneResults,
    RowArrays,
    combine_lanes,
    compute_row,
)
from steinstream._engine.late_calls import called_late
from steinstream._engine.penalties import (
    compare_copies,
    evaluate_new,
    evaluate_repeated,
    insert_sums,
    move_penalties,
    prepare_row,
    prepare_slot,
    row_penalties,
    set_new_key,
    set_share,
    store_cost_and_pin,
    subtract_base_row,
    subtract_totals,
)
from steinstream._engine.simd import LANES
from steinstream._engine.state import NONE
from steinstream._engine.translation import translated

_SHARED_WORK = 200_000  # slots * (d + 8) from which a row takes longer than waking a thread (measured: 15 microseconds)


# -- kernel rows over the kept draws -------------------------------------------------------------------------------


@inlined
def row_arrays(state, draw):
    """Return the arrays of a row over the kept draws. Storage bookkeeping."""
    lanes = LaneResults(state.lane_sums, state.lane_errors, state.lane_largest, state.lane_base_sums)
    return RowArrays(draw, state.tiles, state.copies, state.influence, state.influence_low, state.row, lanes)


@inlined
def row_of_state(state, kernel, penalties, operation, draw, slots, workers):
    """Compute the row of a draw (2, d) over the first slots; return the exact sum and the largest influence.

    Long rows are shared among ``workers`` threads; sums are exact, so the result is the same.

    Reference: `kernels.Kernel.matrix`.
    """
    tiles = (slots + LANES - 1) // LANES
    if tiles == 0:
        return 0.0, 0.0, -np.inf
    if workers > 1 and worth_sharing(slots, draw.shape[1]):
        return shared_row(state, kernel, penalties, operation, draw, tiles, workers)
    arrays = row_arrays(state, draw)
    compute_row(kernel, operation, arrays, row_penalties(penalties), 0, tiles)
    return combine_lanes(arrays.lanes)


@shared
def worth_sharing(slots: int, dim: int) -> bool:
    """Whether a row over this number of slots takes longer than waking a thread. Storage bookkeeping."""
    return slots * (dim + 8) >= _SHARED_WORK


@called_late(types.UniTuple(types.float64, 3), parallel=True, _nrt=True)
def shared_row(state, kernel, penalties, operation, draw, tiles, workers):
    """Compute a row in one piece per worker. Reference: `kernels.Kernel.matrix`."""
    pieces = min(workers, tiles)  # each piece has at least one tile
    sums, errors, largest = np.zeros((pieces, LANES)), np.zeros((pieces, LANES)), np.zeros((pieces, LANES))
    base_sums, total = np.zeros((pieces, LANES)), state.lane_base_sums
    stored, copies, row, influence, influence_low = (
        state.tiles,
        state.copies,
        state.row,
        state.influence,
        state.influence_low,
    )
    for piece in numba.prange(pieces):
        lanes = LaneResults(sums[piece], errors[piece], largest[piece], base_sums[piece])
        mine = RowArrays(draw, stored, copies, influence, influence_low, row, lanes)
        terms = row_penalties(penalties)  # inside the loop: numba cannot pass this tuple to a thread
        compute_row(kernel, operation, mine, terms, piece * tiles // pieces, (piece + 1) * tiles // pieces)
    high, low, top = 0.0, 0.0, -np.inf
    for piece in range(pieces):
        lanes = LaneResults(sums[piece], errors[piece], largest[piece], base_sums[piece])
        more, rest, most = combine_lanes(lanes)
        high, low = double_double.add_pair(high, low, more, rest)
        top = max(top, most)
    for lane in range(LANES):
        total[lane] = 0.0
        for piece in range(pieces):
            total[lane] += base_sums[piece, lane]
    return high, low, top


@inlined
def diagonal_of(state, kernel, draw):
    """Return k0(x, x) of a draw (2, d), computed as a row computes it. Reference: `kernels.Kernel.diagonal`."""
    tile, row = state.single_tile, state.single_row
    for k in range(draw.shape[1]):
        tile[0, k, 0, 0] = draw[0, k]
        tile[0, k, 1, 0] = draw[1, k]
    lanes = row_arrays(state, draw).lanes
    compute_row(kernel, STORE, RowArrays(draw, tile, row, row, row, row, lanes), None, 0, 1)
    return row[0]


# -- draws and slots -----------------------------------------------------------------------------------------------


@inlined
def is_full(state):
    """Whether the next insertion needs a larger state. Storage bookkeeping."""
    return state.scalars.slots == state.copies.shape[0] or state.scalars.free == NONE


@inlined
def load_draw(state, batch, new):
    """Copy a draw of the batch to ``state.draw``. Storage bookkeeping."""
    for k in range(batch.draws.shape[1]):
        state.draw[0, k] = batch.draws[new, k]
        state.draw[1, k] = batch.scores[new, k]


@inlined
def repeats_latest(state, batch, new):
    """Whether a draw of the batch equals the latest state exactly, also as it was given. Storage bookkeeping."""
    latest = state.scalars.latest
    if latest == NONE:
        return False
    tile, lane, tiles = latest // LANES, latest % LANES, state.tiles
    for k in range(batch.draws.shape[1]):
        if tiles[tile, k, 0, lane] != batch.draws[new, k] or tiles[tile, k, 1, lane] != batch.scores[new, k]:
            return False
    for k in range(batch.raw.shape[1]):  # noqa: SIM110 (numba has no all())
        if state.raw[latest, k] != batch.raw[new, k]:
            return False
    return True


@inlined
def write_draw(state, batch, new):
    """Write a draw of the batch into ``state.draw`` and the first spare slot. Storage bookkeeping."""
    slot = state.scalars.slots
    tile, lane, tiles, draw = slot // LANES, slot % LANES, state.tiles, state.draw
    for k in range(batch.draws.shape[1]):
        draw[0, k] = tiles[tile, k, 0, lane] = batch.draws[new, k]
        draw[1, k] = tiles[tile, k, 1, lane] = batch.scores[new, k]
    for k in range(batch.raw.shape[1]):
        state.raw[slot, k] = batch.raw[new, k]
    state.copies[slot], state.influence[slot], state.influence_low[slot] = 0.0, -np.inf, 0.0


@inlined
def read_slot(state, slot):
    """Copy the state in a slot to ``state.removed``. Storage bookkeeping."""
    tile, lane = slot // LANES, slot % LANES
    for k in range(state.draw.shape[1]):
        state.removed[0, k] = state.tiles[tile, k, 0, lane]
        state.removed[1, k] = state.tiles[tile, k, 1, lane]


# -- updates -------------------------------------------------------------------------------------------------------


@inlined
def evaluate(state, kernel, penalties, batch, new, skip_others, workers):
    """Compute the influence of a draw, and the largest value of the other draws, if it were inserted.

    With ``skip_others`` the latter is not needed, which saves a pass for a repeated state.

    Reference: `reference.Reference.keys`.
    """
    scalars = state.scalars
    set_share(state, penalties, scalars.draws)
    if repeats_latest(state, batch, new):
        evaluate_copy(state, penalties, batch, new, skip_others)
    else:
        slot = scalars.slots
        write_draw(state, batch, new)
        prepare_slot(state, kernel, penalties, batch, new, slot)
        high, low, scalars.largest_other = row_of_state(
            state, kernel, penalties, EVALUATE, state.draw, slots=slot + 1, workers=workers
        )
        scalars.new_influence, scalars.new_influence_low = double_double.add(high, low, 0.5 * state.row[slot])
        scalars.latest = slot
        evaluate_new(state, kernel, penalties, batch, new)
    set_new_key(state, penalties, batch, new)


@called_late()
def evaluate_copy(state, penalties, batch, new, skip_others):
    """Do what :func:`evaluate` does for a draw that repeats the latest state. Reference: `reference.Reference.keys`."""
    scalars, slot = state.scalars, state.scalars.latest
    if slot < scalars.slots:  # it repeats a kept state
        evaluate_repeated(state, penalties, batch, new, slot)
        scalars.new_influence, scalars.new_influence_low = double_double.add(
            state.influence[slot], state.influence_low[slot], state.row[slot]
        )
        scalars.largest_other = np.nan
        if not skip_others:
            own, state.influence[slot] = state.influence[slot], -np.inf
            scalars.largest_other = largest_value_with_row(state, penalties)
            state.influence[slot] = own
    elif penalties is not None:  # it repeats a rejected draw: the influences are the same, but the keys are not
        evaluate_repeated(state, penalties, batch, new, slot)
        scalars.largest_other = largest_value_with_row(state, penalties)


@inlined
def insert(state, penalties, batch, new, step):
    """Insert the evaluated draw. Reference: `reference.Reference.insert`."""
    scalars = state.scalars
    slot = scalars.latest
    add_row(state, 1.0)
    if slot == scalars.slots:
        state.oldest[slot] = NONE
        scalars.slots += 1
    state.influence[slot], state.influence_low[slot] = scalars.new_influence, scalars.new_influence_low
    state.copies[slot] += 1.0
    add_label(state, penalties, slot, batch, new, step)
    scalars.total, scalars.total_low = double_double.add_pair(
        scalars.total, scalars.total_low, 2.0 * scalars.new_influence, 2.0 * scalars.new_influence_low
    )
    scalars.largest_diagonal = max(scalars.largest_diagonal, state.row[slot])
    insert_sums(state, penalties, slot)
    own = new_value(state, penalties)
    scalars.largest = own if own >= scalars.largest_other else scalars.largest_other  # NaN if the other is unknown


@inlined
def reject(state, penalties, batch, new, step, log, removed):
    """Leave the kept draws as they are and log the removed draw: the evaluated one or a kept copy of it.

    Reference: `reference.Reference.remove`.
    """
    if state.scalars.latest < state.scalars.slots:
        replace_copy(state, penalties, batch, new, step, log, removed)
    else:
        log.dropped[removed, 0], log.dropped[removed, 1] = batch.ids[new, 0], batch.ids[new, 1]
        log.dropped[removed, 2] = step


@called_late()
def replace_copy(state, penalties, batch, new, step, log, removed):
    """Add the evaluated draw, which repeats a kept state, and remove the copy of this state that is removed first.

    Reference: `reference.Reference.remove`.
    """
    slot = state.scalars.latest
    add_label(state, penalties, slot, batch, new, step)
    remove_label(state, penalties, slot, log, removed)


@inlined
def remove(state, kernel, penalties, slot, log, removed, workers):
    """Remove a copy of the state in a slot and log it as number ``removed``.

    Reference: `reference.Reference.remove`.
    """
    scalars = state.scalars
    high, low = state.influence[slot], state.influence_low[slot]
    scalars.total, scalars.total_low = double_double.add_pair(scalars.total, scalars.total_low, -2.0 * high, -2.0 * low)
    read_slot(state, slot)
    is_latest = slot == scalars.latest
    subtract_totals(state, penalties, slot)
    remove_label(state, penalties, slot, log, removed)
    state.copies[slot] -= 1.0
    if state.copies[slot] == 0.0:
        free_slot(state, penalties, slot)
    elif scalars.latest == scalars.slots:  # the values computed for a rejected draw are not valid any more
        scalars.latest = NONE
    if is_latest:
        add_row(state, -1.0)
        subtract_base_row(state, penalties)
        scalars.largest = largest_value(state, penalties)
    else:
        set_share(state, penalties, scalars.draws - 1)
        prepare_row(state, kernel, penalties, scalars.slots)
        _, _, scalars.largest = row_of_state(
            state, kernel, penalties, SUBTRACT, state.removed, slots=scalars.slots, workers=workers
        )
    if beyond_exact_range(kernel, scalars.largest_diagonal) and recompute_sums(state, kernel):
        scalars.largest = largest_value(state, penalties)


@inlined
def add_row(state, sign):
    """Add the kernel values with the latest state to the influences, or subtract them.

    Reference: `reference.Reference.keys`.
    """
    high, low, row = state.influence, state.influence_low, state.row
    for slot in range(state.scalars.slots):
        high[slot], low[slot] = double_double.add(high[slot], low[slot], sign * row[slot])


# -- values beyond the exact range ---------------------------------------------------------------------------------


@inlined
def beyond_exact_range(kernel, value):
    """Whether sums with a kernel value of this size are rounded.

    Reference: `reference.Reference.keys`, whose sums are always exact.
    """
    return value > kernel.grid * double_double.EXACT_RANGE


@called_late(types.boolean)
def recompute_sums(state, kernel):
    """Recompute all sums if no value beyond the exact range remains, or none that dominates the rounding errors.

    Reference: `reference.Reference.keys`, whose sums are always exact.
    """
    scalars, largest = state.scalars, 0.0
    slots = scalars.slots
    for slot in range(slots):
        read_slot(state, slot)
        largest = max(largest, value_of(kernel, state.removed, state.removed))
    if beyond_exact_range(kernel, largest) and largest > scalars.largest_diagonal * 2.0**-40:
        return False
    scalars.total, scalars.total_low, scalars.largest_diagonal = 0.0, 0.0, largest
    for slot in range(slots):
        read_slot(state, slot)
        high, low, _ = row_of_state(state, kernel, None, SUM, state.removed, slots=slots, workers=1)
        for _ in range(int(state.copies[slot])):
            scalars.total, scalars.total_low = double_double.add_pair(scalars.total, scalars.total_low, high, low)
        state.influence[slot], state.influence_low[slot] = double_double.add(
            high, low, -0.5 * diagonal_of(state, kernel, state.removed)
        )
    return True


# -- labels --------------------------------------------------------------------------------------------------------


@inlined
def add_label(state, penalties, slot, batch, new, step):
    """Add a copy of the state in a slot, with the id of a draw of the batch. Storage bookkeeping."""
    label = state.scalars.free
    state.scalars.free = state.following[label]
    state.ids[label, 0], state.ids[label, 1], state.ids[label, 2] = batch.ids[new, 0], batch.ids[new, 1], step
    state.following[label] = NONE
    if state.oldest[slot] == NONE:
        state.oldest[slot] = label
    else:
        state.following[state.newest[slot]] = label
    state.newest[slot] = label
    state.scalars.draws += 1
    store_cost_and_pin(penalties, slot, label, batch, new)


@inlined
def remove_label(state, penalties, slot, log, removed):
    """Remove a copy of the state in a slot and log it. Storage bookkeeping."""
    label = first_removed(state, penalties, slot)
    for k in range(3):
        log.dropped[removed, k] = state.ids[label, k]
    state.ids[label, 2] = NONE
    if label == state.oldest[slot]:
        state.oldest[slot] = state.following[label]
    else:
        before = state.oldest[slot]
        while state.following[before] != label:
            before = state.following[before]
        state.following[before] = state.following[label]
        if state.newest[slot] == label:
            state.newest[slot] = before
    state.following[label] = state.scalars.free
    state.scalars.free = label
    state.scalars.draws -= 1
    compare_copies(state, penalties, slot)


@inlined
def free_slot(state, penalties, slot):
    """Copy the last slot into this one and make the last one spare. Storage bookkeeping."""
    scalars = state.scalars
    last = scalars.slots - 1
    if slot != last:
        to_tile, to_lane, tile, lane = slot // LANES, slot % LANES, last // LANES, last % LANES
        for k in range(state.draw.shape[1]):
            state.tiles[to_tile, k, 0, to_lane] = state.tiles[tile, k, 0, lane]
            state.tiles[to_tile, k, 1, to_lane] = state.tiles[tile, k, 1, lane]
        for k in range(state.raw.shape[1]):
            state.raw[slot, k] = state.raw[last, k]
        state.copies[slot], state.row[slot] = state.copies[last], state.row[last]
        state.influence[slot], state.influence_low[slot] = state.influence[last], state.influence_low[last]
        state.oldest[slot], state.newest[slot] = state.oldest[last], state.newest[last]
        move_penalties(penalties, slot, last)
    state.copies[last] = 0.0
    state.influence[last] = -np.inf
    if scalars.latest == last and slot != last:
        scalars.latest = slot
    elif scalars.latest == slot or scalars.latest > last:
        scalars.latest = NONE
    scalars.slots = last


@translated
def restore_derived(state, kernel) -> None:
    """Compute the values that a checkpoint does not contain: the largest influence and the row of the latest state.

    Reference: `reference.Reference.keys`.
    """
    state.scalars.largest = largest_value(state, None)
    if state.scalars.latest != NONE:
        read_slot(state, state.scalars.latest)
        row_of_state(state, kernel, None, STORE, state.removed, slots=state.scalars.slots, workers=1)
