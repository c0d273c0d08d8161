"""What all checks look at: the kept draws, and the stream once it has settled."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from steinstream.diagnostics.mcse import effective
from steinstream.diagnostics.regions import divisions, regions_of
from steinstream.validation import Array, Block, Integers

Rows = NDArray[np.bool_]

_MARGIN = 1.5  # beyond the farthest of the second halves a draw is outside


class Evidence:
    """The kept draws and a sketch of their stream."""

    def __init__(
        self, points: Array, ids: Integers, stream: Block, names: Sequence[str] | None = None,
        weights: Array | None = None,
    ) -> None:  # fmt: skip
        self.points, self.ids, self.stream = points, ids, stream
        self.weighted = weights is not None and np.ptp(weights) > 0
        self._given = np.ones(len(points)) if weights is None else weights
        self.names = names or [f"x{j}" for j in range(points.shape[1])]
        self.chains = {int(c): np.flatnonzero(stream.ids[:, 0] == c) for c in np.unique(stream.ids[:, 0])}

    def without_constants(self) -> tuple[Evidence, list[str]]:
        """The same without parameters that never move, and the names of these; but if none moves, all of it."""
        still = np.ptp(self.draws, axis=0) == 0
        if not still.any() or still.all():
            return self, []
        draws, scores, ids = self.stream
        rest = Block(draws[:, ~still], scores[:, ~still], ids)
        names = [name for name, left_out in zip(self.names, still, strict=True) if not left_out]
        constant = [name for name, left_out in zip(self.names, still, strict=True) if left_out]
        return Evidence(self.points[:, ~still], self.ids, rest, names, self._given), constant

    def unweighted(self) -> Evidence:
        """The same draws without their weights."""
        return Evidence(self.points, self.ids, self.stream, self.names)

    # -- when the stream has settled -------------------------------------------------------------------------------

    @cached_property
    def _cover(self) -> tuple[Array, Array, float]:
        """Mean and width of the second halves of the chains, and how many widths out a draw belongs to them no more."""
        rows = np.concatenate([mine[len(mine) // 2 :] for mine in self.chains.values()])
        draws = self.stream.draws[rows]
        centre, width = draws.mean(axis=0), widths(draws)
        return centre, width, _MARGIN * float(farness(draws, centre, width).max())

    def _outside(self, draws: Array) -> Rows:
        centre, width, limit = self._cover
        return farness(draws, centre, width) > limit

    @cached_property
    def settled(self) -> dict[int, Integers]:
        """Of each chain the rows of the sketch after its burn-in: from the first on that the second halves cover."""
        inside = ~self._outside(self.stream.draws)
        return {chain: mine[int(np.argmax(inside[mine])) :] for chain, mine in self.chains.items()}

    @cached_property
    def burnt(self) -> Rows:
        """Which kept draws are burn-in: outside, and from before their chain settled."""
        early = np.zeros(len(self.points), dtype=bool)
        for chain, rows in self.settled.items():
            early |= (self.ids[:, 0] == chain) & (self.ids[:, 1] < self.stream.ids[rows[0], 1])
        return early & self._outside(self.points)

    @cached_property
    def kept(self) -> Array:
        """What is kept apart from burn-in, which has a check of its own."""
        return self.points[self._unburnt]

    @cached_property
    def weights(self) -> Array:
        """Its weights, of sum 1."""
        given = self._given[self._unburnt]
        return np.asarray(given / given.sum())

    @cached_property
    def number(self) -> int:
        """How many draws that is, those of weight zero too: bad weights are no excuse for being far off."""
        return max(1, int((~self.burnt).sum()))

    @cached_property
    def _unburnt(self) -> Rows:
        rest = ~self.burnt & (self._given > 0)
        return rest if rest.any() else self._given > 0

    @cached_property
    def _rows(self) -> Integers:
        return np.concatenate(list(self.settled.values()))

    @cached_property
    def draws(self) -> Array:
        """The settled draws, chain after chain."""
        return self.stream.draws[self._rows]

    @cached_property
    def scores(self) -> Array:
        """Their scores."""
        return self.stream.scores[self._rows]

    @cached_property
    def centre(self) -> Array:
        """The mean of each parameter."""
        return np.asarray(self.draws.mean(axis=0))

    @cached_property
    def width(self) -> Array:
        """The standard deviation of each parameter, 1 where it never moves."""
        return widths(self.draws)

    @cached_property
    def normal_scores(self) -> Array:
        """The settled draws with each parameter replaced by the normal quantile of its rank.

        A. Vehtari et al., "Rank-normalization, folding, and localization", Bayesian Analysis 16 (2021).
        """
        return normal_scores(self.draws)

    def standardised(self, draws: Array) -> Array:
        """Draws in widths from the centre."""
        return (draws - self.centre) / self.width

    @cached_property
    def divisions(self) -> list[Array]:
        """The standardised stream divided into regions, from coarse to fine."""
        return divisions(self.standardised(self.draws))

    @cached_property
    def members(self) -> Array:
        """(n, k): which settled draws are in which of the k regions, as 0 and 1."""
        return regions_of(self.standardised(self.draws), self.divisions)

    def place(self, region: int) -> str:
        """Where a region is, by the two parameters that set it apart most."""
        where = np.concatenate(self.divisions)[region]
        values = self.centre + self.width * where
        return ", ".join(f"{self.names[j]} = {values[j]:.3g}" for j in np.argsort(-np.abs(where))[:2])

    # -- how sure it is --------------------------------------------------------------------------------------------

    def noise(self, over_stream: Array) -> Array:
        """The standard error of a mean over the stream less that over the kept draws, in standard deviations.

        For k functions; ``over_stream`` (n, k) are their values on the settled draws.
        """
        return np.asarray(np.sqrt(1.0 / effective(over_stream) + 1.0 / self.number))


def farness(draws: Array, centre: Array, width: Array) -> Array:
    """How many widths the farthest parameter of each draw is from the centre."""
    return np.asarray(np.max(np.abs(draws - centre) / width, axis=1))


def widths(draws: Array) -> Array:
    """The standard deviation of each column, 1 where all values are the same."""
    deviations = draws.std(axis=0)
    return np.where((np.ptp(draws, axis=0) > 0) & (deviations > 0), deviations, 1.0)


def normal_scores(draws: Array) -> Array:
    """Each column replaced by the normal quantiles of its ranks; equal values share their mean rank."""
    count = len(draws)
    quantiles = np.array([NormalDist().inv_cdf((rank + 0.625) / (count + 0.25)) for rank in range(count)])
    scores = np.empty_like(draws)
    for j, column in enumerate(draws.T):
        _, inverse, counts = np.unique(column, return_inverse=True, return_counts=True)
        ends = np.cumsum(counts)
        sums = np.concatenate([[0.0], np.cumsum(quantiles)])
        scores[:, j] = ((sums[ends] - sums[ends - counts]) / counts)[inverse]
    return scores
