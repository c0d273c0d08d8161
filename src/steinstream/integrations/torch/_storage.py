"""A network's posterior, its weights as one vector and by name, and where those of the kept draws are stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steinstream._typing import Id
from steinstream.draw_store import DrawStore
from steinstream.errors import InputError
from steinstream.integrations._common import need

Array = NDArray[np.float64]
Tensors = dict[str, Any]


class Posterior:
    """The log posterior from a loss and a prior, on a minibatch scaled up to all data: an unbiased estimate.

    ``loss(module, *batch)`` is minus the mean log likelihood of the batch's examples, ``examples`` how many there are
    in all, ``prior`` the standard deviation of a normal prior of every weight, or a function of the module that gives
    the log density of its weights.
    """

    def __init__(self, loss: Callable[..., Any], prior: float | Callable[[Any], Any], examples: int) -> None:
        if not callable(prior) and not prior > 0:
            raise InputError(f"The prior's standard deviation must be positive, got {prior!r}.")
        if not examples > 0:
            raise InputError(f"The number of examples must be positive, got {examples!r}.")
        self.loss, self.prior, self.examples = loss, prior, examples

    def __call__(self, module: Any, *batch: Any) -> Any:
        return self.log_prior(module) - self.examples * self.loss(module, *batch)

    def log_prior(self, module: Any) -> Any:
        """Of the module's weights, up to a constant."""
        if callable(self.prior):
            return self.prior(module)
        squares = sum(weight.square().sum() for weight in module.parameters() if weight.requires_grad)
        return -0.5 * squares / self.prior**2


class Weights:
    """The weights of a module that want a gradient: one vector, in the order of ``module.parameters()``."""

    def __init__(self, module: Any) -> None:
        self._torch = need("torch", "torch")
        self.names = [name for name, weight in module.named_parameters() if weight.requires_grad]
        self.dim = sum(weight.numel() for weight in self._of(module))
        if self.dim == 0:
            raise InputError("The module has no weights that want a gradient.", "Set requires_grad.")
        self._copy: Any = None

    def _of(self, module: Any) -> list[Any]:
        return [weight for weight in module.parameters() if weight.requires_grad]

    def tensor(self, module: Any) -> Any:
        """The vector."""
        return self._torch.cat([weight.detach().reshape(-1) for weight in self._of(module)])

    def vector(self, module: Any) -> Array:
        """The vector, as numpy has it."""
        return np.asarray(self.tensor(module).double().cpu().numpy())

    def gradients(self, module: Any) -> Array:
        """The gradients that the weights hold."""
        missing = [n for n, weight in zip(self.names, self._of(module), strict=True) if weight.grad is None]
        if missing:
            raise InputError(f"{missing[0]} has no gradient.", "Call backward() first.")
        return self._flat([weight.grad for weight in self._of(module)])

    def derivative(self, module: Any, value: Any) -> Array:
        """The gradient of a scalar."""
        if value.numel() != 1:
            raise InputError(f"The log posterior must be a number, got shape {tuple(value.shape)}.", "Sum it up.")
        parts = self._torch.autograd.grad(value.reshape(()), self._of(module), materialize_grads=True)
        return self._flat(parts)

    def _flat(self, parts: Iterable[Any]) -> Array:
        return np.asarray(self._torch.cat([part.detach().reshape(-1) for part in parts]).double().cpu().numpy())

    def flat(self, tensors: Tensors) -> Array:
        """The vector, of weights by name."""
        vector = self._flat([tensors[name] for name in self.names if name in tensors])
        if vector.size != self.dim:
            raise InputError(f"The stored weights are {vector.size}, the module has {self.dim}: another network's.")
        return vector

    def state(self, module: Any) -> Tensors:
        """All weights and buffers by name, shared ones once, as they are now: a copy."""
        everything = [*module.named_parameters(), *module.named_buffers()]
        return {
            name: tensor.detach().cpu().clone(memory_format=self._torch.contiguous_format)
            for name, tensor in everything
        }

    def at(self, module: Any, vector: Any) -> Any:
        """A module with these weights, the same one each time; the given one is left alone."""
        copy = self._like(module)
        if tuple(vector.shape) != (self.dim,):
            raise InputError(f"The weights have shape {tuple(vector.shape)}, the module wants ({self.dim},).")
        with self._torch.no_grad():
            start = 0
            for weight in self._of(copy):
                part = vector[start : start + weight.numel()]
                weight.copy_(part.reshape(weight.shape))
                start += weight.numel()
        return copy

    def loaded(self, module: Any, tensors: Tensors) -> Any:
        """A module with these weights and buffers by name, the same one each time."""
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


class Memory:
    """Tensors of the kept draws, in memory."""

    sync = False
    open = True

    def __init__(self) -> None:
        self._tensors: dict[Id, Tensors] = {}

    def ids(self) -> list[Id]:
        """Whose tensors are here."""
        return sorted(self._tensors)

    def commit(self, new: Mapping[Id, Tensors], gone: Iterable[Id], checkpoint: Callable[[], object]) -> None:
        """Some come, some go."""
        self._tensors |= new
        checkpoint()
        for id in gone:
            del self._tensors[id]

    def reconcile(self, kept: Iterable[Id]) -> None:
        """Nothing to do: memory forgets as a whole."""

    def read(self, id: Id, name: str) -> Any:
        """One tensor of a draw."""
        return self._tensors[id][name]

    def read_all(self, id: Id) -> Tensors:
        """All tensors of a draw."""
        return self._tensors[id]

    def close(self) -> None:
        """Nothing to do."""


class Files:
    """Tensors of the kept draws, a safetensors file each."""

    def __init__(self, folder: Path, sync: bool) -> None:
        self._torch = need("safetensors.torch", "torch")
        self.sync = sync
        self._files = DrawStore(folder / "draws", suffix=".safetensors", sync=sync)

    def ids(self) -> list[Id]:
        """Whose tensors are here."""
        return self._files.ids()

    def commit(self, new: Mapping[Id, Tensors], gone: Iterable[Id], checkpoint: Callable[[], object]) -> None:
        """Some come, some go."""
        writers = {id: self._writer(tensors) for id, tensors in new.items()}
        self._files.commit(writers, gone, checkpoint)

    @property
    def open(self) -> bool:
        """Whether more can be stored."""
        return self._files.open

    def _writer(self, tensors: Tensors) -> Callable[[Path], object]:
        # In memory first: what cannot be written then is our own error, with its reason.
        return lambda path: path.write_bytes(self._torch.save(tensors))

    def reconcile(self, kept: Iterable[Id]) -> None:
        """Only these are kept."""
        self._files.reconcile(kept)

    def read(self, id: Id, name: str) -> Any:
        """One tensor of a draw."""
        with need("safetensors", "torch").safe_open(str(self._files.path(id)), "pt") as file:
            if name not in file.keys():  # noqa: SIM118 (it has no other way to ask)
                raise InputError(
                    f"{self._files.path(id)} has no {name}.", "The run was begun without it: leave predict out."
                )
            return file.get_tensor(name)

    def read_all(self, id: Id) -> Tensors:
        """All tensors of a draw."""
        tensors: Tensors = self._torch.load_file(str(self._files.path(id)))
        return tensors

    def close(self) -> None:
        """Let others use the folder."""
        with suppress(OSError):
            self._files.close()
