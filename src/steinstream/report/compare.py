"""Kept draws beside the chain they are from: where each parameter's mean, spread and quantiles differ.

The chain counts from where it settled, as the blind-spot report has it, so that a burn-in is not held against draws
that have none. Differences are in standard deviations of the chain.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from steinstream.diagnostics.context import Evidence, farness
from steinstream.io.base import default_names
from steinstream.report.chain_summary import Outline
from steinstream.result import Kept
from steinstream.validation import Array, Integers

#: Quantiles that are compared.
LEVELS = (0.05, 0.5, 0.95)


class Differences(NamedTuple):
    """For each parameter: means and standard deviations, the shift of the mean and of the quantiles (3, d)."""

    chain_mean: Array
    kept_mean: Array
    chain_sd: Array
    kept_sd: Array
    shift: Array
    ratio: Array
    quantiles: Array


class Beside:
    """A kept set and the outline of its chain, if there is one."""

    def __init__(self, kept: Kept, outline: Outline | None) -> None:
        self.kept, self.outline = kept, outline
        self.names = kept.names or default_names(kept.draws.shape[1])
        self.weights = np.full(len(kept), 1.0 / max(len(kept), 1)) if kept.weights is None else kept.weights

    @cached_property
    def evidence(self) -> Evidence:
        """The same as the checks of blind spots see it, from more draws."""
        if self.outline is None:
            raise ValueError("there is no chain")
        return Evidence(self.kept.draws, self.kept.ids, self.outline.block, self.names, self.kept.weights)

    @cached_property
    def settled_from(self) -> dict[int, int]:
        """Of each chain with a burn-in the first draw after it, among those that are held."""
        begin, ids = self.evidence.chains, self.evidence.stream.ids
        settled = self.evidence.settled.items()
        return {chain: int(ids[rows[0], 1]) for chain, rows in settled if rows[0] > begin[chain][0]}

    @property
    def draws(self) -> Array:
        """The chain after its burn-in; without a chain what is kept."""
        return self.kept.draws if self.outline is None else self.evidence.draws

    def distance(self, draws: Array) -> Array:
        """How many standard deviations the farthest parameter is from the settled chain's mean."""
        return farness(draws, self.evidence.centre, self.evidence.width)

    @cached_property
    def differences(self) -> Differences:
        """Of each parameter."""
        points, chain, width = self.kept.draws, self.evidence.draws, self.evidence.width
        mean = self.weights @ points
        sd = np.sqrt(self.weights @ (points - mean) ** 2)
        ours, theirs = quantiles(points, self.weights), np.quantile(chain, LEVELS, axis=0)
        centre, spread = chain.mean(axis=0), chain.std(axis=0)
        return Differences(
            centre, mean, spread, sd, (mean - centre) / width, sd / width, (ours - theirs) / width,
        )  # fmt: skip

    def most_different(self, most: int) -> list[int]:
        """The parameters that differ most in mean, spread or a quantile, in their order; the first ones without a
        chain.
        """
        dim = self.kept.draws.shape[1]
        if self.outline is None or dim <= most:
            return list(range(min(dim, most)))
        found = self.differences
        how = np.max(np.vstack([np.abs(found.shift), np.abs(found.ratio - 1.0), np.abs(found.quantiles)]), axis=0)
        return sorted(np.argsort(-how, kind="stable")[:most].tolist())


def quantiles(points: Array, weights: Array) -> Array:
    """The quantiles of weighted draws (n, d): between their middles in the ranking, linearly.

    >>> quantiles(np.array([[1.0], [2.0], [3.0]]), np.full(3, 1 / 3))[1]
    array([2.])
    """
    order: Integers = np.argsort(points, axis=0, kind="stable")
    result = np.empty((len(LEVELS), points.shape[1]))
    for j, rows in enumerate(order.T):
        share = weights[rows]
        result[:, j] = np.interp(LEVELS, np.cumsum(share) - share / 2.0, points[rows, j])
    return result
