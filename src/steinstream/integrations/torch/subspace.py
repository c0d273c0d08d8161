"""A plane, or any space of few dimensions, in the space of a network's weights: w = base + z_1 v_1 + ... + z_k v_k.

Three ways to choose one:

- `Subspace.of_curve`: the plane of two trained networks and the middle of a curve of low loss between them. Base point
  (w_1 + w_2) / 2, directions w_1 - base and w_middle - base: the ends are at (1, 0) and (-1, 0), the middle at (0, 1).
- `Subspace.random`: random directions, one after another at right angles, each of unit length.
- `Subspace.of_trajectory`: the principal directions of the weights that training passed through, each as long as their
  standard deviation along it.

T. Garipov et al., "Loss surfaces, mode connectivity, and fast ensembling of DNNs", NeurIPS 2018. P. Izmailov et al.,
"Subspace inference for Bayesian deep learning", UAI 2020.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from steinstream._typing import Array
from steinstream.errors import InputError
from steinstream.targets import whole_number


@dataclass(frozen=True, eq=False)
class Subspace:
    """``base`` (p,) and ``directions`` (k, p).

    >>> plane = Subspace.of_curve(torch.tensor([2.0, 0, 0]), torch.tensor([1.0, 3, 0]), torch.tensor([0.0, 0, 0]))
    >>> plane.weights([-1.0, 0.0]).tolist(), plane.weights([0.0, 1.0]).tolist()
    ([0.0, 0.0, 0.0], [1.0, 3.0, 0.0])
    >>> plane.coordinates(torch.tensor([1.0, 1.5, 7.0])).tolist()  # of the nearest point
    [0.0, 0.5]
    """

    base: torch.Tensor
    directions: torch.Tensor

    def __post_init__(self) -> None:
        if self.base.ndim != 1 or self.directions.ndim != 2 or self.directions.shape[1] != len(self.base):
            raise InputError(
                f"A subspace needs a base (p,) and directions (k, p), got {tuple(self.base.shape)} and "
                f"{tuple(self.directions.shape)}."
            )
        gram = (self.directions @ self.directions.T).double().cpu()
        length = gram.diagonal().sqrt()
        if not (length > 0).all() or torch.linalg.cond(gram / torch.outer(length, length)) > 1e12:
            raise InputError(
                "The directions of the subspace do not span it: one is zero, or lies in the span of the others.",
                "Choose fewer, or train the networks apart from each other.",
            )

    @property
    def dim(self) -> int:
        """Number of directions."""
        return len(self.directions)

    @classmethod
    def of_curve(cls, first: torch.Tensor, middle: torch.Tensor, second: torch.Tensor) -> Subspace:
        """The plane of the two ends of a curve and its middle."""
        base = (first + second) / 2
        return cls(base, torch.stack([first - base, middle - base]))

    @classmethod
    def random(cls, base: torch.Tensor, dim: int, seed: int) -> Subspace:
        """``dim`` random directions of unit length at right angles."""
        if not 1 <= whole_number(dim, "dim") <= len(base):
            raise InputError(f"{dim} directions in a space of {len(base)} weights.", f"Choose 1 to {len(base)}.")
        noise = np.random.default_rng(whole_number(seed, "seed")).standard_normal((len(base), dim))
        return cls(base, torch.as_tensor(np.linalg.qr(noise)[0].T.copy()).to(base))

    @classmethod
    def of_trajectory(cls, weights: Sequence[torch.Tensor] | torch.Tensor, dim: int) -> Subspace:
        """The mean of weights (n, p) and their ``dim`` principal directions, one standard deviation long each."""
        points = torch.stack(list(weights))
        if not 1 <= whole_number(dim, "dim") < len(points):
            raise InputError(f"{dim} directions from {len(points)} networks.", f"Choose 1 to {len(points) - 1}.")
        base = points.mean(dim=0)
        _, lengths, axes = torch.linalg.svd(points - base, full_matrices=False)
        return cls(base, axes[:dim] * (lengths[:dim, None] / (len(points) - 1) ** 0.5))

    def weights(self, z: Any) -> torch.Tensor:
        """The weights (p,) at z (k,), through which a gradient flows back to z if z wants one."""
        z = torch.as_tensor(z).to(self.base)
        if z.shape != (self.dim,):
            raise InputError(f"z has shape {tuple(z.shape)}.", f"Give {self.dim} numbers.")
        return self.base + z @ self.directions

    def coordinates(self, weights: torch.Tensor) -> Array:
        """Of the point of the subspace that is nearest to these weights (p,)."""
        axes, offset = self.directions.double(), (weights - self.base).double()
        z = torch.linalg.solve(axes @ axes.T, axes @ offset)
        return np.asarray(z.cpu().numpy(), dtype=np.float64)

    def to(self, device: Any) -> Subspace:
        """The same one on another device."""
        return Subspace(self.base.to(device), self.directions.to(device))
