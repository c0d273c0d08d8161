"""Split R-hat, effective sample size and divergences of chains that are not stored.

R-hat and ESS of a thinned set are meaningless, because its draws were selected. They are therefore computed from the
chains themselves, while these run, in O(chains * d) memory: of each chain, the means and variances of 16 to 31 batches
are held (:mod:`steinstream.diagnostics.batch_means`). R-hat compares the halves of the chains, without rank
normalisation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from steinstream._typing import Array, Integers
from steinstream.diagnostics.batch_means import BatchMeans, effective_draws
from steinstream.diagnostics.convergence import r_hat

_MAX_BATCHES = 32  # of a chain
_MIN_BATCHES = 4
_BUFFER = 1024  # draws that are collected before they are added


class RunningConvergence:
    """Convergence diagnostics of several chains, from all of their finite draws."""

    def __init__(self, dim: int) -> None:
        self._chains: defaultdict[int, BatchMeans] = defaultdict(lambda: BatchMeans(np.arange(dim), _MAX_BATCHES))
        self._divergences: int | None = None
        self._held: list[tuple[Integers, Array]] = []
        self._held_count = 0

    def add(self, ids: Integers, draws: Array, diverging: ArrayLike | None = None) -> None:
        """Add draws of any chains.

        Parameters
        ----------
        ids : array
            Identifiers (chain, index), (n, 2); the draws of each chain are in order.
        draws : array
            Draws, (n, d).
        diverging : array_like of bool, optional
            Whether each draw ended a divergent transition, for samplers that report it.

        """
        self._held.append((ids[:, 0].copy(), np.array(draws, dtype=np.float64)))
        self._held_count += len(draws)
        if diverging is not None:
            self._divergences = (self._divergences or 0) + int(np.sum(diverging))
        if self._held_count >= _BUFFER:
            self._flush()

    def _flush(self) -> None:
        if not self._held:
            return
        chains, draws = (np.concatenate(parts) for parts in zip(*self._held, strict=True))
        self._held, self._held_count = [], 0
        finite = np.isfinite(draws).all(axis=1)
        for chain in np.unique(chains).tolist():
            rows = draws[(chains == chain) & finite]
            if len(rows):
                self._chains[chain].add(rows)

    def summary(self, names: Sequence[str]) -> dict[str, Any]:
        """Return draws per chain, divergences, the largest R-hat and the smallest ESS, as JSON values.

        Parameters
        ----------
        names : sequence of str
            Parameter names.

        Returns
        -------
        dict
            ``draws``; ``divergences`` if the sampler reports them; with at least 4 draws in a chain also ``rhat``,
            ``rhat_of``, ``ess``, ``ess_of``.

        """
        self._flush()
        chains = [chain for _, chain in sorted(self._chains.items())]
        result: dict[str, Any] = {"draws": [chain.seen for chain in chains]}
        if self._divergences is not None:
            result["divergences"] = self._divergences
        chains = [chain for chain in chains if chain.count >= _MIN_BATCHES]
        if chains:
            for name, values, pick in (("rhat", _r_hat(chains), np.argmax), ("ess", _ess(chains), np.argmin)):
                worst = int(pick(values))
                result |= {name: float(values[worst]), f"{name}_of": names[worst]}
        return result


def _r_hat(chains: Sequence[BatchMeans]) -> Array:
    """Return split R-hat of every parameter, from the halves of the complete batches."""
    means, squares, lengths = [], [], []
    for chain in chains:
        half = chain.count // 2
        for rows in (slice(0, half), slice(half, 2 * half)):
            means.append(chain.means[rows].mean(axis=0))
            squares.append(chain.length * (chain.variances[rows] + (chain.means[rows] - means[-1]) ** 2).sum(axis=0))
            lengths.append(half * chain.length)
    variance = np.sum(squares, axis=0) / max(sum(lengths) - len(lengths), 1)
    return r_hat(np.array(means), np.array(lengths), variance)


def _ess(chains: Sequence[BatchMeans]) -> Array:
    """Return the effective sample size of every parameter; the number of draws for a constant."""
    means, variances = (np.concatenate([getattr(chain, name) for chain in chains]) for name in ("means", "variances"))
    return effective_draws(means, variances, np.repeat([c.length for c in chains], [c.count for c in chains]))
