"""One leaf: the draws of one source, thinned where they lie, with checkpoints in a folder that all workers see.

A folder holds for leaf k ``leaf-000k.npz`` once it is done, and ``leaf-000k.checkpoint`` while it is not. Both say what
they were made of and how; what was made otherwise is refused. Each is written whole or not at all, so that a worker may
die at any instant, and a leaf that two workers do at once comes out the same.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from steinstream import validation
from steinstream.api import fitting, too_short
from steinstream.errors import CheckpointError, InputError, NegatedScoresError
from steinstream.io import read_kept
from steinstream.parallel.sources import Source
from steinstream.preconditioning import FOLLOWED, Preconditioner, Streaming, Warmup
from steinstream.result import History, Kept
from steinstream.thinner import Thinner
from steinstream.thinner.passes import begin_well, begins_with_sample, go_on
from steinstream.thinner.subsample import Subsample


class Failure(NamedTuple):
    """A source that could not be thinned, and why."""

    title: str
    problem: str
    remedy: str


@dataclass(frozen=True)
class Leaf:
    """How leaves are thinned: all alike."""

    preconditioner: Preconditioner | Streaming | str
    settings: dict[str, Any]
    """What a :class:`~steinstream.Thinner` takes."""
    passes: int | str = 1
    start: str | None = None
    folder: Path | None = None
    every: float = 30.0
    """Seconds between two checkpoints."""

    def thin(self, number: int, source: Source, *values: Any) -> Kept | Failure:
        """What is kept of one source; with a folder, from where it stood."""
        try:
            return self._thin(number, source.holding(*values))
        except (NegatedScoresError, CheckpointError):
            raise
        except InputError as wrong:
            return Failure(source.title, wrong.problem, wrong.remedy)

    def _thin(self, number: int, source: Source) -> Kept:
        mark = {} if self.folder is None else {**source.mark(), "settings": self._mark()}
        done, state = self.files(number)
        if done is not None and done.exists():
            return light(_finished(done, mark))
        thinner = self._begin(source, state, mark)
        while True:
            self._stream(source, thinner, state)
            if not go_on(thinner, self.passes):
                break
            thinner.start_pass()
        if thinner.seen == thinner.skipped:
            raise InputError(f"{source.title} has no usable draws.")
        if len(thinner) == 0:
            raise InputError(*too_short(thinner.seen - thinner.skipped, thinner.candidates))
        kept = thinner.kept
        about = {**kept.settings, "leaf": {"title": source.title, **mark}}
        kept = replace(kept, names=source.names(), variables=source.variables(kept.ids), settings=about)
        if done is not None and state is not None:
            kept.save(done)
            state.unlink(missing_ok=True)
        return light(kept)

    def files(self, number: int) -> tuple[Path | None, Path | None]:
        """Where leaf ``number`` is kept: the finished one, and its checkpoint."""
        if self.folder is None:
            return None, None
        return self.folder / f"leaf-{number:05d}.npz", self.folder / f"leaf-{number:05d}.checkpoint"

    def _begin(self, source: Source, state: Path | None, mark: dict[str, Any]) -> Thinner:
        if state is not None and state.exists():
            own = {name: self.settings.get(name) for name in ("growth", "budget")}
            thinner = Thinner.load(state, **{name: value for name, value in own.items() if callable(value)})
            _require(state, thinner.note.get("mark"), mark)
            return thinner
        preconditioner: Preconditioner | Streaming | Warmup | str = self.preconditioner
        sketch = None
        if isinstance(preconditioner, str):
            if source.repeatable:
                sketch = self._sketch(source)
                check, kernel = self.settings.get("validate_scores", True), self.settings.get("kernel")
                preconditioner = fitting(preconditioner, sketch, check, kernel)
            else:
                preconditioner = self._live(preconditioner)
        thinner = Thinner(_dim(source), preconditioner=preconditioner, **self.settings)
        thinner.note = {"mark": mark}
        if begins_with_sample(self.start, self.passes, thinner):
            begin_well(thinner, (sketch or self._sketch(source)).block)
        if state is not None:
            thinner.save(state)
        return thinner

    def _live(self, kind: str) -> Preconditioner | Streaming | Warmup:
        """What would be fitted to a chain follows a sampler, if it can."""
        kernel = self.settings.get("kernel")
        if kind in FOLLOWED:
            return Streaming(kind, centred=kernel is not None and kernel.linear > 0)
        return Preconditioner.identity() if kind == "identity" else Warmup(kind)

    def _sketch(self, source: Source) -> Subsample:
        sketch = None
        for block in source.blocks():
            sketch = sketch or Subsample(block.draws.shape[1])
            sketch.add(block.take(validation.finite_rows(block, self.settings.get("on_bad", "raise"))))
        if sketch is None:
            raise InputError(f"{source.title} has no draws.")
        return sketch

    def _stream(self, source: Source, thinner: Thinner, state: Path | None) -> None:
        saved = time.monotonic()
        for block in source.blocks(skip=thinner.current_pass.came):
            thinner.extend(block.draws, block.scores, ids=block.ids)
            if state is not None and time.monotonic() - saved > self.every:
                thinner.save(state)
                saved = time.monotonic()

    def _mark(self) -> str:
        """A short word for the settings."""
        preconditioner = self.preconditioner
        if isinstance(preconditioner, Preconditioner):
            centre = b"" if preconditioner.centre is None else preconditioner.centre.tobytes()
            preconditioner = hashlib.sha256(preconditioner.factor.tobytes() + centre).hexdigest()
        named = {name: _name(value) for name, value in sorted(self.settings.items())}
        text = json.dumps([str(preconditioner), named, str(self.passes), self.start])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _name(value: Any) -> str:
    """A setting's name; a function has no other than its own."""
    return getattr(value, "__qualname__", None) or repr(value)


def _dim(source: Source) -> int:
    for block in source.blocks():
        return int(block.draws.shape[1])
    raise InputError(f"{source.title} has no draws.")


def _finished(done: Path, mark: dict[str, Any]) -> Kept:
    try:
        kept = read_kept(done)
    except InputError as damage:
        raise CheckpointError(damage.problem, "Delete it to thin that chain again.") from None
    found = {name: value for name, value in kept.settings.get("leaf", {}).items() if name != "title"}
    _require(done, found, mark)
    return kept


def _require(path: Path, found: Any, mark: dict[str, Any]) -> None:
    if found == mark:
        return
    differs = [name for name in mark if (found or {}).get(name) != mark[name]]
    raise CheckpointError(
        f"{path} was made of another chain or with other settings ({', '.join(differs)} differ).",
        "Use the same chains and settings as before, another folder, or begin anew with resume=False (no --resume).",
    )


def light(kept: Kept) -> Kept:
    """What has to travel: draws, scores, ids, coordinates, a few numbers; neither history nor the stream's sketch."""
    nothing = History(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0))
    plain = {name: one._replace(coords=dict(one.coords)) for name, one in kept.variables.items()}
    preconditioner = kept.preconditioner and Preconditioner(kept.preconditioner.factor, kept.preconditioner.centre)
    return replace(kept, history=nothing, stream=None, variables=plain, preconditioner=preconditioner)
