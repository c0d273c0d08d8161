"""Comparison of kept draws with the chain they come from: means, standard deviations and quantiles.

The chain is used without its burn-in, as in the diagnostic checks, so that a kept set without burn-in does not differ
for this reason. Differences are in standard deviations of the chain.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from steinstream._typing import Array, Integers
from steinstream.diagnostics.context import DiagnosticContext, largest_deviation
from steinstream.io.base import default_names
from steinstream.report.chain_summary import ChainSummary
from steinstream.result import Kept

#: Levels of the compared quantiles.
QUANTILE_LEVELS = (0.05, 0.5, 0.95)


class Differences(NamedTuple):
    """Differences between kept draws and chain, per parameter.

    Attributes
    ----------
    chain_mean, kept_mean, chain_sd, kept_sd : array
        Means and standard deviations, (d,).
    shift : array
        Difference of the means, in standard deviations of the chain, (d,).
    ratio : array
        Ratio of the standard deviations, (d,).
    quantiles : array
        Differences of the quantiles, in standard deviations of the chain, (3, d).

    """

    chain_mean: Array
    kept_mean: Array
    chain_sd: Array
    kept_sd: Array
    shift: Array
    ratio: Array
    quantiles: Array


class ChainComparison:
    """A kept set and the summary of its chain.

    Parameters
    ----------
    kept : Kept
        The kept set.
    chain : ChainSummary or None
        Summary of its chain. None if there is nothing to compare with.

    Attributes
    ----------
    names : sequence of str
        Parameter names.
    weights : array
        Weights of the kept draws, (n,), with sum 1.

    """

    def __init__(self, kept: Kept, chain: ChainSummary | None) -> None:
        self.kept, self.chain = kept, chain
        self.names = kept.names or default_names(kept.draws.shape[1])
        self.weights = np.full(len(kept), 1.0 / max(len(kept), 1)) if kept.weights is None else kept.weights

    @cached_property
    def context(self) -> DiagnosticContext:
        """Kept draws and chain as the diagnostic checks use them, but with more draws of the chain."""
        if self.chain is None:
            raise ValueError("The set has no chain to compare with.")
        return DiagnosticContext(self.kept.draws, self.kept.ids, self.chain.block, self.names, self.kept.weights)

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
    def differences(self) -> Differences:
        """Differences between kept draws and chain."""
        draws, chain, sd = self.kept.draws, self.context.draws, self.context.sd
        kept_mean, chain_mean = self.weights @ draws, chain.mean(axis=0)
        kept_sd = np.sqrt(self.weights @ (draws - kept_mean) ** 2)
        shifts = weighted_quantiles(draws, self.weights) - np.quantile(chain, QUANTILE_LEVELS, axis=0)
        return Differences(
            chain_mean=chain_mean,
            kept_mean=kept_mean,
            chain_sd=chain.std(axis=0),
            kept_sd=kept_sd,
            shift=(kept_mean - chain_mean) / sd,
            ratio=kept_sd / sd,
            quantiles=shifts / sd,
        )

    def most_different(self, number: int) -> list[int]:
        """Return the ``number`` parameters that differ most from the chain, in order; without a chain, the first."""
        dim = self.kept.draws.shape[1]
        if self.chain is None or dim <= number:
            return list(range(min(dim, number)))
        found = self.differences
        size = np.max(np.vstack([np.abs(found.shift), np.abs(found.ratio - 1.0), np.abs(found.quantiles)]), axis=0)
        return sorted(np.argsort(-size, kind="stable")[:number].tolist())


def weighted_quantiles(draws: Array, weights: Array) -> Array:
    """Return quantiles of weighted draws, by linear interpolation between the midpoints of their ranks.

    Parameters
    ----------
    draws : array
        Draws (n, d).
    weights : array
        Weights (n,), with sum 1.

    Returns
    -------
    array
        Quantiles at `QUANTILE_LEVELS`, (3, d).

    Examples
    --------
    >>> weighted_quantiles(np.array([[1.0], [2.0], [3.0]]), np.full(3, 1 / 3))[1]
    array([2.])

    """
    order: Integers = np.argsort(draws, axis=0, kind="stable")
    result = np.empty((len(QUANTILE_LEVELS), draws.shape[1]))
    for j, rows in enumerate(order.T):
        mass = weights[rows]
        result[:, j] = np.interp(QUANTILE_LEVELS, np.cumsum(mass) - mass / 2.0, draws[rows, j])
    return result
