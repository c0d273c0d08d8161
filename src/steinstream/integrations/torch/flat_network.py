"""A network as a function of one vector of weights."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import torch
from torch import nn


class FlatNetwork:
    """Network as a function of a weight vector.

    ``network(weights, inputs)`` returns the output of the model with these weights. Gradients flow to the weights and
    the inputs. The weights of the model itself are not changed. Only one thread may use an instance at a time; use
    `copy` for other threads.

    Parameters
    ----------
    model : torch.nn.Module
        The network. It is switched to evaluation mode, except for recurrent layers without dropout, whose outputs are
        the same in training mode: cuDNN computes their gradient only in training mode.

    Attributes
    ----------
    size : int
        Number of weights.

    Examples
    --------
    >>> network = FlatNetwork(nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2)))
    >>> network.size, tuple(network(network.weights(), torch.zeros(5, 2)).shape)
    (17, (5, 2))
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model.eval()
        for module in model.modules():
            if isinstance(module, nn.RNNBase) and module.dropout == 0:
                module.train()
        self._names = [name for name, _ in model.named_parameters()]
        self._shapes = [parameter.shape for parameter in model.parameters()]
        self._counts = [shape.numel() for shape in self._shapes]
        self.size = sum(self._counts)

    @classmethod
    def from_seed(cls, create: Callable[[], nn.Module], seed: int) -> FlatNetwork:
        """Create a model whose initial weights depend only on a seed.

        Parameters
        ----------
        create : callable
            Returns the model.
        seed : int
            Seed of the initial weights.

        Returns
        -------
        FlatNetwork
            The network. The global random state of PyTorch is not changed.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return cls(create())

    def weights(self) -> torch.Tensor:
        """Return a copy of the weights of the model, shape (size,).

        Returns
        -------
        torch.Tensor of shape (size,)
            The weights.
        """
        return torch.cat([parameter.detach().reshape(-1) for parameter in self.model.parameters()])

    def __call__(self, weights: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(self.model, self.state_dict(weights), (inputs,))

    def state_dict(self, weights: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return views of a weight vector by parameter name, for ``load_state_dict(..., strict=False)``.

        Parameters
        ----------
        weights : torch.Tensor of shape (size,)
            Weight vector.

        Returns
        -------
        dict of str to torch.Tensor
            Views of the vector, by the name of the parameter.
        """
        parts = torch.split(weights, self._counts)
        return {name: part.view(shape) for name, part, shape in zip(self._names, parts, self._shapes, strict=True)}

    def copy(self) -> FlatNetwork:
        """Return a copy with a model of its own, for another thread.

        Returns
        -------
        FlatNetwork
            The copy.
        """
        return FlatNetwork(deepcopy(self.model))
