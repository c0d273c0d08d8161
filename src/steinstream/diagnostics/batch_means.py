"""Means and variances of consecutive batches of a chain that is not stored, and the effective sample size from them.

All batches have the same length. When there are too many, pairs of neighbours are merged, so that memory does not
depend on the length of the chain. A draw is added in the same way for any division of the chain into blocks.

The effective sample size is that of the batch means, times the variance of the draws over the variance of the batch
means. With 16 or more batches its error is about 30 %.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from steinstream._typing import Array, Integers
from steinstream.diagnostics.convergence import effective_sample_size


class BatchMeans:
    """Batches of some columns of a chain; pairs of batches are merged when there are ``most``, an even number."""

    def __init__(self, columns: Integers, most: int) -> None:
        self._columns = columns
        self._first = np.zeros(len(columns))  # the first draw, which is subtracted from all
        self._sums, self._squares = np.zeros((most, len(columns))), np.zeros((most, len(columns)))
        self._numbers = np.array([1, 0, 0, 0])

    @property
    def length(self) -> int:
        """Number of draws of a batch."""
        return int(self._numbers[0])

    @property
    def count(self) -> int:
        """Number of complete batches."""
        return int(self._numbers[1])

    @property
    def seen(self) -> int:
        """Number of draws."""
        return int(self._numbers[3])

    @property
    def means(self) -> Array:
        """Means of the complete batches, (count, columns)."""
        return np.asarray(self._first + self._sums[: self.count] / self.length)

    @property
    def variances(self) -> Array:
        """Variances within the complete batches, (count, columns)."""
        with np.errstate(over="ignore", invalid="ignore"):  # squares of draws above 1e154 overflow
            squares = self._squares[: self.count] / self.length - (self._sums[: self.count] / self.length) ** 2
        return np.asarray(np.maximum(squares, 0.0))

    def add(self, draws: Array) -> None:
        from steinstream._engine.online_stats import update_batches  # loads numba

        draws, done = np.ascontiguousarray(draws), 0
        while done < len(draws):
            done += update_batches(draws[done:], self._columns, self._first, self._sums, self._squares, self._numbers)
            if self.count == len(self._sums):
                self._merge_pairs()

    def _merge_pairs(self) -> None:
        """Merge each batch with its neighbour, so that half of the batches are free."""
        half = len(self._sums) // 2
        for values in (self._sums, self._squares):
            values[:half], values[half:] = values[0::2] + values[1::2], 0.0
        self._numbers[0], self._numbers[1] = 2 * self.length, half

    def state(self) -> dict[str, Any]:
        """Return the sums for a checkpoint."""
        names = ("first", "sums", "squares", "numbers")
        return {name: getattr(self, f"_{name}").copy() for name in names}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from the result of `state`."""
        self._first, self._sums, self._squares, self._numbers = (
            state[name].copy() for name in ("first", "sums", "squares", "numbers")
        )


def effective_draws(means: Array, variances: Array, lengths: Array) -> Array:
    """Return the effective sample size of each column, from means and variances (batches, k) of consecutive batches.

    Returns
    -------
    array
        Effective sample sizes (k,), between 1 and the number of draws; the number of draws for a constant column, and
        1 for a column whose variance overflows.
    """
    total, share = lengths.sum(), (lengths / lengths.sum())[:, None]
    with np.errstate(over="ignore", invalid="ignore"):
        variance = (share * (variances + (means - (share * means).sum(axis=0)) ** 2)).sum(axis=0)
        noise = means.var(axis=0)
    finite = np.isfinite(variance) & np.isfinite(noise)
    ratio = np.divide(variance, noise, out=np.full_like(noise, np.inf), where=finite & (noise > 0))
    effective = np.clip(effective_sample_size(np.where(finite, means, 0.0)) * ratio, 1.0, total)
    return np.asarray(np.where(finite, effective, 1.0))
