"""Stages of an experiment with networks before thinning, each stored in files and computed once.

The stages are: two trained networks, the curve between them, the interpolant if there is one, the chain of the ground
truth, and the compared chains. All chains start at the midpoint of the curve. Every stage can be resumed: training
after the last complete epoch, the interpolant after the last complete node, chains after the last complete part.

The rectangle of the interpolant must contain all chains. It is found with a pilot: an interpolant in the large
rectangle of `PILOT` with some of the training examples, whose likelihood is scaled to all data. The final rectangle
contains the start and the draws of two pilot chains, and a margin.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from experiments.network_models.interpolation import (
    ChebyshevGrid,
    GaussianPrior,
    InterpolatedPosterior,
    Rectangle,
    log_softmax,
)
from experiments.paper.networks.chains import ComparedChain, GroundTruth
from experiments.paper.networks.interpolant_check import InterpolantCheck
from experiments.paper.networks.node_logits import NodeLogits, exact_logits
from experiments.paper.networks.problems import NetworkProblem
from experiments.paper.networks.scales import NetworkScale
from experiments.paper.networks.sgld import SGLDSettings
from experiments.paper.stored_chain import SampledChain
from experiments.runner import ProgressCallback
from steinstream._typing import Array
from steinstream.io import replacing

if TYPE_CHECKING:
    from experiments.network_models.training import TrainingData

BACKWARD = 4.0  # cost of a forward and backward pass relative to a forward pass
ENDS = ("first", "second")
POSITIONS = {"first end": (1.0, 0.0), "second end": (-1.0, 0.0), "midpoint": (0.0, 1.0), "base": (0.0, 0.0)}
AUTHORS_VARIANCE = 10.0  # of the prior of z in the authors' code
FEATURE_INPUTS = 100  # training inputs whose predictions are features
PILOT = ChebyshevGrid(Rectangle(np.array([0.0, 0.2]), np.diag([3.2, 2.4])), (15, 13))
AUTHORS_PILOT = ChebyshevGrid(Rectangle(np.array([0.0, 0.5]), np.diag([4.0, 4.0])), (21, 21))
PILOT_MOVES = 5_000  # per chain
MARGIN = 0.2  # of the final rectangle, on each side, relative to its sides


class Job(NamedTuple):
    """Name, relative cost and function of a part of a stage."""

    name: str
    cost: float
    work: Callable[[ProgressCallback], object]


@dataclass(frozen=True)
class Stages:
    """All stages of an experiment in a folder."""

    problem: NetworkProblem
    scale: NetworkScale
    seed: int
    folder: Path

    def rounds(self, workers: int) -> list[list[Job]]:
        """Return the jobs; those of one round are independent of each other."""
        rounds = [self._network_jobs(), [self._curve_job()]]
        if self.scale.nodes is not None:
            rounds += [self._node_jobs("pilot", workers), [Job("rectangle", 0.0, self._find_rectangle)]]
            rounds += [self._node_jobs("grid", workers)]
        ends = Job("trained networks", 4.0 * len(self.problem.test_labels), self._load_trained_networks)
        rounds += [[ends], [Job("step of SGLD", 0.0, self._load_sgld)], self._chain_jobs()]
        if self.scale.nodes is not None:
            rounds += [[Job("check of the interpolant", self.interpolant_check.cost, self.interpolant_check.record)]]
        return rounds

    # -- training ------------------------------------------------------------------------------------------------------

    def _network_jobs(self) -> list[Job]:
        cost = self.scale.ends.epochs * len(self.problem.labels) * BACKWARD
        return [Job(f"{name} network", cost, partial(self._train_end, name)) for name in ENDS]

    def _curve_job(self) -> Job:
        cost = self.scale.curve.epochs * len(self.problem.labels) * BACKWARD
        return Job("curve", cost, self._train_midpoint)

    def network(self, seed: int = 0) -> Any:
        """Return the network with random initial weights, for one thread."""
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
        return train_network(self.network(seed), self._training_data, self.scale.ends, **options)

    def _train_midpoint(self, progress: ProgressCallback) -> Any:
        from experiments.network_models.training import train_curve

        path = self.folder / "networks" / "middle.npz"
        options: dict[str, Any] = {"seed": 1000 * self.seed + 2, "checkpoint": path, "progress": progress}
        return train_curve(self.network(), self.ends, self._training_data, self.scale.curve, **options)

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

    @cached_property
    def trained_networks(self) -> list[dict[str, Any]]:
        """Test accuracy and mean log likelihood of some training examples at both ends, the midpoint and the base."""
        return self._load_trained_networks(_ignore_progress)

    def _load_trained_networks(self, progress: ProgressCallback) -> list[dict[str, Any]]:
        path = self.folder / "networks" / "trained.json"
        if not path.exists():
            rows, problem, labels = [], self.problem, self._labels[self._pilot_rows]
            test_labels = problem.test_labels.cpu().numpy()
            for number, (name, z) in enumerate(POSITIONS.items()):
                progress(number / len(POSITIONS))
                inputs = problem.test_inputs, problem.inputs[self._pilot_rows]
                test, train = (exact_logits(self.network(), self.plane, z, part) for part in inputs)
                likelihoods = log_softmax(train.astype(np.float64))[np.arange(len(labels)), labels]
                correct = float((test.argmax(axis=1) == test_labels).mean())
                rows.append({"name": name, "z": z, "accuracy": correct, "log_likelihood": float(likelihoods.mean())})
            with replacing(path, "w") as file:
                json.dump(rows, file, indent=1)
        stored: list[dict[str, Any]] = json.loads(path.read_text())
        return stored

    @property
    def start(self) -> Array:
        """Position of the midpoint of the curve."""
        return np.array([0.0, 1.0])

    # -- posterior -----------------------------------------------------------------------------------------------------

    @property
    def temperature(self) -> float:
        """The log posterior is divided by this number; the authors take the mean of the log likelihoods."""
        return float(len(self.problem.labels)) if self.scale.authors else self.scale.temperature

    @cached_property
    def prior(self) -> GaussianPrior:
        """Prior in the plane, before it is divided by the temperature."""
        if self.scale.authors:
            return GaussianPrior.of_coordinates(self.plane.dim, AUTHORS_VARIANCE / self.temperature)
        return GaussianPrior.of_weights(self.plane, self.scale.prior_variance)

    def posterior(self) -> Any:
        """Return the posterior, for one thread."""
        if self.scale.nodes is None:
            return self.exact_posterior()
        return InterpolatedPosterior(self.grid, self._logits["train"], self._labels, self.prior, self.temperature)

    def exact_posterior(self) -> Any:
        """Return the posterior with the network itself."""
        from experiments.network_models.exact_posterior import ExactPosterior

        data = self.problem.inputs, self.problem.labels
        return ExactPosterior(self.network(), self.plane, *data, self.prior, self.temperature)

    @property
    def _labels(self) -> Any:
        return self.problem.labels.cpu().numpy()

    @cached_property
    def inputs(self) -> dict[str, Any]:
        """Inputs of predictions: all test inputs, and some training inputs whose predictions are features."""
        if self.scale.nodes is not None:
            return {"test": self._logits["test"], "features": self._logits["train"][self._feature_rows]}
        return {"test": self.problem.test_inputs, "features": self.problem.inputs[self._feature_rows]}

    @property
    def _feature_rows(self) -> slice:
        return slice(None, None, max(1, len(self.problem.labels) // FEATURE_INPUTS))

    # -- interpolant ---------------------------------------------------------------------------------------------------

    def _node_jobs(self, name: str, workers: int) -> list[Job]:
        counts, examples = self._size_of_nodes(name)
        cost = counts[0] * counts[1] * examples / workers

        def record(share: int, progress: ProgressCallback) -> None:
            self._node_logits(name).record(self.network, share, workers, progress)

        return [Job(f"{name}, share {share + 1}", cost, partial(record, share)) for share in range(workers)]

    def _size_of_nodes(self, name: str) -> tuple[tuple[int, int], int]:
        if name == "pilot":
            return self._pilot_grid.counts, len(self._labels[self._pilot_rows])
        return self.scale.nodes or (0, 0), len(self._labels) + len(self.problem.test_labels)

    def _node_logits(self, name: str) -> NodeLogits:
        import torch

        if name == "pilot":
            grid, inputs = self._pilot_grid, self.problem.inputs[self._pilot_rows]
        else:
            grid, inputs = self.grid, torch.cat([self.problem.inputs, self.problem.test_inputs])
        return NodeLogits(self.folder / name, grid, self.plane, inputs)

    @property
    def _pilot_grid(self) -> ChebyshevGrid:
        return AUTHORS_PILOT if self.scale.authors else PILOT

    @property
    def _pilot_rows(self) -> slice:
        return slice(None, None, max(1, len(self.problem.labels) // self.scale.pilot))

    def _find_rectangle(self, progress: ProgressCallback) -> None:
        """Run two pilot chains and write the rectangle of the interpolant."""
        path = self.folder / "rectangle.json"
        if path.exists():
            return
        labels = self._labels[self._pilot_rows]
        share = len(labels) / len(self._labels)
        prior = self.prior._replace(variance=self.prior.variance / share)
        logits = self._node_logits("pilot").load()
        pilot = InterpolatedPosterior(self._pilot_grid, logits, labels, prior, self.temperature * share)
        minibatch = max(1, min(self.scale.minibatch, len(labels) // 2))
        settings = self._sgld_settings(pilot, minibatch, progress)
        visited = [self.start[None]]
        for seed in (1, 2):
            sampler = settings.sampler(pilot, minibatch, "step")
            state = sampler.init(settings.from_plane(self.start), 1000 * self.seed + seed)
            draws = sampler.sample(state, PILOT_MOVES)[1]
            visited.append(settings.to_plane(draws.draws, draws.scores)[0])
            progress(seed / 2)
        rectangle = Rectangle.smallest(np.concatenate(visited), MARGIN)
        with replacing(path, "w") as file:
            json.dump({"centre": rectangle.centre.tolist(), "axes": rectangle.axes.tolist()}, file, indent=1)

    @cached_property
    def grid(self) -> ChebyshevGrid:
        """Nodes of the interpolant."""
        if self.scale.nodes is None:
            raise ValueError("This scale has no interpolant.")
        stored = json.loads((self.folder / "rectangle.json").read_text())
        rectangle = Rectangle(np.array(stored["centre"]), np.array(stored["axes"]))
        return ChebyshevGrid(rectangle, self.scale.nodes)

    @cached_property
    def _logits(self) -> dict[str, Any]:
        """Logits of training and test examples at the nodes."""
        both = self._node_logits("grid").load()
        return {"train": both[: len(self._labels)], "test": both[len(self._labels) :]}

    @cached_property
    def interpolant_check(self) -> InterpolantCheck:
        """Comparison of the interpolant with the network."""
        return InterpolantCheck(self)

    # -- chains --------------------------------------------------------------------------------------------------------

    def _chain_jobs(self) -> list[Job]:
        scale = self.scale
        exact = 1.0 if scale.nodes is None else 0.01
        score, prediction = BACKWARD * scale.minibatch, float(len(self.problem.test_labels))
        truth = Job("ground truth", exact * scale.truth * (score + prediction), self.ground_truth.record)
        cost = exact * scale.moves * (2 * score + prediction)
        chains = [Job(f"chain {number}", cost, self.compared_chain(number).record) for number in range(scale.chains)]
        return [truth, *chains]

    @cached_property
    def sgld(self) -> SGLDSettings:
        """Coordinates and step of SGLD."""
        return self._load_sgld(_ignore_progress)

    def _load_sgld(self, progress: ProgressCallback) -> SGLDSettings:
        def compute() -> SGLDSettings:
            return self._sgld_settings(self.posterior(), self.scale.minibatch, progress)

        return SGLDSettings.load(self.folder / "sgld.json", compute)

    def _sgld_settings(self, posterior: Any, minibatch: int, progress: ProgressCallback) -> SGLDSettings:
        if self.scale.authors:
            return SGLDSettings.of_the_authors(self.plane.dim)
        return SGLDSettings.tempered(posterior, self.start, minibatch, self.scale.step, self.seed, progress)

    @cached_property
    def ground_truth(self) -> GroundTruth:
        """The chain of the ground truth."""
        return GroundTruth(self)

    def compared_chain(self, number: int) -> ComparedChain:
        """Return one of the compared chains."""
        return ComparedChain(self, number)

    def sampled_chain(self, posterior: Any, seed: int, moves: int, record: Any) -> SampledChain:
        """Return a chain that starts at the midpoint of the curve, before sampling."""
        sampler = self.sgld.sampler(posterior, self.scale.minibatch, record)
        start = self.sgld.from_plane(self.start)
        return SampledChain(sampler, start, 1000 * self.seed + seed, moves, self.scale.part)


def _ignore_progress(fraction: float, status: str = "") -> None:
    """Ignore the progress of a stage that is complete."""
