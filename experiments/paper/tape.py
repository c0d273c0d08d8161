"""A long chain on disk, in parts: sampled as far as it goes, taken up again later, read as often as wanted.

Each part is an npz file with the distinct states, how often each was visited in a row, and the state of the sampler at
its end. The same chain results however often the recording was interrupted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from experiments.paper import Report
from steinstream.errors import InputError
from steinstream.io import Chain
from steinstream.io.atomic import replacing
from steinstream.samplers import Sampler, State
from steinstream.targets import Array

_BLOCK = 2000  # moves between two looks at the clock


class Source(Protocol):
    """A chain that can be read from any move on."""

    @property
    def dim(self) -> int:
        """Number of parameters."""

    @property
    def moves(self) -> int:
        """Number of draws."""

    def blocks(self, first: int = 0) -> Iterator[tuple[Array, Array]]:
        """Draws and scores from the move ``first`` on, some at a time."""


@dataclass
class Tape:
    """``moves`` draws of a sampler, in a folder that is named when it is recorded."""

    sampler: Sampler
    start: Array
    seed: int
    moves: int
    part: int = 20_000
    folder: Path = Path()

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return len(self.start)

    def _path(self, first: int) -> Path:
        return self.folder / f"{first:09d}.npz"

    def record(self, folder: Path, report: Report) -> None:
        """Sample the parts that are missing."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        state = None
        for first in range(0, self.moves, self.part):
            if self._path(first).exists():
                continue
            if state is None:
                state = self.sampler.init(self.start, self.seed) if first == 0 else self._state(first - self.part)
            state = self._record(state, first, min(self.part, self.moves - first), report)

    def _record(self, state: State, first: int, count: int, report: Report) -> State:
        blocks = []
        for done in range(0, count, _BLOCK):
            state, block = self.sampler.sample(state, min(_BLOCK, count - done))
            blocks.append(block)
            report((first + done) / self.moves)
        draws, scores, _ = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
        new = np.ones(count, dtype=bool)
        new[1:] = (draws[1:] != draws[:-1]).any(axis=1)
        visits = np.diff(np.append(np.flatnonzero(new), count))
        rest = {name: value for name, value in state._asdict().items() if name not in ("position", "score")}
        with replacing(self._path(first)) as file:
            np.savez(
                file, draws=draws[new], scores=scores[new], visits=visits,
                position=state.position, score=state.score, rest=np.array(json.dumps(rest)),
            )  # fmt: skip
        return state

    def _state(self, first: int) -> State:
        """The sampler's state at the end of the part that begins there."""
        with np.load(self._path(first), allow_pickle=False) as part:
            rest: dict[str, Any] = json.loads(str(part["rest"]))
            return State(position=part["position"], score=part["score"], **rest)

    @property
    def accepted(self) -> int:
        """How many moves were accepted."""
        return self._state((self.moves - 1) // self.part * self.part).accepted

    def blocks(self, first: int = 0) -> Iterator[tuple[Array, Array]]:
        """Draws and scores from the move ``first`` on."""
        for begin in range(first // self.part * self.part, self.moves, self.part):
            with np.load(self._path(begin), allow_pickle=False) as part:
                visit = np.repeat(np.arange(len(part["visits"])), part["visits"])[max(0, first - begin) :]
                draws, scores = part["draws"], part["scores"]
            for piece in np.array_split(visit, -(-len(visit) // _BLOCK)):
                yield draws[piece], scores[piece]


class FromFile:
    """A chain of the user's."""

    def __init__(self, chain: Chain) -> None:
        self.chain, self.dim = chain, chain.dim
        self.moves = chain.length or sum(len(block.draws) for block in chain.blocks())

    def blocks(self, first: int = 0) -> Iterator[tuple[Array, Array]]:
        """Draws and scores from the draw ``first`` on."""
        for block in self.chain.blocks(_BLOCK, skip=first):
            if not (np.isfinite(block.draws).all() and np.isfinite(block.scores).all()):
                raise InputError(f"{self.chain.path} has values that are not finite.", "Take those draws out first.")
            yield block.draws, block.scores
