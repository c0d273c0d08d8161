"""HDF5 files of emcee: every walker is a chain, and the score is a blob, if there is one.

Group ``mcmc`` contains ``chain`` (steps, walkers, d) and ``blobs`` (steps, walkers). Field ``score`` (d,) of the blobs
is what the log probability function returned next to its value; a single blob of length d without fields is the score
itself. The arrays are allocated in advance; only the steps that were made are read.

Walkers are stored in turns, and read so by `thin`. The steps of one walker are far apart in the file: to deliver one
walker after another, as many walkers as fit into 32 MB are read together. A walker that does not fit is read in parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from steinstream._formatting import listing, nearest
from steinstream._typing import Array
from steinstream.errors import InputError
from steinstream.io._limits import require_held, require_length
from steinstream.io.base import DRAWS, SCORES_GUIDE, Chain, Request, no_scores, reject_scores_file
from steinstream.io.errors import DAMAGE, need, reading
from steinstream.io.netcdf import is_hdf5, require_one_compressor
from steinstream.validation import Block, consecutive_ids

_RETURN_SCORE = (
    "Return the score from the log probability function next to its value, and use blobs_dtype=[('score', float, d)]."
)
_BUFFER = 32 << 20  # bytes of draws and scores that are held to deliver one walker after another


def is_emcee(path: Path, head: bytes) -> bool:
    """Return whether an HDF5 file was written by emcee; False without h5py."""
    if not is_hdf5(path, head):
        return False
    try:
        import h5py

        with h5py.File(path, "r") as file:
            return bool(_runs(file))
    except (ImportError, *DAMAGE):
        return False


def _runs(file: Any) -> list[str]:
    """Return the groups that emcee wrote, one per run; the default name is ``mcmc``."""
    return [name for name, group in file.items() if {"nwalkers", "ndim", "iteration"} <= set(group.attrs)]


class EmceeChain(Chain):
    """The walkers of one run, one after another."""

    def __init__(self, request: Request) -> None:
        reject_scores_file(request)
        path = request.path
        with reading(path, "emcee"), need("h5py", "emcee").File(path, "r") as file:
            self._run = _find_run(file, request)
            group = file[self._run]
            self._steps, self._walkers = int(group.attrs["iteration"]), int(group.attrs["nwalkers"])
            dim = int(group.attrs["ndim"])
            if self._steps == 0:
                raise InputError(f"{path}: {self._run} has no steps yet.", "Run the sampler first.")
            _check_shape(path, group, (self._steps, self._walkers, dim))
            self._field = _find_field(group, request, dim)
            require_length(path, self._steps * self._walkers, dim)
            found = {"chain": group["chain"].dtype}
            if self._field is not None:
                blobs = group["blobs"].dtype
                found["blobs"] = blobs[self._field] if self._field else blobs
            for name, dtype in found.items():
                if dtype.base.kind not in "fiub":
                    raise InputError(f"{path}: {name} has dtype {dtype}.", "Draws and scores are real numbers.")
            for array in (group["chain"], *([group["blobs"]] if self._field is not None else [])):
                require_one_compressor(path, array)
                remedy = "Write it with smaller chunks and without compression."
                for what, shape in (("step", array.shape[1:]), ("chunk", array.chunks or ())):
                    require_held(path, f"a {what} of {array.name}", math.prod(shape) * array.dtype.itemsize, remedy)
        has_scores = self._field is not None
        super().__init__(path, dim, None, self._steps * self._walkers, self._walkers, has_scores=has_scores)
        self.draws_from = f"{self._run}/chain"
        self.scores_from = f"{self._run}/blobs/{self._field}".rstrip("/") if has_scores else ""
        self.scores_hint = (
            "return the score from the log probability function, with blobs_dtype=[('score', float, d)]; "
            f"{SCORES_GUIDE}"
        )
        if request.parameters is not None:
            self.select(request.parameters)

    def _read(self, rows: int, skip: int) -> Iterator[Block]:
        size = 16 * self._steps * self._width  # bytes of one walker
        together = max(1, _BUFFER // size)  # walkers that are read together
        length = self._steps if size <= _BUFFER else rows
        with self._opened() as sources:
            for first in range(skip // self._steps, self._walkers, together):
                walkers = slice(first, min(first + together, self._walkers))
                begin = max(skip - first * self._steps, 0)
                for start in range(begin - begin % length, self._steps, length):
                    steps = slice(start, min(start + length, self._steps))
                    with reading(self.path, "emcee"):
                        tables = [self._table(source, steps, walkers) for source in sources]
                    yield from _blocks_of_walkers(tables, first, start, rows, max(begin - start, 0))

    @property
    def is_separable(self) -> bool:
        """Whether the walkers are read in turns, as they are stored."""
        return self._walkers > 1

    def _read_in_turns(self, rows: int, skip: int) -> Iterator[Block]:
        first, skip = divmod(skip, self._walkers)
        length, walkers = max(rows // self._walkers, 1), slice(0, self._walkers)
        with self._opened() as sources:
            for start in range(first, self._steps, length):
                steps = slice(start, min(start + length, self._steps))
                with reading(self.path, "emcee"):
                    draws, *scores = (
                        self._table(source, steps, walkers).reshape(-1, self._width) for source in sources
                    )
                indices, numbers = (grid.ravel() for grid in np.mgrid[steps, walkers])
                own = scores[0] if scores else no_scores(len(draws))
                yield Block(draws, own, np.column_stack([numbers, indices])).take(slice(skip, None))
                skip = 0

    @contextmanager
    def _opened(self) -> Iterator[list[Any]]:
        """Open the file and yield the arrays of draws and, if there are any, scores."""
        with reading(self.path, "emcee"):
            file = need("h5py", "emcee").File(self.path, "r")
        with file:
            with reading(self.path, "emcee"):
                sources = [file[self._run]["chain"]]
                if self._field is not None:
                    blobs = file[self._run]["blobs"]
                    sources.append(blobs.fields(self._field) if self._field else blobs)
            yield sources

    def _table(self, source: Any, steps: slice, walkers: slice) -> Array:
        values = np.asarray(source[steps, walkers], np.float64)
        return values.reshape(*values.shape[:2], self._width)


def _blocks_of_walkers(tables: list[Array], first: int, start: int, rows: int, skip: int) -> Iterator[Block]:
    """Iterate over the walkers in tables (steps, walkers, d), without the first ``skip`` steps of the first one."""
    for index in range(tables[0].shape[1]):
        for at in range(skip if index == 0 else 0, len(tables[0]), rows):
            draws, *scores = (table[at : at + rows, index].copy() for table in tables)
            own = scores[0] if scores else no_scores(len(draws))
            yield Block(draws, own, consecutive_ids(first + index, start + at, len(draws)))


def _find_run(file: Any, request: Request) -> str:
    """Return the name of the run; ``draws_name`` selects one if there are several."""
    runs = _runs(file)
    default = runs[0] if len(runs) == 1 else "mcmc"
    wanted = default if request.draws_name == DRAWS else request.draws_name.removesuffix("/chain")
    if wanted not in runs:
        raise InputError(
            f"{request.path} has no run {wanted}; it has {listing(runs)}.",
            f"{nearest(wanted, runs)}Name the run with draws_name (--draws-name).",
        )
    return wanted


def _check_shape(path: Path, group: Any, expected: tuple[int, int, int]) -> None:
    """Raise an `InputError` if the arrays have other sizes than the attributes; more steps may be allocated."""
    for name in ("chain", "blobs"):
        if name == "blobs" and name not in group:
            continue
        sizes = tuple(group[name].shape)
        known = expected if name == "chain" else expected[:2]
        if min(expected) < 1 or sizes[:1] < known[:1] or sizes[1 : len(known)] != known[1:] or len(sizes) < len(known):
            raise InputError(
                f"{path}: {name} has shape {sizes}, expected {known} (steps, walkers, parameters).",
                "The file is damaged. Copy or write it again.",
            )


def _find_field(group: Any, request: Request, dim: int) -> str | None:
    """Return the field of the blobs that is the score; empty if the blobs have no fields, None without scores."""
    path, required = request.path, request.names_scores
    if "blobs" not in group:
        if required:
            raise InputError(f"{path} has no scores {request.scores_name}: the run stored no blobs.", _RETURN_SCORE)
        return None
    kind = group["blobs"].dtype
    name = ""
    shape = (*group["blobs"].shape[2:], *kind.shape)
    if kind.names is not None:
        name = request.scores_name.rpartition("/")[2]
        if not required:
            name = next((field for field in ("score", "scores") if field in kind.names), "")
            if not name:
                return None
        if name not in kind.names:
            raise InputError(
                f"{path} has no blob {name}; it has {listing(kind.names)}.",
                f"{nearest(name, kind.names)}Name it with scores_name (--scores-name). {_RETURN_SCORE}",
            )
        shape = kind[name].shape + group["blobs"].shape[2:]
    elif math.prod(shape) != dim and not required:
        return None  # another quantity
    if math.prod(shape) != dim:
        raise InputError(f"{path}: a score has shape {shape}, but a draw has {dim} parameters.", _RETURN_SCORE)
    return name
