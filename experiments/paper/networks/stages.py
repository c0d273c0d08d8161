"""Stages of an experiment with networks before thinning, each stored in files and computed once.

The stages are: two trained networks, the curve between them, the chain of the ground truth, and the compared chains,
each with the predictions of its networks. Every stage can be resumed: training after the last complete epoch, chains
after the last complete part.

Chains start at the midpoint of the curve. In the coordinates z of the plane, the posterior may be hundreds of times
longer than wide, and SGLD would mix slowly. It therefore runs in coordinates u with z = m + A u, where m is the mode
nearest to the midpoint and A A^T the inverse of the negative Hessian H at m. The recorded draws and scores are
transformed back to z. Minibatch scores use control variates at m.

Step of SGLD: let V be the covariance of the minibatch scores in u, one standard deviation from m. A step h increases
the variance of the chain by relative amounts of about h V / 4 and h H / 4. The choice h = 0.8 / (|V| + 2 |H|), with
the larger |H| of mode and start, limits the first to 20 % and the second to 10 %. Mode, A and h are computed once and
used for all chains.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.paper.networks.problems import NetworkProblem
from experiments.paper.networks.scales import NetworkScale
from experiments.paper.stored_chain import SampledChain
from experiments.runner import ProgressCallback
from steinstream._typing import Array
from steinstream.io import replacing

if TYPE_CHECKING:
    from experiments.network_models.training import TrainingData

BURN_IN = 0.1  # fraction of the ground truth that is discarded
BATCHES = 20  # minibatches per position from which the noise of the scores is estimated
MIN_CURVATURE = 1e-4  # smallest curvature that is used, relative to the largest
BACKWARD = 4.0  # cost of a forward and backward pass relative to a forward pass
ENDS = ("first", "second")


class Job(NamedTuple):
    """Name, relative cost and function of a part of a stage."""

    name: str
    cost: float
    work: Callable[[ProgressCallback], None]


@dataclass(frozen=True)
class Stages:
    """All stages of an experiment in a folder."""

    problem: NetworkProblem
    scale: NetworkScale
    seed: int
    folder: Path

    def network_jobs(self) -> list[Job]:
        """Return the training of both ends of the curve."""
        cost = self.scale.ends.epochs * len(self.problem.labels) * BACKWARD

        def train(name: str) -> Callable[[ProgressCallback], None]:
            return lambda progress: self._train_end(name, progress)

        return [Job(f"{name} network", cost, train(name)) for name in ENDS]

    def curve_job(self) -> Job:
        """Return the training of the midpoint of the curve."""
        cost = self.scale.curve.epochs * len(self.problem.labels) * BACKWARD
        return Job("curve", cost, self._prepare_curve)

    def chain_jobs(self) -> list[Job]:
        """Return the recording of the ground truth, which takes longest, and of the compared chains."""
        scale = self.scale
        score, prediction = BACKWARD * scale.minibatch, float(len(self.problem.test_labels))
        truth = Job("ground truth", scale.truth * (score + prediction / scale.stride), self.ground_truth.record)
        cost = scale.moves * (2 * score + prediction)
        chains = [Job(f"chain {number}", cost, self.compared_chain(number).record) for number in range(scale.chains)]
        return [truth, *chains]

    def _network(self, seed: int) -> Any:
        from steinstream.integrations.torch import FlatNetwork

        return FlatNetwork.from_seed(self.problem.create_network, seed)

    @property
    def _training_data(self) -> TrainingData:
        from experiments.network_models.training import TrainingData

        return TrainingData(self.problem.inputs, self.problem.labels, self.scale.prior_variance)

    def _train_end(self, name: str, progress: ProgressCallback) -> Any:
        from experiments.network_models.training import train_network

        seed = 1000 * self.seed + ENDS.index(name)
        path = self.folder / "networks" / f"{name}.npz"
        path.parent.mkdir(exist_ok=True)
        options: dict[str, Any] = {"seed": seed, "checkpoint": path, "progress": progress}
        return train_network(self._network(seed), self._training_data, self.scale.ends, **options)

    def _prepare_curve(self, progress: ProgressCallback) -> None:
        self._train_midpoint(progress)
        self._load_sgld_settings(progress)

    def _train_midpoint(self, progress: ProgressCallback) -> Any:
        from experiments.network_models.training import train_curve

        path = self.folder / "networks" / "middle.npz"
        options: dict[str, Any] = {"seed": 1000 * self.seed + 2, "checkpoint": path, "progress": progress}
        return train_curve(self._network(0), self.ends, self._training_data, self.scale.curve, **options)

    @cached_property
    def ends(self) -> tuple[Any, Any]:
        """Weights of the two trained networks."""
        first, second = (self._train_end(name, _ignore_progress) for name in ENDS)
        return first, second

    @cached_property
    def plane(self) -> Any:
        """Plane of the trained curve."""
        from steinstream.integrations.torch import Subspace

        first, second = self.ends
        return Subspace.from_curve(first, self._train_midpoint(_ignore_progress), second)

    @property
    def start(self) -> Array:
        """Position of the midpoint of the curve."""
        return np.array([0.0, 1.0])

    @cached_property
    def sgld_settings(self) -> dict[str, Any]:
        """Step, mode and transformation of SGLD, and the quantities from which they were computed."""
        return self._load_sgld_settings(_ignore_progress)

    def _load_sgld_settings(self, progress: ProgressCallback) -> dict[str, Any]:
        path = self.folder / "sgld.json"
        if not path.exists():
            computed = self._compute_sgld_settings(progress)
            with replacing(path, "w") as file:
                json.dump(computed, file, indent=1)
        settings: dict[str, Any] = json.loads(path.read_text())
        return settings

    def _compute_sgld_settings(self, progress: ProgressCallback) -> dict[str, Any]:
        from experiments.network_models.newton import find_mode, negative_hessian

        posterior, generator = self.posterior(), np.random.default_rng([self.seed, 4])
        mode = find_mode(posterior, self.start, progress)
        curvatures, axes = np.linalg.eigh(negative_hessian(posterior, mode))
        root = axes / np.sqrt(np.maximum(curvatures, MIN_CURVATURE * curvatures.max()))
        progress(1.0)
        minibatch = posterior.minibatch(self.scale.minibatch, posterior.control_variates(mode))
        covariances = []
        for position in (*(mode + root.T), *(mode - root.T)):
            scores = [root.T @ minibatch(position, generator) for _ in range(BATCHES)]
            covariances.append(np.cov(scores, rowvar=False))
            progress(1.0)
        noise = np.mean(covariances, axis=0)
        at_start = root.T @ negative_hessian(posterior, self.start) @ root
        curvature = max(1.0, float(np.linalg.norm(at_start, 2)))
        step = 0.8 / (float(np.linalg.norm(noise, 2)) + 2 * curvature)
        return {
            "step": self.scale.step or step,
            "mode": mode.tolist(),
            "root": root.tolist(),
            "noise": noise.tolist(),
            "curvatures": curvatures.tolist(),
            "start": at_start.tolist(),
        }

    @property
    def mode(self) -> Array:
        """The mode m."""
        return np.array(self.sgld_settings["mode"])

    @property
    def root(self) -> Array:
        """The matrix A."""
        return np.array(self.sgld_settings["root"])

    def posterior(self) -> Any:
        """Return the posterior with a network of its own, for one thread."""
        from steinstream.integrations.torch import SubspacePosterior

        return SubspacePosterior(
            self._network(0),
            self.plane,
            self.problem.inputs,
            self.problem.labels,
            prior_variance=self.scale.prior_variance,
            temperature=self.scale.temperature,
        )

    @cached_property
    def ground_truth(self) -> GroundTruth:
        """The chain of the ground truth."""
        return GroundTruth(self)

    def compared_chain(self, number: int) -> ComparedChain:
        """Return one of the compared chains."""
        return ComparedChain(self, number)

    def sampled_chain(self, posterior: Any, seed: int, moves: int, record: Any) -> SampledChain:
        """Return a chain that starts at the midpoint of the curve, before sampling."""
        from steinstream.samplers import SGLD

        noisy_score = posterior.minibatch(self.scale.minibatch, posterior.control_variates(self.mode))
        mode, root = self.mode, self.root

        def minibatch(u: Array, generator: np.random.Generator) -> Array:
            return np.asarray(root.T @ noisy_score(mode + root @ u, generator))

        sampler = SGLD(None, self.sgld_settings["step"], minibatch, record)
        start = np.asarray(np.linalg.solve(root, self.start - mode), dtype=np.float64)
        return SampledChain(sampler, start, 1000 * self.seed + seed, moves, self.scale.part)


class _PredictingChain(ABC):
    """Chain on disk with a file of predictions per part."""

    def __init__(self, stages: Stages, name: str, seed: int, moves: int, record: str) -> None:
        self.stages, self.folder = stages, stages.folder / name
        self._seed, self._moves, self._record = seed, moves, record

    def record(self, progress: ProgressCallback) -> None:
        """Sample and predict the parts that are missing."""
        posterior = self.stages.posterior()
        chain = self.stages.sampled_chain(posterior, self._seed, self._moves, self._record)
        chain.record(self.folder, lambda fraction, status="": progress(0.6 * fraction))
        draws, _ = self.draws
        for first in range(0, self._moves, chain.part):
            path = self._file(first)
            if not path.exists():
                predictions = self._predict_part(posterior, first, draws[first : first + chain.part])
                with replacing(path) as file:
                    np.save(file, predictions)
            progress(0.6 + 0.4 * first / self._moves)

    def _file(self, first: int) -> Path:
        return self.folder / f"predictions-{first:09d}.npy"

    def _files(self) -> list[Path]:
        return [self._file(first) for first in range(0, self._moves, self.stages.scale.part)]

    @cached_property
    def draws(self) -> tuple[Array, Array]:
        """Recorded draws and scores (moves, k) in the coordinates z."""
        start = np.zeros(self.stages.plane.dim)
        chain = SampledChain(None, start, 0, self._moves, self.stages.scale.part, self.folder)  # type: ignore[arg-type]
        draws, scores = (np.concatenate(blocks) for blocks in zip(*chain.blocks(), strict=True))
        root = self.stages.root
        return self.stages.mode + draws @ root.T, np.linalg.solve(root.T, scores.T).T

    @abstractmethod
    def _predict_part(self, posterior: Any, first: int, draws: Array) -> NDArray[Any]:
        """Return the predictions of a part that begins with the draw number ``first``."""


class ComparedChain(_PredictingChain):
    """Compared chain. Its recorded scores are from minibatches that do not influence the chain."""

    def __init__(self, stages: Stages, number: int) -> None:
        super().__init__(stages, f"chain-{number}", 10 + number, stages.scale.moves, "independent")

    def _predict_part(self, posterior: Any, first: int, draws: Array) -> NDArray[Any]:
        """Return the probabilities (draws, inputs, classes)."""
        test = self.stages.problem.test_inputs
        return np.array([posterior.predict(z, test) for z in draws], dtype=np.float32)

    def prediction(self, number: int) -> NDArray[Any]:
        """Return the probabilities (inputs, classes) of the network at one draw."""
        part, place = divmod(number, self.stages.scale.part)
        return np.asarray(self._predictions[part][place])

    @cached_property
    def _predictions(self) -> list[NDArray[Any]]:
        return [np.load(path, mmap_mode="r", allow_pickle=False) for path in self._files()]


class GroundTruth(_PredictingChain):
    """Long chain of the ground truth. Only the sum of the predictions of each part is stored."""

    def __init__(self, stages: Stages) -> None:
        super().__init__(stages, "truth", 3, stages.scale.truth, "step")

    def _used(self, first: int, count: int) -> NDArray[np.int64]:
        """Return the indices of the draws of a part that are used for predictions."""
        burn_in = int(BURN_IN * self._moves)
        numbers = np.arange(first, first + count)
        used = (numbers >= burn_in) & (numbers % self.stages.scale.stride == 0)
        return np.flatnonzero(used)

    def _predict_part(self, posterior: Any, first: int, draws: Array) -> NDArray[Any]:
        """Return the sum of the probabilities (inputs, classes)."""
        test = self.stages.problem.test_inputs
        total = np.zeros((len(test), posterior.predict(draws[0], test[:1]).shape[1]))
        for number in self._used(first, len(draws)):
            total += posterior.predict(draws[number], test)
        return total

    @property
    def networks(self) -> int:
        """Number of networks that are used for predictions."""
        return len(self._used(0, self._moves))

    @cached_property
    def mean(self) -> Array:
        """Predictive distribution (inputs, classes)."""
        return self._mean(self._files())

    @property
    def halves(self) -> tuple[Array, Array]:
        """Predictive distributions from the first and from the second half of the chain after burn-in."""
        files = self._files()
        middle = len(files) - int((1 - BURN_IN) * len(files) / 2)
        return self._mean(files[:middle]), self._mean(files[middle:])

    def _mean(self, files: list[Path]) -> Array:
        total: Array = sum((np.load(path, allow_pickle=False) for path in files), start=np.zeros(()))
        return np.asarray(total / total.sum(axis=1, keepdims=True))


def _ignore_progress(fraction: float, status: str = "") -> None:
    """Ignore the progress of a stage that is complete."""
