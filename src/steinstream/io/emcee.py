"""HDF5 files of emcee: every walker is a chain, and the score is a blob.

Group ``mcmc`` contains ``chain`` (steps, walkers, d) and ``blobs`` (steps, walkers). Field ``score`` (d,) of the blobs
is what the log probability function returned next to its value; a single blob without fields is the score itself. The
arrays are allocated in advance; only the steps that were made are read.

The steps of one walker are far apart in the file. To deliver one walker after another, as many walkers as fit into
32 MB are read together. A walker that does not fit is read in parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from steinstream._formatting import listing, nearest
from steinstream._typing import Array
from steinstream.errors import InputError
from steinstream.io.base import ALL_PARAMETERS, DRAWS, NO_SCORES_HINT, SCORES, Chain, Request, reject_scores_file
from steinstream.io.errors import need, reading
from steinstream.io.netcdf import is_hdf5
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
    except (ImportError, OSError, KeyError, RuntimeError):
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
            self._scores = "chain" if request.scores_name == ALL_PARAMETERS else "blobs"
            self._field = "" if self._scores == "chain" else _find_field(group, request, dim)
        super().__init__(path, dim, None, self._steps * self._walkers, self._walkers)
        self.draws_from = f"{self._run}/chain"
        self.scores_from = f"{self._run}/{self._scores}/{self._field}".rstrip("/")

    def _read(self, rows: int, skip: int) -> Iterator[Block]:
        size = 16 * self._steps * self.dim  # bytes of one walker
        together = max(1, _BUFFER // size)  # walkers that are read together
        length = self._steps if size <= _BUFFER else rows
        with reading(self.path, "emcee"):
            file = need("h5py", "emcee").File(self.path, "r")
        with file:
            draws, scores = (file[self._run][name] for name in ("chain", self._scores))
            scores = scores.fields(self._field) if self._field else scores
            for first in range(skip // self._steps, self._walkers, together):
                walkers = slice(first, min(first + together, self._walkers))
                begin = max(skip - first * self._steps, 0)
                for start in range(begin - begin % length, self._steps, length):
                    steps = slice(start, min(start + length, self._steps))
                    with reading(self.path, "emcee"):
                        tables = [self._table(source, steps, walkers) for source in (draws, scores)]
                    yield from _blocks_of_walkers(tables, first, start, rows, max(begin - start, 0))

    def _table(self, source: Any, steps: slice, walkers: slice) -> Array:
        values = np.asarray(source[steps, walkers], np.float64)
        return values.reshape(*values.shape[:2], self.dim)


def _blocks_of_walkers(tables: list[Array], first: int, start: int, rows: int, skip: int) -> Iterator[Block]:
    """Iterate over the walkers in two tables (steps, walkers, d), without the first ``skip`` steps of the first one."""
    for index in range(tables[0].shape[1]):
        for at in range(skip if index == 0 else 0, len(tables[0]), rows):
            draws, scores = (table[at : at + rows, index].copy() for table in tables)
            yield Block(draws, scores, consecutive_ids(first + index, start + at, len(draws)))


def _find_run(file: Any, request: Request) -> str:
    """Return the name of the run; ``draws_name`` selects one if there are several."""
    runs = _runs(file)
    default = runs[0] if len(runs) == 1 else "mcmc"
    wanted = default if request.draws_name in (DRAWS, ALL_PARAMETERS) else request.draws_name.removesuffix("/chain")
    if wanted not in runs:
        raise InputError(
            f"{request.path} has no run {wanted}; it has {listing(runs)}.",
            f"{nearest(wanted, runs)}Name the run with draws_name (--draws-name).",
        )
    return wanted


def _find_field(group: Any, request: Request, dim: int) -> str:
    """Return the field of the blobs that is the score; empty if the blobs have no fields."""
    path = request.path
    if "blobs" not in group:
        raise InputError(f"{path} has no scores: the run stored no blobs.", f"{_RETURN_SCORE} {NO_SCORES_HINT}")
    kind = group["blobs"].dtype
    name = ""
    shape = (*group["blobs"].shape[2:], *kind.shape)
    if kind.names is not None:
        name = request.scores_name.rpartition("/")[2]
        if request.scores_name == SCORES:
            name = next((field for field in ("score", "scores") if field in kind.names), "score")
        if name not in kind.names:
            raise InputError(
                f"{path} has no blob {name}; it has {listing(kind.names)}.",
                f"{nearest(name, kind.names)}Name it with scores_name (--scores-name). {_RETURN_SCORE}",
            )
        shape = kind[name].shape + group["blobs"].shape[2:]
    if math.prod(shape) != dim:
        raise InputError(f"{path}: a score has shape {shape}, but a draw has {dim} parameters.", _RETURN_SCORE)
    return name
