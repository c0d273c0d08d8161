"""npy files of draws and of optional scores, mapped into memory; and the array headers that npz files share."""

from __future__ import annotations

import math
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy_format

from steinstream._typing import AnyArray, Array, Integers
from steinstream.errors import InputError
from steinstream.io.base import Chain, Request, no_scores
from steinstream.io.errors import reading, truncated
from steinstream.validation import Block

_LONGEST_HEADER = 10_000  # bytes, as in numpy


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
            header = cls(*npy_format.read_array_header_1_0(_header_bytes(file, 2, where)))
        elif version == (2, 0):
            header = cls(*npy_format.read_array_header_2_0(_header_bytes(file, 4, where)))
        else:
            raise InputError(f"{where} has npy version {version[0]}.", "Save it as a plain array of numbers.")
        if any(type(size) is not int or size < 0 for size in header.shape):  # True is an int
            raise InputError(f"{where} has the invalid shape {header.shape}.", "Save it again with np.save.")
        if header.dtype.hasobject:
            raise InputError(
                f"{where} contains Python objects, which are never unpickled.",
                "Save it as an array of numbers, for example np.asarray(draws, dtype=float).",
            )
        return header


def _header_bytes(file: IO[bytes], width: int, where: str) -> BytesIO:
    """Read a header with the ``width`` bytes of its length before it, which numpy would read whatever its length."""
    stated = file.read(width)
    length = int.from_bytes(stated, "little")
    if length > _LONGEST_HEADER:
        raise InputError(f"{where} has a header of {length} bytes.", "Save it as a plain array of numbers.")
    return BytesIO(stated + file.read(length))


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
    def of(cls, draws: NpyHeader, scores: NpyHeader | None, where: str, where_scores: str) -> ChainShape:
        """Return the shape of draws and scores, which must agree."""
        for header, place in ((draws, where), (scores, where_scores)):
            if header is None:
                continue
            if header.dtype.kind not in "fiu":
                raise InputError(f"{place} has dtype {header.dtype}.", "Save it as an array of real numbers.")
            if len(header.shape) not in (2, 3) or header.shape[-1] == 0:
                raise InputError(
                    f"{place} has shape {header.shape}, expected (n, d) or (chains, n, d).",
                    "Reshape it. A chain with one parameter has shape (n, 1).",
                )
        if scores is not None and draws.shape != scores.shape:
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
    """Draws in an npy file, and scores in another one of the same shape, if there are any."""

    has_unnamed_axes = True

    def __init__(self, path: Path, scores: Path | None, shape: ChainShape) -> None:
        super().__init__(path, shape.dim, None, shape.total, shape.chains, has_scores=scores is not None)
        self.draws_from, self.scores_from = path.name, "" if scores is None else scores.name
        self.scores_hint = f"pass their file (--scores FILE); {self.scores_hint}"
        self._scores = scores
        self._shape = shape

    def _read(self, rows: int, skip: int) -> Iterator[Block]:
        draws, scores = self._map(self.path), None if self._scores is None else self._map(self._scores)
        for start in range(skip, self._shape.total, rows):
            ids = self._shape.ids(start, min(start + rows, self._shape.total))
            # Indexing by ids works for C and Fortran order without a copy of the whole array.
            chain, draw = ids.T
            own = no_scores(len(ids)) if scores is None else as_new_floats(scores[chain, draw])
            yield Block(as_new_floats(draws[chain, draw]), own, ids)

    def _map(self, path: Path) -> AnyArray:
        with reading(path, "npy"):
            whole = np.asarray(npy_format.open_memmap(path, mode="r"))
        return whole if whole.ndim == 3 else whole[None]


def open_npy(request: Request) -> NpyChain:
    """Open the file of the draws, together with that of the scores if there is one."""
    path, scores = request.path, request.scores
    if scores is not None and scores.suffix.lower() != ".npy":
        raise InputError(
            f"The scores of a .npy file must be in a .npy file, got {scores}.", "Use the same format for both."
        )
    own = None if scores is None else _header(scores)
    chain = NpyChain(path, scores, ChainShape.of(_header(path), own, str(path), str(scores)))
    if request.parameters is not None:
        chain.select(request.parameters)
    return chain


def _header(path: Path) -> NpyHeader:
    with reading(path, "npy"), path.open("rb") as file:
        header = NpyHeader.read(file, str(path))
        if path.stat().st_size - file.tell() < header.nbytes:
            raise truncated(path, "its array")
    return header
