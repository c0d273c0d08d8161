"""C compiled on the spot, for this machine and this dimension, and memory laid out for it."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

STRICT = "-O3 -march=native -fno-math-errno"  # IEEE arithmetic, as the engine's
WIDE = f"{STRICT} -mprefer-vector-width=512"
FAST = "-O3 -march=native -ffast-math -mprefer-vector-width=512"  # reorders sums, and calls libmvec's exp

_HERE = Path(__file__).parent
_FOLDER = tempfile.TemporaryDirectory(prefix="steinstream-benchmarks-")
_LIBRARIES: dict[tuple[str, int, str], ctypes.CDLL] = {}


def library(source: str, dim: int, flags: str) -> ctypes.CDLL:
    """The C file next to this one as a library for points of this dimension."""
    key = source, dim, flags
    if key not in _LIBRARIES:
        target = Path(_FOLDER.name) / f"{len(_LIBRARIES)}.so"
        command = ["gcc", "-Wall", *flags.split(), f"-DD={dim}", "-shared", "-fPIC", source, "-o", str(target), "-lm"]
        subprocess.run(command, cwd=_HERE, check=True)
        _LIBRARIES[key] = ctypes.CDLL(str(target))
    return _LIBRARIES[key]


def aligned(values: NDArray[np.generic]) -> NDArray[np.generic]:
    """A copy that starts on a cache line."""
    buffer = np.empty(values.size + 8, dtype=values.dtype)
    start = (-buffer.ctypes.data // 8) % 8
    copy = buffer[start : start + values.size].reshape(values.shape)
    copy[...] = values
    return copy


def pointer(array: NDArray[np.generic]) -> ctypes.c_void_p:
    """An array as an argument of a C function."""
    return ctypes.c_void_p(array.ctypes.data)


def compiler() -> str:
    """Name and version of the compiler."""
    return subprocess.run(["gcc", "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
