r"""Low-dimensional affine subspaces of the weights of a network: :math:`w = w_0 + z_1 v_1 + \ldots + z_k v_k`.

- `Subspace.from_curve`: plane through two trained networks and the midpoint of a curve of low loss between them.
- `Subspace.random`: random orthonormal directions.
- `Subspace.from_trajectory`: principal components of the weights along a training trajectory.

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
    """Affine subspace of weight vectors.

    Parameters
    ----------
    base : torch.Tensor of shape (p,)
        Weights at z = 0.
    directions : torch.Tensor of shape (k, p)
        Linearly independent directions.

    Raises
    ------
    InputError
        If the shapes do not match or the directions are linearly dependent.

    Examples
    --------
    >>> plane = Subspace.from_curve(torch.tensor([2.0, 0, 0]), torch.tensor([1.0, 3, 0]), torch.tensor([0.0, 0, 0]))
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
                f"base has shape {tuple(self.base.shape)} and directions have shape {tuple(self.directions.shape)}.",
                "Provide a base of shape (p,) and directions of shape (k, p).",
            )
        gram = (self.directions @ self.directions.T).double().cpu()
        length = gram.diagonal().sqrt()
        if not (length > 0).all() or torch.linalg.cond(gram / torch.outer(length, length)) > 1e12:
            raise InputError(
                "The directions of the subspace are linearly dependent.",
                "Use fewer directions, or networks from different initial weights.",
            )

    @property
    def dim(self) -> int:
        """Number of directions."""
        return len(self.directions)

    @classmethod
    def from_curve(cls, first: torch.Tensor, midpoint: torch.Tensor, second: torch.Tensor) -> Subspace:
        """Return the plane through both ends of a curve and its midpoint.

        Parameters
        ----------
        first : torch.Tensor of shape (p,)
            Weights of the network at z = (1, 0).
        midpoint : torch.Tensor of shape (p,)
            Weights of the network at z = (0, 1).
        second : torch.Tensor of shape (p,)
            Weights of the network at z = (-1, 0).

        Returns
        -------
        Subspace
            The plane. Its base is (first + second) / 2.
        """
        base = (first + second) / 2
        return cls(base, torch.stack([first - base, midpoint - base]))

    @classmethod
    def random(cls, base: torch.Tensor, dim: int, seed: int) -> Subspace:
        """Return a subspace with random orthonormal directions.

        Parameters
        ----------
        base : torch.Tensor of shape (p,)
            Weights at z = 0.
        dim : int
            Number of directions, at most p.
        seed : int
            Seed of the directions.

        Returns
        -------
        Subspace
            The subspace.

        Raises
        ------
        InputError
            If ``dim`` is not between 1 and the number of weights.
        """
        if not 1 <= whole_number(dim, "dim") <= len(base):
            raise InputError(f"dim is {dim} for {len(base)} weights.", f"Choose a dim from 1 to {len(base)}.")
        noise = np.random.default_rng(whole_number(seed, "seed")).standard_normal((len(base), dim))
        return cls(base, torch.as_tensor(np.linalg.qr(noise)[0].T.copy()).to(base))

    @classmethod
    def from_trajectory(cls, weights: Sequence[torch.Tensor] | torch.Tensor, dim: int) -> Subspace:
        """Return the subspace of the first principal components of some weight vectors.

        Parameters
        ----------
        weights : sequence of n tensors of shape (p,)
            Weight vectors, for example after each epoch of training.
        dim : int
            Number of directions, below n.

        Returns
        -------
        Subspace
            The subspace. Its base is the mean, and each direction has the length of the standard deviation along it.

        Raises
        ------
        InputError
            If ``dim`` is not between 1 and the number of weight vectors.
        """
        points = torch.stack(list(weights))
        if not 1 <= whole_number(dim, "dim") < len(points):
            raise InputError(
                f"dim is {dim} for {len(points)} weight vectors.", f"Choose a dim from 1 to {len(points) - 1}."
            )
        base = points.mean(dim=0)
        _, lengths, axes = torch.linalg.svd(points - base, full_matrices=False)
        return cls(base, axes[:dim] * (lengths[:dim, None] / (len(points) - 1) ** 0.5))

    def weights(self, z: Any) -> torch.Tensor:
        """Return the weights (p,) at z (k,). If z requires a gradient, the result is differentiable.

        Parameters
        ----------
        z : array_like or torch.Tensor of shape (k,)
            Coordinates in the subspace.

        Returns
        -------
        torch.Tensor of shape (p,)
            Weights of the network.

        Raises
        ------
        InputError
            If ``z`` does not have ``dim`` numbers.
        """
        z = torch.as_tensor(z).to(self.base)
        if z.shape != (self.dim,):
            raise InputError(f"z has shape {tuple(z.shape)}.", f"Provide {self.dim} numbers.")
        return self.base + z @ self.directions

    def coordinates(self, weights: torch.Tensor) -> Array:
        """Return z (k,) of the point of the subspace that is nearest to some weights (p,).

        Parameters
        ----------
        weights : torch.Tensor of shape (p,)
            Weights of the network.

        Returns
        -------
        array of shape (k,)
            Coordinates of the nearest point of the subspace.
        """
        axes, offset = self.directions.double(), (weights - self.base).double()
        z = torch.linalg.solve(axes @ axes.T, axes @ offset)
        return np.asarray(z.cpu().numpy(), dtype=np.float64)

    def to(self, device: Any) -> Subspace:
        """Return the subspace on another device.

        Parameters
        ----------
        device : torch.device or str
            Device.

        Returns
        -------
        Subspace
            The subspace with its tensors on that device.
        """
        return Subspace(self.base.to(device), self.directions.to(device))
