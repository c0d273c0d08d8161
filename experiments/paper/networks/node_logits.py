"""Logits of a network at the nodes of a Chebyshev grid, stored in one file per node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.network_models.interpolation import ChebyshevGrid
from experiments.runner import ProgressCallback
from steinstream.io import replacing

_BATCH = 250


@dataclass(frozen=True)
class NodeLogits:
    """Logits of some examples at all nodes.

    Parameters
    ----------
    folder : Path
        Folder of the files.
    grid : ChebyshevGrid
        The nodes.
    plane : Subspace
        Plane of weights.
    inputs : torch.Tensor of shape (n, ...)
        The examples.
    """

    folder: Path
    grid: ChebyshevGrid
    plane: Any
    inputs: Any

    def record(self, create_network: Callable[[], Any], share: int, shares: int, progress: ProgressCallback) -> None:
        """Compute every ``shares``-th node, beginning with ``share``, unless its file exists."""
        network = create_network()
        numbers = range(share, len(self.grid.nodes), shares)
        self.folder.mkdir(parents=True, exist_ok=True)
        for done, number in enumerate(numbers):
            progress(done / len(numbers))
            if not self._path(number).exists():
                logits = exact_logits(network, self.plane, self.grid.nodes[number], self.inputs)
                with replacing(self._path(number)) as file:
                    np.save(file, logits)

    def load(self) -> NDArray[np.float32]:
        """Return the logits (n, classes, nodes)."""
        files = [np.load(self._path(number), allow_pickle=False) for number in range(len(self.grid.nodes))]
        return np.ascontiguousarray(np.stack(files, axis=2))

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:04d}.npy"


def exact_logits(network: Any, plane: Any, position: Any, inputs: Any) -> NDArray[np.float32]:
    """Return the logits (n, classes) of the network at a position of the plane."""
    import torch

    with torch.inference_mode():
        weights = plane.weights(position)
        parts = [network(weights, part).cpu() for part in inputs.split(_BATCH)]
        return np.asarray(torch.cat(parts).numpy(), dtype=np.float32)
