"""An array of a tree along its draws: read in slabs of whole chunks, each of them once.

A slab is a few megabytes of one chain. Where chunks hold several chains, which are asked for one after another, it is
those chains whole if they are small enough; longer ones are read once for each chain, and the user is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy.typing as npt

from steinstream.io.tree import Array

_SLAB = 4 << 20  # bytes of a slab, unless a single chunk has more


class Slabs:
    """Rows of an array with dimensions (chain, draw), (draw) or (sample), and others behind them.

    ``hold`` are the bytes up to which chains, or all of the array, are read at once and kept.
    """

    def __init__(self, array: Array, dims: tuple[str, ...], hold: int) -> None:
        self.array = array
        self._dims = tuple(dim for dim in dims if dim in array.dims)
        self._draws = array.sizes[dims[-1]]
        row = max(1, 8 * array.size_of(array.rest(self._dims)))
        chunk = array.chunk_of(dims[-1])
        self._step = chunk * max(1, _SLAB // (chunk * row))
        self._chains, self._together = 1, 1
        if len(self._dims) == 2:
            self._chains, self._together = array.sizes[dims[0]], array.chunk_of(dims[0])
        self.again = 1
        """How often each chunk is read."""
        chain = row * self._draws
        if chain * self._chains <= hold:
            self._step, self._together = max(1, self._draws), self._chains
        elif chain * min(self._together, self._chains) <= hold:
            self._step = self._draws if self._together > 1 else self._step
        else:
            self._together, self.again = 1, min(self._together, self._chains)
        self.held = row * min(self._step, self._draws)
        """Bytes of a slab of one chain."""
        self._at = (-1, -1)
        self._slab: npt.NDArray[Any] | None = None

    def border(self, start: int) -> int:
        """Where the slab ends that has this draw."""
        return min(start - start % self._step + self._step, self._draws)

    def rows(self, chain: int, start: int, stop: int) -> npt.NDArray[Any]:
        """Some draws within a slab, a view of it."""
        chain = chain if self._chains > 1 else 0
        at = chain - chain % self._together, start - start % self._step
        if self._slab is None or at != self._at:
            self._slab = None  # let the last one go first
            self._slab, self._at = self._load(*at), at
        return self._slab[chain - at[0], start - at[1] : stop - at[1]]

    def _load(self, chain: int, start: int) -> npt.NDArray[Any]:
        draws = slice(start, self.border(start))
        if len(self._dims) == 1:
            return self.array.part(self._dims, draws)[None]
        return self.array.part(self._dims, slice(chain, min(chain + self._together, self._chains)), draws)


def spans(slabs: Iterable[Slabs], start: int, stop: int, rows: int) -> Iterator[tuple[int, int]]:
    """From start to stop, at most ``rows`` at a time and never across the border of a slab."""
    slabs = list(slabs)
    while start < stop:
        end = min(stop, start + rows, *(slab.border(start) for slab in slabs))
        yield start, end
        start = end
