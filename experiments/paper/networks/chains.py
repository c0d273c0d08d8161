"""Chains of an experiment with networks: recorded draws, scores and predictions.

With the network itself, predictions are computed when a chain is recorded and stored in files. With an interpolant they
are computed when they are needed.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from experiments.paper.stored_chain import SampledChain
from experiments.runner import ProgressCallback
from steinstream._typing import Array
from steinstream.io import replacing

if TYPE_CHECKING:
    from experiments.paper.networks.stages import Stages

BURN_IN = 0.1  # fraction of the ground truth that is discarded
_SAMPLING = 0.6  # fraction of the time of a recording that sampling takes


class _Chain:
    """Chain on disk, in parts."""

    def __init__(self, stages: Stages, name: str, seed: int, moves: int, record: str) -> None:
        self.stages, self.folder = stages, stages.folder / name
        self._seed, self._moves, self._record = seed, moves, record

    def _sample(self, posterior: Any, progress: ProgressCallback) -> None:
        chain = self.stages.sampled_chain(posterior, self._seed, self._moves, self._record)
        chain.record(self.folder, lambda fraction, status="": progress(_SAMPLING * fraction))

    def _parts(self) -> range:
        return range(0, self._moves, self.stages.scale.part)

    def _file(self, name: str, first: int) -> Path:
        return self.folder / f"{name}-{first:09d}.npy"

    def _save(self, name: str, first: int, values: NDArray[Any]) -> None:
        with replacing(self._file(name, first)) as file:
            np.save(file, values)

    @cached_property
    def draws(self) -> tuple[Array, Array]:
        """Recorded draws and scores (moves, k) in the coordinates z."""
        start = np.zeros(self.stages.plane.dim)
        chain = SampledChain(None, start, 0, self._moves, self.stages.scale.part, self.folder)  # type: ignore[arg-type]
        draws, scores = (np.concatenate(blocks) for blocks in zip(*chain.blocks(), strict=True))
        return self.stages.sgld.to_plane(draws, scores)


class ComparedChain(_Chain):
    """Compared chain. Its recorded scores are from minibatches that do not influence the chain."""

    def __init__(self, stages: Stages, number: int) -> None:
        super().__init__(stages, f"chain-{number}", 10 + number, stages.scale.moves, "independent")

    def record(self, progress: ProgressCallback) -> None:
        """Sample the parts that are missing and, without an interpolant, predict with their networks."""
        posterior = self.stages.posterior()
        self._sample(posterior, progress)
        if self.stages.scale.nodes is not None:
            return
        for first in self._parts():
            draws = self.draws[0][first : first + self.stages.scale.part]
            for name, inputs in self.stages.inputs.items():
                if not self._file(name, first).exists():
                    predictions = np.array([posterior.predict(z, inputs) for z in draws], dtype=np.float32)
                    self._save(name, first, predictions)
            progress(_SAMPLING + (1 - _SAMPLING) * first / self._moves)

    def total(self, numbers: NDArray[np.int64]) -> Array:
        """Return the sum of the probabilities (inputs, classes) of the networks at some draws for the test inputs."""
        total: Array = np.zeros(())
        for first, part in zip(self._parts(), self._predictions, strict=True):
            chosen = numbers[(numbers >= first) & (numbers < first + len(part))] - first
            total = total + part[chosen].sum(axis=0, dtype=np.float64)
        return np.asarray(total)

    @cached_property
    def _predictions(self) -> list[NDArray[np.float32]]:
        return self._predicted("test")

    @property
    def features(self) -> Array:
        """Probabilities (moves, inputs x classes) for some training inputs, in double precision."""
        return np.concatenate(self._predicted("features")).reshape(self._moves, -1).astype(np.float64)

    def _predicted(self, name: str) -> list[NDArray[np.float32]]:
        if self.stages.scale.nodes is None:
            return [np.load(self._file(name, first), mmap_mode="r", allow_pickle=False) for first in self._parts()]
        posterior, inputs, part = self.stages.posterior(), self.stages.inputs[name], self.stages.scale.part
        return [posterior.predict_many(self.draws[0][first : first + part], inputs) for first in self._parts()]


class GroundTruth(_Chain):
    """Long chain of the ground truth. Only the sum of the predictions of each part is stored."""

    def __init__(self, stages: Stages) -> None:
        super().__init__(stages, "truth", 3, stages.scale.truth, "step")

    def record(self, progress: ProgressCallback) -> None:
        """Sample and predict the parts that are missing."""
        posterior, inputs = self.stages.posterior(), self.stages.inputs["test"]
        self._sample(posterior, progress)
        for first in self._parts():
            if not self._file("total", first).exists():
                draws = self.draws[0][max(first, self._burn_in) : first + self.stages.scale.part]
                if self.stages.scale.nodes is None:
                    each = np.array([posterior.predict(z, inputs) for z in draws], dtype=np.float32)
                else:
                    each = posterior.predict_many(draws, inputs)
                self._save("total", first, each.sum(axis=0, dtype=np.float64) if len(draws) else np.zeros(()))
            progress(_SAMPLING + (1 - _SAMPLING) * first / self._moves)

    @property
    def _burn_in(self) -> int:
        return int(BURN_IN * self._moves)

    @property
    def settled(self) -> Array:
        """Draws (moves, k) after burn-in."""
        return self.draws[0][self._burn_in :]

    @cached_property
    def mean(self) -> Array:
        """Predictive distribution (inputs, classes)."""
        return self._mean(self._totals())

    @property
    def halves(self) -> tuple[Array, Array]:
        """Predictive distributions from the first and from the second half of the chain after burn-in."""
        totals = self._totals()
        middle = len(totals) - int((1 - BURN_IN) * len(totals) / 2)
        return self._mean(totals[:middle]), self._mean(totals[middle:])

    def _totals(self) -> list[Array]:
        return [np.load(self._file("total", first), allow_pickle=False) for first in self._parts()]

    @staticmethod
    def _mean(totals: list[Array]) -> Array:
        total: Array = sum(totals, start=np.zeros(()))
        return np.asarray(total / total.sum(axis=1, keepdims=True))
