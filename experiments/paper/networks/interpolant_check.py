"""Comparison of the interpolant with the network at draws of the ground truth, which are not nodes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.network_models.interpolation import InterpolatedPosterior, log_softmax
from experiments.paper.networks.node_logits import exact_logits
from experiments.runner import ProgressCallback
from steinstream._typing import Array
from steinstream.ensemble import agreement, total_variation
from steinstream.io import replacing

if TYPE_CHECKING:
    from experiments.paper.networks.stages import Stages

DRAWS = 20  # compared draws
_EXAMPLES = 500  # training examples from which scores are compared
_STEP = 0.05  # of finite differences, in standard deviations of the posterior


class InterpolantErrors(NamedTuple):
    """Errors at single draws (draws,).

    Scores are in coordinates in which the posterior has unit width, so that 1 is the typical size of a score.
    """

    agreement: Array
    total_variation: Array
    score: Array


class InterpolantCheck:
    """Errors of predictions and scores of the interpolant."""

    def __init__(self, stages: Stages) -> None:
        self.stages, self.folder = stages, stages.folder / "check"

    @property
    def cost(self) -> float:
        """Number of forward passes."""
        return DRAWS * (len(self.stages.problem.test_labels) + 4.0 * _EXAMPLES)

    def record(self, progress: ProgressCallback) -> None:
        """Compute the errors at the draws that have no file yet."""
        self.folder.mkdir(exist_ok=True)
        settled = self.stages.ground_truth.settled
        numbers = np.random.default_rng([self.stages.seed, 5]).choice(len(settled), DRAWS, replace=False)
        root = np.asarray(np.linalg.cholesky(np.cov(settled, rowvar=False)), dtype=np.float64)
        for number, draw in enumerate(settled[numbers]):
            progress(number / DRAWS)
            if not self._path(number).exists():
                with replacing(self._path(number)) as file:
                    np.save(file, np.array([*self._errors(draw, root)]))

    def errors(self) -> InterpolantErrors:
        """Return the errors at all draws."""
        values = np.array([np.load(self._path(number), allow_pickle=False) for number in range(DRAWS)])
        return InterpolantErrors(*values.T)

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:04d}.npy"

    def _errors(self, draw: Array, root: Array) -> tuple[float, float, float]:
        """Return agreement and total variation of the predictions, and the error of the score, at one draw."""
        stages, posterior = self.stages, self.stages.posterior()
        network, problem = stages.network(), stages.problem
        logits = exact_logits(network, stages.plane, draw, problem.test_inputs).astype(np.float64)
        exact = np.exp(logits - logits.max(axis=1, keepdims=True))
        exact /= exact.sum(axis=1, keepdims=True)
        own = posterior.predict(draw, stages.inputs["test"])
        rows = slice(None, None, max(1, len(problem.labels) // _EXAMPLES))
        labels = posterior.labels[rows]
        some = InterpolatedPosterior(posterior.grid, posterior.logits[rows], labels, posterior.prior, 1.0)
        slopes = []
        for step in _STEP * root.T:  # central differences of both log likelihoods along the axes of the posterior
            ends = [
                (
                    _log_likelihood(exact_logits(network, stages.plane, position, problem.inputs[rows]), labels),
                    some.log_density(position) - some.prior.log_density(position),
                )
                for position in (draw + step, draw - step)
            ]
            slopes.append((np.array(ends[0]) - np.array(ends[1])) / (2 * _STEP))
        scale = len(problem.labels) / len(labels) / stages.temperature
        difference = scale * np.array([slope[0] - slope[1] for slope in slopes])
        return agreement(own, exact), total_variation(own, exact), float(np.sqrt(np.mean(difference**2)))


def _log_likelihood(logits: NDArray[np.float32], labels: NDArray[np.int64]) -> float:
    return float(np.take_along_axis(log_softmax(logits.astype(np.float64)), labels[:, None], axis=1).sum())
