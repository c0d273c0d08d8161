"""What an experiment with networks has to make before anything is thinned, each in files and once only.

Two networks, the curve between them, the ground truth, and the chains that are compared, each with what its networks
predict. All of it goes on where it was stopped: training after the last whole epoch, chains after their last part.

Chains start at the middle of the curve. In the coordinates of the plane the posterior may be hundreds of times longer
than wide, and SGLD would creep. So it runs in coordinates u with z = m + A u, where m is the mode nearest to the middle
and A A^T the inverse of H, minus the Hessian there; draws and scores are given in z again. Minibatches have control
variates from m. With V the covariance of their scores in u, one standard deviation from m, a step h makes the variance
of the chain too large by about h V / 4 and h H / 4 of itself: h = 0.8 / (|V| + 2 |H|), with the larger |H| of mode and
start, keeps the first below 20 % and the second below 10 %. All this is settled once, for the ground truth.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.paper import Report
from experiments.paper.network_problems import Problem
from experiments.paper.network_scales import Scale
from experiments.paper.tape import Tape
from steinstream.io.atomic import replacing
from steinstream.targets import Array

BURN_IN = 0.1  # of the ground truth
BATCHES = 20  # whose scores show how noisy they are, at each of some places
FLAT = 1e-4  # of the largest curvature: no direction is taken for flatter
BACKWARD = 4.0  # what a pass forward and backward costs, in passes forward
ENDS = ("first", "second")


@dataclass(frozen=True)
class Stages:
    """An experiment's folder and all it takes to fill it."""

    problem: Problem
    scale: Scale
    seed: int
    folder: Path

    def networks(self) -> list[tuple[str, float, Callable[[Report], None]]]:
        """The two ends: what it is, what it costs, what makes it."""
        cost = self.scale.first.epochs * len(self.problem.labels) * BACKWARD
        return [(f"{name} network", cost, lambda report, name=name: self._end(name, report)) for name in ENDS]  # type: ignore[misc]

    def curve(self) -> tuple[str, float, Callable[[Report], None]]:
        """The middle of the curve."""
        cost = self.scale.curve.epochs * len(self.problem.labels) * BACKWARD
        return "curve", cost, self._curve

    def chains(self) -> list[tuple[str, float, Callable[[Report], None]]]:
        """The ground truth, which takes longest, and the chains to compare."""
        scale = self.scale
        score, prediction = BACKWARD * scale.minibatch, float(len(self.problem.test_labels))
        truth = "ground truth", scale.truth * (score + prediction / scale.stride), self.truth.record
        return [
            truth,
            *(
                (f"chain {number}", scale.moves * (2 * score + prediction), self.recording(number).record)
                for number in range(scale.chains)
            ),
        ]

    def _network(self, seed: int) -> Any:
        from steinstream.integrations.torch.flat import FlatNetwork

        return FlatNetwork.made(self.problem.make, seed)

    def _end(self, name: str, report: Report) -> Any:
        from experiments.network_models.training import train_network

        seed = 1000 * self.seed + ENDS.index(name)
        path = self.folder / "networks" / f"{name}.npz"
        path.parent.mkdir(exist_ok=True)
        return train_network(
            self._network(seed), self.problem.inputs, self.problem.labels, self.scale.first,
            prior_variance=self.scale.prior_variance, seed=seed, checkpoint=path, report=report,
        )  # fmt: skip

    def _curve(self, report: Report) -> None:
        self._middle(report)
        self._about(report)

    def _middle(self, report: Report) -> Any:
        from experiments.network_models.training import train_curve

        first, second = self.ends
        return train_curve(
            self._network(0), first, second, self.problem.inputs, self.problem.labels, self.scale.curve,
            prior_variance=self.scale.prior_variance, seed=1000 * self.seed + 2,
            checkpoint=self.folder / "networks" / "middle.npz", report=report,
        )  # fmt: skip

    @cached_property
    def ends(self) -> list[Any]:
        """The weights of the trained networks."""
        return [self._end(name, _silent) for name in ENDS]

    @cached_property
    def plane(self) -> Any:
        """The subspace, once the curve is trained."""
        from steinstream.integrations.torch.subspace import Subspace

        first, second = self.ends
        return Subspace.of_curve(first, self._middle(_silent), second)

    @property
    def start(self) -> Array:
        """The middle of the curve."""
        return np.array([0.0, 1.0])

    @cached_property
    def about(self) -> dict[str, Any]:
        """Where SGLD runs and in which steps, and what they were chosen by."""
        return self._about(_silent)

    def _about(self, report: Report) -> dict[str, Any]:
        note = self.folder / "sgld.json"
        if not note.exists():
            made = self._look(report)
            with replacing(note, "w") as file:
                json.dump(made, file, indent=1)
        read: dict[str, Any] = json.loads(note.read_text())
        return read

    def _look(self, report: Report) -> dict[str, Any]:
        from experiments.network_models.landscape import curvature, mode

        posterior, generator = self.posterior(), np.random.default_rng([self.seed, 4])
        top = mode(posterior, self.start, report)
        bends, axes = np.linalg.eigh(curvature(posterior, top))
        root = axes / np.sqrt(np.maximum(bends, FLAT * bends.max()))
        report(1.0)
        minibatch = posterior.minibatch(self.scale.minibatch, posterior.controls(top))
        noises = []
        for place in (*(top + root.T), *(top - root.T)):
            scores = [root.T @ minibatch(place, generator) for _ in range(BATCHES)]
            noises.append(np.cov(scores, rowvar=False))
            report(1.0)
        noise = np.mean(noises, axis=0)
        at_start = root.T @ curvature(posterior, self.start) @ root
        bent = max(1.0, float(np.linalg.norm(at_start, 2)))
        rule = 0.8 / (float(np.linalg.norm(noise, 2)) + 2 * bent)
        return {
            "step": self.scale.step or rule,
            "mode": top.tolist(),
            "root": root.tolist(),
            "noise": noise.tolist(),
            "curvatures": bends.tolist(),
            "start": at_start.tolist(),
        }

    @property
    def centre(self) -> Array:
        """The mode m."""
        return np.array(self.about["mode"])

    @property
    def root(self) -> Array:
        """The matrix A."""
        return np.array(self.about["root"])

    def posterior(self) -> Any:
        """With a network of its own, for one thread."""
        from steinstream.integrations.torch.posterior import SubspacePosterior

        return SubspacePosterior(
            self._network(0), self.plane, self.problem.inputs, self.problem.labels,
            prior_variance=self.scale.prior_variance, temperature=self.scale.temperature,
        )  # fmt: skip

    @cached_property
    def truth(self) -> Truth:
        """The long chain."""
        return Truth(self)

    def recording(self, number: int) -> Recording:
        """One of the chains that are compared."""
        return Recording(self, number)

    def tape(self, posterior: Any, seed: int, moves: int, record: Any) -> Tape:
        """A chain from the middle of the curve, not yet sampled."""
        from steinstream.samplers import SGLD

        noisy = posterior.minibatch(self.scale.minibatch, posterior.controls(self.centre))
        centre, root = self.centre, self.root

        def minibatch(u: Array, generator: np.random.Generator) -> Array:
            return np.asarray(root.T @ noisy(centre + root @ u, generator))

        sampler = SGLD(None, self.about["step"], minibatch, record)
        start = np.asarray(np.linalg.solve(root, self.start - centre), dtype=np.float64)
        return Tape(sampler, start, 1000 * self.seed + seed, moves, self.scale.part)


class _Chain(ABC):
    """A chain on disk, and something about the predictions of each of its parts."""

    def __init__(self, stages: Stages, name: str, seed: int, moves: int, record: str) -> None:
        self.stages, self.home = stages, stages.folder / name
        self._seed, self._moves, self._record = seed, moves, record

    def record(self, report: Report) -> None:
        """Sample what is missing, then predict what is missing."""
        posterior = self.stages.posterior()
        tape = self.stages.tape(posterior, self._seed, self._moves, self._record)
        tape.record(self.home, lambda share, doing="": report(0.6 * share))
        draws, _ = self.draws
        for first in range(0, self._moves, tape.part):
            path = self._file(first)
            if not path.exists():
                made = self._predicted(posterior, first, draws[first : first + tape.part])
                with replacing(path) as file:
                    np.save(file, made)
            report(0.6 + 0.4 * first / self._moves)

    def _file(self, first: int) -> Path:
        return self.home / f"predictions-{first:09d}.npy"

    def _files(self) -> list[Path]:
        return [self._file(first) for first in range(0, self._moves, self.stages.scale.part)]

    @cached_property
    def draws(self) -> tuple[Array, Array]:
        """Draws and scores (moves, k), once they are recorded."""
        tape = Tape(None, np.zeros(self.stages.plane.dim), 0, self._moves, self.stages.scale.part, self.home)  # type: ignore[arg-type]
        draws, scores = (np.concatenate(blocks) for blocks in zip(*tape.blocks(), strict=True))
        root = self.stages.root
        return self.stages.centre + draws @ root.T, np.linalg.solve(root.T, scores.T).T

    @abstractmethod
    def _predicted(self, posterior: Any, first: int, draws: Array) -> NDArray[Any]:
        """What the networks at these draws predict, of which the first has this number."""


class Recording(_Chain):
    """A chain to compare. Scores are of minibatches of their own, which have no part in where the chain goes."""

    def __init__(self, stages: Stages, number: int) -> None:
        super().__init__(stages, f"chain-{number}", 10 + number, stages.scale.moves, "independent")

    def _predicted(self, posterior: Any, first: int, draws: Array) -> NDArray[Any]:
        """Probabilities (draws, inputs, classes)."""
        test = self.stages.problem.test_inputs
        return np.array([posterior.predict(z, test) for z in draws], dtype=np.float32)

    def prediction(self, number: int) -> NDArray[Any]:
        """Of the network at one draw."""
        part, place = divmod(number, self.stages.scale.part)
        return np.asarray(self._maps[part][place])

    @cached_property
    def _maps(self) -> list[NDArray[Any]]:
        return [np.load(path, mmap_mode="r", allow_pickle=False) for path in self._files()]


class Truth(_Chain):
    """The ground truth. Of its networks' predictions only sums are stored, one a part."""

    def __init__(self, stages: Stages) -> None:
        super().__init__(stages, "truth", 3, stages.scale.truth, "step")

    def _used(self, first: int, count: int) -> NDArray[np.int64]:
        """Which of the draws of a part predict."""
        burn_in = int(BURN_IN * self._moves)
        numbers = np.arange(first, first + count)
        used = (numbers >= burn_in) & (numbers % self.stages.scale.stride == 0)
        return np.flatnonzero(used)

    def _predicted(self, posterior: Any, first: int, draws: Array) -> NDArray[Any]:
        """The sum of probabilities (inputs, classes)."""
        test = self.stages.problem.test_inputs
        total = np.zeros((len(test), posterior.predict(draws[0], test[:1]).shape[1]))
        for number in self._used(first, len(draws)):
            total += posterior.predict(draws[number], test)
        return total

    @property
    def networks(self) -> int:
        """How many predict."""
        return len(self._used(0, self._moves))

    @cached_property
    def mean(self) -> Array:
        """The predictive distribution (inputs, classes)."""
        return self._mean(self._files())

    @property
    def halves(self) -> tuple[Array, Array]:
        """The same from the first half of what is used, and from the second: they should agree."""
        files = self._files()
        middle = len(files) - int((1 - BURN_IN) * len(files) / 2)
        return self._mean(files[:middle]), self._mean(files[middle:])

    def _mean(self, files: list[Path]) -> Array:
        total: Array = sum((np.load(path, allow_pickle=False) for path in files), start=np.zeros(()))
        return np.asarray(total / total.sum(axis=1, keepdims=True))


def _silent(share: float, doing: str = "") -> None:
    """For what is there already."""
