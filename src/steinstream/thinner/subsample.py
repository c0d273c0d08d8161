"""Evenly spaced subsample of a stream of unknown length.

Every k-th draw of each chain is held. When there are too many, every second one is dropped and k doubles. The
subsample depends on the stream alone, not on its blocks, so a file and an array of the same draws give the same
preconditioner. Draws are counted per chain, so that no chain is missed because the number of chains and k have a common
divisor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from steinstream._typing import AnyArray, Integers
from steinstream.errors import InputError
from steinstream.preconditioning import Preconditioner
from steinstream.validation import Block, SteinIdentity, empty_block

if TYPE_CHECKING:
    from steinstream.thinner.config import ThinConfig

_MAX_DRAWS = 4096
_MIN_DRAWS = 512
_MAX_NUMBERS = 1 << 22  # draws times dimensions
_PIECE = 512  # draws added at once, about

# The first 256 chains count from 0, the next 256 from another number, and so on: the first draws of thousands of chains
# are then not all held.
_SAME_OFFSET = 256
_OFFSET = 0x9E3779B1


class Subsample:
    """Evenly spaced draws of a stream, at most 4096; above 1024 dimensions fewer, down to 512. Without features.

    If it is not ``enabled``, it holds no draws.
    """

    def __init__(self, dim: int, enabled: bool = True, max_draws: int = _MAX_DRAWS) -> None:
        self._max_draws = max(_MIN_DRAWS, min(max_draws, _MAX_NUMBERS // dim)) if enabled else 0
        self._rows = empty_block(dim)  # allocated rows; written rows never change, so views of them stay valid
        self._indices = np.zeros(0, dtype=np.int64)  # index of each row within its chain
        self._held = 0
        self._block = self._rows  # of the rows held; replaced as a whole
        self._stride = 1
        self._next: dict[int, int] = {}  # chain -> index of its next draw

    def add(self, block: Block) -> None:
        """Add the next draws of the stream."""
        done, total = 0, len(block.draws) if self._max_draws else 0
        while done < total:
            size = min(total - done, _PIECE * self._stride)
            self._add_piece(block if size == total else block.take(slice(done, done + size)))
            done += size

    def _add_piece(self, piece: Block) -> None:
        chain, count = int(piece.ids[0, 0]), len(piece.draws)
        if count > 1 and (piece.ids[:, 0] != chain).any():
            indices = self._count_chains(piece.ids[:, 0])
            due = indices % self._stride == 0
            self._append(piece.take(due), indices[due])
            return
        begin = self._first_index(chain)
        self._next[chain] = begin + count
        skip = -begin % self._stride
        if skip < count:
            indices = np.arange(begin + skip, begin + count, self._stride, dtype=np.int64)
            self._append(piece.take(slice(skip, None, self._stride)), indices)

    def _first_index(self, chain: int) -> int:
        """Return the index of the next draw of a chain."""
        return self._next.setdefault(chain, len(self._next) // _SAME_OFFSET * _OFFSET % 2**32)

    def _count_chains(self, chains: Integers) -> Integers:
        """Return the index of each draw within its chain, for draws of several chains."""
        names, first, inverse, counts = np.unique(chains, return_index=True, return_inverse=True, return_counts=True)
        for name in names[np.argsort(first)].tolist():
            self._first_index(name)
        order = np.argsort(inverse, kind="stable")
        indices = np.empty(len(chains), dtype=np.int64)
        indices[order] = np.arange(len(chains)) - np.repeat(np.cumsum(counts) - counts, counts)
        indices += np.array([self._next[name] for name in names.tolist()])[inverse]
        for name, more in zip(names.tolist(), counts.tolist(), strict=True):
            self._next[name] += more
        return indices

    def _append(self, rows: Block, indices: Integers) -> None:
        total = self._held + len(indices)
        if self._held == 0:
            self._rows = self._rows._replace(scores=np.zeros((len(self._indices), rows.scores.shape[1])))
        if total > len(self._indices):
            self._reallocate(slice(0, self._held), max(total, min(2 * self._held, self._max_draws + _PIECE)))
        for array, new in zip((*self._rows[:3], self._indices), (*rows[:3], indices), strict=True):
            array[self._held : total] = new
        self._held = total
        while self._held > self._max_draws:
            self._stride *= 2
            stay = self._indices[: self._held] % self._stride == 0
            self._reallocate(np.flatnonzero(stay), self._max_draws + _PIECE)
        self._block = self._rows.take(slice(0, self._held))

    def _reallocate(self, rows: slice | Integers, size: int) -> None:
        """Copy some rows to new memory for ``size`` rows."""
        *arrays, indices = (_resized(array, rows, size) for array in (*self._rows[:3], self._indices))
        self._held = len(self._indices[rows])
        self._rows, self._indices = Block(*arrays), indices

    @property
    def block(self) -> Block:
        """The draws held, in order. Draws added later do not change them. Any thread may read it at any time."""
        return self._block

    def second_halves(self) -> Block:
        """Return the second half of each chain, assuming that burn-in is over by then."""
        held = self.block
        keep = np.zeros(len(held.ids), dtype=bool)
        for chain in np.unique(held.ids[:, 0]):
            rows = np.flatnonzero(held.ids[:, 0] == chain)
            keep[rows[len(rows) // 2 :]] = True
        return held.take(keep)

    def state(self) -> dict[str, Any]:
        counts = np.array(sorted(self._next.items()), dtype=np.int64).reshape(-1, 2)
        indices = self._indices[: self._held]
        held = self.block
        rows = {"draws": held.draws, "scores": held.scores, "ids": held.ids}
        return {**rows, "indices": indices, "next": counts, "stride": self._stride}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from the result of `state`."""
        self._rows = self._block = Block(state["draws"], state["scores"], state["ids"])
        self._indices, self._held = state["indices"], len(state["indices"])
        self._next = {int(chain): int(index) for chain, index in state["next"]}
        self._stride = int(state["stride"])


def _resized(array: AnyArray, rows: slice | Integers, size: int) -> AnyArray:
    some = array[rows]
    new = np.empty((size, *array.shape[1:]), dtype=array.dtype)
    new[: len(some)] = some
    return new


def fit_preconditioner(subsample: Subsample, config: ThinConfig) -> Preconditioner:
    """Return the preconditioner of a configuration, estimated from a subsample if it is given by name.

    Parameters
    ----------
    subsample : Subsample
        Subsample of the stream; the sign of its scores is validated if the configuration requires it.
    config : ThinConfig
        Settings. Without a preconditioner, ``"auto"`` is estimated.

    Returns
    -------
    Preconditioner
        The preconditioner. If the kernel has a linear term, which depends on the origin, an estimate has a centre.
    """
    held = subsample.block
    if len(held.draws) == 0:
        raise InputError("No draw is valid: each has a value that is not finite.", "Correct the sampler's output.")
    if config.validate_scores and held.has_scores:
        identity = SteinIdentity(held.draws.shape[1])
        identity.updated(held.draws, held.scores).require_plausible()
    chosen = "auto" if config.preconditioner is None else config.preconditioner
    if isinstance(chosen, Preconditioner):
        return chosen
    if not isinstance(chosen, str):
        raise InputError(f"{chosen!r} needs a running stream.", 'Use "auto" or a fixed preconditioner.')
    if chosen == "auto" and config.storage == "float32":
        chosen = "scales"  # a covariance is not available for float32 storage
    centred = config.centred and chosen != "identity"
    return Preconditioner.estimate(chosen, subsample.second_halves().draws, centred=centred)
