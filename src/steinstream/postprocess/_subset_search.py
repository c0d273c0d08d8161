"""Search for a subset of weighted draws with a small objective: remove the draws that cost least, then swap."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from steinstream._typing import Array, Integers
from steinstream.kernels import Kernel

if TYPE_CHECKING:
    from steinstream._engine.merging import RowSums, Slots, WeightedDraws

_SWAP_PASSES, _SWAP_GAIN = 10, 0.02  # largest number of swap passes, and relative decrease below which they end
_RESTARTS, _TRIED = (8, 48), 4800  # least and largest number of restarts, and draws tried in all: see restarts


class RowSubset(NamedTuple):
    """Some rows of a pool with their row sums among each other."""

    rows: Integers
    sums: RowSums


class Pool:
    """Draws with masses, of which a subset is chosen."""

    def __init__(self, kernel: Kernel, draws: WeightedDraws) -> None:
        from steinstream._engine.compiled_kernel import compile_kernel  # loads numba

        self._pool = draws
        self._kernels = (
            compile_kernel(kernel, draws.draws.shape[2]),
            compile_kernel(kernel, max(draws.base.shape[1], 1)),
        )

    def stream_sums(self, rows: Integers) -> Array:
        """Return the stream term's part of the row sums of some rows among each other."""
        from steinstream._engine.base_row import base_row_sums

        pool, masses = self._pool, self._pool.masses[rows]
        if pool.stream_weight == 0.0:
            return np.zeros(len(rows))
        slots, means, mass = self._slots(rows), pool.base_means[rows], masses.sum()
        sums = base_row_sums(self._kernels[1], slots.base_tiles, slots.masses, pool.base[rows])
        return np.asarray(pool.stream_weight * (sums - means * mass - masses @ means + pool.base_mean * mass))

    def objective(self, subset: RowSubset) -> float:
        """Return KSD^2 plus the stream term."""
        from steinstream._engine.merging import energy_with_stream_term

        alive = np.ones(len(subset.rows), dtype=np.bool_)
        energy, mass = energy_with_stream_term(self._pool.masses[subset.rows], subset.sums, alive)
        return float(energy / mass**2)

    def subset(self, rows: Integers) -> RowSubset:
        """Return some rows with their row sums."""
        from steinstream._engine.merging import RowSums, add_row_sums
        from steinstream._engine.pairwise import tiled

        number, states = len(rows), self._pool.draws[rows]
        sums = RowSums(np.zeros(number), np.zeros(number), self.stream_sums(rows))
        if self._pool.stein:
            points = tiled(states[:, 0], states[:, 1], self._pool.masses[rows])
            add_row_sums(self._kernels[0], points, states, 0, number, sums)
        return RowSubset(rows.copy(), sums)

    def _slots(self, rows: Integers) -> Slots:
        """Return some rows in the layout of kernel rows."""
        from steinstream._engine.base_row import base_tiles, padded
        from steinstream._engine.merging import Slots
        from steinstream._engine.pairwise import as_tiles

        states = self._pool.draws[rows]
        return Slots(
            as_tiles(states[:, 0], states[:, 1]), base_tiles(self._pool.base[rows]), padded(self._pool.masses[rows])
        )

    def drop(self, subset: RowSubset, size: int | None, budget: float | None) -> RowSubset:
        """Remove the draws that cost least, half of them at a time, so that no kernel row covers many removed draws."""
        from steinstream._engine.merging import DropLimits, drop
        from steinstream._engine.step_rule import TIE

        least, whole = size or 1, len(subset.rows)
        allowed = (self.objective(subset) + (budget or 0.0)) * TIE
        subset = RowSubset(subset.rows, subset.sums.take(np.arange(whole)))
        while len(subset.rows) > least:
            rows, alive = subset.rows, np.ones(len(subset.rows), dtype=np.bool_)
            goal = max(least, len(rows) // 2)
            limits = DropLimits(goal, goal if budget is None else whole, allowed)
            drop(self._kernels, self._slots(rows), self._pool.take(rows), subset.sums, alive, limits)
            left = np.flatnonzero(alive)
            subset = RowSubset(rows[left], subset.sums.take(left))
            if len(subset.rows) > goal:
                break
        return subset

    def swap(self, subset: RowSubset, order: Integers) -> RowSubset:
        """Offer every other draw a place, in this order, as long as that helps."""
        from steinstream._engine.merging import swap

        slots = self._slots(subset.rows)
        for _ in range(_SWAP_PASSES):
            before = self.objective(subset)
            swaps = swap(self._kernels, slots, self._pool, subset.rows, subset.sums, order)
            if swaps == 0 or self.objective(subset) > (1.0 - _SWAP_GAIN) * before:
                break
        return subset


def restarts(size: int, last: bool) -> int:
    """Choose the number of further initial sets; small sets differ more, so they get more (measured for 25 to 200).

    Returns
    -------
    int
        The number of initial sets.

    Examples
    --------
    >>> [restarts(size, True) for size in (50, 200, 1000)], restarts(50, False)
    ([48, 24, 8], 8)
    """
    few, many = _RESTARTS
    return max(few, min(many, _TRIED // size)) if last else few


def scattered(number: int, start: int) -> Integers:
    """Return the numbers below ``number`` in a pseudo-random order that depends on ``start`` only.

    Returns
    -------
    array
        The numbers.

    Examples
    --------
    >>> scattered(6, 0).tolist(), scattered(6, 1).tolist()
    ([1, 5, 3, 0, 4, 2], [4, 3, 5, 2, 0, 1])
    """
    z = np.arange(number, dtype=np.uint64) + np.uint64((start + 1) << 32)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # the finalizer of splitmix64
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    return np.argsort(z ^ (z >> np.uint64(31)), kind="stable").astype(np.int64)
