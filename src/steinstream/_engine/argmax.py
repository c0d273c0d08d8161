"""Search for the kept draw to remove: the largest influence, with penalties the largest penalised key.

Of several slots with the largest value, the search takes the one with the smallest id.
"""

from __future__ import annotations

import numpy as np
from numba import types

from steinstream._engine import double_double
from steinstream._engine.jit import inlined
from steinstream._engine.late_calls import called_late
from steinstream._engine.penalties import key_of, set_share
from steinstream._engine.simd import LANES, fma
from steinstream._engine.state import NONE


@inlined
def new_value(state, penalties):
    """Return the value that the search compares for the evaluated draw. Reference: `reference.Reference.keys`."""
    if penalties is None:
        return state.scalars.new_influence
    return penalties.scalars.new_penalised_key


@inlined
def start_search(largest):
    """Initialise the largest value of each lane. Storage bookkeeping."""
    for lane in range(LANES):
        largest[lane] = -np.inf


@inlined
def end_search(largest):
    """Return the largest value of all lanes. Storage bookkeeping."""
    value = -np.inf
    for lane in range(LANES):
        value = max(value, largest[lane])
    return value


@called_late(types.float64)
def largest_value(state, penalties):
    """Return the largest influence, with penalties the largest penalised key. Reference: `reference.Reference.keys`."""
    if penalties is not None:
        set_share(state, penalties, state.scalars.draws - 1)
        return largest_penalised_key(state, penalties, None)
    largest, influences = state.lane_largest, state.influence
    start_search(largest)
    for first in range(0, state.scalars.slots, LANES):
        tile = influences[first : first + LANES]
        for lane in range(LANES):
            largest[lane] = tile[lane] if tile[lane] > largest[lane] else largest[lane]
    return end_search(largest)


@inlined
def largest_value_with_row(state, penalties):
    """Return the largest value if the kernel values with the latest state were added once more.

    Reference: `reference.Reference.keys`.
    """
    if penalties is not None:
        return largest_penalised_key(state, penalties, state.row)
    largest = state.lane_largest
    start_search(largest)
    for first in range(0, state.scalars.slots, LANES):
        high, low = state.influence[first : first + LANES], state.influence_low[first : first + LANES]
        row = state.row[first : first + LANES]
        for lane in range(LANES):
            influence, _ = double_double.add(high[lane], low[lane], row[lane])
            largest[lane] = influence if influence > largest[lane] else largest[lane]
    return end_search(largest)


@inlined
def largest_penalised_key(state, penalties, row):
    """Compute all penalised keys and return the largest one; ``row`` is None or values to add to the influences.

    With a row, phi with the latest state is added to the kept sums too.

    Reference: `reference.Reference.keys`.
    """
    largest, scalars = state.lane_largest, penalties.scalars
    start_search(largest)
    for first in range(0, state.scalars.slots, LANES):
        high, low = state.influence[first : first + LANES], state.influence_low[first : first + LANES]
        keys, cost = penalties.keys[first : first + LANES], penalties.removal_cost[first : first + LANES]
        kept, stream = penalties.kept_sum[first : first + LANES], penalties.stream_sum[first : first + LANES]
        for lane in range(LANES):
            influence, kept_sum = high[lane], kept[lane]
            if row is not None:
                influence, _ = double_double.add(high[lane], low[lane], row[first + lane])
                kept_sum += penalties.base_row[first + lane]
            value = fma(scalars.cost_scale, cost[lane], key_of(scalars, influence, kept_sum, stream[lane]))
            keys[lane] = value
            largest[lane] = value if value > largest[lane] else largest[lane]
    return end_search(largest)


@inlined
def slot_to_remove(state, penalties):
    """Return the slot with the largest value, or NONE if every draw is pinned.

    Reference: `reference.Reference.next_removed`.
    """
    if np.isnan(state.scalars.largest):
        state.scalars.largest = largest_value(state, penalties)
    best, largest, slots, values = NONE, state.scalars.largest, state.scalars.slots, state.influence
    if penalties is not None:
        values = penalties.keys
    if largest == -np.inf:
        return best
    for first in range(0, slots, LANES):
        hits = 0
        tile = values[first : first + LANES]
        for lane in range(LANES):
            hits += tile[lane] == largest
        if hits > 0:
            for slot in range(first, min(first + LANES, slots)):
                if values[slot] == largest and (best == NONE or precedes(state, penalties, slot, best)):
                    best = slot
    return best


@inlined
def precedes(state, penalties, slot, other):
    """Whether the id of the copy removed first from a slot is smaller than that of another slot.

    Reference: `reference.Reference.next_removed`.
    """
    ids, one, two = state.ids, first_removed(state, penalties, slot), first_removed(state, penalties, other)
    return ids[one, 0] < ids[two, 0] or (ids[one, 0] == ids[two, 0] and ids[one, 1] < ids[two, 1])


@inlined
def first_removed(state, penalties, slot):
    """Return the label of the copy that is removed first: the oldest one, with penalties the most expensive one.

    Reference: `reference.Reference.next_removed`.
    """
    if penalties is None:
        return state.oldest[slot]
    return penalties.next_removed[slot]
