"""The weights of a network: as one vector, and by name."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

import numpy as np

from steinstream._typing import Array
from steinstream.errors import InputError
from steinstream.integrations._common import need

#: Tensors by name.
Tensors = dict[str, Any]


class Weights:
    """The weights of a module that require a gradient, in the order of ``module.parameters()``."""

    def __init__(self, module: Any) -> None:
        self._torch = need("torch", "torch")
        self.names = [name for name, weight in module.named_parameters() if weight.requires_grad]
        self.dim = sum(weight.numel() for weight in self._of(module))
        if self.dim == 0:
            raise InputError("No weight of the module requires a gradient.", "Set requires_grad.")
        self._copy: Any = None

    def _of(self, module: Any) -> list[Any]:
        return [weight for weight in module.parameters() if weight.requires_grad]

    def tensor(self, module: Any) -> Any:
        return self._torch.cat([weight.detach().reshape(-1) for weight in self._of(module)])

    def vector(self, module: Any) -> Array:
        return np.asarray(self.tensor(module).cpu().double().numpy())

    def gradients(self, module: Any) -> Array:
        """Return the gradients that the weights hold."""
        missing = [n for n, weight in zip(self.names, self._of(module), strict=True) if weight.grad is None]
        if missing:
            raise InputError(f"{missing[0]} has no gradient.", "Call backward() first.")
        return self._flat([weight.grad for weight in self._of(module)])

    def derivative(self, module: Any, value: Any) -> Array:
        """Return the gradient of a scalar with respect to the weights."""
        if value.numel() != 1:
            raise InputError(f"The log posterior must be a scalar, got shape {tuple(value.shape)}.", "Sum it.")
        parts = self._torch.autograd.grad(value.reshape(()), self._of(module), materialize_grads=True)
        return self._flat(parts)

    def _flat(self, parts: Iterable[Any]) -> Array:
        return np.asarray(self._torch.cat([part.detach().reshape(-1) for part in parts]).cpu().double().numpy())

    def flat(self, tensors: Tensors) -> Array:
        """Return weights by name as one array."""
        vector = self._flat([tensors[name] for name in self.names if name in tensors])
        if vector.size != self.dim:
            raise InputError(
                f"There are {vector.size} stored weights, but the module has {self.dim}.",
                "Use the module that the run was started with.",
            )
        return vector

    def state(self, module: Any) -> Tensors:
        """Return a copy of all weights and buffers by name; shared ones once."""
        everything = [*module.named_parameters(), *module.named_buffers()]
        return {
            name: tensor.detach().cpu().clone(memory_format=self._torch.contiguous_format)
            for name, tensor in everything
        }

    def at(self, module: Any, vector: Any) -> Any:
        """Return a copy of the module with these weights; every call returns the same copy."""
        copy = self._like(module)
        if tuple(vector.shape) != (self.dim,):
            raise InputError(f"The weights have shape {tuple(vector.shape)}, but the module requires ({self.dim},).")
        with self._torch.no_grad():
            start = 0
            for weight in self._of(copy):
                part = vector[start : start + weight.numel()]
                weight.copy_(part.reshape(weight.shape))
                start += weight.numel()
        return copy

    def loaded(self, module: Any, tensors: Tensors) -> Any:
        """Return a copy of the module with these weights and buffers; every call returns the same copy."""
        copy = self._like(module)
        with self._torch.no_grad():
            for name, place in [*copy.named_parameters(), *copy.named_buffers()]:
                place.copy_(tensors[name])
        return copy

    def _like(self, module: Any) -> Any:
        if self._copy is None:
            self._copy = deepcopy(module)
        self._copy.train(module.training)
        return self._copy
