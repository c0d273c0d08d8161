"""emcee's HDF5 backend: every walker is a chain, and the score is a blob.

Group ``mcmc`` holds ``chain`` (steps, walkers, d) and ``blobs`` (steps, walkers), whose field ``score`` (d,) has what
the log probability returned beside its value; with a single blob there are no fields, and it is the score itself.
Steps that were never made (the backend grows its arrays ahead) are left out.

A walker's steps are far apart in the file: to give its whole chain before the next one's, as many walkers as fit into
32 MB are read at a time, and one that does not fit is read as it is needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from steinstream.errors import InputError
from steinstream.io.base import DRAWS, EVERY, SCORES, WITHOUT, Chain, Floats, Request, alone
from steinstream.io.errors import listing, nearest, need, reading
from steinstream.io.netcdf import is_hdf5
from steinstream.validation import Block, consecutive_ids

_RETURN = "Let the log probability return its score beside its value, with blobs_dtype=[('score', float, d)]."
_HELD = 32 << 20  # bytes of draws and scores that are held to serve one walker after another


def matches(path: Path, head: bytes) -> bool:
    """Whether an HDF5 file is emcee's; without h5py nobody can tell."""
    if not is_hdf5(path, head):
        return False
    try:
        import h5py

        with h5py.File(path, "r") as file:
            return bool(_runs(file))
    except (ImportError, OSError, KeyError, RuntimeError):
        return False


def _runs(file: Any) -> list[str]:
    """The groups that emcee wrote: one a run, ``mcmc`` unless it was given another name."""
    return [name for name, group in file.items() if {"nwalkers", "ndim", "iteration"} <= set(group.attrs)]


class EmceeChain(Chain):
    """The walkers of one run, one after another."""

    def __init__(self, request: Request) -> None:
        path = request.path
        with reading(path, "emcee"), need("h5py", "emcee").File(path, "r") as file:
            self._run = _run(file, request)
            group = file[self._run]
            self._steps, self._walkers = int(group.attrs["iteration"]), int(group.attrs["nwalkers"])
            dim = int(group.attrs["ndim"])
            if self._steps == 0:
                raise InputError(f"{path}: {self._run} has no steps yet.", "Run the sampler first.")
            self._source = "chain" if request.scores_name == EVERY else "blobs"
            self._field = "" if self._source == "chain" else _field(group, request, dim)
        super().__init__(path, dim, None, self._steps * self._walkers, self._walkers)
        self.draws_from = f"{self._run}/chain"
        self.scores_from = f"{self._run}/{self._source}" + (f"/{self._field}" if self._field else "")

    def _read(self, rows: int, skip: int) -> Iterator[Block]:
        together = max(1, _HELD // (16 * self._steps * self.dim))  # walkers whose steps are held at a time
        with reading(self.path, "emcee"):
            file = need("h5py", "emcee").File(self.path, "r")
        with file:
            draws, blobs = (file[self._run][name] for name in ("chain", self._source))
            for first in range(skip // self._steps, self._walkers, together):
                walkers = slice(first, min(first + together, self._walkers))
                # A walker that is too long to be held is read as it is needed.
                length = self._steps if 16 * self._steps * self.dim <= _HELD else rows
                begin = max(skip - first * self._steps, 0)
                for start in range(begin - begin % length, self._steps, length):
                    within = slice(start, min(start + length, self._steps))
                    with reading(self.path, "emcee"):
                        held = self._table(draws, within, walkers), self._scores(blobs, within, walkers)
                    yield from self._blocks(held, first, start, rows, begin)

    def _blocks(self, held: tuple[Floats, Floats], walker: int, start: int, rows: int, begin: int) -> Iterator[Block]:
        """What is held of some walkers, without the steps before ``begin`` of the first."""
        for index in range(held[0].shape[1]):
            skipped = max(begin - start, 0) if index == 0 else 0
            for first in range(skipped, len(held[0]), rows):
                draws, scores = (np.ascontiguousarray(part[first : first + rows, index]) for part in held)
                if np.may_share_memory(draws, held[0]):  # one walker alone
                    draws, scores = draws.copy(), scores.copy()
                yield Block(draws, scores, consecutive_ids(walker + index, start + first, len(draws)))

    def _table(self, source: Any, steps: slice, walkers: slice) -> Floats:
        values = np.asarray(source[steps, walkers], np.float64)
        return values.reshape(*values.shape[:2], self.dim)

    def _scores(self, blobs: Any, steps: slice, walkers: slice) -> Floats:
        return self._table(blobs.fields(self._field) if self._field else blobs, steps, walkers)


def _run(file: Any, request: Request) -> str:
    """Which run: ``--draws-name`` may name one where there are several."""
    runs = _runs(file)
    wanted = request.draws_name if request.draws_name not in (DRAWS, EVERY) else (runs[0] if len(runs) == 1 else "mcmc")
    wanted = wanted.removesuffix("/chain")
    if wanted not in runs:
        raise InputError(
            f"{request.path} has no run {wanted}; it has {listing(runs)}.",
            f"{nearest(wanted, runs)}Name the run with --draws-name.",
        )
    return wanted


def _field(group: Any, request: Request, dim: int) -> str:
    """The field of the blobs that is the score; empty if the blobs are."""
    path = request.path
    if "blobs" not in group:
        raise InputError(f"{path} has no scores: the run stored no blobs.", f"{_RETURN} {WITHOUT}")
    kind = group["blobs"].dtype
    wanted = request.scores_name.rpartition("/")[2]
    if kind.names is None:
        shape, name = (*group["blobs"].shape[2:], *kind.shape), ""
    else:
        name = (
            wanted if request.scores_name != SCORES else next((n for n in ("score", "scores") if n in kind.names), "")
        )
        if name not in kind.names:
            said = name or "score"
            raise InputError(
                f"{path} has no blob {said}; it has {listing(kind.names)}.",
                f"{nearest(said, kind.names)}Name it with --scores-name. {_RETURN}",
            )
        shape = kind[name].shape + group["blobs"].shape[2:]
    if math.prod(shape) != dim:
        raise InputError(f"{path}: a score has shape {shape}, but a draw has {dim} numbers.", _RETURN)
    return name


def open_emcee(request: Request) -> EmceeChain:
    """Open one run."""
    alone(request)
    return EmceeChain(request)
