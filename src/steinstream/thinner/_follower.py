"""When coordinates follow the stream, and to where: see :class:`~steinstream.Streaming`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from steinstream.preconditioning import Preconditioner, Streaming, wants_matrix
from steinstream.running_moments import Moments

Array = NDArray[np.float64]

_REMEMBERED = 100  # steps at which coordinates changed: with ``forget`` their number would grow with the stream


class Follower:
    """Says when coordinates are to change, and to what."""

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

    def take(self, draws: Array, step: int) -> Preconditioner | None:
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
        if look.distinct < 2:  # a chain that is stuck says nothing about widths
            return None
        self.changes = [*self.changes, step][-_REMEMBERED:]
        centre = look.mean if self.streaming.centred else None
        return Preconditioner.from_moments(look.distinct, np.sqrt(look.variances), look.covariance, centre)

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
