"""What npy and npz have in common: the header of a stored array, and which arrays make a chain."""

from __future__ import annotations

import math
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy_format

from steinstream.errors import InputError
from steinstream.io.base import Floats, Ints


class Header(NamedTuple):
    """The description in front of a stored array's bytes."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Size of the data that must follow."""
        return math.prod(self.shape) * self.dtype.itemsize


class Layout(NamedTuple):
    """A chain's shape: ``chains`` chains of ``draws`` draws of ``dim`` parameters."""

    chains: int
    draws: int
    dim: int

    def ids(self, start: int, stop: int) -> Ints:
        """(chain, draw) of the rows from ``start`` to ``stop``, the chains laid end to end."""
        return np.stack(np.divmod(np.arange(start, stop, dtype=np.int64), self.draws), axis=1)


def read_header(file: IO[bytes], where: str) -> Header:
    """Read an array's header and leave ``file`` at its first byte; nothing is unpickled."""
    version = npy_format.read_magic(file)
    if version == (1, 0):
        header = Header(*npy_format.read_array_header_1_0(file))
    elif version == (2, 0):
        header = Header(*npy_format.read_array_header_2_0(file))
    else:
        raise InputError(f"{where} is stored in npy version {version[0]}.", "Save it as a plain array of numbers.")
    if header.dtype.hasobject:
        raise InputError(
            f"{where} holds Python objects, which steinstream never unpickles.",
            "Save it as an array of numbers, for instance np.asarray(draws, dtype=float).",
        )
    return header


def layout(draws: Header, scores: Header, where: str, where_scores: str) -> Layout:
    """The shape both arrays agree on."""
    for header, place in ((draws, where), (scores, where_scores)):
        if header.dtype.kind not in "fiu":
            raise InputError(f"{place} has dtype {header.dtype}.", "Save it as an array of real numbers.")
        if len(header.shape) not in (2, 3) or header.shape[-1] == 0:
            raise InputError(
                f"{place} has shape {header.shape}, expected (n, d) or (chains, n, d).",
                "Reshape it; a chain of one parameter is (n, 1).",
            )
    if draws.shape != scores.shape:
        raise InputError(
            f"{where_scores} has shape {scores.shape}, but {where} has shape {draws.shape}.",
            "Each draw needs its own score: save both for the same draws and parameters.",
        )
    count, dim = draws.shape[-2:]
    return Layout(draws.shape[0] if len(draws.shape) == 3 else 1, count, dim)


def as_floats(array: np.ndarray[Any, Any]) -> Floats:
    """Copy to float64 in rows: a block must be writable and outlive the buffer it was read from."""
    return np.array(array, dtype=np.float64, order="C")
