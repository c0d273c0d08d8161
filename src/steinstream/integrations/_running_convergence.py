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

from steinstream._typing import Array
from steinstream.diagnostics.batch_means import BatchMeans, effective_draws
from steinstream.diagnostics.convergence import r_hat

_MAX_BATCHES = 32  # of a chain
_MIN_BATCHES = 4


class RunningConvergence:
    """Convergence diagnostics of several chains, from all of their draws."""

    def __init__(self, dim: int) -> None:
        self._chains: defaultdict[int, BatchMeans] = defaultdict(lambda: BatchMeans(np.arange(dim), _MAX_BATCHES))
        self._divergences = 0

    def add(self, chain: int, draw: Array, diverging: bool = False) -> None:
        """Add one draw (d,) of a chain."""
        self._chains[chain].add(np.asarray(draw, dtype=np.float64)[None])
        self._divergences += diverging

    def summary(self, names: Sequence[str]) -> dict[str, Any]:
        """Return draws per chain, divergences, the largest R-hat and the smallest ESS, as JSON values.

        Parameters
        ----------
        names : sequence of str
            Parameter names.

        Returns
        -------
        dict
            ``draws``, ``divergences``; with at least 4 draws in a chain also ``rhat``, ``rhat_of``, ``ess``,
            ``ess_of``.

        """
        chains = [chain for _, chain in sorted(self._chains.items())]
        result: dict[str, Any] = {"draws": [chain.seen for chain in chains], "divergences": self._divergences}
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
