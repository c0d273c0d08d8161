"""Comparison of kept draws with the chain they come from: means, standard deviations and quantiles.

The chain is used without its burn-in, as in the diagnostic checks, so that a kept set without burn-in does not differ
for this reason. Differences are in standard deviations of the chain.
"""

from __future__ import annotations

from functools import cached_property
from statistics import NormalDist

import numpy as np

from steinstream._typing import Array
from steinstream.diagnostics import FALSE_ALARM
from steinstream.diagnostics.context import DiagnosticContext, largest_deviation
from steinstream.diagnostics.moments import sd_differences
from steinstream.diagnostics.summary import Summary, summarise
from steinstream.io.base import default_names
from steinstream.report.chain_summary import ChainSummary
from steinstream.result import Kept

#: Levels of the compared quantiles.
QUANTILE_LEVELS = (0.05, 0.5, 0.95)


class ChainComparison:
    """A kept set and the summary of its chain, None if there is nothing to compare with."""

    def __init__(self, kept: Kept, chain: ChainSummary | None) -> None:
        self.kept, self.chain = kept, chain
        self.names = kept.names or default_names(kept.draws.shape[1])
        self.weights = np.full(len(kept), 1.0 / max(len(kept), 1)) if kept.weights is None else kept.weights

    @cached_property
    def context(self) -> DiagnosticContext:
        """Kept draws and chain as the diagnostic checks use them, but with more draws of the chain."""
        if self.chain is None:
            raise ValueError("The set has no chain to compare with.")
        kept = self.kept
        return DiagnosticContext(
            kept.draws, kept.ids, self.chain.block, self.names, kept.weights, burn_in_ends=kept.burn_in_ends
        )

    @cached_property
    def burn_in_ends(self) -> dict[int, int]:
        """Index of the first draw after burn-in, for each chain that has a burn-in."""
        first, ids = self.context.chain_rows, self.context.stream.ids
        settled = self.context.settled_rows.items()
        return {chain: int(ids[rows[0], 1]) for chain, rows in settled if rows[0] > first[chain][0]}

    @property
    def draws(self) -> Array:
        """Draws of the chain after burn-in; the kept draws without a chain."""
        return self.kept.draws if self.chain is None else self.context.draws

    def deviation(self, draws: Array) -> Array:
        """Return for each draw the largest deviation of a parameter from the mean of the chain, in its sd."""
        return largest_deviation(draws, self.context.mean, self.context.sd)

    @cached_property
    def summary(self) -> Summary:
        """Mean, standard deviation and quantiles of the kept draws and, if there is one, of the chain after burn-in."""
        stream = None if self.chain is None else self.chain.block
        kept = self.kept
        ends = kept.burn_in_ends
        return summarise(kept.draws, self.weights, self.names, QUANTILE_LEVELS, kept.ids, stream, burn_in_ends=ends)

    @cached_property
    def standard_errors(self) -> dict[str, Array]:
        """Difference of each statistic from the chain, in standard errors of independent draws, by name, (d,).

        For a quantile, the fractions of the draws below the quantile of the chain are compared by Cohen's h, the
        difference of 2 arcsin(sqrt(p)); for standard deviations see `sd_differences`. These differences are nearly
        normal for independent draws of every distribution.

        Returns
        -------
        dict
            Name of the statistic, as in the summary, and the differences of the parameters.
        """
        if self.chain is None:
            raise ValueError("The set has no chain to compare with.")
        kept = self.kept
        context = DiagnosticContext(
            kept.draws, kept.ids, self.chain.stream, weights=kept.weights, burn_in_ends=kept.burn_in_ends
        )
        shifts = context.weights @ context.standardise(context.kept)
        differences = [shifts / context.standard_error(context.draws), sd_differences(context)]
        for edge in np.quantile(context.draws, QUANTILE_LEVELS, axis=0):
            below = (context.draws <= edge).astype(np.float64)
            fractions = np.stack([below.mean(axis=0), context.weights @ (context.kept <= edge)])
            chain, own = 2.0 * np.arcsin(np.sqrt(np.clip(fractions, 0.0, 1.0)))
            differences.append((chain - own) / context.standard_error(below))  # fewer draws below: a larger quantile
        return dict(zip(self.summary.statistics, differences, strict=True))

    @property
    def limit(self) -> float:
        """Number of standard errors that all differences of independent draws stay below, but for one set in 1000."""
        comparisons = len(self.summary.statistics) * self.kept.draws.shape[1]
        return NormalDist().inv_cdf(1.0 - FALSE_ALARM / (2.0 * comparisons))

    def most_different(self, number: int) -> list[int]:
        """Return the ``number`` parameters that differ most from the chain, in order; without a chain, the first."""
        dim = self.kept.draws.shape[1]
        if self.chain is None or dim <= number:
            return list(range(min(dim, number)))
        size = np.nan_to_num(np.max(np.abs(list(self.summary.difference.values())), axis=0))
        return sorted(np.argsort(-size, kind="stable")[:number].tolist())
