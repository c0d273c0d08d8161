"""The exact union of several kept sets: row sums, KSD^2 and MMD^2, and the draws that are left after thinning."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from steinstream._typing import Array, Flags, Integers
from steinstream.discrepancy.ksd import run_rows_in_threads
from steinstream.postprocess._stream import ComparedSets, compared
from steinstream.postprocess._subset_search import Pool, RowSubset, restarts, scattered
from steinstream.preconditioning import Preconditioner
from steinstream.result import MODEL_GROUPS, History, Kept, SummarisedStream, Variable
from steinstream.thinner.chain_worth import stream_factor, trust_in
from steinstream.thinner.config import MERGE, ThinConfig, run_settings, settings_of
from steinstream.validation import Block, concatenate

#: Counts of draws in ``Kept.settings`` that are added when sets are merged.
COUNTS = ("seen", "skipped", "initial")

_ROUNDING = 1e-12
_STREAM_DRAWS = 4096  # of the evenly spaced subsample of all streams


class Squares(NamedTuple):
    """KSD^2 and MMD^2 of a set; None without scores, and without a stream term."""

    ksd: float | None
    mmd: float | None


class Union:
    """All draws of some kept sets with their masses, under one preconditioner, and the streams of these sets."""

    def __init__(self, sets: Sequence[Kept], mass: Array, config: ThinConfig, preconditioner: Preconditioner) -> None:
        from steinstream._engine.merging import RowSums  # loads numba

        self._sets, self._mass, self.preconditioner, self._config = sets, mass, preconditioner, config
        self._kernel = kernel = config.kernel
        preconditioner.require(sets[0].draws.shape[1])
        self._draws = np.concatenate([kept.draws for kept in sets], dtype=np.float64)
        scores = [kept.scores for kept in sets if kept.scores is not None]
        self._scores = np.concatenate(scores, dtype=np.float64) if scores else None
        self._masses = np.concatenate([kept.shares() * m for kept, m in zip(sets, mass, strict=True)])
        x = preconditioner.apply_to_draws(self._draws)
        s = np.zeros_like(x) if self._scores is None else preconditioner.apply_to_scores(self._scores)
        self._states = np.stack([x, s], axis=1)
        self._diagonal = np.zeros(len(x)) if self._scores is None else kernel.diagonal(s, x)
        self._sums = RowSums(np.zeros(len(x)), np.zeros(len(x)), np.zeros(len(x)))
        self._left: Flags = np.ones(len(x), dtype=np.bool_)
        self._edges = np.cumsum([0, *map(len, sets)])
        self.stream_weight, self._compared = config.stream_weight, None
        if self.stream_weight:
            self._compared = compared(sets, mass, kernel, preconditioner)
        worth = [kept.settings.get("effective_draws") for kept in sets]
        self._effective_draws = None if None in worth else math.fsum(value or 0.0 for value in worth)
        self.trust = trust_in(self._effective_draws, 0, self._draws.shape[1])
        self.squares_of_parts = self._squares_of_parts()

    def _squares_of_parts(self) -> list[Squares]:
        """Return KSD^2 and MMD^2 of each part; compute the row sums of the union."""
        squares: Sequence[float | None] = [None] * len(self._sets)
        if self._scores is not None:
            squares = self._compute_row_sums()
        if self._compared is None:
            return [Squares(square, None) for square in squares]
        base = np.split(self._compared.base, self._edges[1:-1])
        return [
            Squares(square, stream.squared_mmd(points, kept.shares()))
            for square, stream, points, kept in zip(squares, self._compared.streams, base, self._sets, strict=True)
        ]

    def _compute_row_sums(self) -> list[float]:
        """Compute the row sums within each part, which give its KSD^2, then add the cross terms."""
        from steinstream._engine.compiled_kernel import compile_kernel  # loads numba
        from steinstream._engine.merging import RowSums, add_row_sums, energy_of
        from steinstream._engine.pairwise import tiled

        spans = list(pairwise(self._edges.tolist()))
        parts = [tiled(self._states[a:b, 0], self._states[a:b, 1], self._masses[a:b]) for a, b in spans]
        compiled = compile_kernel(self._kernel, self._states.shape[2])

        def add(within: bool) -> None:
            """Add to every row sum the terms within its part, or those with the other parts in order."""

            def rows(first: int, last: int) -> int:
                for onto, (begin, end) in enumerate(spans):
                    low, high = max(first, begin), min(last, end)
                    for of in range(len(spans)) if low < high else ():
                        if (of == onto) == within:
                            add_row_sums(compiled, parts[of], self._states, low, high, self._sums)
                return last - first

            run_rows_in_threads(rows, len(self._states), None)

        add(within=True)
        squares = []
        for part, (a, b) in enumerate(spans):
            own = RowSums(self._sums.high[a:b], self._sums.low[a:b], self._sums.stream[a:b])
            energy, _ = energy_of(self._masses[a:b], own, np.ones(b - a, dtype=np.bool_))
            squares.append(max(energy, 0.0) / float(self._mass[part]) ** 2)
        if len(spans) > 1:
            add(within=False)
        return squares

    @property
    def squares(self) -> Squares:
        """KSD^2 and MMD^2 of the draws that are left."""
        from steinstream._engine.merging import energy_of

        ksd, mmd, masses = None, None, self._masses[self._left]
        if self._scores is not None:
            energy, mass = energy_of(self._masses, self._sums, self._left)
            ksd = max(float(energy), 0.0) / float(mass) ** 2
        if self._compared is not None:
            mmd = self._compared.stream.squared_mmd(self._compared.base[self._left], masses / masses.sum())
        return Squares(ksd, mmd)

    @property
    def stream_error(self) -> float:
        """Bound on the MMD between the joined stream and the streams of the parts together."""
        return 0.0 if self._compared is None else self._compared.error

    def thin(self, size: int | None, budget: float | None, last: bool = True) -> None:
        """Remove draws until ``size`` are left or the budget is spent; then swap removed draws in where that helps.

        Swaps end in a set that no single swap improves. With a ``size`` they are therefore also started from other
        sets, scattered over the union, and the best result is used. The last merge tries more of them.
        """
        whole = len(self._left)
        self.trust = trust_in(self._effective_draws, min(size or whole, whole), self._draws.shape[1])
        if size is None and budget is None:
            return
        pool = self._pool()
        everything = RowSubset(np.arange(whole), self._sums._replace(stream=pool.stream_sums(np.arange(whole))))
        thinned = pool.drop(everything, size, budget)
        if len(thinned.rows) == whole:
            return
        best = pool.swap(thinned, np.arange(whole))
        for start in range(restarts(size, last) if size is not None and len(thinned.rows) == size else 0):
            order = scattered(whole, start)
            other = pool.swap(pool.subset(order[: len(thinned.rows)]), order)
            if pool.objective(other) < pool.objective(best):
                best = other
        self._left[:] = False
        self._left[best.rows] = True
        self._sums.high[best.rows], self._sums.low[best.rows] = best.sums.high, best.sums.low

    def _pool(self) -> Pool:
        """Return the draws with their masses, and what the stream term needs."""
        from steinstream._engine.merging import WeightedDraws

        none, stein = np.zeros(len(self._masses)), float(self._scores is not None)
        base = self._states[:, 0, :0] if self._compared is None else self._compared.base
        draws = WeightedDraws(
            draws=self._states,
            base=base,
            masses=self._masses,
            diagonal=self._diagonal,
            base_means=none,
            base_mean=0.0,
            stein=stein,
            stream_weight=0.0,
        )
        if self._compared is not None:
            stream, shares = self._compared.stream, self._masses / self._masses.sum()
            gamma = self.stream_weight * stream_factor(self.trust, self._draws.shape[1])
            weight = stream.weight(gamma, self._diagonal if stein else None, shares)
            means = stream.means(base)
            diagonal = self._diagonal + weight * (stream.own - 2.0 * means + stream.mean)
            draws = draws._replace(diagonal=diagonal, base_means=means, base_mean=stream.mean, stream_weight=weight)
        return Pool(self._kernel, draws)

    def kept(self, merged: dict[str, Any]) -> Kept:
        """Return the draws that are left, sorted by id."""
        ids = np.concatenate([kept.ids for kept in self._sets])
        order = np.lexsort((ids[:, 1], ids[:, 0]))
        order = order[self._left[order]]
        masses, first = self._masses[order], self._sets[0]
        equal = bool(masses.max() <= masses.min() * (1.0 + 1e-12))
        counts = {name: sum(kept.settings.get(name, 0) for kept in self._sets) for name in COUNTS}
        ksd, mmd = (math.nan if square is None else math.sqrt(square) for square in self.squares)
        return Kept(
            self._draws[order],
            None if self._scores is None else self._scores[order],
            ids[order],
            ksd,
            History.single(counts["seen"], len(order), ksd, mmd),
            kernel=self._kernel,
            preconditioner=self.preconditioner,
            names=first.names if all(kept.names == first.names for kept in self._sets) else None,
            weights=None if equal else masses / masses.sum(),
            mmd=mmd,
            settings=run_settings(
                self._config.replace(preconditioner=self.preconditioner),
                self.preconditioner,
                settings_of(MERGE),
                **counts,
                has_scores=self._scores is not None,
                **self._chain_worth(),
                **self._estimated_stream_error(),
                merged=merged,
            ),
            variables=_common_variables([kept.variables for kept in self._sets], order),
            groups=_common_groups([kept.groups for kept in self._sets], order),
            stream=_joined_subsample(self._sets, self._mass),
            stream_summary=None if self._compared is None else _summary_for(self._compared, order),
        )

    def _estimated_stream_error(self) -> dict[str, float]:
        """Return the estimated error of the joined stream, as in the settings of a thinner."""
        error = None if self._compared is None else self._compared.stream_error
        return {} if error is None else {"stream_error": error}

    def _chain_worth(self) -> dict[str, Any]:
        """Return what is known about the chains, as in the settings of a thinner."""
        if self._effective_draws is None:
            return {}
        ends = sorted([chain, end] for kept in self._sets for chain, end in kept.burn_in_ends.items())
        burn_in = sum(kept.settings.get("burn_in", 0) for kept in self._sets)
        return {
            "effective_draws": self._effective_draws,
            "burn_in": burn_in,
            "burn_in_ends": ends,
            "trust": self.trust,
        }


def _summary_for(streams: ComparedSets, order: Integers) -> SummarisedStream:
    """Return the joined stream for some of the kept draws."""
    return replace(streams.summary, kept=None if streams.given is None else streams.given[order])


def _joined_subsample(sets: Sequence[Kept], mass: Array) -> Block | None:
    """Join the evenly spaced subsamples of the streams, equally dense in all streams; None if one is missing."""
    blocks = [kept.stream for kept in sets if kept.stream is not None]
    if len(blocks) < len(sets):
        return None
    density = np.array([len(block.draws) for block in blocks]) / mass
    target = min(float(density.min()), _STREAM_DRAWS / float(mass.sum()))
    if target == 0.0:
        return None
    strides = np.ceil(density / target * (1.0 - _ROUNDING)).astype(np.int64).tolist()
    return concatenate([block.take(slice(None, None, stride)) for block, stride in zip(blocks, strides, strict=True)])


def _common_variables(parts: Sequence[Mapping[str, Variable]], rows: Integers) -> dict[str, Variable]:
    variables = {}
    for name, first in parts[0].items():
        if all(name in part for part in parts):
            variables[name] = first._replace(values=np.concatenate([part[name].values for part in parts])[rows])
    return variables


def _common_groups(
    parts: Sequence[Mapping[str, Mapping[str, Variable]]], rows: Integers
) -> dict[str, dict[str, Variable]]:
    """Return the groups that all parts have; those of the model from the first part."""
    return {
        name: dict(first) if name in MODEL_GROUPS else _common_variables([part[name] for part in parts], rows)
        for name, first in parts[0].items()
        if all(name in part for part in parts)
    }
