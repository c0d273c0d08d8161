"""Posterior of a classifier in a plane of weights, with the network itself and any Gaussian prior in the plane."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from experiments.network_models.interpolation import GaussianPrior
from steinstream._typing import Array
from steinstream.integrations.torch import FlatNetwork, Subspace, SubspacePosterior


class ExactPosterior:
    """`SubspacePosterior` with a prior of the coordinates instead of the weights.

    Parameters
    ----------
    network : FlatNetwork
        The network; its outputs are logits.
    subspace : Subspace
        Plane of its weights.
    inputs, labels : torch.Tensor
        Training data.
    prior : GaussianPrior
        Prior in the plane.
    temperature : float
        The log posterior is divided by this number.
    """

    def __init__(
        self,
        network: FlatNetwork,
        subspace: Subspace,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        prior: GaussianPrior,
        temperature: float,
    ) -> None:
        self.likelihood = SubspacePosterior(
            network, subspace, inputs, labels, prior_variance=math.inf, temperature=temperature
        )
        self.prior, self.temperature = prior, temperature

    def log_density(self, position: Array) -> float:
        """Return the log density at a position (k,), up to a constant."""
        return self.likelihood.log_density(position) + self.prior.log_density(position) / self.temperature

    def score(self, position: Array) -> Array:
        """Return the gradient (k,) of the log density at a position (k,)."""
        return self.likelihood.score(position) + self.prior.score(position) / self.temperature

    def control_variates(self, position: Array) -> Array:
        """Return the gradients (n, k) of the log likelihood of each example at a position."""
        return self.likelihood.control_variates(position)

    def minibatch(
        self, size: int, control_variates: Array | None = None
    ) -> Callable[[Array, np.random.Generator], Array]:
        """Return a function that estimates the score from a random minibatch."""
        noisy_score = self.likelihood.minibatch(size, control_variates)

        def with_prior(position: Array, generator: np.random.Generator) -> Array:
            return noisy_score(position, generator) + self.prior.score(position) / self.temperature

        return with_prior

    def predict(self, position: Array, inputs: Any) -> Array:
        """Return the class probabilities (n, classes) of the network at a position (k,)."""
        return self.likelihood.predict(position, inputs)
