"""A network as a function of one vector of weights."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import torch
from torch import nn


class FlatNetwork:
    """A model with its weights in one vector: ``network(weights, inputs)`` gives logits, and gradients flow to both.

    The model itself is never changed, but one thread alone may call it at a time: others take a `copy`.

    >>> from experiments.network_models import MLP
    >>> network = FlatNetwork(MLP([2, 3, 2]))
    >>> network.size, tuple(network(network.weights(), torch.zeros(5, 2)).shape)
    (17, (5, 2))
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model.eval()
        self.names = [name for name, _ in model.named_parameters()]
        self.shapes = [parameter.shape for parameter in model.parameters()]
        self._counts = [shape.numel() for shape in self.shapes]
        self.size = sum(self._counts)

    @classmethod
    def made(cls, make: Callable[[], nn.Module], seed: int) -> FlatNetwork:
        """A model whose first weights belong to a seed; the global random numbers stay as they are."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return cls(make())

    def weights(self) -> torch.Tensor:
        """The model's own weights (size,), as a copy."""
        return torch.cat([parameter.detach().reshape(-1) for parameter in self.model.parameters()])

    def __call__(self, weights: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(self.model, self.named(weights), (inputs,))

    def named(self, weights: torch.Tensor) -> dict[str, torch.Tensor]:
        """The weights by the model's names, as ``load_state_dict(..., strict=False)`` takes them: views, no copies."""
        parts = torch.split(weights, self._counts)
        return {name: part.view(shape) for name, part, shape in zip(self.names, parts, self.shapes, strict=True)}

    def copy(self) -> FlatNetwork:
        """Another of its own."""
        return FlatNetwork(deepcopy(self.model))
