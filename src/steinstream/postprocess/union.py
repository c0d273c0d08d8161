"""The union of kept sets: all their draws with masses; row sums made of the parts' own and of the cross terms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from steinstream._engine.fourier_features import features, frequencies
from steinstream.discrepancy import spread_rows
from steinstream.kernels import Kernel
from steinstream.preconditioning import Preconditioner
from steinstream.result import History, Kept, Variable
from steinstream.version import __version__

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

_PASSES, _GAIN = 10, 0.02  # swaps: at most so many passes, as long as each lowers the objective by so much
_STARTS, _TRIED = (8, 48), 4800  # from so many more sets: few, or in all about so many draws; see starts
COUNTS = ("seen", "skipped", "initial")  # of draws: those that came, bad ones among them, and those brought along


class Union:
    """All draws of some kept sets with their masses, in one system of coordinates."""

    def __init__(self, sets: Sequence[Kept], mass: Array, kernel: Kernel, preconditioner: Preconditioner) -> None:
        self._sets, self.preconditioner, self.kernel = sets, preconditioner, kernel
        preconditioner.require(sets[0].draws.shape[1])
        self._points = np.concatenate([kept.draws for kept in sets], dtype=np.float64)
        self._scores = np.concatenate([kept.scores for kept in sets], dtype=np.float64)
        self._masses = np.concatenate([_each(kept) * m for kept, m in zip(sets, mass, strict=True)])
        x, s = preconditioner.apply(self._points, self._scores)
        self._draws = np.stack([x, s], axis=1)
        self._diagonal = kernel.diagonal(s, x)
        self._high, self._low = np.zeros(len(x)), np.zeros(len(x))
        self._left = np.ones(len(x), dtype=np.bool_)
        self.part_squares = self._sum_up(np.cumsum([0, *map(len, sets)]), mass)

    def _sum_up(self, edges: Integers, mass: Array) -> list[float]:
        """Make the row sums: each part with itself, which gives its own KSD^2, then the cross terms."""
        from steinstream._engine.merging import add_cross_terms, energy_of
        from steinstream._engine.pairwise import as_tiles  # brings numba

        spans = list(pairwise(edges.tolist()))
        tiles = [as_tiles(self._draws[a:b, 0], self._draws[a:b, 1]) for a, b in spans]
        masses = [_padded(self._masses[a:b], len(part)) for (a, b), part in zip(spans, tiles, strict=True)]
        compiled = self.kernel.compiled(self._draws.shape[2])

        def add(own: bool) -> None:
            """To every row sum, that over its own part, or those over the others in their order."""

            def rows(first: int, last: int) -> int:
                for onto, (begin, end) in enumerate(spans):
                    low, high = max(first, begin), min(last, end)
                    for of in range(len(spans)) if low < high else ():
                        if (of == onto) == own:
                            add_cross_terms(
                                compiled, tiles[of], masses[of], self._draws, low, high, self._high, self._low
                            )
                return last - first

            spread_rows(rows, len(self._draws), None)

        add(own=True)
        squares = []
        for part, (a, b) in enumerate(spans):
            alive = np.ones(b - a, dtype=np.bool_)
            energy, _ = energy_of(self._masses[a:b], self._high[a:b], self._low[a:b], alive)
            squares.append(max(energy, 0.0) / float(mass[part]) ** 2)
        if len(spans) > 1:
            add(own=False)
        return squares

    @property
    def square(self) -> float:
        """KSD^2 of those left."""
        from steinstream._engine.merging import energy_of

        energy, mass = energy_of(self._masses, self._high, self._low, self._left)
        return max(float(energy), 0.0) / float(mass) ** 2

    def thin(self, size: int | None, budget: float | None, gamma: float, last: bool = True) -> None:
        """Drop draws until ``size`` are left, or the budget is spent; then swap dropped ones in where that helps.

        Swaps end where no single one helps. With a ``size`` they therefore begin from other sets as well, scattered
        over the union, and the best end stands: from more of them if this is the last merge.
        """
        if size is None and budget is None:
            return
        waves, weight = self._anchored(gamma)
        pool = Pool(self.kernel, self._draws, self._masses, self._diagonal, waves, weight)
        whole = len(self._left)
        dropped = pool.drop(Chosen(np.arange(whole), self._high, self._low, pool.pull()), size, budget)
        if len(dropped.places) == whole:
            return
        best = pool.settle(dropped, np.arange(whole))
        for start in range(starts(size, last) if len(dropped.places) == size else 0):
            order = scattered(whole, start)
            other = pool.settle(pool.chosen(order[: len(dropped.places)]), order)
            if pool.value(other) < pool.value(best):
                best = other
        self._left[:] = False
        self._left[best.places] = True
        self._high[best.places], self._low[best.places] = best.high, best.low

    def _anchored(self, gamma: float) -> tuple[Array, float]:
        """Waves less their mean over the union, and what their products count: as in the thinner, with these masses."""
        if gamma == 0.0:
            return np.zeros((len(self._left), 0)), 0.0
        share = self._masses / self._masses.sum()
        waves = features(self._points, frequencies(self.kernel, self._points.shape[1], self.preconditioner.factor))
        mean = np.einsum("i,ij->j", share, waves)
        pairs = waves.shape[1] // 2
        spread = 1.0 - float(mean @ mean) / pairs
        if spread < 1e-12:
            return np.zeros((len(self._left), 0)), 0.0
        kappa = float(np.exp(share @ np.log(self._diagonal)))
        return waves - mean, gamma * kappa / (spread * pairs)

    def kept(self, merged: dict[str, Any]) -> Kept:
        """What is left, sorted by id."""
        ids = np.concatenate([kept.ids for kept in self._sets])
        order = np.lexsort((ids[:, 1], ids[:, 0]))
        order = order[self._left[order]]
        masses, first = self._masses[order], self._sets[0]
        equal = bool(masses.max() <= masses.min() * (1.0 + 1e-12))
        counts = {name: sum(kept.settings.get(name, 0) for kept in self._sets) for name in COUNTS}
        ksd = math.sqrt(self.square)
        names = first.names if all(kept.names == first.names for kept in self._sets) else None
        return Kept(
            self._points[order], self._scores[order], ids[order], ksd,
            History(np.array([counts["seen"]]), np.array([len(order)]), np.array([ksd])),
            kernel=self.kernel, preconditioner=self.preconditioner, names=names,
            weights=None if equal else masses / masses.sum(),
            settings={
                "steinstream": __version__, "kernel": repr(self.kernel), "preconditioner": str(self.preconditioner),
                **counts, "merged": merged,
            },
            variables=_variables(self._sets, order),
        )  # fmt: skip


class Chosen(NamedTuple):
    """Some of the draws, by their places, and their row sums among themselves."""

    places: Integers
    high: Array
    low: Array
    pull: Array


class Pool:
    """Draws (n, 2, d) with masses, among which to choose. ``waves`` and ``weight`` are the anchor's."""

    def __init__(
        self, kernel: Kernel, draws: Array, masses: Array, diagonal: Array, waves: Array, weight: float
    ) -> None:
        self._compiled = kernel.compiled(draws.shape[2])
        self._draws, self._masses, self._waves, self._weight = draws, masses, waves, weight
        self._diagonal = diagonal + weight * np.sum(waves**2, axis=1)

    def pull(self, places: Integers | slice = slice(None)) -> Array:
        """The anchor's part of the row sums. By einsum, whose order of summation no number of threads changes."""
        waves = self._waves[places]
        pull: Array = self._weight * np.einsum("ij,j->i", waves, np.einsum("i,ij->j", self._masses[places], waves))
        return pull

    def value(self, chosen: Chosen) -> float:
        """The objective: KSD^2, with an anchor what it adds."""
        from steinstream._engine.merging import objective

        alive = np.ones(len(chosen.places), dtype=np.bool_)
        energy, mass = objective(self._masses[chosen.places], *chosen[1:], alive)
        return float(energy / mass**2)

    def chosen(self, places: Integers) -> Chosen:
        """These draws."""
        from steinstream._engine.merging import add_cross_terms

        draws, count = self._draws[places], len(places)
        high, low, tiles = np.zeros(count), np.zeros(count), self._tiles(places)
        masses = _padded(self._masses[places], len(tiles))
        add_cross_terms(self._compiled, tiles, masses, draws, 0, count, high, low)
        return Chosen(places.copy(), high, low, self.pull(places))

    def _tiles(self, places: Integers) -> Array:
        from steinstream._engine.pairwise import as_tiles

        tiles: Array = as_tiles(self._draws[places, 0], self._draws[places, 1])
        return tiles

    def drop(self, chosen: Chosen, size: int | None, budget: float | None) -> Chosen:
        """Let those go that cost least, half of them at a time, so that no sweep goes over many that are gone."""
        from steinstream._engine.merging import drop
        from steinstream._engine.thinning import TIE

        least, whole = size or 1, len(chosen.places)
        allowed = (self.value(chosen) + (budget or 0.0)) * TIE
        chosen = Chosen(chosen.places, *(array.copy() for array in chosen[1:]))
        while len(chosen.places) > least:
            places, alive = chosen.places, np.ones(len(chosen.places), dtype=np.bool_)
            goal = max(least, len(places) // 2)
            drop(
                self._compiled, self._tiles(places), self._draws[places], self._masses[places], self._diagonal[places],
                self._waves[places], self._weight, *chosen[1:], alive, goal, goal if budget is None else whole, allowed,
            )  # fmt: skip
            chosen = Chosen(places[alive], *(array[alive] for array in chosen[1:]))
            if len(chosen.places) > goal:
                break
        return chosen

    def settle(self, chosen: Chosen, order: Integers) -> Chosen:
        """Offer all others a place, in this order, as long as that helps."""
        from steinstream._engine.merging import swap

        places, high, low, pull = chosen
        tiles, alive = self._tiles(places), np.zeros(len(order), dtype=np.bool_)
        alive[places] = True
        for _ in range(_PASSES):
            before = self.value(chosen)
            swaps = swap(
                self._compiled, tiles, self._draws, self._masses, self._diagonal, self._waves, self._weight,
                order, places, high, low, pull, alive,
            )  # fmt: skip
            if swaps == 0 or self.value(chosen) > (1.0 - _GAIN) * before:
                break
        return chosen


def starts(size: int, last: bool) -> int:
    """How many other sets to begin from. The smaller the sets are, the more differ the ends; measured for 25 to 200.

    >>> [starts(size, True) for size in (50, 200, 1000)], starts(50, False)
    ([48, 24, 8], 8)
    """
    few, many = _STARTS
    return max(few, min(many, _TRIED // size)) if last else few


def scattered(count: int, start: int) -> Integers:
    """All numbers below ``count`` in an order without pattern, another for each start, the same on every machine.

    >>> scattered(6, 0).tolist(), scattered(6, 1).tolist()
    ([1, 5, 3, 0, 4, 2], [4, 3, 5, 2, 0, 1])
    """
    z = np.arange(count, dtype=np.uint64) + np.uint64((start + 1) << 32)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # the finalizer of splitmix64
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    return np.argsort(z ^ (z >> np.uint64(31)), kind="stable").astype(np.int64)


def _each(kept: Kept) -> Array:
    """The share of each draw in its part."""
    return np.full(len(kept), 1.0 / len(kept)) if kept.weights is None else kept.weights


def _padded(values: Array, tiles: int) -> Array:
    """As many as the tiles have lanes."""
    from steinstream._engine.simd import LANES

    padded = np.zeros(tiles * LANES)
    padded[: len(values)] = values
    return padded


def _variables(sets: Sequence[Kept], places: Integers) -> dict[str, Variable]:
    """What all parts know of their draws."""
    common = [name for name in sets[0].variables if all(name in kept.variables for kept in sets)]
    return {
        name: sets[0]
        .variables[name]
        ._replace(values=np.concatenate([kept.variables[name].values for kept in sets])[places])
        for name in common
    }
