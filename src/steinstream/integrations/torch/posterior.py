r"""The posterior of a network's weights on a subspace: log density, score, a noisy score, predictions.

.. math:: \log p(z) = \frac1T \left( \sum_i \log p(y_i | x_i, w(z)) - \frac{|w(z)|^2}{2 \sigma^2} \right)

up to a constant: the Gaussian prior of all weights and the likelihood of all data, cut by the subspace; T = 1 is the
posterior itself. A minibatch's likelihood is scaled up to all data.

In a few dimensions control variates cost nothing: with numbers c_i (k,) near the gradients of the single terms,

.. math:: \hat s(z) = \frac1T \left( \sum_i c_i + \frac{n}{|B|} \sum_{i \in B} (\nabla \log p(y_i | x_i, w(z)) - c_i)
          - \nabla \frac{|w(z)|^2}{2 \sigma^2} \right)

has the same mean whatever they are, and little noise near the place where they were computed. J. Baker et al., "Control
variates for stochastic gradient MCMC", Statistics and Computing 29 (2019).

Cost: one pass forward and one backward over the data for a score, whatever the dimension of the subspace; data go
through the network ``batch`` at a time, which bounds memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from steinstream._typing import Array
from steinstream.errors import InputError
from steinstream.integrations.torch.flat import FlatNetwork
from steinstream.integrations.torch.subspace import Subspace

_NUDGE = 1e-3


class SubspacePosterior:
    """A target in the coordinates z of a subspace, for any sampler: ``log_density``, ``score``, ``minibatch``.

    ``inputs`` (n, ...) and ``labels`` (n,) are tensors on the device of the subspace.

    >>> from experiments.network_models import MLP
    >>> network = FlatNetwork(MLP([1, 2]))
    >>> plane = Subspace.random(network.weights(), 2, seed=0)
    >>> target = SubspacePosterior(network, plane, torch.ones(10, 1), torch.zeros(10, dtype=torch.long))
    >>> target.score(np.zeros(2)).shape, target.predict(np.zeros(2), torch.ones(3, 1)).shape
    ((2,), (3, 2))
    """

    def __init__(
        self, network: FlatNetwork, subspace: Subspace, inputs: torch.Tensor, labels: torch.Tensor, *,
        prior_variance: float = 1.0, temperature: float = 1.0, batch: int = 500,
    ) -> None:  # fmt: skip
        if len(inputs) != len(labels) or not len(labels):
            raise InputError(f"{len(inputs)} inputs and {len(labels)} labels.", "Give one label with each input.")
        if network.size != len(subspace.base):
            raise InputError(f"The network has {network.size} weights, the subspace {len(subspace.base)}.")
        for name, value in (("prior_variance", prior_variance), ("temperature", temperature), ("batch", batch)):
            if not value > 0:
                raise InputError(f"{name} is {value!r}.", "Give a positive number.")
        self.network, self.subspace = network, subspace
        self.inputs, self.labels = inputs, labels
        self.prior_variance, self.temperature, self.batch = prior_variance, temperature, batch

    def log_density(self, position: Array) -> float:
        """At one position (k,), up to a constant."""
        with torch.inference_mode():
            weights = self.subspace.weights(position)
            total = sum(float(self._log_likelihood(weights, part)) for part in self._parts(len(self.labels)))
            return (total + float(self._log_prior(weights))) / self.temperature

    def score(self, position: Array) -> Array:
        """The gradient (k,) of the log density at one position (k,)."""
        return self._score(position, None)

    def controls(self, position: Array) -> Array:
        """The gradients (n, k) of the log likelihood of each input at a position (k,), from central differences."""
        columns = []
        with torch.inference_mode():
            for nudge in _NUDGE * np.eye(len(position)):
                up, down = (self._each(self.subspace.weights(position + way * nudge)) for way in (1, -1))
                columns.append((up - down) / (2 * _NUDGE))
        return np.column_stack(columns)

    def minibatch(self, size: int, controls: Array | None = None) -> Callable[[Array, np.random.Generator], Array]:
        """A function that gives a noisy score from ``size`` inputs drawn without repeats: unbiased.

        With `controls` from a place nearby it has less noise, at no cost.
        """
        if not 1 <= size <= len(self.labels):
            raise InputError(f"A minibatch of {size} from {len(self.labels)}.", "Choose a smaller one.")

        centred = None if controls is None else (controls - controls.mean(axis=0)) / self.temperature

        def noisy_score(position: Array, generator: np.random.Generator) -> Array:
            rows = generator.choice(len(self.labels), size, replace=False)
            score = self._score(position, rows)
            return score if centred is None else score - len(self.labels) * centred[rows].mean(axis=0)

        return noisy_score

    def predict(self, position: Array, inputs: torch.Tensor) -> Array:
        """The probabilities (n, classes) that the network at one position (k,) gives for inputs (n, ...)."""
        with torch.inference_mode():
            weights = self.subspace.weights(position)
            said = [torch.softmax(self.network(weights, part).double(), 1) for part in inputs.split(self.batch)]
            return np.asarray(torch.cat(said).cpu().numpy(), dtype=np.float64)

    def _score(self, position: Array, rows: Any) -> Array:
        """Batch after batch, each with a graph of its own: memory is that of one."""
        z = torch.tensor(position, dtype=self.subspace.base.dtype, device=self.subspace.base.device)
        count = len(self.labels) if rows is None else len(rows)
        total = torch.zeros(len(z), dtype=torch.float64)
        for number, part in enumerate(self._parts(count)):
            z = z.detach().requires_grad_(True)
            weights = self.subspace.weights(z)
            chosen = part if rows is None else torch.as_tensor(rows[part])
            value = self._log_likelihood(weights, chosen) * (len(self.labels) / count)
            if number == 0:
                value = value + self._log_prior(weights)
            (gradient,) = torch.autograd.grad(value, z)
            total += gradient.double().cpu()
        return np.asarray(total.numpy() / self.temperature, dtype=np.float64)

    def _each(self, weights: torch.Tensor) -> Array:
        """The log likelihood of every input."""
        terms = [
            -functional.cross_entropy(
                self.network(weights, self.inputs[part]).double(), self.labels[part], reduction="none"
            )
            for part in self._parts(len(self.labels))
        ]
        return np.asarray(torch.cat(terms).cpu().numpy(), dtype=np.float64)

    def _parts(self, count: int) -> list[slice]:
        return [slice(first, min(first + self.batch, count)) for first in range(0, count, self.batch)]

    def _log_likelihood(self, weights: torch.Tensor, rows: Any) -> torch.Tensor:
        return -functional.cross_entropy(self.network(weights, self.inputs[rows]), self.labels[rows], reduction="sum")

    def _log_prior(self, weights: torch.Tensor) -> torch.Tensor:
        return -weights.square().sum() / (2 * self.prior_variance)
