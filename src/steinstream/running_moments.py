"""Mean and covariance of a stream, draw by draw."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steinstream.errors import InputError

Array = NDArray[np.float64]


class Moments:
    """Running mean and variances in O(d) memory, or the ``whole`` covariance in O(d^2).

    >>> moments = Moments(2, whole=True)
    >>> moments.add([[0.0, 0.0], [2.0, 4.0], [2.0, 4.0]])
    >>> moments.count, moments.distinct, moments.mean
    (3, 2, array([1.33333333, 2.66666667]))
    >>> moments.covariance
    array([[1.33333333, 2.66666667],
           [2.66666667, 5.33333333]])
    """

    def __init__(self, dim: int, whole: bool = False) -> None:
        self.mean, self._last = np.zeros(dim), np.zeros(dim)
        self._second = np.zeros((dim if whole else 1, dim))
        self._counts = np.zeros(2, dtype=np.int64)
        self._whole = whole  # (1, 1) is both a whole covariance and a lone variance

    @classmethod
    def of(cls, draws: ArrayLike) -> Moments:
        """Mean and variances of draws (n, d) or (chains, n, d), all chains together."""
        x = np.asarray(draws, dtype=np.float64)
        if x.ndim not in (2, 3) or x.size == 0:
            raise InputError(f"Draws must have shape (n, d) or (chains, n, d), got shape {x.shape}.")
        moments = cls(x.shape[-1])
        moments.add(x.reshape(-1, x.shape[-1]))
        return moments

    def add(self, draws: ArrayLike) -> None:
        """Take in more draws (n, d); the same bits as one by one."""
        from steinstream._engine.online_stats import absorb  # brings numba

        x = np.ascontiguousarray(draws, dtype=np.float64)
        if x.ndim != 2 or x.shape[1] != len(self.mean):
            raise InputError(f"Expected draws with {len(self.mean)} dimensions, got shape {x.shape}.")
        if not np.isfinite(x).all():
            raise InputError("Some draws are not finite, so they have no mean.", "Leave them out.")
        absorb(x, self._counts, self.mean, self._second, self._last, np.empty(len(self.mean)))

    @property
    def count(self) -> int:
        """How many draws came."""
        return int(self._counts[0])

    @property
    def distinct(self) -> int:
        """How many of them differed from the one before."""
        return int(self._counts[1])

    @property
    def variances(self) -> Array:
        """Mean squared distance from the mean, for each coordinate."""
        sums = np.diagonal(self._second) if self._whole else self._second[0]
        return np.asarray(sums / max(self.count, 1))

    @property
    def covariance(self) -> Array | None:
        """The unbiased estimate of the covariance; None if only variances are carried."""
        if not self._whole:
            return None
        lower = np.tril(self._second)
        return np.asarray((lower + np.tril(lower, -1).T) / max(self.count - 1, 1))

    def state(self) -> dict[str, NDArray[Any]]:
        """All there is to know."""
        return {"counts": self._counts, "mean": self.mean, "second": self._second, "last": self._last}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Take over what :meth:`state` gave."""
        self._counts, self.mean = state["counts"].copy(), state["mean"].copy()
        self._second, self._last = state["second"].copy(), state["last"].copy()
