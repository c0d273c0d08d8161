"""A pair of npy files, draws and scores, mapped into memory; and the array headers that npz files share."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy_format

from steinstream._typing import AnyArray, Array, Integers
from steinstream.errors import InputError
from steinstream.io.base import NO_SCORES_HINT, Chain, Request
from steinstream.io.errors import reading, truncated
from steinstream.validation import Block


class NpyHeader(NamedTuple):
    """Description of a stored array."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Size of the data in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    @classmethod
    def read(cls, file: IO[bytes], where: str) -> NpyHeader:
        """Read a header and leave ``file`` at the first byte of the data; nothing is unpickled."""
        version = npy_format.read_magic(file)
        if version == (1, 0):
            header = cls(*npy_format.read_array_header_1_0(file))
        elif version == (2, 0):
            header = cls(*npy_format.read_array_header_2_0(file))
        else:
            raise InputError(f"{where} has npy version {version[0]}.", "Save it as a plain array of numbers.")
        if header.dtype.hasobject:
            raise InputError(
                f"{where} contains Python objects, which are never unpickled.",
                "Save it as an array of numbers, for example np.asarray(draws, dtype=float).",
            )
        return header


class ChainShape(NamedTuple):
    """Numbers of chains, of draws per chain and of parameters."""

    chains: int
    draws: int
    dim: int

    @property
    def total(self) -> int:
        """Number of draws in all chains."""
        return self.chains * self.draws

    def ids(self, start: int, stop: int) -> Integers:
        """Return the ids of the draws from ``start`` to ``stop``, counted over all chains."""
        return np.stack(np.divmod(np.arange(start, stop, dtype=np.int64), self.draws), axis=1)

    @classmethod
    def of(cls, draws: NpyHeader, scores: NpyHeader, where: str, where_scores: str) -> ChainShape:
        """Return the shape of draws and scores, which must agree."""
        for header, place in ((draws, where), (scores, where_scores)):
            if header.dtype.kind not in "fiu":
                raise InputError(f"{place} has dtype {header.dtype}.", "Save it as an array of real numbers.")
            if len(header.shape) not in (2, 3) or header.shape[-1] == 0:
                raise InputError(
                    f"{place} has shape {header.shape}, expected (n, d) or (chains, n, d).",
                    "Reshape it. A chain with one parameter has shape (n, 1).",
                )
        if draws.shape != scores.shape:
            raise InputError(
                f"{where_scores} has shape {scores.shape}, but {where} has shape {draws.shape}.",
                "Every draw needs its own score: save both for the same draws and parameters.",
            )
        count, dim = draws.shape[-2:]
        return cls(draws.shape[0] if len(draws.shape) == 3 else 1, count, dim)


def as_new_floats(array: AnyArray) -> Array:
    """Copy an array to float64, in C order."""
    return np.array(array, dtype=np.float64, order="C")


class NpyChain(Chain):
    """Draws and scores in two npy files of the same shape."""

    def __init__(self, path: Path, scores: Path, shape: ChainShape) -> None:
        super().__init__(path, shape.dim, None, shape.total, shape.chains)
        self.draws_from, self.scores_from = path.name, scores.name
        self._scores = scores
        self._shape = shape

    def _read(self, rows: int, skip: int) -> Iterator[Block]:
        draws, scores = self._map(self.path), self._map(self._scores)
        for start in range(skip, self._shape.total, rows):
            ids = self._shape.ids(start, min(start + rows, self._shape.total))
            # Indexing by ids works for C and Fortran order without a copy of the whole array.
            chain, draw = ids.T
            yield Block(as_new_floats(draws[chain, draw]), as_new_floats(scores[chain, draw]), ids)

    def _map(self, path: Path) -> AnyArray:
        with reading(path, "npy"):
            whole = np.asarray(npy_format.open_memmap(path, mode="r"))
        return whole if whole.ndim == 3 else whole[None]


def open_npy(request: Request) -> NpyChain:
    """Open the file of the draws together with that of the scores."""
    path, scores = request.path, request.scores
    if scores is None:
        raise InputError(
            f"{path} holds one array and no scores.",
            f"Pass the file of scores as scores (--scores FILE). {NO_SCORES_HINT}",
        )
    if scores.suffix.lower() != ".npy":
        raise InputError(
            f"The scores of a .npy file must be in a .npy file, got {scores}.", "Use the same format for both."
        )
    return NpyChain(path, scores, ChainShape.of(_header(path), _header(scores), str(path), str(scores)))


def _header(path: Path) -> NpyHeader:
    with reading(path, "npy"), path.open("rb") as file:
        header = NpyHeader.read(file, str(path))
        if path.stat().st_size - file.tell() < header.nbytes:
            raise truncated(path, "its array")
    return header
