"""The stream term of few draws, in NumPy: for draws that are stored as float32.

The formulas are those of :mod:`steinstream._engine.penalties`. The stream term compares sketches of the draws or of
their features, in the coordinates of a `FeatureMap`. Values of the base kernel are rounded to a grid, so that their
sums are exact and do not depend on the order of the draws.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from steinstream._engine.compiled_kernel import compile_kernel
from steinstream._engine.stream_summary import (
    SummaryDraws,
    append_to_summary,
    empty_summary,
    error_of_summary,
    filled_summary,
    stream_sums,
    sum_over_pairs,
    summary_draws,
    with_space,
)
from steinstream._typing import AnyArray, Array, Integers
from steinstream.kernels import Kernel
from steinstream.result import SummarisedStream
from steinstream.thinner.burn_in_detection import is_burn_in
from steinstream.thinner.features import FeatureMap

_SMALLEST_SPREAD = 1e-6  # as in the engine
_SUMS = ("count", "pair_sum", "diagonal_sum", "diagonal_count", "previous_sum", "previous_count", "doubling")


class StreamTerm:
    """Stream term of the kept draws, of weight gamma; place i belongs to the i-th kept draw."""

    def __init__(self, kernel: Kernel, features: FeatureMap, weight: float, has_scores: bool) -> None:
        self._base_kernel, self._features, self.gamma, self._has_scores = kernel, features, weight, has_scores
        self.count, self.pair_sum = 0.0, 0.0  # draws of the stream; sum of phi over their pairs
        # Sums of k0(x, x) since the number of draws last doubled, and between the two doublings before.
        self.diagonal_sum, self.diagonal_count, self.previous_sum, self.previous_count = 0.0, 0.0, 0.0, 0.0
        self.doubling = 1.0
        self._sketches: list[Array] = []
        self._stream_sums: list[float] = []
        self._set_coordinates(None)

    def _set_coordinates(self, stream: SummaryDraws | None) -> None:
        """Compute the coordinates of the kept draws and of the summary with the current map."""
        map_, width = self._features, self._features.sketch_width
        self._kernel = compile_kernel(self._base_kernel, map_.components)
        self._points = map_.apply(np.array(self._sketches).reshape(-1, width))
        if stream is None:
            self._summary = empty_summary(map_.components, width, 0)
        else:
            self._summary = filled_summary(stream, map_.apply(stream.draws))

    def _phi(self, points: Array) -> Array:
        """Return phi of points with the kept draws, rounded to the grid."""
        shift = self._kernel.base_grid * (1.5 * 2.0**52)
        values = self._base_kernel.base_matrix(points, self._points)
        return np.asarray((values + shift) - shift)

    @property
    def _own(self) -> float:
        """Phi of a draw with itself."""
        point, shift = self._points[:1] * 0.0 if len(self._points) else np.zeros((1, 1)), self._kernel.base_grid
        value = float(self._base_kernel.base_matrix(point, point)[0, 0])
        return (value + shift * (1.5 * 2.0**52)) - shift * (1.5 * 2.0**52)

    @property
    def weight(self) -> float:
        """Factor w of the squared MMD in the objective."""
        spread = self._own - self.pair_sum / self.count**2 if self.count else 0.0
        if not spread > _SMALLEST_SPREAD * self._own:
            return 0.0
        if not self._has_scores:
            return 1.0 / spread
        kappa = (self.diagonal_sum + self.previous_sum) / (self.diagonal_count + self.previous_count)
        return self.gamma * kappa / spread

    # -- the stream --------------------------------------------------------------------------------------------------

    def observe(self, sketches: Array, ids: Integers, diagonals: list[float], first_pass: bool) -> Array:
        """Return the stream sums of the candidates (m, width) of a step; in the first pass, add them to the stream.

        ``diagonals`` has k0(x, x) of each candidate.

        Returns
        -------
        array
            Sum of phi over the stream for each candidate.
        """
        points = self._features.apply(sketches)
        sums = stream_sums(self._kernel, self._summary, points)
        if not first_pass:
            return sums
        shift = self._kernel.base_grid * (1.5 * 2.0**52)
        mutual = (self._base_kernel.base_matrix(points, points) + shift) - shift
        self.pair_sum += 2.0 * float(sums.sum()) + float(mutual.sum())
        contiguous = (np.ascontiguousarray(each) for each in (points, sketches, ids))
        self._summary = with_space(self._summary, len(points))
        append_to_summary(self._kernel, self._summary, *contiguous)
        self.count += len(points)
        self.add_diagonals(diagonals)
        if self._stream_sums:
            self._stream_sums = (np.array(self._stream_sums) + self._phi(points).sum(axis=0)).tolist()
        return np.asarray(sums + mutual.sum(axis=1))

    def add_diagonals(self, diagonals: list[float]) -> None:
        """Add values k0(x, x) to their mean."""
        for value in diagonals if self._has_scores else ():
            if self.diagonal_count >= self.doubling:
                self.doubling += self.diagonal_count
                self.previous_sum, self.previous_count = self.diagonal_sum, self.diagonal_count
                self.diagonal_sum = self.diagonal_count = 0.0
            self.diagonal_sum += value
            self.diagonal_count += 1.0

    def change_coordinates(self) -> None:
        """Use the current map of the features, and compute the sums over the stream from its summary."""
        self._restart(summary_draws(self._summary))

    def forget(self, burn_in: Mapping[int, int]) -> None:
        """Leave the burn-in of some chains out of the stream."""
        stream = summary_draws(self._summary)
        self._restart(stream.take(~is_burn_in(stream.ids, burn_in)))

    def _restart(self, stream: SummaryDraws) -> None:
        self._set_coordinates(stream)
        self.count = float(np.sum(stream.weights))
        self.pair_sum = sum_over_pairs(self._kernel, self._summary)
        self._stream_sums = stream_sums(self._kernel, self._summary, self._points).tolist()

    # -- the kept draws ----------------------------------------------------------------------------------------------

    def insert(self, sketch: Array, stream_sum: float) -> None:
        """Add a kept draw."""
        self._sketches.append(sketch)
        self._points = np.vstack([self._points, self._features.apply(sketch[None])])
        self._stream_sums.append(stream_sum)

    def remove(self, place: int) -> None:
        """Remove a kept draw and put the last one into its place."""
        self._sketches[place], self._stream_sums[place] = self._sketches[-1], self._stream_sums[-1]
        del self._sketches[-1], self._stream_sums[-1]
        self._points[place] = self._points[-1]
        self._points = self._points[:-1]

    def value(self, without: int | None = None) -> float:
        """Return w times the squared MMD of the kept draws, or of all but one."""
        return self.weight * self.squared_mmd(without)

    def squared_mmd(self, without: int | None = None) -> float:
        """Return the squared MMD of the kept draws, or of all but one, to the stream."""
        places = [place for place in range(len(self._sketches)) if place != without]
        if not places or not self.count:
            return math.nan
        size = len(places)
        kept = math.fsum(self._phi(self._points)[np.ix_(places, places)].sum(axis=1))  # independent of the order
        mixed = math.fsum(self._stream_sums[place] for place in places)
        return kept / size**2 - 2.0 * (mixed / (size * self.count)) + self.pair_sum / self.count**2

    def keys(self) -> Array:
        """Return w (p_j - (n - 1) b_j / t) for each kept draw: what its removal takes from the objective."""
        kept_sums = self._phi(self._points).sum(axis=1) - 0.5 * self._own
        share = (len(kept_sums) - 1) / self.count if self.count else 0.0
        return np.asarray(self.weight * (kept_sums - share * np.array(self._stream_sums)))

    def candidate_keys(self, sketches: Array, stream_sums: Array) -> Array:
        """Return what each candidate would add to the objective, up to a factor."""
        kept_sums = self._phi(self._features.apply(sketches)).sum(axis=1) + 0.5 * self._own
        share = (len(self._sketches) + 1) / self.count if self.count else 0.0
        return np.asarray(self.weight * (kept_sums - share * stream_sums))

    @property
    def mmd(self) -> float:
        """MMD between the kept draws and the summary of the stream; NaN if there are none."""
        if not self._sketches or not self.count:
            return math.nan
        size = len(self._sketches)
        mixed = math.fsum(stream_sums(self._kernel, self._summary, self._points))
        kept, pairs = math.fsum(self._phi(self._points).sum(axis=1)), sum_over_pairs(self._kernel, self._summary)
        return math.sqrt(max(kept / size**2 - 2.0 * mixed / (size * self.count) + pairs / self.count**2, 0.0))

    @property
    def error(self) -> float | None:
        """Estimated MMD between the summary and the stream; None without a stream."""
        return error_of_summary(summary_draws(self._summary)) if self.count else None

    def summarised(self, order: Integers) -> SummarisedStream | None:
        """Return a copy of the summary of the stream, with the sketches of the kept draws in this order."""
        if not self.count:
            return None
        stream = summary_draws(self._summary)
        kept = np.array([self._sketches[i] for i in order]).reshape(-1, self._features.sketch_width)
        return SummarisedStream(stream.draws, stream.weights, copy.copy(self._features), kept)

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def state(self, order: Integers) -> dict[str, AnyArray]:
        """Return everything that :meth:`restore` needs, with the kept draws in this order."""
        stream = summary_draws(self._summary)
        return {
            "sketches": np.array([self._sketches[i] for i in order]).reshape(-1, self._features.sketch_width),
            "stream_sums": np.array([self._stream_sums[i] for i in order]),
            "sums": np.array([self.gamma, *(getattr(self, name) for name in _SUMS)]),
            "stream": stream.draws,
            "stream_levels": stream.levels,
            "stream_ids": stream.ids,
            "stream_numbers": np.array([stream.seen, stream.highest]),
            "stream_squared_error": np.array(stream.squared_error),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._sketches, self._stream_sums = list(state["sketches"]), state["stream_sums"].tolist()
        self.gamma, *sums = state["sums"].tolist()
        for name, value in zip(_SUMS, sums, strict=True):
            setattr(self, name, value)
        seen, highest = map(int, state["stream_numbers"])
        error = float(state["stream_squared_error"])
        rows = (state["stream"], state["stream_levels"], state["stream_ids"])
        self._set_coordinates(SummaryDraws(*rows, seen, highest, error))
