"""State of the engine: the kept draws as arrays.

Let ``k0`` be the Stein kernel and S its sum over all pairs of kept draws, so that KSD^2 = S / n^2. The *influence* of a
draw x is

    u(x) = k0(x, x) / 2 + sum of k0(x, y) over all other kept draws y.

Inserting x raises S by 2 u(x), removing it lowers S by 2 u(x). The best candidate therefore has the smallest u, and the
draw whose removal leaves the smallest KSD the largest u. The state holds all u and S, both as exact pairs.

A *slot* holds a distinct state of the chain. Repeated draws share a slot; each copy has a *label* with its own id.
Slots have no order: a freed slot is filled with the last one. Sums are exact and ties go to the smallest id, so results
do not depend on the order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from steinstream._engine.by_reference import by_reference
from steinstream._engine.simd import LANES
from steinstream._typing import AnyArray, Array, Integers

NONE: Any = np.int64(-1)  # a plain integer would compile each function that passes it on once more

#: Numbers of a state; ``new`` refers to the draw that was evaluated last.
STATE_SCALARS = np.dtype(
    [
        ("slots", np.int64),  # occupied slots
        ("draws", np.int64),  # kept draws
        ("free", np.int64),  # first free label
        ("latest", np.int64),  # slot of the latest state; equal to slots if it was rejected
        ("total", np.float64),  # S, a pair
        ("total_low", np.float64),
        ("largest", np.float64),  # largest influence or penalised key; NaN if unknown
        ("new_influence", np.float64),  # influence of the new draw if it were inserted, a pair
        ("new_influence_low", np.float64),
        ("largest_other", np.float64),  # largest influence or penalised key of the other draws in that case
        ("largest_diagonal", np.float64),  # largest k0(x, x) that contributed to S since S was last recomputed
    ]
)


@by_reference
class KeptState(NamedTuple):
    """Kept draws by slots and labels. Entries beyond the counts in ``scalars`` are spare."""

    tiles: Array  # (slots / 16, d, 2, 16): draws and scores
    copies: Array  # (slots,): number of kept draws in this state; 0 in spare slots
    influence: Array  # (slots,): an exact pair; -inf or NaN in spare slots
    influence_low: Array
    row: Array  # (slots,): kernel values with the latest state
    lane_sums: Array  # (16,): results of the last row, as in kernel_row.LaneResults
    lane_errors: Array
    lane_largest: Array
    lane_base_sums: Array
    raw: Array  # (slots, w): columns to be returned with each state; w may be 0
    oldest: Integers  # (slots,): first label of the state
    newest: Integers  # (slots,): last label of the state
    ids: Integers  # (labels, 3): chain, draw and step of arrival; the step of a free label is -1
    following: Integers  # (labels,): next label of the same state, or of the free list
    draw: Array  # (2, d): the draw being evaluated and its score
    removed: Array  # (2, d): the state being removed
    single_tile: Array  # (1, d, 2, 16): scratch for k0(x, x), and its row (16,)
    single_row: Array
    scalars: Any  # a record of STATE_SCALARS


def aligned(*shape: int, kind: Any = np.float64) -> AnyArray:
    """Return zeros that start on a cache line, so that no vector crosses two."""
    size, line = int(np.prod(shape)), 64 // np.dtype(kind).itemsize
    buffer = np.zeros(size + line, dtype=kind)
    start = (-buffer.ctypes.data // buffer.itemsize) % line
    return buffer[start : start + size].reshape(shape)


def new_record(kind: np.dtype[Any]) -> Any:
    """Return a record of zeros. ``record.name`` is a field, in Python and in compiled code."""
    return np.zeros(1, dtype=kind).view(np.recarray)[0]


def record_values(record: Any) -> Array:
    """Return the numbers of a record as floats, in the order of its fields."""
    return np.array(record.tolist(), dtype=np.float64)


def set_record(record: Any, values: Iterable[float]) -> None:
    """Set the fields of a record, in their order."""
    for name, value in zip(record.dtype.names, values, strict=True):
        record[name] = value


def empty_state(dim: int, raw: int, slots: int = LANES, labels: int = LANES) -> KeptState:
    """Return a state without draws, with space for this number of distinct states and of draws."""
    tiles = -(-slots // LANES)
    slots = tiles * LANES
    following = np.arange(1, labels + 1, dtype=np.int64)
    following[-1] = NONE
    influence = aligned(slots)
    influence[:] = -np.inf  # a spare slot never has the largest one
    scalars = new_record(STATE_SCALARS)
    scalars["latest"], scalars["largest"] = NONE, -np.inf
    return KeptState(
        tiles=aligned(tiles, dim, 2, LANES),
        copies=aligned(slots),
        influence=influence,
        influence_low=aligned(slots),
        row=aligned(slots),
        lane_sums=aligned(LANES),
        lane_errors=aligned(LANES),
        lane_largest=aligned(LANES),
        lane_base_sums=aligned(LANES),
        raw=np.zeros((slots, raw)),
        oldest=np.full(slots, NONE, dtype=np.int64),
        newest=np.full(slots, NONE, dtype=np.int64),
        ids=np.full((labels, 3), NONE, dtype=np.int64),
        following=following,
        draw=np.zeros((2, dim)),
        removed=np.zeros((2, dim)),
        single_tile=aligned(1, dim, 2, LANES),
        single_row=aligned(LANES),
        scalars=scalars,
    )


def copy_state(state: KeptState, slots: int, labels: int) -> KeptState:
    """Copy a state into one with space for at least as many slots and labels."""
    new = empty_state(state.draw.shape[1], state.raw.shape[1], slots, labels)
    for name in ("tiles", "copies", "influence", "influence_low", "row", "raw", "oldest", "newest", "ids"):
        old = getattr(state, name)
        getattr(new, name)[: len(old)] = old
    count = len(state.following)
    new.following[:count] = state.following
    new.draw[:] = state.draw
    set_record(new.scalars, state.scalars)
    if state.scalars["free"] == NONE and labels > count:  # the free list was empty: it starts with the new labels
        new.scalars["free"] = count
    return new


def enlarged(state: KeptState) -> KeptState:
    """Copy a full state into one with at least one free slot and one free label: half as many more of what is full."""
    slots, labels = len(state.copies), len(state.following)
    more_slots = slots if state.scalars["slots"] < slots else slots + slots // 2 + LANES
    more_labels = labels if state.scalars["free"] != NONE else labels + labels // 2 + LANES
    return copy_state(state, more_slots, more_labels)
