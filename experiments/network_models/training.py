r"""Training of networks by stochastic weight averaging, and of a curve of low loss between two networks.

The loss is minus the log posterior divided by the number of data: training optimises the density that is sampled later.
The optimiser is stochastic gradient descent with momentum. The weights of the last epochs are averaged (SWA). There is
no data augmentation. Networks for images may be trained on images of half the sides first.

The curve consists of two straight segments, from w_1 to its midpoint and on to w_2:

.. math:: w(t) = (1 - 2t)\, w_1 + 2t\, w_m \;(t \le \tfrac12), \qquad (2 - 2t)\, w_m + (2t - 1)\, w_2 \;(t > \tfrac12) .

The midpoint is initialised with (w_1 + w_2) / 2. Only the midpoint is trained, each batch at a random t in (0, 1).

P. Izmailov et al., "Averaging weights leads to wider optima and better generalization", UAI 2018.

After every epoch the state is saved to a checkpoint. The order of the data depends on the seed and the epoch only.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from experiments.network_models.training_config import TrainingConfig
from steinstream.errors import InputError
from steinstream.integrations.torch import FlatNetwork
from steinstream.io import replacing

Progress = Callable[[float], None]
#: Maps the trained weights to the weights that are used for one batch.
Placement = Callable[[torch.Tensor, np.random.Generator], torch.Tensor]


class TrainingData(NamedTuple):
    """Inputs and labels, and the variance of the Gaussian prior of the weights."""

    inputs: torch.Tensor
    labels: torch.Tensor
    prior_variance: float


def train_network(
    network: FlatNetwork,
    data: TrainingData,
    config: TrainingConfig,
    *,
    seed: int,
    checkpoint: Path,
    progress: Progress = lambda fraction: None,
) -> torch.Tensor:
    """Train a network from its initial weights.

    Parameters
    ----------
    network : FlatNetwork
        The network.
    data : TrainingData
        Training data and prior.
    config : TrainingConfig
        Settings of the training.
    seed : int
        Seed of the order of the data.
    checkpoint : Path
        File of the training state. If it exists, training resumes from it.
    progress : callable, optional
        Receives the completed fraction.

    Returns
    -------
    torch.Tensor
        The averaged weights.
    """
    start = network.weights().to(data.inputs.device)
    descent = _Descent(network, data, config, seed, checkpoint)
    return descent.run(start, lambda weights, generator: weights, progress)


def train_curve(
    network: FlatNetwork,
    ends: tuple[torch.Tensor, torch.Tensor],
    data: TrainingData,
    config: TrainingConfig,
    *,
    seed: int,
    checkpoint: Path,
    progress: Progress = lambda fraction: None,
) -> torch.Tensor:
    """Train the midpoint of a curve of low loss between two networks.

    Parameters
    ----------
    network : FlatNetwork
        The architecture; its own weights are not used.
    ends : tuple of two tensors
        Weights of the trained networks at the ends of the curve.
    data, config, seed, checkpoint, progress
        As for `train_network`.

    Returns
    -------
    torch.Tensor
        The weights at the midpoint.
    """
    first, second = ends

    def random_point(midpoint: torch.Tensor, generator: np.random.Generator) -> torch.Tensor:
        return on_curve(first, midpoint, second, generator.uniform())

    descent = _Descent(network, data, config, seed, checkpoint)
    return descent.run((first + second) / 2, random_point, progress)


def on_curve(first: torch.Tensor, midpoint: torch.Tensor, second: torch.Tensor, t: float) -> torch.Tensor:
    """Return the weights at 0 <= t <= 1 of a curve.

    Returns
    -------
    Tensor
        Weights at ``t``.

    Examples
    --------
    >>> ends = torch.tensor([0.0]), torch.tensor([2.0])
    >>> [float(on_curve(ends[0], torch.tensor([10.0]), ends[1], t)) for t in (0.0, 0.25, 0.5, 1.0)]
    [0.0, 5.0, 10.0, 2.0]
    """
    if t <= 0.5:
        return first + 2 * t * (midpoint - first)
    return midpoint + (2 * t - 1) * (second - midpoint)


class _Descent(NamedTuple):
    """Stochastic gradient descent with weight averaging."""

    network: FlatNetwork
    data: TrainingData
    config: TrainingConfig
    seed: int
    checkpoint: Path

    def run(self, start: torch.Tensor, place: Placement, progress: Progress) -> torch.Tensor:
        """Descend from ``start`` or from the checkpoint."""
        weights, velocity, average = start.clone(), torch.zeros_like(start), torch.zeros_like(start)
        done = 0
        if self.checkpoint.exists():
            with np.load(self.checkpoint, allow_pickle=False) as saved:
                weights, velocity, average = (
                    torch.as_tensor(saved[name]).to(start) for name in ("weights", "velocity", "average")
                )
                done = int(saved["epochs"])
        config, count = self.config, len(self.data.labels)
        batches = max(1, count // config.batch)
        for epoch in range(done, config.epochs):
            generator = np.random.default_rng([self.seed, epoch])
            order = generator.permutation(count)
            data = self.data if epoch >= config.coarse else self._coarse_data()
            for number, rows in enumerate(np.array_split(order, batches)):
                time = epoch + number / batches
                progress(time / config.epochs)
                gradient = self._gradient(weights, place, generator, data, rows)
                length = float(gradient.norm())
                if not np.isfinite(length):
                    raise InputError(
                        f"Training diverged in epoch {epoch + 1}: the gradient is not finite.",
                        f"Use a learning rate below {config.rate:g}.",
                    )
                scale = min(1.0, config.max_gradient / max(length, 1e-30))
                velocity = config.momentum * velocity + gradient * scale
                weights = weights.detach() - config.rate_at(time) * velocity
            averaged = epoch - (config.epochs - config.averaged)
            if averaged >= 0:
                average = average + (weights - average) / (averaged + 1)
            with replacing(self.checkpoint) as file:
                np.savez(
                    file,
                    weights=weights.cpu().numpy(),
                    velocity=velocity.cpu().numpy(),
                    average=average.cpu().numpy(),
                    epochs=epoch + 1,
                )
        return average if config.averaged else weights

    def _coarse_data(self) -> TrainingData:
        """Return the images with half the sides: means of blocks of four pixels."""
        return self.data._replace(inputs=functional.avg_pool2d(self.data.inputs, 2))

    def _gradient(
        self,
        weights: torch.Tensor,
        place: Placement,
        generator: np.random.Generator,
        data: TrainingData,
        rows: NDArray[np.int64],
    ) -> torch.Tensor:
        """Return the gradient of the loss of a batch by the trained weights."""
        weights.requires_grad_(True)
        used = place(weights, generator)
        inputs, labels, prior_variance = data
        loss = functional.cross_entropy(self.network(used, inputs[rows]), labels[rows])
        loss = loss + used.square().sum() / (2 * prior_variance * len(labels))
        (gradient,) = torch.autograd.grad(loss, weights)
        return gradient
