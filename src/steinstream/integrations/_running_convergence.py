"""Split R-hat, effective sample size and divergences of chains that are not stored.

R-hat and ESS of a thinned set are meaningless, because its draws were selected. They are therefore computed from the
chains themselves, while these run, in O(chains * d) memory: of each chain, the means and sums of squares of 16 to 31
batches of equal length are held. R-hat compares the halves of the chains, without rank normalisation. The ESS is that
of the batch means, times the variance of the draws over the variance of the batch means; its error is about 30 %.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from steinstream._typing import Array
from steinstream.diagnostics.convergence import effective_sample_size, r_hat

_MAX_BATCHES = 32  # of a chain; then pairs of batches are merged
_MIN_BATCHES = 4


class BatchStatistics(NamedTuple):
    """Number, mean (d,) and sum of squared deviations (d,) of some draws."""

    size: int
    mean: Array
    squares: Array


def pool(batches: Sequence[BatchStatistics]) -> BatchStatistics:
    """Combine the statistics of several batches.

    Parameters
    ----------
    batches : sequence of BatchStatistics
        Statistics of each batch.

    Returns
    -------
    BatchStatistics
        Statistics of all draws together.

    Examples
    --------
    >>> first = BatchStatistics(2, np.array([1.0]), np.array([2.0]))  # 0 and 2
    >>> second = BatchStatistics(2, np.array([3.0]), np.array([0.0]))  # 3 and 3
    >>> pool([first, second])
    BatchStatistics(size=4, mean=array([2.]), squares=array([6.]))

    """
    counts = np.array([batch.size for batch in batches])[:, None]
    means = np.array([batch.mean for batch in batches])
    mean = (counts * means).sum(axis=0) / counts.sum()
    squares = sum(batch.squares for batch in batches) + (counts * (means - mean) ** 2).sum(axis=0)
    return BatchStatistics(int(counts.sum()), mean, squares)


class BatchedChain:
    """Statistics of a chain in batches of equal length, which doubles as the chain grows."""

    def __init__(self, dim: int) -> None:
        self.count = 0
        self.batches: list[BatchStatistics] = []
        self._length = 1
        self._empty = BatchStatistics(0, np.zeros(dim), np.zeros(dim))
        self._current = self._empty

    def add(self, draw: Array) -> None:
        """Add one draw (d,)."""
        self.count += 1
        count, mean, squares = self._current
        deviation = draw - mean
        mean = mean + deviation / (count + 1)
        self._current = BatchStatistics(count + 1, mean, squares + deviation * (draw - mean))
        if self._current.size == self._length:
            self.batches.append(self._current)
            self._current = self._empty
        if len(self.batches) == _MAX_BATCHES:
            self.batches = [pool(self.batches[i : i + 2]) for i in range(0, _MAX_BATCHES, 2)]
            self._length *= 2

    def halves(self) -> list[BatchStatistics]:
        """Return the statistics of the first and of the second half of the complete batches."""
        half = len(self.batches) // 2
        return [pool(self.batches[:half]), pool(self.batches[half : 2 * half])]


class RunningConvergence:
    """Convergence diagnostics of several chains, from all of their draws."""

    def __init__(self, dim: int) -> None:
        self._chains: defaultdict[int, BatchedChain] = defaultdict(lambda: BatchedChain(dim))
        self._divergences = 0

    def add(self, chain: int, draw: Array, diverging: bool = False) -> None:
        """Add one draw (d,) of a chain."""
        self._chains[chain].add(draw)
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
        result: dict[str, Any] = {"draws": [chain.count for chain in chains], "divergences": self._divergences}
        chains = [chain for chain in chains if len(chain.batches) >= _MIN_BATCHES]
        if chains:
            for name, values, pick in (("rhat", _r_hat(chains), np.argmax), ("ess", _ess(chains), np.argmin)):
                worst = int(pick(values))
                result |= {name: float(values[worst]), f"{name}_of": names[worst]}
        return result


def _r_hat(chains: Sequence[BatchedChain]) -> Array:
    """Return split R-hat of every parameter."""
    halves = [half for chain in chains for half in chain.halves()]
    lengths = np.array([half.size for half in halves])
    variance = np.sum([half.squares for half in halves], axis=0) / max(int((lengths - 1).sum()), 1)
    return r_hat(np.array([half.mean for half in halves]), lengths, variance)


def _ess(chains: Sequence[BatchedChain]) -> Array:
    """Return the effective sample size of every parameter; the number of draws for a constant."""
    batches = [batch for chain in chains for batch in chain.batches]
    whole, means = pool(batches), np.array([batch.mean for batch in batches])
    variance, noise = whole.squares / (whole.size - 1), np.var(means, axis=0, ddof=1)
    ratio = np.divide(variance, noise, out=np.full_like(noise, np.inf), where=noise > 0)
    return np.asarray(np.minimum(effective_sample_size(means) * ratio, whole.size))
