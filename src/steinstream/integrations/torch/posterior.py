r"""Posterior of the weights of a classifier, restricted to a subspace.

.. math:: \log p(z) = \frac1T \left( \sum_i \log p(y_i | x_i, w(z)) - \frac{|w(z)|^2}{2 \sigma^2} \right)

up to a constant, with a Gaussian prior of all weights and the likelihood of all data. T = 1 is the posterior itself.
The likelihood of a minibatch is scaled to all data.

Control variates :math:`c_i` (k numbers per example, close to the gradient of its log likelihood) reduce the noise of
minibatch scores. The estimate

.. math:: \hat s(z) = \frac1T \left( \sum_i c_i + \frac{n}{|B|} \sum_{i \in B} (\nabla \log p(y_i | x_i, w(z)) - c_i)
          - \nabla \frac{|w(z)|^2}{2 \sigma^2} \right)

is unbiased for any :math:`c_i`, and has little noise near the position at which they were computed. J. Baker et al.,
"Control variates for stochastic gradient MCMC", Statistics and Computing 29 (2019).

A score costs one forward and one backward pass over the data, whatever the dimension of the subspace. Data are
processed in batches, which bounds memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from steinstream._typing import Array
from steinstream.errors import InputError
from steinstream.integrations.torch.flat_network import FlatNetwork
from steinstream.integrations.torch.subspace import Subspace
from steinstream.targets import Target

_STEP = 1e-3  # of finite differences


class SubspacePosterior(Target):
    """Posterior of a classifier in the coordinates z of a subspace, as a target for any sampler.

    Parameters
    ----------
    network : FlatNetwork
        The network; its outputs are logits.
    subspace : Subspace
        The subspace of its weights.
    inputs : torch.Tensor of shape (n, ...)
        Inputs, on the device of the subspace.
    labels : torch.Tensor of shape (n,)
        Class labels, on the same device.
    prior_variance : float, default 1.0
        Variance of the Gaussian prior of every weight.
    temperature : float, default 1.0
        The log posterior is divided by this number.
    batch : int, default 500
        Number of inputs that are processed at once.

    Raises
    ------
    InputError
        If the numbers of inputs and labels or of weights do not match, or a setting is not positive.

    Examples
    --------
    >>> network = FlatNetwork(torch.nn.Linear(1, 2))
    >>> plane = Subspace.random(network.weights(), 2, seed=0)
    >>> target = SubspacePosterior(network, plane, torch.ones(10, 1), torch.zeros(10, dtype=torch.long))
    >>> target.score(np.zeros(2)).shape, target.predict(np.zeros(2), torch.ones(3, 1)).shape
    ((2,), (3, 2))
    """

    def __init__(
        self,
        network: FlatNetwork,
        subspace: Subspace,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        *,
        prior_variance: float = 1.0,
        temperature: float = 1.0,
        batch: int = 500,
    ) -> None:
        if len(inputs) != len(labels) or not len(labels):
            raise InputError(
                f"There are {len(inputs)} inputs and {len(labels)} labels.", "Provide one label per input."
            )
        if network.size != len(subspace.base):
            raise InputError(
                f"The network has {network.size} weights, the subspace {len(subspace.base)}.",
                "Use a subspace of the weights of this network.",
            )
        for name, value in (("prior_variance", prior_variance), ("temperature", temperature), ("batch", batch)):
            if not value > 0:
                raise InputError(f"{name} is {value!r}.", "Provide a positive number.")
        self.network, self.subspace = network, subspace
        self.inputs, self.labels = inputs, labels
        self.prior_variance, self.temperature, self.batch = prior_variance, temperature, batch

    def log_density(self, position: Array) -> float:
        with torch.inference_mode():
            weights = self.subspace.weights(position)
            total = sum(float(self._log_likelihood(weights, rows)) for rows in self._batches(len(self.labels)))
            return (total + float(self._log_prior(weights))) / self.temperature

    def score(self, position: Array) -> Array:
        return self._score(position, None)

    def control_variates(self, position: Array) -> Array:
        """Return the gradients (n, k) of the log likelihood of each example at a position, by central differences.

        Parameters
        ----------
        position : array of shape (k,)
            Coordinates in the subspace.

        Returns
        -------
        array of shape (n, k)
            One gradient per training example.
        """
        columns = []
        with torch.inference_mode():
            for step in _STEP * np.eye(len(position)):
                up, down = (self._log_likelihoods(self.subspace.weights(position + sign * step)) for sign in (1, -1))
                columns.append((up - down) / (2 * _STEP))
        return np.column_stack(columns)

    def minibatch(
        self, size: int, control_variates: Array | None = None
    ) -> Callable[[Array, np.random.Generator], Array]:
        """Return a function that estimates the score from a random minibatch.

        Parameters
        ----------
        size : int
            Number of examples, drawn without replacement.
        control_variates : array of shape (n, k), optional
            Result of `control_variates` at a position nearby. They reduce the noise at no cost.

        Returns
        -------
        callable
            Function of a position (k,) and a random generator that returns an unbiased estimate (k,) of the score.

        Raises
        ------
        InputError
            If ``size`` is not between 1 and the number of examples.
        """
        if not 1 <= size <= len(self.labels):
            raise InputError(
                f"The minibatch size is {size} for {len(self.labels)} examples.",
                f"Choose a size from 1 to {len(self.labels)}.",
            )
        centred = None
        if control_variates is not None:
            centred = (control_variates - control_variates.mean(axis=0)) / self.temperature

        def noisy_score(position: Array, generator: np.random.Generator) -> Array:
            rows = generator.choice(len(self.labels), size, replace=False)
            score = self._score(position, rows)
            return score if centred is None else score - len(self.labels) * centred[rows].mean(axis=0)

        return noisy_score

    def predict(self, position: Array, inputs: torch.Tensor) -> Array:
        """Return the class probabilities (n, classes) of the network at a position (k,) for inputs (n, ...).

        Parameters
        ----------
        position : array of shape (k,)
            Coordinates in the subspace.
        inputs : torch.Tensor of shape (n, ...)
            Inputs of the network.

        Returns
        -------
        array of shape (n, classes)
            Class probabilities.
        """
        with torch.inference_mode():
            weights = self.subspace.weights(position)
            batches = [torch.softmax(self.network(weights, part).double(), 1) for part in inputs.split(self.batch)]
            return np.asarray(torch.cat(batches).cpu().numpy(), dtype=np.float64)

    def _score(self, position: Array, rows: Any) -> Array:
        """Sum the gradients of the batches; each batch has a graph of its own, which bounds memory."""
        z = torch.tensor(position, dtype=self.subspace.base.dtype, device=self.subspace.base.device)
        count = len(self.labels) if rows is None else len(rows)
        total = torch.zeros(len(z), dtype=torch.float64)
        for number, batch in enumerate(self._batches(count)):
            z = z.detach().requires_grad_(True)
            weights = self.subspace.weights(z)
            chosen = batch if rows is None else torch.as_tensor(rows[batch])
            value = self._log_likelihood(weights, chosen) * (len(self.labels) / count)
            if number == 0:
                value = value + self._log_prior(weights)
            (gradient,) = torch.autograd.grad(value, z)
            total += gradient.double().cpu()
        return np.asarray(total.numpy() / self.temperature, dtype=np.float64)

    def _log_likelihoods(self, weights: torch.Tensor) -> Array:
        terms = [
            -functional.cross_entropy(
                self.network(weights, self.inputs[rows]).double(), self.labels[rows], reduction="none"
            )
            for rows in self._batches(len(self.labels))
        ]
        return np.asarray(torch.cat(terms).cpu().numpy(), dtype=np.float64)

    def _batches(self, count: int) -> list[slice]:
        return [slice(first, min(first + self.batch, count)) for first in range(0, count, self.batch)]

    def _log_likelihood(self, weights: torch.Tensor, rows: Any) -> torch.Tensor:
        return -functional.cross_entropy(self.network(weights, self.inputs[rows]), self.labels[rows], reduction="sum")

    def _log_prior(self, weights: torch.Tensor) -> torch.Tensor:
        return -weights.square().sum() / (2 * self.prior_variance)
