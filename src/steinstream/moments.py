"""Mean and covariance of a stream as it runs, and the coordinates that follow them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from steinstream.coordinates import Coordinates, Streaming, wants_matrix

Array = NDArray[np.float64]

_REMEMBERED = 100  # steps at which coordinates changed: with ``forget`` their number would grow with the stream


class Moments:
    """Running mean and covariance (or variances alone), in O(d^2) memory (or O(d)).

    >>> moments = Moments(2, whole=True)
    >>> moments.add(np.array([[0.0, 0.0], [2.0, 4.0], [2.0, 4.0]]))
    >>> moments.count, moments.distinct, moments.mean
    (3, 2, array([1.33333333, 2.66666667]))
    >>> moments.covariance
    array([[1.33333333, 2.66666667],
           [2.66666667, 5.33333333]])
    """

    def __init__(self, dim: int, whole: bool) -> None:
        self.mean, self._last = np.zeros(dim), np.zeros(dim)
        self._second = np.zeros((dim if whole else 1, dim))
        self._counts = np.zeros(2, dtype=np.int64)
        self._whole = whole  # (1, 1) is both a whole covariance and a lone variance

    def add(self, draws: Array) -> None:
        """Take in more draws (n, d); the same bits as one by one."""
        from steinstream._engine.moments import absorb  # brings numba

        absorb(draws, self._counts, self.mean, self._second, self._last, np.empty(len(self.mean)))

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


class Follower:
    """Says when coordinates are to change, and to what: see :class:`~steinstream.Streaming`."""

    def __init__(self, streaming: Streaming, dim: int) -> None:
        self.streaming, self._dim = streaming, dim
        self.seen = 0  # draws that ran through the thinner
        self._due = streaming.first // 2  # where the first look begins
        self._moments = self._anew()
        self.changes: list[int] = []  # steps after which coordinates changed

    def _anew(self) -> Moments:
        return Moments(self._dim, wants_matrix(self.streaming.kind, self._dim))

    def room(self, candidates: int) -> int:
        """How many steps of so many draws can run before coordinates may change."""
        return -(-(self._due - self.seen) // candidates)

    def take(self, draws: Array, step: int) -> Coordinates | None:
        """Take in the draws of the steps up to this one; the new coordinates, when it is time."""
        self._moments.add(draws)
        self.seen += len(draws)
        if self.seen < self._due:
            return None
        look, self._moments = self._moments, self._anew()
        early = self.seen < self.streaming.first
        while self._due <= self.seen:
            self._due += min(self._due, self.streaming.forget or self._due)
        if early:
            self._due = self.streaming.first
            return None
        self.changes = [*self.changes, step][-_REMEMBERED:]
        centre = look.mean if self.streaming.centred else None
        return Coordinates.from_moments(look.distinct, np.sqrt(look.variances), look.covariance, centre)

    def about(self) -> dict[str, Any]:
        """What fits into JSON."""
        return {"streaming": vars(self.streaming), "seen": self.seen, "due": self._due, "changes": self.changes}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """And the rest."""
        return self._moments.state()

    def restore(self, about: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Take over what :meth:`about` and :meth:`arrays` gave."""
        self.seen, self._due, self.changes = about["seen"], about["due"], about["changes"]
        self._moments.restore(arrays)
