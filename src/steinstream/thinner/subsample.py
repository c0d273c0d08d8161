"""An evenly spaced subset of a stream of unknown length: where it lies, how wide it is, how it moves.

Of each chain every k-th draw is held; when there are too many, every other one of them goes and k doubles. What is held
depends on the stream alone, not on its blocks, so a file and an array of the same draws lead to the same coordinates;
and chains are counted apart, so that none escapes because their number and k have a divisor in common.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from steinstream import validation
from steinstream.validation import Integers

_MOST = 4096
_FEW = 512
_NUMBERS = 1 << 22  # draws times dimensions
_PIECE = 512  # about so many more at once

# So many chains count from 0, the next so many from elsewhere: of thousands of chains not all show their first draw.
_ALIKE = 256
_ELSEWHERE = 0x9E3779B1


class Subsample:
    """At most 4096 draws of the stream, or ``most``, evenly spaced; in many dimensions (above 1024) fewer, down to 512.

    Or none, if not ``some``.
    """

    def __init__(self, dim: int, some: bool = True, most: int = _MOST) -> None:
        self._most = max(_FEW, min(most, _NUMBERS // dim)) if some else 0
        self._room = validation.no_draws(dim)  # rows once written never change, so a view of them stays as it is
        self._numbers = np.zeros(0, dtype=np.int64)  # of the rows, within their chains
        self._held = 0
        self._stride = 1
        self._next: dict[int, int] = {}  # chain -> the number of its next draw

    def add(self, block: validation.Block) -> None:
        """Take in the next draws."""
        done, total = 0, len(block.draws) if self._most else 0
        while done < total:
            size = min(total - done, _PIECE * self._stride)
            self._look(block if size == total else block.take(slice(done, done + size)))
            done += size

    def _look(self, piece: validation.Block) -> None:
        """Hold what is due of these draws."""
        chain, count = int(piece.ids[0, 0]), len(piece.draws)
        if count > 1 and (piece.ids[:, 0] != chain).any():
            numbers = self._numbered(piece.ids[:, 0])
            due = numbers % self._stride == 0
            self._append(piece.take(due), numbers[due])
            return
        begin = self._begin(chain)
        self._next[chain] = begin + count
        skip = -begin % self._stride
        if skip < count:
            numbers = np.arange(begin + skip, begin + count, self._stride, dtype=np.int64)
            self._append(piece.take(slice(skip, None, self._stride)), numbers)

    def _begin(self, chain: int) -> int:
        """The number of the chain's next draw."""
        return self._next.setdefault(chain, len(self._next) // _ALIKE * _ELSEWHERE % 2**32)

    def _numbered(self, chains: Integers) -> Integers:
        """The number of each draw within its chain, for several chains at once; they are counted."""
        names, first, inverse, counts = np.unique(chains, return_index=True, return_inverse=True, return_counts=True)
        for name in names[np.argsort(first)].tolist():
            self._begin(name)
        order = np.argsort(inverse, kind="stable")
        numbers = np.empty(len(chains), dtype=np.int64)
        numbers[order] = np.arange(len(chains)) - np.repeat(np.cumsum(counts) - counts, counts)
        numbers += np.array([self._next[name] for name in names.tolist()])[inverse]
        for name, more in zip(names.tolist(), counts.tolist(), strict=True):
            self._next[name] += more
        return numbers

    def _append(self, rows: validation.Block, numbers: Integers) -> None:
        total = self._held + len(numbers)
        if total > len(self._numbers):
            self._move(slice(0, self._held), max(total, min(2 * self._held, self._most + _PIECE)))
        for array, new in zip((*self._room, self._numbers), (*rows, numbers), strict=True):
            array[self._held : total] = new
        self._held = total
        while self._held > self._most:
            self._stride *= 2
            stay = self._numbers[: self._held] % self._stride == 0
            self._move(np.flatnonzero(stay), self._most + _PIECE)

    def _move(self, rows: slice | Integers, size: int) -> None:
        """Some of the rows, to a place of their own with room for ``size``."""
        *room, numbers = (_moved(array, rows, size) for array in (*self._room, self._numbers))
        self._held = len(self._numbers[rows])
        self._room, self._numbers = validation.Block(*room), numbers

    @property
    def block(self) -> validation.Block:
        """The draws held, in order. They stay as they are, whatever comes later."""
        return self._room.take(slice(0, self._held))

    def settled(self) -> validation.Block:
        """The second half of each chain: what the chain looks like after its burn-in, one hopes."""
        held = self.block
        keep = np.zeros(len(held.ids), dtype=bool)
        for chain in np.unique(held.ids[:, 0]):
            mine = np.flatnonzero(held.ids[:, 0] == chain)
            keep[mine[len(mine) // 2 :]] = True
        return held.take(keep)

    def state(self) -> dict[str, NDArray[Any]]:
        """All it takes to go on, for a checkpoint."""
        counts = np.array(sorted(self._next.items()), dtype=np.int64).reshape(-1, 2)
        numbers = self._numbers[: self._held]
        return {**self.block._asdict(), "numbers": numbers, "next": counts, "stride": np.array(self._stride)}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Go on from what :meth:`state` gave."""
        self._room = validation.Block(state["draws"], state["scores"], state["ids"])
        self._numbers, self._held = state["numbers"], len(state["numbers"])
        self._next = {int(chain): int(number) for chain, number in state["next"]}
        self._stride = int(state["stride"])


def _moved(array: NDArray[Any], rows: slice | Integers, size: int) -> NDArray[Any]:
    some = array[rows]
    place = np.empty((size, *array.shape[1:]), dtype=array.dtype)
    place[: len(some)] = some
    return place
