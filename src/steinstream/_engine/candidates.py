"""Choice of the candidate to insert and of the draw to remove."""

from __future__ import annotations

import numba
import numpy as np
from numba import types

from steinstream._engine import double_double
from steinstream._engine.argmax import precedes, slot_to_remove
from steinstream._engine.jit import inlined, jit
from steinstream._engine.kernel_row import (
    CACHE,
    STORE,
    SUM,
    combine_lanes,
    compute_row,
    new_lanes,
    store_arrays,
    sum_arrays,
)
from steinstream._engine.late_calls import called_late
from steinstream._engine.objective import objective_without
from steinstream._engine.penalties import candidate_key, key_of, observe_others
from steinstream._engine.simd import LANES
from steinstream._engine.state import NONE
from steinstream._engine.step_rule import may_remove
from steinstream._engine.updates import diagonal_of, load_draw, row_arrays

# -- candidates ----------------------------------------------------------------------------------------------------


@called_late(types.int64)
def best_candidate(state, kernel, penalties, batch, first, workers):
    """Return the candidate with the smallest influence, with penalties the smallest key; the first of several.

    In the first pass the others are added to the stream.

    Reference: `reference.Reference.best_candidate`.
    """
    if workers > 1:
        tiles = (state.scalars.slots + LANES - 1) // LANES
        shared_influences(kernel, row_arrays(state, state.draw), batch, first, tiles)
    else:
        candidate_influences(state, kernel, batch, first)
    repeat_influences(batch, first)
    best, smallest = first, np.inf
    for i in range(batch.candidates):
        value = batch.influence[i, 0]
        if penalties is not None:
            value = candidate_key(state, kernel, penalties, batch, first + i, value)
        if i == 0 or value < smallest:
            best, smallest = first + i, value
    observe_others(state, kernel, penalties, batch, first, best)
    return best


@inlined
def candidate_influences(state, kernel, batch, first):
    """Write the influence of each candidate, an exact pair. Candidates that repeat the one before are left out.

    The kept draws are read once for all candidates, in parts that fit the cache.

    Reference: `reference.Reference.candidate_key`.
    """
    tiles = (state.scalars.slots + LANES - 1) // LANES
    step = max(1, CACHE // (batch.draws.shape[1] * 2 * LANES * 8))
    influence = batch.influence
    for i in range(batch.candidates):
        load_draw(state, batch, first + i)
        influence[i, 0], influence[i, 1] = 0.5 * diagonal_of(state, kernel, state.draw), 0.0
    for begin in range(0, tiles, step):
        for i in range(batch.candidates):
            if i == 0 or not repeats(batch, first + i):
                load_draw(state, batch, first + i)
                arrays = row_arrays(state, state.draw)
                compute_row(kernel, SUM, arrays, None, begin, min(begin + step, tiles))
                more, rest, _ = combine_lanes(arrays.lanes)
                influence[i, 0], influence[i, 1] = double_double.add_pair(influence[i, 0], influence[i, 1], more, rest)


@called_late(parallel=True, _nrt=True)
def shared_influences(kernel, arrays, batch, first, tiles):
    """Write the influence of each candidate as :func:`candidate_influences` does, spread over the threads.

    Reference: `reference.Reference.candidate_key`.
    """
    stored, copies, influence = arrays.tiles, arrays.copies, batch.influence
    for i in numba.prange(influence.shape[0]):
        if i == 0 or not repeats(batch, first + i):
            influence[i, 0], influence[i, 1] = influence_of(kernel, stored, copies, batch, first + i, tiles)


@jit
def influence_of(kernel, stored, copies, batch, new, tiles):
    """Return the influence of a candidate, an exact pair. The state is not changed: threads may share it.

    Reference: `reference.Reference.candidate_key`.
    """
    dim = batch.draws.shape[1]
    lanes, row, draw, tile = new_lanes(), np.zeros(LANES), np.zeros((2, dim)), np.zeros((1, dim, 2, LANES))
    for k in range(dim):
        draw[0, k] = tile[0, k, 0, 0] = batch.draws[new, k]
        draw[1, k] = tile[0, k, 1, 0] = batch.scores[new, k]
    compute_row(kernel, STORE, store_arrays(draw, tile, row, lanes), None, 0, 1)
    high, low = 0.5 * row[0], 0.0
    if tiles > 0:
        compute_row(kernel, SUM, sum_arrays(draw, stored, copies, lanes), None, 0, tiles)
        more, rest, _ = combine_lanes(lanes)
        high, low = double_double.add_pair(high, low, more, rest)
    return high, low


@inlined
def repeat_influences(batch, first):
    """Copy the influence of a candidate to those that repeat it. Storage bookkeeping."""
    for i in range(1, batch.candidates):
        if repeats(batch, first + i):
            batch.influence[i, 0], batch.influence[i, 1] = batch.influence[i - 1, 0], batch.influence[i - 1, 1]


@inlined
def repeats(batch, i):
    """Whether a draw equals the one before it exactly. Storage bookkeeping."""
    draws, scores = batch.draws, batch.scores
    for k in range(draws.shape[1]):
        if draws[i, k] != draws[i - 1, k]:
            return False
    for k in range(draws.shape[1]):  # noqa: SIM110 (numba has no all())
        if scores[i, k] != scores[i - 1, k]:
            return False
    return True


# -- removal -------------------------------------------------------------------------------------------------------


@inlined
def next_removal(state, penalties, limit):
    """Return the slot of the next draw to remove, or NONE; ``limit`` is the largest objective it may leave.

    Reference: `reference.Reference.next_removed`.
    """
    slot = slot_to_remove(state, penalties)
    if slot == NONE or limit == np.inf or may_remove(objective_without(state, penalties, slot), limit):
        return slot
    if penalties is not None and penalties.scalars.cost_weight > 0.0:
        return costliest_removable(state, penalties, limit)
    return NONE


@called_late(types.int64)
def costliest_removable(state, penalties, limit):
    """Return the slot with the largest penalised key among those that may lose a draw, or NONE.

    Without costs there is none: the slot with the largest key leaves the smallest objective.

    Reference: `reference.Reference.next_removed`.
    """
    best, smallest = NONE, smallest_removable_key(state, penalties, limit)
    for slot in range(state.scalars.slots):
        key = key_of(penalties.scalars, state.influence[slot], penalties.kept_sum[slot], penalties.stream_sum[slot])
        if key >= smallest and penalties.next_removed[slot] != NONE:
            value = penalties.keys[slot]
            other = -np.inf if best == NONE else penalties.keys[best]
            better = best == NONE or value > other or (value == other and precedes(state, penalties, slot, best))
            if better and may_remove(objective_without(state, penalties, slot), limit):
                best = slot
    return best


@inlined
def smallest_removable_key(state, penalties, limit):
    """Return a key below which no draw may be removed.

    With m = n - 1, m^2 times the objective without draw j is S + w (P - 2 m B / t + m^2 C / t^2) - 2 key_j. The margin
    covers rounding.

    Reference: `reference.Reference.objective_without`.
    """
    scalars, others = penalties.scalars, float(state.scalars.draws - 1)
    most, share = scalars.stein * state.scalars.total, others / scalars.count
    margin = 1e-12 * (abs(most) + scalars.weight * scalars.kept_total)
    mixed = scalars.kept_total - 2.0 * share * scalars.stream_total + share * share * scalars.pair_sum
    return 0.5 * (most + scalars.weight * mixed - limit * others * others) - margin
