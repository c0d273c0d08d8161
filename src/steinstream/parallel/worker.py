"""Thin one leaf: the draws of one source, with checkpoints in a folder that all workers can read.

For leaf k the folder holds ``leaf-0000k.checkpoint`` while it runs. When it is done, it holds ``leaf-0000k.npz`` with
the kept set and ``leaf-0000k-stream.npz`` with evenly spaced draws of the chain, for the diagnostic checks. Checkpoint
and kept set record the source and the settings; a file of another source or of other settings is rejected. Every file
is complete or absent, so a worker may be killed at any moment, and a leaf that two workers process at once has the same
result.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from steinstream.api import RunHooks, thin_source
from steinstream.diagnostics.running_convergence import FEW_PARAMETERS, RunningConvergence
from steinstream.errors import CheckpointError, InputError, NegatedScoresError, ScoresWarning
from steinstream.io import checkpoint, read_kept
from steinstream.io._kept_checks import checked_stream
from steinstream.io.atomic import replacing
from steinstream.io.errors import reading
from steinstream.io.npz import read_arrays
from steinstream.parallel.sources import WorkerSource
from steinstream.preconditioning import Preconditioner
from steinstream.result import History, Kept
from steinstream.thinner import Thinner
from steinstream.thinner.config import ThinConfig
from steinstream.validation import Block
from steinstream.watched_source import WatchedSource

#: Files that a worker writes.
FILE_PATTERNS = ("leaf-*.npz", "leaf-*.checkpoint", ".leaf-*.tmp")


class Failure(NamedTuple):
    """A source that could not be thinned, and the reason."""

    title: str
    problem: str
    remedy: str


@dataclass(frozen=True)
class Worker:
    """Settings with which leaves are thinned; the same for all."""

    config: ThinConfig
    folder: Path | None = None
    """Folder for checkpoints."""
    every: float = 30.0
    """Seconds between two checkpoints."""
    stream_draws: int = 4096
    """Number of evenly spaced draws of the chain that are returned, for the diagnostic checks."""

    def thin(self, number: int, source: WorkerSource, *values: Any) -> Kept | Failure:
        """Thin the source of leaf ``number``, from its checkpoint if there is one."""
        try:
            return self._thin(number, source.with_values(*values))
        except (NegatedScoresError, CheckpointError):
            raise
        except InputError as error:
            return Failure(source.title, error.problem, error.remedy)

    def _thin(self, number: int, source: WorkerSource) -> Kept:
        if self.folder is None:
            watched = WatchedSource(source, FEW_PARAMETERS)
            return self._small(_result(thin_source(watched, self.config), source, watched, {}))
        suffixes = (".npz", "-stream.npz", ".checkpoint")
        done, stream, saved = (self.folder / f"leaf-{number:05d}{suffix}" for suffix in suffixes)
        origin = {**source.origin(), "settings": _plain(self.config.to_dict())}
        if done.exists():
            kept = _read_done(done, origin)
            return without_history(replace(kept, stream=_read_stream(stream, done, kept)))
        watched = WatchedSource(source, FEW_PARAMETERS)
        thinner = self._load(saved, origin, watched) if saved.exists() else None
        hooks = _CheckpointHooks(saved, self.every, origin, watched)
        kept = _result(thin_source(watched, self.config, thinner=thinner, hooks=hooks), source, watched, origin)
        small = self._small(kept)
        if small.stream is not None:
            with replacing(stream) as file:
                np.savez(file, draws=small.stream.draws, scores=small.stream.scores, ids=small.stream.ids)
        kept.save(done)
        saved.unlink(missing_ok=True)
        return small

    def _small(self, kept: Kept) -> Kept:
        """Return a leaf as it is sent between processes, with few draws of its stream."""
        if kept.stream is not None:
            stride = max(1, -(-len(kept.stream.draws) // self.stream_draws))
            kept = replace(kept, stream=kept.stream.take(slice(None, None, stride)))
        return without_history(kept)

    def _load(self, path: Path, origin: dict[str, Any], watched: WatchedSource) -> Thinner:
        thinner = checkpoint.load(path, **self.config.functions())
        _require_origin(path, thinner.note.get("origin"), origin)
        watched.restore(thinner.note.get("convergence"))
        return thinner


class _CheckpointHooks(RunHooks):
    """Write a checkpoint before the first draw, and then every ``save_interval`` seconds."""

    def __init__(self, path: Path, every: float, origin: dict[str, Any], watched: WatchedSource) -> None:
        self.save_interval = every
        self._path, self._origin, self._watched = path, origin, watched

    def on_thinner(self, thinner: Thinner) -> None:
        if not thinner.note:
            thinner.note = {"origin": self._origin}
            self.save(thinner)

    def save(self, thinner: Thinner) -> None:
        thinner.note["convergence"] = self._watched.state()
        thinner.save(self._path)


def _result(thinner: Thinner, source: WorkerSource, watched: WatchedSource, origin: dict[str, Any]) -> Kept:
    """Return the kept set with names, variables and convergence of its source, and the warning about its scores."""
    watched.convergence.add_divergences(source.divergences())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ScoresWarning)
        kept = thinner.kept
    warning = next((str(one.message) for one in caught if issubclass(one.category, ScoresWarning)), "")
    known = {"title": source.title, "warning": warning, "convergence": _as_lists(watched.convergence.state())}
    settings = {**kept.settings, "leaf": {**known, **origin}}
    return replace(kept, names=source.names(), variables=source.variables(kept.ids), settings=settings)


def convergence_of(kept: Kept) -> RunningConvergence:
    """Return the convergence of the chains of a leaf."""
    convergence = RunningConvergence(kept.draws.shape[1], FEW_PARAMETERS)
    convergence.restore(kept.settings["leaf"].get("convergence"))
    return convergence


def _as_lists(value: Any) -> Any:
    """Return a value that fits into JSON, with lists in place of arrays."""
    if isinstance(value, Mapping):
        return {key: _as_lists(item) for key, item in value.items()}
    return value.tolist() if isinstance(value, np.ndarray) else value


def _plain(value: Any) -> Any:
    """Return a value that fits into JSON, with a digest in place of an array."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return hashlib.sha256(f"{value.dtype.str} {value.shape}".encode() + value.tobytes()).hexdigest()[:16]
    return value


def _read_done(path: Path, origin: dict[str, Any]) -> Kept:
    try:
        kept = read_kept(path)
    except InputError as damage:
        raise CheckpointError(damage.problem, "Delete it to thin that chain again.") from None
    known = kept.settings.get("leaf", {})
    found = {name: value for name, value in known.items() if name not in ("title", "warning", "convergence")}
    _require_origin(path, found, origin)
    return kept


def _read_stream(path: Path, done: Path, kept: Kept) -> Block | None:
    """Read the stored draws of the stream of a finished leaf; None if there are none."""
    if not path.exists():
        return None
    try:
        with reading(path, "npz"):
            arrays = read_arrays(path)
            dim = kept.draws.shape[1]
            found = checked_stream(arrays["draws"], arrays["scores"], arrays["ids"], dim, str(path))
            if found.has_scores != (kept.scores is not None):
                raise InputError(f"{path}: the stream has {'' if found.has_scores else 'no '}scores, unlike the set.")
            return found
    except InputError as damage:
        raise CheckpointError(damage.problem, f"Delete it and {done.name} to thin that chain again.") from None


def _require_origin(path: Path, found: Any, origin: dict[str, Any]) -> None:
    """Raise a `CheckpointError` if a file was written for another source or with other settings."""
    if found == origin:
        return
    differing = [name for name in origin if (found or {}).get(name) != origin[name]]
    raise CheckpointError(
        f"{path} was written for another chain or with other settings ({', '.join(differing)} differ).",
        "Use the same chains and settings, another folder, or start again with resume=False (without --resume).",
    )


def without_history(kept: Kept) -> Kept:
    """Return what has to be sent between processes: no history, no cached arrays, copies of views."""
    empty = History.empty()
    variables = {name: one._replace(coords=dict(one.coords)) for name, one in kept.variables.items()}
    preconditioner = kept.preconditioner and Preconditioner(kept.preconditioner.factor, kept.preconditioner.centre)
    stream = kept.stream and Block(kept.stream.draws.copy(), kept.stream.scores.copy(), kept.stream.ids.copy())
    return replace(kept, history=empty, stream=stream, variables=variables, preconditioner=preconditioner)
