"""The kept draws of a thinner in float32, for draws of 10^5 dimensions and more of which few are kept.

The algorithm is that of `thinner/dictionary.py`, and results agree up to rounding. Draws and scores are
stored as float32, which halves the memory and the time to read it. A new draw is rounded first, so that kernel values
are those of the stored numbers. Sums run in float64, in a fixed order.

The kernel values of all pairs of kept draws (n, n), rounded to the grid that makes their sums exact, are stored as
well; they need little memory compared with the draws. Inserting a draw takes one pass over the kept draws, removing one
takes none. Every draw has a place of its own, also if it repeats the one before.

Cost: O(n d) per candidate, one thread. Memory: 8 n d + 8 n^2 bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from steinstream._engine import double_double
from steinstream._engine.float32 import Scaling, inner_products, scaled_inner_products
from steinstream._engine.step_rule import NO_CAP, StepLimits, allowed_objective, may_remove, removal_limit
from steinstream._typing import AnyArray, Array, Float32Array, Integers
from steinstream.errors import InputError
from steinstream.kernels import PROFILES
from steinstream.preconditioning import Preconditioner
from steinstream.result import SummarisedStream
from steinstream.thinner.burn_in_detection import is_burn_in
from steinstream.thinner.chain_worth import stream_factor
from steinstream.thinner.dictionary import Contents, StepRecords
from steinstream.thinner.ingest import CostsAndPins
from steinstream.thinner.layout import DrawLayout
from steinstream.thinner.stream_term import StreamTerm
from steinstream.validation import Block

if TYPE_CHECKING:
    from steinstream.thinner.config import ThinConfig


class DictionaryF32:
    """Kept draws in float32. The preconditioner is the identity, a length scale or scales.

    Parameters and methods are those of :class:`~steinstream.thinner.dictionary.Dictionary`; costs and a linear term of
    the kernel are not available. The stream term compares features, or sketches of the draws
    (:mod:`steinstream.thinner.stream_term`). A setting that is not available raises an `InputError`.
    """

    def __init__(
        self, layout: DrawLayout, config: ThinConfig, preconditioner: Preconditioner, movable: bool = False
    ) -> None:
        for what, value in (("cost", config.cost_weight), ("linear term in the kernel", config.kernel.linear)):
            if value:
                raise InputError(
                    f'Draws stored as float32 cannot be kept with a {what} (storage="float32").',
                    'Use storage="float64", or leave it out.',
                )
        self.layout, self.kernel = layout, config.kernel
        self._kernel = self.kernel.parameters(layout.dim)
        self._stream: StreamTerm | None = None
        if config.stream_weight and layout.features is not None:
            weight = config.stream_weight * stream_factor(1.0, layout.dim)
            self._stream = StreamTerm(self.kernel, layout.features, weight, layout.has_scores)
        self._draws: list[Float32Array] = []
        self._scores: list[Float32Array] = []
        self._ids = np.zeros((0, 3), dtype=np.int64)  # chain, draw, step of arrival
        self._matrix = np.zeros((0, 0))  # kernel values, with spare rows and columns
        self._high, self._low = np.zeros(0), np.zeros(0)  # influences, exact pairs
        self._total = (0.0, 0.0)  # sum of the matrix, an exact pair
        self.trace = np.zeros(0)
        self._set_preconditioner(preconditioner)

    @property
    def dim(self) -> int:
        return self.layout.dim

    def _set_preconditioner(self, preconditioner: Preconditioner) -> None:
        """Set the preconditioner if it is available."""
        if preconditioner.factor.ndim > 1:
            raise InputError(
                f'Draws stored as float32 cannot have a covariance as preconditioner (storage="float32", {self.dim} '
                "dimensions).",
                "Use the identity, a length scale or scales: Preconditioner.length_scale, Preconditioner.scales.",
            )
        self.preconditioner = preconditioner

    # -- the algorithm ---------------------------------------------------------------------------------------------

    def run(
        self,
        block: Block,
        candidates: int,
        start: int,
        limits: StepLimits,
        marks: CostsAndPins | None = None,
        first_pass: bool = True,
    ) -> StepRecords:
        draws, scores = _as_float32(block.draws), _as_float32(block.scores)
        steps = len(limits.floor)
        sizes, squared_ksds, squared_mmds = np.zeros(steps, dtype=np.int64), np.zeros(steps), np.full(steps, np.nan)
        dropped: list[Integers] = []
        for step in range(steps):
            group = slice(step * candidates, (step + 1) * candidates)
            rows = [self._row(x, s) for x, s in zip(draws[group], scores[group], strict=True)]
            sums = self._observe(block.take(group), rows, first_pass)
            keys = self._candidate_keys(block.take(group), rows, sums)
            best = keys.index(min(keys))
            new, before = group.start + best, self.objective
            self._insert(draws[new], scores[new], rows[best], (*block.ids[new], start + step + 1))
            if self._stream is not None and block.features is not None:
                self._stream.insert(block.features[new], sums[best])
            allowed = allowed_objective(before, self.objective, self.size, limits, step)
            while (limit := removal_limit(allowed, self.size, limits, step)) > -math.inf:
                place = self._place_to_remove()
                if not may_remove(self._objective_without(place), limit):
                    break
                dropped.append(self._ids[place].copy())
                self._remove(place)
            sizes[step], squared_ksds[step], squared_mmds[step] = self.size, self.squared_ksd, self.squared_mmd
        return StepRecords(sizes, squared_ksds, squared_mmds, np.array(dropped, dtype=np.int64).reshape(-1, 3))

    def _observe(self, group: Block, rows: list[Array], first_pass: bool) -> Array:
        """Return the stream sums of the candidates; in the first pass, add the candidates to the stream."""
        if self._stream is None or group.features is None:
            return np.zeros(len(rows))
        return self._stream.observe(group.features, group.ids, [2.0 * row[-1] for row in rows], first_pass)

    def _candidate_keys(self, group: Block, rows: list[Array], sums: Array) -> list[float]:
        """Return what each candidate would add to the objective, up to a factor."""
        influences = [math.fsum(row) if self.layout.has_scores else 0.0 for row in rows]
        if self._stream is None or group.features is None or len(rows) == 1:
            return influences
        return [*map(float, self._stream.candidate_keys(group.features, sums) + np.array(influences))]

    def insert_all(self, block: Block) -> None:
        count = len(block.draws)
        limits = StepLimits(np.full(count, NO_CAP), np.zeros(count), np.zeros(count))
        self.run(block, 1, -count, limits, first_pass=False)
        if self._stream is not None:
            self._stream.add_diagonals(np.diagonal(self._matrix)[self.size - count : self.size].tolist())

    def change_coordinates(self, preconditioner: Preconditioner) -> None:
        """Change the preconditioner and recompute the kernel values, one pass per kept draw."""
        self._set_preconditioner(preconditioner)
        draws, scores, ids = self._draws, self._scores, self._ids
        self._draws, self._scores = [], []
        self._set_matrix(np.zeros((0, 0)), ids[:0])
        for draw, score, id in zip(draws, scores, ids, strict=True):
            self._insert(draw, score, self._row(draw, score), tuple(id))
        if self._stream is not None:
            self._stream.change_coordinates()

    def refresh_stream_sums(self) -> None:
        if self._stream is not None:
            self._stream.change_coordinates()

    def set_stream(self, stream: Block) -> None:
        if self._stream is not None and self.layout.features is not None:
            sketches = self.layout.features.sketch(stream.draws)
            self.layout.features.update(sketches)
            rows = [self._row(x, s) for x, s in zip(*map(_as_float32, stream[:2]), strict=True)]
            self._stream.observe(sketches, stream.ids, [2.0 * row[-1] for row in rows], True)
            self._stream.change_coordinates()  # the sums are those of the summary, as for every kept draw

    def forget_burn_in(self, burn_in: Mapping[int, int]) -> Integers:
        """Leave the first draws of some chains out of the stream term, and remove the kept draws among them."""
        early = is_burn_in(self._ids, burn_in) & (self._ids[:, 2] > 0)
        removed = self._ids[early & (not early.all())].copy()  # all draws stay if none would be left
        for id in removed:
            self._remove(int(np.flatnonzero((self._ids == id).all(axis=1))[0]))
        if self._stream is not None:
            self._stream.forget(burn_in)
        return removed

    def _row(self, x: Float32Array, s: Float32Array) -> Array:
        """Return the kernel values with every kept draw and half of k0(x, x); their sum is the influence."""
        if not self.layout.has_scores:
            return np.zeros(self.size + 1)
        sums = np.zeros((self.size + 1, 3))
        factor = self.preconditioner.factor
        scaling = Scaling(factor, 1.0 / factor)
        for place, (y, t) in enumerate(zip([*self._draws, x], [*self._scores, s], strict=True)):
            if factor.ndim == 0:
                inner_products(x, s, y, t, sums[place])
            else:
                scaled_inner_products(x, s, y, t, scaling, sums[place])
        distance, cross, product = sums.T
        if factor.ndim == 0:
            distance, product = distance / factor**2, product * factor**2
        phi, slope, curvature = PROFILES[self._kernel.profile](distance, self._kernel.first, self._kernel.second)
        row = phi * product + slope * (cross + self.dim) - curvature * distance
        shift = self._kernel.grid * (1.5 * 2.0**52)
        row = (row + shift) - shift
        row[-1] *= 0.5
        return np.asarray(row)

    def _insert(self, x: Float32Array, s: Float32Array, row: Array, id: tuple[int, ...]) -> None:
        """Insert a draw with its row of kernel values."""
        n = self.size
        if n == len(self._matrix):
            self._matrix = _enlarged(self._matrix, n + n // 2 + 16)
            self._high, self._low = (np.resize(part, len(self._matrix)) for part in (self._high, self._low))
        self._matrix[n, :n] = self._matrix[:n, n] = row[:-1]
        self._matrix[n, n] = 2.0 * row[-1]
        self._high[:n], self._low[:n] = double_double.add(self._high[:n], self._low[:n], row[:-1])
        high = math.fsum(row)
        self._high[n], self._low[n] = high, math.fsum([*row, -high])
        self._total = double_double.add_pair(*self._total, 2.0 * self._high[n], 2.0 * self._low[n])
        self._draws.append(x)
        self._scores.append(s)
        self._ids = np.vstack([self._ids, id])

    def _remove(self, place: int) -> None:
        """Remove a draw and put the last one into its place."""
        last = self.size - 1
        rounded = self._matrix[place, place] > self._kernel.grid * double_double.EXACT_RANGE
        self._total = double_double.add_pair(*self._total, -2.0 * self._high[place], -2.0 * self._low[place])
        row = self._matrix[place, : last + 1].copy()
        self._high[: last + 1], self._low[: last + 1] = double_double.add(
            self._high[: last + 1], self._low[: last + 1], -row
        )
        self._matrix[place, : last + 1] = self._matrix[last, : last + 1]
        self._matrix[: last + 1, place] = self._matrix[: last + 1, last]
        self._matrix[place, place] = self._matrix[last, last]
        for part in (self._high, self._low, self._ids, self._draws, self._scores):
            part[place] = part[last]
        self._ids = self._ids[:last]
        del self._draws[last], self._scores[last]
        if self._stream is not None:
            self._stream.remove(place)
        if rounded:  # sums with values beyond the exact range were rounded: recompute them
            self._set_matrix(self._matrix[:last, :last], self._ids)

    def _place_to_remove(self) -> int:
        """Return the place with the largest influence or key; of several the one with the smallest id."""
        high = self._high[: self.size]
        if self._stream is not None:
            high = high * self.layout.has_scores + self._stream.keys()
        places = np.flatnonzero(high == high.max())
        return int(min(places, key=lambda place: tuple(self._ids[place, :2])))

    def _objective_without(self, place: int) -> float:
        total, _ = double_double.add_pair(*self._total, -2.0 * self._high[place], -2.0 * self._low[place])
        ksd = float(max(total, 0.0) / float(self.size - 1) ** 2) if self.layout.has_scores else 0.0
        return ksd if self._stream is None else ksd + self._stream.value(without=place)

    # -- results ---------------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        return len(self._draws)

    @property
    def squared_ksd(self) -> float:
        if not self.size or not self.layout.has_scores:
            return float("nan")
        return float(max(self._total[0], 0.0) / float(self.size) ** 2)

    @property
    def ksd(self) -> float:
        return math.sqrt(self.squared_ksd)

    @property
    def bound(self) -> None:
        """None: the bound on the expected objective is not computed for float32 storage."""
        return

    @property
    def objective(self) -> float:
        if not self.size or self._stream is None or not self._stream.count:
            return self.squared_ksd
        return float((self.squared_ksd if self.layout.has_scores else 0.0) + self._stream.value())

    @property
    def squared_mmd(self) -> float:
        return float("nan") if self._stream is None else max(self._stream.squared_mmd(), 0.0)

    @property
    def mmd(self) -> float:
        return float("nan") if self._stream is None else self._stream.mmd

    @property
    def summarised_stream(self) -> SummarisedStream | None:
        return None if self._stream is None else self._stream.summarised(self._order())

    @property
    def stream_error(self) -> float | None:
        return None if self._stream is None else self._stream.error

    @property
    def stream_weight(self) -> float:
        return 0.0 if self._stream is None else self._stream.gamma

    @stream_weight.setter
    def stream_weight(self, weight: float) -> None:
        if self._stream is not None:
            self._stream.gamma = weight

    @property
    def pinned(self) -> Integers:
        """Empty, because pins are not supported."""
        return self._ids[:0, :2]

    def pin(self, ids: Integers, pinned: bool) -> None:
        """Raise: pins are not available.

        Raises
        ------
        InputError
            Always.
        """
        raise InputError('Draws stored as float32 cannot be pinned (storage="float32").', 'Use storage="float64".')

    def arrived_after(self, step: int) -> Integers:
        ids = self._ids[self._order()]
        return ids[ids[:, 2] > step, :2]

    def contents(self) -> Contents:
        """Return the kept draws, as float32."""
        order = self._order()
        draws = _stacked(self._draws, order, self.dim)
        scores = _stacked(self._scores, order, self.dim * self.layout.has_scores)
        return Contents(draws, scores, self._ids[order], np.zeros((len(order), 0)))

    def peek(self, columns: list[int]) -> tuple[Integers, Array]:
        values = np.array([draw[columns] for draw in self._draws], dtype=np.float64)
        return self._ids[:, 2].copy(), values.reshape(-1, len(columns))

    def state(self, rows: bool = True) -> dict[str, Any]:
        """Return everything that :meth:`restore` needs, sorted by id; without ``rows`` all but draws and scores."""
        order = self._order()
        small: dict[str, Any] = {"ids": self._ids[order], "matrix": self._matrix[np.ix_(order, order)]}
        if self._stream is not None:
            small["stream_term"] = self._stream.state(order)
        if not rows:
            return small
        contents = self.contents()
        return {"draws": contents.draws, "scores": contents.scores, **small}

    def restore(self, state: dict[str, Any]) -> None:
        self._draws, self._scores = (list(state[name].astype(np.float32)) for name in ("draws", "scores"))
        self._set_matrix(state["matrix"], state["ids"])
        if self._stream is not None:
            self._stream.restore(state["stream_term"])

    def _set_matrix(self, matrix: Array, ids: Integers) -> None:
        """Set the kernel values and the ids, and compute the influences."""
        self._matrix, self._ids = matrix.copy(), ids.copy()
        rows = [[*row, -0.5 * row[i]] for i, row in enumerate(matrix)]
        self._high = np.array([math.fsum(row) for row in rows])
        self._low = np.array([math.fsum([*row, -high]) for row, high in zip(rows, self._high, strict=True)])
        total = math.fsum(matrix.ravel())
        self._total = total, math.fsum([*matrix.ravel(), -total])

    def _order(self) -> Integers:
        return np.lexsort((self._ids[:, 1], self._ids[:, 0]))


def _as_float32(rows: Array) -> list[Float32Array]:
    return [row.astype(np.float32) for row in rows]


def _enlarged(matrix: Array, size: int) -> Array:
    """Copy a matrix into the corner of a larger one."""
    larger = np.zeros((size, size))
    larger[: len(matrix), : len(matrix)] = matrix
    return larger


def _stacked(rows: list[Float32Array], order: Integers, dim: int) -> AnyArray:
    return np.stack([rows[i] for i in order]) if rows else np.zeros((0, dim), dtype=np.float32)
