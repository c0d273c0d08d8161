"""Long chains on disk.

`SampledChain` stores a chain in parts. Each part is an npz file with the distinct states, the number of consecutive
visits to each of them, and the state of the sampler at its end. Sampling can be interrupted and resumed at any time;
the resulting chain is the same. `FileChain` reads a chain of the user.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from experiments.runner import ProgressCallback
from steinstream._typing import Array
from steinstream.errors import InputError
from steinstream.io import Chain, replacing
from steinstream.samplers import Sampler, State

_BLOCK = 2000  # moves between two progress reports


class StoredChain(Protocol):
    """Chain that can be read from any move on."""

    @property
    def dim(self) -> int:
        """Number of parameters."""

    @property
    def moves(self) -> int:
        """Number of draws."""

    def blocks(self, first: int = 0) -> Iterator[tuple[Array, Array]]:
        """Yield blocks of draws and scores, beginning with the draw ``first``."""


@dataclass
class SampledChain:
    """Chain of ``moves`` draws of a sampler, stored in parts of ``part`` draws.

    The folder is set by `record`.
    """

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

    def record(self, folder: Path, progress: ProgressCallback) -> None:
        """Sample the parts that the folder does not contain yet."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        state = None
        for first in range(0, self.moves, self.part):
            if self._path(first).exists():
                continue
            if state is None:
                state = self.sampler.init(self.start, self.seed) if first == 0 else self._state(first - self.part)
            state = self._record_part(state, first, min(self.part, self.moves - first), progress)

    def _record_part(self, state: State, first: int, count: int, progress: ProgressCallback) -> State:
        blocks = []
        for done in range(0, count, _BLOCK):
            state, block = self.sampler.sample(state, min(_BLOCK, count - done))
            blocks.append(block)
            progress((first + done) / self.moves)
        draws, scores, _ = (np.concatenate(arrays) for arrays in zip(*blocks, strict=True))
        new = np.ones(count, dtype=bool)
        new[1:] = (draws[1:] != draws[:-1]).any(axis=1)
        visits = np.diff(np.append(np.flatnonzero(new), count))
        rest = {name: value for name, value in state._asdict().items() if name not in ("position", "score")}
        with replacing(self._path(first)) as file:
            np.savez(
                file,
                draws=draws[new],
                scores=scores[new],
                visits=visits,
                position=state.position,
                score=state.score,
                rest=np.array(json.dumps(rest)),
            )
        return state

    def _state(self, first: int) -> State:
        """Return the state of the sampler at the end of the part that begins with the draw ``first``."""
        with np.load(self._path(first), allow_pickle=False) as part:
            rest: dict[str, Any] = json.loads(str(part["rest"]))
            return State(position=part["position"], score=part["score"], **rest)

    @property
    def accepted(self) -> int:
        """Number of accepted moves."""
        return self._state((self.moves - 1) // self.part * self.part).accepted

    def blocks(self, first: int = 0) -> Iterator[tuple[Array, Array]]:
        """Yield blocks of draws and scores, beginning with the draw ``first``."""
        for begin in range(first // self.part * self.part, self.moves, self.part):
            with np.load(self._path(begin), allow_pickle=False) as part:
                visit = np.repeat(np.arange(len(part["visits"])), part["visits"])[max(0, first - begin) :]
                draws, scores = part["draws"], part["scores"]
            for rows in np.array_split(visit, -(-len(visit) // _BLOCK)):
                yield draws[rows], scores[rows]


class FileChain:
    """Chain in a file of the user."""

    def __init__(self, chain: Chain) -> None:
        self.chain, self.dim = chain, chain.dim
        self.moves = chain.length or sum(len(block.draws) for block in chain.blocks())

    def blocks(self, first: int = 0) -> Iterator[tuple[Array, Array]]:
        """Yield blocks of draws and scores, beginning with the draw ``first``."""
        for block in self.chain.blocks(_BLOCK, skip=first):
            if not (np.isfinite(block.draws).all() and np.isfinite(block.scores).all()):
                raise InputError(f"{self.chain.path} contains values that are not finite.", "Remove those draws first.")
            yield block.draws, block.scores
