r"""Summary of a stream of draws by kernel halving, and sums of the base kernel over it.

The stream term of the objective compares the kept draws with the stream by the squared MMD of the base kernel
:math:`\phi`. For a new draw x it needs the sum of :math:`\phi(x, y)` over all draws y of the stream so far. The
stream is represented by few weighted draws, in *levels*: a draw of level l has weight 2^l. New draws enter level 0. A
level that is full is *halved*: of every two consecutive draws one is selected, moves to the next level, and the other
is forgotten.

Of a pair (x, y) the halving selects x if

.. math:: \langle \psi, \phi(x, \cdot) - \phi(y, \cdot) \rangle \le 0 , \qquad
          \psi = \sum_{\text{pairs before}} \phi(\text{selected}, \cdot) - \phi(\text{forgotten}, \cdot) ,

so that the selected draws keep the mean embedding of all (kernel halving of Dwivedi and Mackey, "Generalized kernel
thinning", 2022, with a deterministic choice). The error of 2 r draws halved to r falls like 1 / r; that of r evenly
spaced draws like 1 / sqrt(r). Levels below the highest represent a smaller part of the stream and are smaller, as in
the quantile sketch of Karnin, Lang and Liberty (2016): their capacity falls by a constant factor.

A halving depends on the draws of its level alone, not on blocks or threads. The sum over the summary is exact, so it
does not depend on where a draw is stored.

**Error.** The halving of draws of weight w changes the sum over the stream by w times the last :math:`\psi`, whose norm
is known. The error of the summary is the sum of these changes. For independent draws, the sign of :math:`\psi` is that
of the first pair, whose order is arbitrary, and the halvings of a level are independent. Different changes are then
nearly uncorrelated, and the sum of their squares, divided by the squared number of draws, estimates the squared MMD
between the summary and the stream. It takes one value of the kernel per pair. After a change of coordinates, the
former squares remain; their share falls like the inverse square of the number of draws. Measured in
benchmarks/quality/stream_error.py.

Memory: about 3 r draws. Time per draw: about 2.4 r values of the base kernel for the sum, and at most 2 r for halving.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from steinstream._engine.base_row import base_row_sums, row_total
from steinstream._engine.by_reference import by_reference
from steinstream._engine.jit import inlined
from steinstream._engine.kernel_pair import profile_at
from steinstream._engine.late_calls import called_late
from steinstream._engine.simd import LANES
from steinstream._engine.state import aligned, new_record, set_record
from steinstream._engine.translation import translated
from steinstream._typing import AnyArray, Array, Flags, Integers

RADIUS = 512  # r: half the capacity of the highest level
LEVELS = 48
_DECAY = 0.574  # ratio of the capacities of neighbouring levels
_SMALLEST = 32  # capacity


#: Numbers of a summary.
SUMMARY_SCALARS = np.dtype(
    [
        ("free", np.int64),  # number of free slots
        ("highest", np.int64),  # level
        ("used", np.int64),  # number of slots that were ever used
        ("seen", np.int64),  # draws of the stream
        ("squared_error", np.float64),  # sum of the squared errors of all halvings
    ]
)


@by_reference
class StreamSummary(NamedTuple):
    """Weighted draws by slots. A free slot has weight 0."""

    tiles: Array  # (slots / 16, d, 16): draws in the coordinates of the kernel
    weights: Array  # (slots,)
    raw: Array  # (slots, w): draws as given
    members: Integers  # (LEVELS, draws): slots of each level, in order of arrival
    counts: Integers  # (LEVELS,): number of draws of each level
    free: Integers  # (slots,): stack of free slots
    scratch: Array  # (tiles, d, 16): draws of the level that is halved
    signs: Array  # (draws,): 1 if selected, -1 if forgotten, 0 if not yet decided
    lanes: Array  # (2, 16): exact sum of a row, one pair per lane
    point: Array  # (d,): scratch
    ids: Integers  # (slots, 2): chain and index of each draw
    scalars: Any  # a record of SUMMARY_SCALARS


def capacity(level: int, highest: int) -> int:
    """Return the number of draws at which a level is halved.

    >>> [capacity(level, 4) for level in range(5)]
    [108, 192, 336, 584, 1024]
    """
    share = 2 * RADIUS * _DECAY ** (highest - level)
    return max(_SMALLEST, int(share) // 4 * 4)


_CAPACITIES = np.array([capacity(0, higher) for higher in range(LEVELS)])  # by the number of higher levels
_SLOTS = sum(capacity(level, LEVELS - 1) for level in range(LEVELS)) + 2 * RADIUS
_LARGEST_LEVEL = 4 * RADIUS  # draws


def empty_summary(dim: int, raw: int, draws: int | None = None) -> StreamSummary:
    """Return the summary of a stream without draws.

    ``dim`` is the number of coordinates of the kernel, ``raw`` the number of entries of a draw as given. There is space
    for a number of ``draws``, by default for any number of them. :func:`with_space` adds more.
    """
    slots = _slots_for(_SLOTS if draws is None else draws)
    summary = StreamSummary(
        tiles=aligned(slots // LANES, dim, LANES),
        weights=aligned(slots),
        raw=np.zeros((slots, raw)),
        members=np.zeros((LEVELS, _LARGEST_LEVEL), dtype=np.int64),
        counts=np.zeros(LEVELS, dtype=np.int64),
        free=np.arange(slots - 1, -1, -1),
        scratch=aligned(min(slots, _LARGEST_LEVEL) // LANES, dim, LANES),
        signs=aligned(_LARGEST_LEVEL),
        lanes=aligned(2, LANES),
        point=np.zeros(dim),
        ids=np.zeros((slots, 2), dtype=np.int64),
        scalars=new_record(SUMMARY_SCALARS),
    )
    summary.scalars["free"] = slots
    return summary


def _slots_for(draws: int) -> int:
    """Return the number of slots, whole tiles, in which a stream with this number of draws has space."""
    return -(-min(draws, _SLOTS) // LANES) * LANES


def with_space(summary: StreamSummary, draws: int) -> StreamSummary:
    """Return a summary with the same contents, in the same slots, that has space for further draws.

    Memory grows with the number of draws up to that of a full summary, which is large if draws have many coordinates.
    The new slots are used after all that were free before, so that the slot of each draw does not depend on the growth.
    """
    before, free = len(summary.free), summary.scalars.free
    slots = _slots_for(int(summary.scalars.used) + draws)
    if slots <= before:
        return summary
    slots = max(slots, _slots_for(2 * before))
    stack = np.concatenate([np.arange(slots - 1, before - 1, -1), summary.free[:free]])
    scalars = new_record(SUMMARY_SCALARS)
    set_record(scalars, summary.scalars)
    scalars["free"] = len(stack)
    return summary._replace(
        tiles=_extended(summary.tiles, slots // LANES),
        weights=_extended(summary.weights, slots),
        raw=_extended(summary.raw, slots),
        free=np.concatenate([stack, np.zeros(slots - len(stack), dtype=np.int64)]),
        scratch=aligned(min(slots, _LARGEST_LEVEL) // LANES, *summary.scratch.shape[1:]),
        ids=_extended(summary.ids, slots),
        scalars=scalars,
    )


def _extended(array: AnyArray, length: int) -> AnyArray:
    """Return a copy with zeros at its end."""
    longer = aligned(length, *array.shape[1:], kind=array.dtype)
    longer[: len(array)] = array
    return longer


@inlined
def sum_over_stream(kernel, summary, point):
    """Return the sum of phi(point, y) over the stream, by its summary.

    Reference: `reference.ReferenceSummary.sum`.
    """
    return row_total(kernel, point, summary.tiles, summary.weights, summary.lanes, summary.scalars.used)


@inlined
def add_to_summary(kernel, summary, draws, raw, ids, i):
    """Add draw i, given in the coordinates of the kernel and as it was before, and halve the levels that are full.

    Reference: `reference.ReferenceSummary.add`.
    """
    scalars = summary.scalars
    scalars.free -= 1
    slot = summary.free[scalars.free]
    scalars.used = max(scalars.used, slot + 1)
    tile, lane = slot // LANES, slot % LANES
    for k in range(draws.shape[1]):
        summary.tiles[tile, k, lane] = draws[i, k]
    for k in range(raw.shape[1]):
        summary.raw[slot, k] = raw[i, k]
    summary.weights[slot], summary.ids[slot, 0], summary.ids[slot, 1] = 1.0, ids[i, 0], ids[i, 1]
    scalars.seen += 1
    summary.members[0, summary.counts[0]] = slot
    summary.counts[0] += 1
    level = 0
    while summary.counts[level] >= _CAPACITIES[scalars.highest - level]:
        if level == scalars.highest:
            scalars.highest += 1
        halve_level(kernel, summary, level)
        level += 1


@translated
def append_to_summary(kernel, summary, draws, raw, ids) -> None:
    """Add draws as :func:`add_to_summary` does; callable from Python. Reference: `reference.ReferenceSummary.add`."""
    for i in range(draws.shape[0]):
        add_to_summary(kernel, summary, draws, raw, ids, i)


@called_late()
def halve_level(kernel, summary, level):
    """Select one of every two consecutive draws of a level for the next one and forget the other.

    The square of the error is |psi|^2 times the square of the weight: each pair adds the squared distance of its draws
    minus twice the absolute value of the product.

    Reference: `reference.ReferenceSummary.halve`.
    """
    members, scratch, signs, point = summary.members, summary.scratch, summary.signs, summary.point
    count, square = summary.counts[level] // 2 * 2, 0.0
    own, _, _ = profile_at(kernel, 0.0)
    for i in range(count):
        slot = members[level, i]
        for k in range(point.shape[0]):
            scratch[i // LANES, k, i % LANES] = summary.tiles[slot // LANES, k, slot % LANES]
        signs[i] = 0.0
    for i in range(count, (count + LANES - 1) // LANES * LANES):
        signs[i] = 0.0
    for first in range(0, count, 2):
        product = 0.0
        for i in range(first, first + 2):
            for k in range(point.shape[0]):
                point[k] = scratch[i // LANES, k, i % LANES]
            value = row_total(kernel, point, scratch, signs, summary.lanes, first)
            product += value if i == first else -value
        signs[first] = 1.0 if product <= 0.0 else -1.0
        signs[first + 1] = -signs[first]
        distance = 0.0
        for k in range(point.shape[0]):
            difference = scratch[first // LANES, k, first % LANES] - point[k]
            distance += difference * difference
        phi, _, _ = profile_at(kernel, distance)
        square += 2.0 * (own - phi) - 2.0 * abs(product)
    weight = 1.0
    for _ in range(level):
        weight *= 4.0
    summary.scalars.squared_error += weight * max(square, 0.0)
    for i in range(count):
        slot = members[level, i]
        if signs[i] > 0.0:
            summary.weights[slot] *= 2.0
            members[level + 1, summary.counts[level + 1]] = slot
            summary.counts[level + 1] += 1
        else:
            summary.weights[slot] = 0.0
            summary.free[summary.scalars.free] = slot
            summary.scalars.free += 1
    if summary.counts[level] > count:
        members[level, 0] = members[level, count]
    summary.counts[level] -= count


def stream_sums(kernel: Any, summary: StreamSummary, points: Array) -> Array:
    """Return the sum of phi over the stream, by its summary, for each of some points (n, d).

    Reference: `reference.ReferenceSummary.sum`.
    """
    tiles = -(-int(summary.scalars.used) // LANES)
    return base_row_sums(kernel, summary.tiles[:tiles], summary.weights[: tiles * LANES], points)


def sum_over_pairs(kernel: Any, summary: StreamSummary) -> float:
    """Return the sum of phi over all pairs of draws of the stream, by its summary.

    Reference: `reference.ReferenceSummary.sum_over_pairs`.
    """
    slots = slots_by_level(summary)
    sums = stream_sums(kernel, summary, summary.tiles[slots // LANES, :, slots % LANES])
    return float(np.cumsum(summary.weights[slots] * sums)[-1]) if len(slots) else 0.0  # added one after another


def error_of_summary(content: SummaryDraws) -> float:
    """Return the estimated MMD between a summary and the stream. Reference: `reference.ReferenceSummary.error`."""
    return math.sqrt(content.squared_error) / float(content.weights.sum())


def slots_by_level(summary: StreamSummary) -> Integers:
    """Return the slots of all draws, level by level and in order of arrival."""
    return np.concatenate([summary.members[level, :count] for level, count in enumerate(summary.counts)])


class SummaryDraws(NamedTuple):
    """The draws of a summary, level by level and in order of arrival."""

    draws: Array  # (n, w): as given
    levels: Integers  # (n,)
    ids: Integers  # (n, 2)
    seen: int  # draws of the stream
    highest: int  # level
    squared_error: float = 0.0

    @property
    def weights(self) -> Array:
        """Number of draws of the stream that each draw represents, (n,)."""
        return np.asarray(2.0**self.levels)

    def take(self, rows: Flags) -> SummaryDraws:
        """Return some of the draws."""
        return self._replace(draws=self.draws[rows], levels=self.levels[rows], ids=self.ids[rows])


def summary_draws(summary: StreamSummary) -> SummaryDraws:
    """Return the draws of a summary."""
    slots, levels = slots_by_level(summary), np.repeat(np.arange(LEVELS), summary.counts)
    return SummaryDraws(
        draws=summary.raw[slots],
        levels=levels,
        ids=summary.ids[slots],
        seen=int(summary.scalars.seen),
        highest=int(summary.scalars.highest),
        squared_error=float(summary.scalars.squared_error),
    )


def filled_summary(content: SummaryDraws, scaled: Array) -> StreamSummary:
    """Return a summary with these draws; ``scaled`` (n, d) are the draws in the coordinates of the kernel."""
    draws, level = content.draws, content.levels
    summary, counts = empty_summary(scaled.shape[1], draws.shape[1], len(draws)), np.bincount(level, minlength=LEVELS)
    summary.counts[:] = counts
    free = len(summary.free) - len(draws)
    set_record(summary.scalars, (free, content.highest, len(draws), content.seen, content.squared_error))
    slot = np.arange(len(draws))
    summary.ids[slot] = content.ids
    summary.tiles[slot // LANES, :, slot % LANES] = scaled
    summary.raw[slot] = draws
    summary.weights[slot] = content.weights
    summary.members[level, slot - (np.cumsum(counts) - counts)[level]] = slot
    return summary
