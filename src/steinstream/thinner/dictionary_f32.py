"""A dictionary for wide draws, the weights of a neural network say: 10^5 dimensions and more, and few of them kept.

The algorithm is that of ``steinstream.thinner.dictionary``, and so are its results, up to rounding. Draws and
scores are stored as float32, half the memory and half the time that memory takes to deliver them; the draw that comes
is rounded first, so that kernel values are those of what is stored. Sums run in float64, in a fixed order.

The kernel values among the kept draws (n x n, on the grid that makes their sums exact) are held, being few beside the
draws themselves. So adding a draw is one pass over what is kept, and removing one none at all. Every draw has a place
of its own, also if it repeats the one before.

Cost: O(n d) for every candidate, one thread. Memory: 8 n d + 8 n^2 bytes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steinstream._engine import double_double
from steinstream._engine.float32 import compare, compare_scaled
from steinstream._engine.thinning import TIE
from steinstream.errors import InputError
from steinstream.kernels import PROFILES, Kernel
from steinstream.preconditioning import Preconditioner
from steinstream.thinner.bound import fresh_trace
from steinstream.thinner.dictionary import Contents, Integers, Plan, Run
from steinstream.thinner.ingest import CostsAndPins
from steinstream.validation import Block

Array = NDArray[np.float64]
Singles = NDArray[np.float32]


class WideDictionary:
    """Kept draws as float32, with one kernel; coordinates are a length or scales, and may change by :meth:`rebase`."""

    def __init__(
        self, dim: int, kernel: Kernel, preconditioner: Preconditioner, movable: bool = False, checked: bool = False,
        anchor: float = 0.0, cost: float = 0.0,
    ) -> None:  # fmt: skip
        for what, asked in (("anchor", anchor), ("cost", cost), ("linear term in the kernel", kernel.linear)):
            if asked:
                raise InputError(
                    f'Draws stored as float32 cannot be kept with a {what} (storage="float32").',
                    'Use storage="float64", or leave it out.',
                )
        self.dim = dim
        self.kernel = kernel
        self._kernel = kernel.compiled(dim)
        self._points: list[Singles] = []
        self._scores: list[Singles] = []
        self._ids = np.zeros((0, 3), dtype=np.int64)  # chain, draw, step of arrival
        self._matrix = np.zeros((0, 0))  # kernel values, with room to spare
        self._high, self._low = np.zeros(0), np.zeros(0)  # influences, as exact pairs
        self._total = (0.0, 0.0)  # of the matrix
        self.trace = fresh_trace()
        self._set(preconditioner)

    def _set(self, preconditioner: Preconditioner) -> None:
        if preconditioner.factor.ndim > 1:
            raise InputError(
                f'Draws stored as float32 cannot have a covariance as coordinates (storage="float32", {self.dim} '
                "dimensions).",
                "Use the identity, a length scale or scales: Preconditioner.length_scale, Preconditioner.scales.",
            )
        self.preconditioner = preconditioner

    # -- the algorithm ---------------------------------------------------------------------------------------------

    def run(
        self, block: Block, candidates: int, start: int, plan: Plan, cap: int | None, marks: CostsAndPins | None = None,
        first_pass: bool = True,
    ) -> Run:  # fmt: skip
        """Steps ``start + 1`` and on: the best of each group of candidates comes in, the least influential go out."""
        draws, scores = ([row.astype(np.float32) for row in part] for part in (block.draws, block.scores))
        steps = len(plan.floor)
        sizes, squares, dropped = np.zeros(steps, dtype=np.int64), np.zeros(steps), []
        most = math.inf if cap is None else cap
        for step in range(steps):
            group = range(step * candidates, (step + 1) * candidates)
            rows = [self._row(draws[i], scores[i]) for i in group]
            costs = [math.fsum(row) for row in rows]
            best = costs.index(min(costs))
            before, size = self.square, self.size + 1
            self._add(draws[group[best]], scores[group[best]], rows[best], block.ids[group[best]], start + step + 1)
            allowed = min(self.square, before) if plan.monotone and size > 1 else self.square
            allowed = (allowed + plan.budget[step] + plan.share[step] / float(size * size)) * TIE
            while self.size > plan.floor[step]:
                place = self._least_influential()
                if self.size <= most and self._square_without(place) > allowed:
                    break
                dropped.append(self._ids[place].copy())
                self._remove(place)
            sizes[step], squares[step] = self.size, self.square
        return Run(sizes, squares, np.array(dropped, dtype=np.int64).reshape(-1, 3))

    def fill(self, block: Block) -> None:
        """Take in draws and drop none."""
        count = len(block.draws)
        everything = np.full(count, np.iinfo(np.int64).max)
        self.run(block, 1, -count, Plan(everything, np.zeros(count), np.zeros(count)), None)

    def rebase(self, preconditioner: Preconditioner) -> None:
        """Other coordinates: the kernel values are computed anew, one pass for each kept draw."""
        self._set(preconditioner)
        points, scores, ids = self._points, self._scores, self._ids
        self._points, self._scores = [], []
        self._take(np.zeros((0, 0)), ids[:0])
        for point, score, id in zip(points, scores, ids, strict=True):
            self._add(point, score, self._row(point, score), id[:2], int(id[2]))

    def _row(self, x: Singles, s: Singles) -> Array:
        """Kernel values with every kept draw, and last half of that with itself: they add up to the influence."""
        sums = np.zeros((self.size + 1, 3))
        factor = self.preconditioner.factor
        shrink = 1.0 / factor
        for place, (y, t) in enumerate(zip([*self._points, x], [*self._scores, s], strict=True)):
            if factor.ndim == 0:
                compare(x, s, y, t, sums[place])
            else:
                compare_scaled(x, s, y, t, factor, shrink, sums[place])
        distance, slope, product = sums.T
        if factor.ndim == 0:
            distance, product = distance / factor**2, product * factor**2
        profile, first, second, grid, _ = self._kernel
        phi, along, curvature = PROFILES[profile](distance, first, second)
        row = phi * product + along * (slope + self.dim) - curvature * distance
        shift = grid * (1.5 * 2.0**52)
        row = (row + shift) - shift
        row[-1] *= 0.5
        return np.asarray(row)

    def _add(self, x: Singles, s: Singles, row: Array, id: Integers, step: int) -> None:
        n = self.size
        if n == len(self._matrix):
            self._matrix = _with_room(self._matrix, n + n // 2 + 16)
            self._high, self._low = (np.resize(part, len(self._matrix)) for part in (self._high, self._low))
        self._matrix[n, :n] = self._matrix[:n, n] = row[:-1]
        self._matrix[n, n] = 2.0 * row[-1]
        self._high[:n], self._low[:n] = double_double.add(self._high[:n], self._low[:n], row[:-1])
        high = math.fsum(row)
        self._high[n], self._low[n] = high, math.fsum([*row, -high])
        self._total = double_double.add_pair(*self._total, 2.0 * self._high[n], 2.0 * self._low[n])
        self._points.append(x)
        self._scores.append(s)
        self._ids = np.vstack([self._ids, [*id, step]])

    def _remove(self, place: int) -> None:
        """Take a draw out, and put the last one into its place."""
        last = self.size - 1
        wild = self._matrix[place, place] > self._kernel.grid * double_double.WILD  # sums with it have rounded
        self._total = double_double.add_pair(*self._total, -2.0 * self._high[place], -2.0 * self._low[place])
        row = self._matrix[place, : last + 1].copy()
        self._high[: last + 1], self._low[: last + 1] = double_double.add(
            self._high[: last + 1], self._low[: last + 1], -row
        )
        self._matrix[place, : last + 1] = self._matrix[last, : last + 1]
        self._matrix[: last + 1, place] = self._matrix[: last + 1, last]
        self._matrix[place, place] = self._matrix[last, last]
        for part in (self._high, self._low, self._ids, self._points, self._scores):
            part[place] = part[last]
        self._ids = self._ids[:last]
        del self._points[last], self._scores[last]
        if wild:
            self._take(self._matrix[:last, :last], self._ids)

    def _least_influential(self) -> int:
        """Whose influence is greatest; of equals the one with the smallest id."""
        high = self._high[: self.size]
        places = np.flatnonzero(high == high.max())
        return int(min(places, key=lambda place: tuple(self._ids[place, :2])))

    def _square_without(self, place: int) -> float:
        total, _ = double_double.add_pair(*self._total, -2.0 * self._high[place], -2.0 * self._low[place])
        return float(max(total, 0.0) / float(self.size - 1) ** 2)

    # -- what is kept ----------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """How many draws are kept, repeated ones included."""
        return len(self._points)

    @property
    def square(self) -> float:
        """KSD^2 of the kept draws."""
        return float(max(self._total[0], 0.0) / float(self.size) ** 2) if self.size else float("nan")

    @property
    def ksd(self) -> float:
        """KSD of the kept draws."""
        return math.sqrt(self.square)

    @property
    def bound(self) -> None:
        """Not computed for wide draws."""
        return

    @property
    def objective(self) -> float:
        """KSD^2 alone."""
        return self.square

    @property
    def mmd(self) -> float:
        """There is no anchor."""
        return float("nan")

    @property
    def pinned(self) -> Integers:
        """Nobody."""
        return self._ids[:0, :2]

    def pin(self, ids: Integers, pinned: bool) -> None:
        """Not for wide draws."""
        raise InputError('Draws stored as float32 cannot be pinned (storage="float32").')

    def arrived_after(self, step: int) -> Integers:
        """Ids (chain, draw) of the kept draws that came after this step, in order."""
        return self._ids[self._order()][self._ids[self._order(), 2] > step, :2]

    def contents(self) -> Contents:
        """The kept draws, as float32."""
        order = self._order()
        points, scores = _stacked(self._points, order, self.dim), _stacked(self._scores, order, self.dim)
        return Contents(points, scores, self._ids[order], np.zeros((len(order), 0)))

    def glance(self, columns: list[int]) -> tuple[Integers, Array]:
        """When each kept draw arrived, (n,), and these coordinates of it, (n, columns): a quick copy."""
        values = np.array([point[columns] for point in self._points], dtype=np.float64)
        return self._ids[:, 2].copy(), values.reshape(-1, len(columns))

    def state(self, rows: bool = True) -> dict[str, NDArray[Any]]:
        """All there is to know, sorted by id, or all but the draws and scores themselves (``rows``).

        Influences follow from the matrix, exactly.
        """
        order = self._order()
        small = {"ids": self._ids[order], "matrix": self._matrix[np.ix_(order, order)]}
        if not rows:
            return small
        points, scores, _, _ = self.contents()
        return {"points": points, "scores": scores, **small}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Take over what :meth:`state` gave."""
        self._points, self._scores = (list(state[name].astype(np.float32)) for name in ("points", "scores"))
        self._take(state["matrix"], state["ids"])

    def _take(self, matrix: Array, ids: Integers) -> None:
        """These are the kernel values, and that is whose they are."""
        self._matrix, self._ids = matrix.copy(), ids.copy()
        rows = [[*row, -0.5 * row[i]] for i, row in enumerate(matrix)]
        self._high = np.array([math.fsum(row) for row in rows])
        self._low = np.array([math.fsum([*row, -high]) for row, high in zip(rows, self._high, strict=True)])
        total = math.fsum(matrix.ravel())
        self._total = total, math.fsum([*matrix.ravel(), -total])

    def _order(self) -> Integers:
        return np.lexsort((self._ids[:, 1], self._ids[:, 0]))


def _with_room(matrix: Array, room: int) -> Array:
    larger = np.zeros((room, room))
    larger[: len(matrix), : len(matrix)] = matrix
    return larger


def _stacked(rows: list[Singles], order: Integers, dim: int) -> NDArray[Any]:
    return np.stack([rows[i] for i in order]) if rows else np.zeros((0, dim), dtype=np.float32)
