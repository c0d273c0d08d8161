"""An evenly spaced subset of a stream of unknown length, to look at before thinning it: where it lies, how wide it is.

Every k-th draw is held; when there are too many, every other one of them goes and k doubles. What is held depends on
the stream alone, not on its blocks, so a file and an array of the same draws lead to the same coordinates.
"""

from __future__ import annotations

import numpy as np

from steinstream import door

_MOST = 4096


class Sketch:
    """At most 4096 draws of the stream, evenly spaced."""

    def __init__(self, dim: int) -> None:
        self._held = door.no_draws(dim)
        self._stride, self._seen = 1, 0

    def add(self, block: door.Block) -> None:
        """Take in the next draws."""
        self._held = self._held.then(block.take(slice(-self._seen % self._stride, None, self._stride)))
        self._seen += len(block.draws)
        while len(self._held.draws) > _MOST:
            self._held = self._held.take(slice(None, None, 2))
            self._stride *= 2

    @property
    def block(self) -> door.Block:
        """The draws held, in order."""
        return self._held

    def settled(self) -> door.Block:
        """The second half of each chain: what the chain looks like after its burn-in, one hopes."""
        keep = np.zeros(len(self._held.ids), dtype=bool)
        for chain in np.unique(self._held.ids[:, 0]):
            mine = np.flatnonzero(self._held.ids[:, 0] == chain)
            keep[mine[len(mine) // 2 :]] = True
        return self._held.take(keep)
