"""What is kept, as plain arrays.

Influence. With ``k0`` the Stein kernel and ``S`` its sum over all pairs of kept draws (KSD^2 = S / n^2), let

    u(x) = k0(x, x) / 2 + sum of k0(x, y) over all other kept draws y.

Adding x raises S by 2 u(x), removing it lowers S by 2 u(x): the best candidate has the smallest u, the least
influential draw (the one whose loss helps most) the greatest. So u and S are all there is to carry, both exactly.

A state that repeats its predecessor shares one slot with it; each copy has a label with its own id. Slots have no
order: a freed slot is filled with the last one. Sums are exact and ties go to the smallest id, so this never shows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from steinstream._engine.simd import LANES

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Places in Store.counts.
SLOTS, DRAWS, FREE, LATEST = 0, 1, 2, 3
NONE = -1

# Places in Store.sums.
TOTAL, TOTAL_LOW, GREATEST, OWN, OWN_LOW, OTHERS, WORST = 0, 1, 2, 3, 4, 5, 6


class Store(NamedTuple):
    """Slots hold distinct states, labels the ids of their copies. Everything past the counts is spare room."""

    tiles: Floats  # (slots / 16, d, 2, 16): coordinates and scores
    copies: Floats  # (slots,): how many kept draws are in this state; 0 in spare slots
    high: Floats  # (slots,): influence, an exact pair; -inf or not a number in spare slots
    low: Floats
    row: Floats  # (slots,): kernel values with the latest state
    found: Floats  # (3, 16): the last sweep's findings
    raw: Floats  # (slots, w): what the caller wants back with each state; w may be 0
    oldest: Integers  # (slots,): first label of the state
    newest: Integers  # (slots,): last label of the state
    ids: Integers  # (labels, 3): chain, draw, and the step of arrival; a free label has step -1
    following: Integers  # (labels,): next label of the same state, or of the free list
    draw: Floats  # (2, d): the draw being weighed, and its score
    alone: Floats  # (1, d, 2, 16): a tile for a draw by itself, and its row (16,)
    self_row: Floats
    removed: Floats  # (2, d): the state being removed
    counts: Integers  # slots, draws, first free label, slot of the latest state (the first spare one if not kept)
    sums: Floats  # S, a pair; the greatest influence; if the latest draw were added: its own, a pair, and the others';
    # the greatest kernel value of a draw with itself that had a part in S since that was last computed from scratch


def aligned(*shape: int, kind: Any = np.float64) -> NDArray[Any]:
    """Zeros that start on a cache line, so that no vector straddles two."""
    size, line = int(np.prod(shape)), 64 // np.dtype(kind).itemsize
    buffer = np.zeros(size + line, dtype=kind)
    start = (-buffer.ctypes.data // buffer.itemsize) % line
    return buffer[start : start + size].reshape(shape)


def empty_store(dim: int, raw: int, slots: int = LANES, labels: int = LANES) -> Store:
    """Room for so many distinct states and draws."""
    tiles = -(-slots // LANES)
    slots = tiles * LANES
    following = np.arange(1, labels + 1, dtype=np.int64)
    following[-1] = NONE
    high = aligned(slots)
    high[:] = -np.inf  # no spare slot is ever the greatest
    return Store(
        tiles=aligned(tiles, dim, 2, LANES),
        copies=aligned(slots),
        high=high,
        low=aligned(slots),
        row=aligned(slots),
        found=aligned(3, LANES),
        raw=np.zeros((slots, raw)),
        oldest=np.full(slots, NONE, dtype=np.int64),
        newest=np.full(slots, NONE, dtype=np.int64),
        ids=np.full((labels, 3), NONE, dtype=np.int64),
        following=following,
        draw=np.zeros((2, dim)),
        alone=aligned(1, dim, 2, LANES),
        self_row=aligned(LANES),
        removed=np.zeros((2, dim)),
        counts=np.array([0, 0, 0, NONE], dtype=np.int64),
        sums=np.array([0.0, 0.0, -np.inf, 0.0, 0.0, 0.0, 0.0]),
    )


def roomier(store: Store) -> Store:
    """The same contents with half as much room again, at least one slot and one label of it free."""
    slots, labels = len(store.copies), len(store.following)
    dim, raw = store.draw.shape[1], store.raw.shape[1]
    more_slots = slots if store.counts[SLOTS] < slots else slots + slots // 2 + LANES
    more_labels = labels if store.counts[FREE] != NONE else labels + labels // 2 + LANES
    new = empty_store(dim, raw, more_slots, more_labels)
    for name in ("tiles", "copies", "high", "low", "row", "raw", "oldest", "newest", "ids"):
        old = getattr(store, name)
        getattr(new, name)[: len(old)] = old
    new.counts[:], new.sums[:] = store.counts, store.sums
    new.following[:labels] = store.following
    if more_labels > labels:  # the free list was empty: it now begins with the new labels
        new.counts[FREE] = labels
    return new
