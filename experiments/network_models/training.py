r"""Training: networks by stochastic weight averaging, and the middle of a curve of low loss between two of them.

The loss is minus the log posterior divided by the number of data, so that what is trained is what is sampled later.
Plain momentum, a rate that climbs during the first epoch, stays, falls from the middle on, and is then held for the
last epochs, whose weights are averaged (SWA). No data augmentation.

The curve goes straight from w_1 to its middle and on to w_2:

.. math:: w(t) = (1 - 2t)\, w_1 + 2t\, w_m \;(t \le \tfrac12), \qquad (2 - 2t)\, w_m + (2t - 1)\, w_2 \;(t > \tfrac12) .

The middle starts at (w_1 + w_2) / 2 and is trained alone, each batch at a random t in (0, 1).

P. Izmailov et al., "Averaging weights leads to wider optima and better generalization", UAI 2018.

After every epoch all it takes to go on is in one file; the order of the data belongs to the seed and the epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from experiments.network_models.recipe import Recipe
from steinstream.errors import InputError
from steinstream.integrations.torch.flat import FlatNetwork
from steinstream.io.atomic import replacing

#: The weights to be used for one batch, from those that are trained.
Place = Callable[[torch.Tensor, np.random.Generator], torch.Tensor]


def train_network(
    network: FlatNetwork, inputs: torch.Tensor, labels: torch.Tensor, recipe: Recipe, *, prior_variance: float,
    seed: int, checkpoint: Path, report: Callable[[float], None] = lambda share: None,
) -> torch.Tensor:  # fmt: skip
    """The averaged weights, from the network's own first ones."""
    start = network.weights().to(inputs.device)
    return _descend(network, start, lambda w, _: w, inputs, labels, recipe, prior_variance, seed, checkpoint, report)


def train_curve(
    network: FlatNetwork, first: torch.Tensor, second: torch.Tensor, inputs: torch.Tensor, labels: torch.Tensor,
    recipe: Recipe, *, prior_variance: float, seed: int, checkpoint: Path,
    report: Callable[[float], None] = lambda share: None,
) -> torch.Tensor:  # fmt: skip
    """The middle of the curve from ``first`` to ``second``."""

    def somewhere(middle: torch.Tensor, generator: np.random.Generator) -> torch.Tensor:
        return on_curve(first, middle, second, generator.uniform())

    start = (first + second) / 2
    return _descend(network, start, somewhere, inputs, labels, recipe, prior_variance, seed, checkpoint, report)


def on_curve(first: torch.Tensor, middle: torch.Tensor, second: torch.Tensor, t: float) -> torch.Tensor:
    """The weights at 0 <= t <= 1.

    >>> ends = torch.tensor([0.0]), torch.tensor([2.0])
    >>> [float(on_curve(ends[0], torch.tensor([10.0]), ends[1], t)) for t in (0.0, 0.25, 0.5, 1.0)]
    [0.0, 5.0, 10.0, 2.0]
    """
    if t <= 0.5:
        return first + 2 * t * (middle - first)
    return middle + (2 * t - 1) * (second - middle)


def _descend(
    network: FlatNetwork, start: torch.Tensor, place: Place, inputs: torch.Tensor, labels: torch.Tensor,
    recipe: Recipe, prior_variance: float, seed: int, checkpoint: Path, report: Callable[[float], None],
) -> torch.Tensor:  # fmt: skip
    """Stochastic gradient descent with averaging at the end, from the checkpoint if there is one."""
    weights, velocity, average = start.clone(), torch.zeros_like(start), torch.zeros_like(start)
    done = 0
    if checkpoint.exists():
        with np.load(checkpoint, allow_pickle=False) as saved:
            weights, velocity, average = (
                torch.as_tensor(saved[name]).to(start) for name in ("weights", "velocity", "average")
            )
            done = int(saved["epochs"])
    count = len(labels)
    batches = max(1, count // recipe.batch)
    for epoch in range(done, recipe.epochs):
        generator = np.random.default_rng([seed, epoch])
        order = generator.permutation(count)
        for number, rows in enumerate(np.array_split(order, batches)):
            report((epoch + number / batches) / recipe.epochs)
            weights.requires_grad_(True)
            used = place(weights, generator)
            loss = functional.cross_entropy(network(used, inputs[rows]), labels[rows])
            loss = loss + used.square().sum() / (2 * prior_variance * count)
            (gradient,) = torch.autograd.grad(loss, weights)
            length = float(gradient.norm())
            if not np.isfinite(length):
                raise InputError(
                    f"Training left for infinity in epoch {epoch + 1}.", f"Its rate of {recipe.rate:g} is too large."
                )
            velocity = recipe.momentum * velocity + gradient * min(1.0, recipe.longest / max(length, 1e-30))
            weights = weights.detach() - recipe.rate_at(epoch + number / batches) * velocity
        averaged = epoch - (recipe.epochs - recipe.averaged)
        if averaged >= 0:
            average = average + (weights - average) / (averaged + 1)
        with replacing(checkpoint) as file:
            np.savez(
                file, weights=weights.cpu().numpy(), velocity=velocity.cpu().numpy(), average=average.cpu().numpy(),
                epochs=epoch + 1,
            )  # fmt: skip
    return average if recipe.averaged else weights
