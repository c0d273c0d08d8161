"""Data that all checks share: the kept draws, and the stream after its burn-in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from steinstream._typing import Array, Flags, Integers
from steinstream.diagnostics.finding import normal_quantile
from steinstream.diagnostics.mcse import standard_error
from steinstream.diagnostics.regions import partitions, region_membership
from steinstream.validation import Block

MARGIN = 1.5  # a draw is outside if it is this much farther out than every draw of the second halves


class DiagnosticContext:
    """Kept draws and a subsample of their stream, with the statistics that several checks use.

    Burn-in has a check of its own. All other statistics, of the kept draws and of the stream, are computed without it.
    ``burn_in_ends`` has the index of the first draw after the burn-in that the thinner detected, by chain: burn-in ends
    there, or later. ``all_kept`` has the kept draws (n, d) including burn-in, ``chain_rows`` the rows of the stream
    that belong to each chain.
    """

    def __init__(
        self,
        draws: Array,
        ids: Integers,
        stream: Block,
        names: Sequence[str] | None = None,
        weights: Array | None = None,
        burn_in_ends: Mapping[int, int] | None = None,
    ) -> None:
        self.all_kept, self.ids, self.stream = draws, ids, stream
        self._burn_in_ends = burn_in_ends or {}
        self.is_weighted = weights is not None and np.ptp(weights) > 0
        self._raw_weights = np.ones(len(draws)) if weights is None else weights
        self.names = names or [f"x{j}" for j in range(draws.shape[1])]
        self.chain_rows = {int(c): np.flatnonzero(stream.ids[:, 0] == c) for c in np.unique(stream.ids[:, 0])}

    def without_constants(self) -> tuple[DiagnosticContext, list[str]]:
        """Remove the parameters that are constant in the stream, unless all are, and return their names too."""
        constant = np.ptp(self.draws, axis=0) == 0
        if not constant.any() or constant.all():
            return self, []
        scores = self.stream.scores[:, : len(constant)][:, ~constant] if self.has_scores else self.stream.scores
        stream = self.stream._replace(draws=self.stream.draws[:, ~constant], scores=scores)
        names = [name for name, removed in zip(self.names, constant, strict=True) if not removed]
        removed_names = [name for name, removed in zip(self.names, constant, strict=True) if removed]
        kept = self.all_kept[:, ~constant]
        return self._similar(kept, stream, names, self._raw_weights), removed_names

    def _similar(
        self, kept: Array, stream: Block, names: Sequence[str] | None, weights: Array | None
    ) -> DiagnosticContext:
        """Return a context of the same draws, with some of the parameters or another stream."""
        return DiagnosticContext(kept, self.ids, stream, names, weights, self._burn_in_ends)

    @property
    def has_scores(self) -> bool:
        """Whether the draws of the stream have scores."""
        return self.stream.has_scores

    def unweighted(self) -> DiagnosticContext:
        """Return the same draws with equal weights."""
        return self._similar(self.all_kept, self.stream, self.names, None)

    def with_proportions_of_kept(self, centres: Array) -> DiagnosticContext:
        """Return a context whose stream is the largest part with the proportions of the kept draws in some regions."""
        inside = region_membership(self.standardise(self.draws), [centres])
        kept = self.weights @ region_membership(self.standardise(self.kept), [centres])
        total = (inside.sum(axis=0)[kept > 0] / kept[kept > 0]).min()
        chosen = []
        for cell, proportion in zip(inside.T, kept, strict=True):
            rows = np.flatnonzero(cell)
            chosen.append(rows[np.linspace(0, len(rows), int(total * proportion), endpoint=False).astype(np.int64)])
        stream = self.stream.take(self._rows[np.sort(np.concatenate(chosen))])
        return self._similar(self.all_kept, stream, self.names, self._raw_weights)

    # -- burn-in -------------------------------------------------------------------------------------------------------

    @cached_property
    def _settled_region(self) -> tuple[Array, Array, float]:
        """Mean and standard deviation of the second halves of the chains, and the largest deviation within reach."""
        rows = np.concatenate([rows[len(rows) // 2 :] for rows in self.chain_rows.values()])
        draws = self.stream.draws[rows]
        mean, sd = draws.mean(axis=0), standard_deviations(draws)
        return mean, sd, MARGIN * float(largest_deviation(draws, mean, sd).max())

    def _outside(self, draws: Array) -> Flags:
        mean, sd, limit = self._settled_region
        return largest_deviation(draws, mean, sd) > limit

    @cached_property
    def settled_rows(self) -> dict[int, Integers]:
        """Rows of the stream after burn-in, by chain.

        They begin with the first draw within reach of the second halves, or where the thinner found the end of the
        burn-in, if that is later.

        Returns
        -------
        dict
            Chain -> rows.
        """
        inside, indices = ~self._outside(self.stream.draws), self.stream.ids[:, 1]
        settled = {}
        for chain, rows in self.chain_rows.items():
            found = int(np.argmax(indices[rows] >= self._burn_in_ends.get(chain, 0)))
            settled[chain] = rows[max(int(np.argmax(inside[rows])), found) :]
        return settled

    @cached_property
    def burn_in(self) -> Flags:
        """Marks of the kept draws that are burn-in: outside, and before the end of the burn-in of their chain."""
        early = np.zeros(len(self.all_kept), dtype=bool)
        for chain, rows in self.settled_rows.items():
            early |= (self.ids[:, 0] == chain) & (self.ids[:, 1] < self.stream.ids[rows[0], 1])
        return early & self._outside(self.all_kept)

    # -- kept draws ----------------------------------------------------------------------------------------------------

    @cached_property
    def _used(self) -> Flags:
        used = ~self.burn_in & (self._raw_weights > 0)
        return used if used.any() else self._raw_weights > 0

    @cached_property
    def kept(self) -> Array:
        """Kept draws without burn-in and without weights of zero."""
        return self.all_kept[self._used]

    @cached_property
    def weights(self) -> Array:
        """Weights of ``kept``, with sum 1."""
        weights = self._raw_weights[self._used]
        return np.asarray(weights / weights.sum())

    @cached_property
    def kept_count(self) -> int:
        """Number of kept draws without burn-in, including those of weight zero."""
        # The effective size of the weights would make the thresholds more lenient for worse weights.
        return max(1, int((~self.burn_in).sum()))

    @cached_property
    def centred_kept(self) -> Array:
        """``kept`` minus their weighted mean, in standard deviations of the stream."""
        return np.asarray((self.kept - self.weights @ self.kept) / self.sd)

    # -- stream --------------------------------------------------------------------------------------------------------

    @cached_property
    def _rows(self) -> Integers:
        return np.concatenate(list(self.settled_rows.values()))

    @cached_property
    def draws(self) -> Array:
        """Draws of the stream after burn-in, chain after chain."""
        return self.stream.draws[self._rows]

    @cached_property
    def scores(self) -> Array:
        """Scores of ``draws``; without columns if the stream has none."""
        return self.stream.scores[self._rows, : self.stream.draws.shape[1]]

    @cached_property
    def mean(self) -> Array:
        """Mean of each parameter over ``draws``."""
        return np.asarray(self.draws.mean(axis=0))

    @cached_property
    def sd(self) -> Array:
        """Standard deviation of each parameter over ``draws``; 1 for a constant."""
        return standard_deviations(self.draws)

    @cached_property
    def rank_normalised(self) -> Array:
        """``draws`` with each parameter replaced by the normal quantiles of its ranks."""
        return rank_normalise(self.draws)

    def standardise(self, draws: Array) -> Array:
        """Subtract the mean of the stream and divide by its standard deviations."""
        return (draws - self.mean) / self.sd

    @cached_property
    def partitions(self) -> list[Array]:
        """Centres of the partitions of the standardised stream, from coarse to fine."""
        return partitions(self.standardise(self.draws))

    @cached_property
    def membership(self) -> Array:
        """0/1 matrix (n, k): which of the k regions contain each of ``draws``."""
        return region_membership(self.standardise(self.draws), self.partitions)

    def describe_region(self, region: int) -> str:
        """Describe the centre of a region by the two parameters that deviate most from the mean."""
        centre = np.concatenate(self.partitions)[region]
        values = self.mean + self.sd * centre
        return ", ".join(f"{self.names[j]} = {values[j]:.3g}" for j in np.argsort(-np.abs(centre))[:2])

    def standard_error(self, stream_values: Array) -> Array:
        """Return the standard errors (k,) of means over ``kept`` minus means over ``draws``, in standard deviations."""
        return standard_error(stream_values, self.kept_count)


def largest_deviation(draws: Array, mean: Array, sd: Array) -> Array:
    """Return for each draw the largest deviation of a parameter from its mean, in standard deviations."""
    return np.asarray(np.max(np.abs(draws - mean) / sd, axis=1))


def standard_deviations(draws: Array) -> Array:
    """Return the standard deviation of each column; 1 if the column is constant."""
    deviations = draws.std(axis=0)
    return np.where((np.ptp(draws, axis=0) > 0) & (deviations > 0), deviations, 1.0)


def rank_normalise(draws: Array) -> Array:
    """Replace each column by the normal quantiles of its ranks. Equal values share the mean of their quantiles.

    A. Vehtari et al., "Rank-normalization, folding, and localization", Bayesian Analysis 16 (2021).

    Returns
    -------
    array
        Normal quantiles (n, d). Equal values share the mean of their quantiles.
    """
    count = len(draws)
    quantiles = np.array([normal_quantile((rank + 0.625) / (count + 0.25)) for rank in range(count)])
    result = np.empty_like(draws)
    for j, column in enumerate(draws.T):
        _, inverse, counts = np.unique(column, return_inverse=True, return_counts=True)
        ends = np.cumsum(counts)
        sums = np.concatenate([[0.0], np.cumsum(quantiles)])
        result[:, j] = ((sums[ends] - sums[ends - counts]) / counts)[inverse]
    return result
