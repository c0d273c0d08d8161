"""Predictions of a network, in evaluation mode and without side effects."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from steinstream.ensemble import CLASSES, VALUES, are_probabilities
from steinstream.errors import InputError
from steinstream.integrations._common import need

_BATCH = 512  # inputs that are processed at once


def evaluated(predict: Callable[[Any], Any], module: Any) -> Any:
    """Return ``predict(module)`` as a tensor on the CPU.

    The module is in evaluation mode and no gradients are recorded. Its training mode and the state of the random number
    generators are the same afterwards. Returns a copy.
    """
    torch = need("torch", "torch")
    with torch.no_grad(), _evaluation_mode(module), _same_random_state(torch, module):
        return torch.as_tensor(predict(module)).detach().cpu().clone()


@contextmanager
def _evaluation_mode(module: Any) -> Iterator[None]:
    """Switch all parts of a module to evaluation mode, and back to what each was before."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


@contextmanager
def _same_random_state(torch: Any, module: Any) -> Iterator[None]:
    """Restore the random state of the CPU, and of the GPUs of a module."""
    devices = {weight.device for weight in module.parameters() if weight.device.type in ("cuda", "xpu")}
    kind = next((device.type for device in devices), "cuda")
    with torch.random.fork_rng([device for device in devices if device.type == kind], device_type=kind):
        yield


class PredictionsOn:
    """Predictions on fixed inputs (n, ...), or on batches of them, as a function of the module.

    With the ``kind`` ``"classes"``, the outputs are logits or probabilities, and probabilities are returned; with
    ``"values"``, the outputs are returned. With None, the first outputs decide.
    """

    def __init__(self, inputs: Any, kind: str | None) -> None:
        self._torch = need("torch", "torch")
        batches = [inputs] if self._torch.is_tensor(inputs) else inputs
        if not isinstance(batches, Sequence) or not batches or not all(map(self._torch.is_tensor, batches)):
            raise InputError(
                f"predict_on must be a tensor or a list of tensors, got {type(inputs).__name__}.",
                "Pass the inputs alone, in a fixed order; for other networks, use predict.",
            )
        self._batches = [part for batch in batches for part in batch.split(_BATCH)]
        self.kind = kind

    @property
    def checksum(self) -> int:
        """Checksum of the inputs, to recognise them after a run was resumed."""
        value = 0
        for batch in self._batches:
            parts = batch.detach().cpu().contiguous().reshape(-1).view(self._torch.uint8).numpy()
            value = zlib.crc32(parts.tobytes(), value)
        return value

    def __call__(self, module: Any) -> Any:
        """Return the predictions of a network, (n, ...)."""
        weight = next(module.parameters())
        outputs = [module(self._moved(batch, weight)) for batch in self._batches]
        for output in outputs:
            if not self._torch.is_tensor(output):
                raise InputError(
                    f"The network returns {type(output).__name__} instead of a tensor.",
                    "Use predict, a function of the network that returns its predictions.",
                )
        return self._predictions(self._torch.cat([output.detach().cpu() for output in outputs]))

    def _moved(self, batch: Any, weight: Any) -> Any:
        """Return inputs on the device of the network, and floating point numbers in its type."""
        return batch.to(weight.device, weight.dtype if batch.is_floating_point() else batch.dtype)

    def _predictions(self, outputs: Any) -> Any:
        wide = outputs.double()  # exact; a sum of probabilities in half precision is not
        if self.kind is None:
            self.kind = _kind_of(wide)
        if self.kind == CLASSES:
            wide = _as_probabilities(self._torch, wide)
        return wide if outputs.dtype == self._torch.float64 else wide.float()


def _kind_of(outputs: Any) -> str:
    if outputs.ndim == 1 or outputs.shape[-1] == 1:
        return VALUES
    if are_probabilities(outputs.numpy()):
        return CLASSES
    raise InputError(
        f"The network has outputs of shape {tuple(outputs.shape)}, which may be logits or values.",
        'Pass predictions=EnsemblePrediction("classes") for logits, or EnsemblePrediction("values").',
    )


def _as_probabilities(torch: Any, outputs: Any) -> Any:
    if outputs.ndim == 1 or outputs.shape[-1] == 1:  # one logit per input, of the second of two classes
        logits = outputs.reshape(-1, 1)
        return torch.softmax(torch.cat([torch.zeros_like(logits), logits], dim=1), dim=1)
    return outputs if are_probabilities(outputs.numpy()) else torch.softmax(outputs, dim=-1)
