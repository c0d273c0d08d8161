r"""Posterior of a classifier in a plane of weights, with an interpolant of the logits instead of the network.

In a plane of weights, the logits of every example are functions of two coordinates z. They are computed once on a
Chebyshev grid of N nodes in a rectangle and interpolated by the polynomial through these nodes:

.. math:: f(z) = \sum_{j=1}^N b_j(z) f(z_j)

with the Lagrange polynomials :math:`b_j`. The log likelihoods, their gradients and the predictions then cost a product
with N numbers per logit instead of a pass through the network. The prior is exact. All scores are the exact gradients
of the interpolated density.

Outside of the rectangle, the logits are those of the nearest point of the rectangle, and the log density decreases by
:math:`50 d^2`, where d is the distance in units of half the sides. This keeps chains in the rectangle.

`InterpolatedPosterior` has the methods of `steinstream.integrations.torch.SubspacePosterior`; its inputs are tables of
logits at the nodes.

L. N. Trefethen, "Approximation Theory and Approximation Practice", SIAM 2013.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray

from steinstream._typing import Array

_ORIENTATIONS = 18
_WALL = 100.0  # curvature of the log density outside of the rectangle
_BLOCK = 2_000_000  # logits that are computed at once


class Rectangle(NamedTuple):
    """Rectangle of any orientation: z = centre + axes @ s with s in [-1, 1]^2; the columns of ``axes`` are orthogonal.

    >>> Rectangle(np.array([1.0, 0.0]), np.diag([2.0, 1.0])).local(np.array([[3.0, -0.5]])).tolist()
    [[1.0, -0.5]]
    """

    centre: Array
    axes: Array

    @classmethod
    def around(cls, points: Array, direction: Array, margin: float) -> Rectangle:
        """Return the smallest rectangle with a side along ``direction`` that contains the points, and a margin.

        The margin is a fraction of the sides.

        Returns
        -------
        Rectangle
            The rectangle with its margin.

        Examples
        --------
        >>> around = Rectangle.around(np.array([[0.0, 0.0], [2.0, 2.0], [2.0, 0.0]]), np.array([1.0, 0.0]), 0.5)
        >>> around.centre.tolist(), np.abs(around.axes).tolist()
        ([1.0, 1.0], [[2.0, 0.0], [0.0, 2.0]])
        """
        first = direction / np.linalg.norm(direction)
        turn = np.column_stack([first, [-first[1], first[0]]])
        low, high = ((points @ turn).min(axis=0), (points @ turn).max(axis=0))
        return cls(turn @ ((low + high) / 2), turn * ((0.5 + margin) * (high - low)))

    @classmethod
    def smallest(cls, points: Array, margin: float) -> Rectangle:
        """Return the rectangle of smallest area that contains the points, among 18 orientations, and a margin.

        Returns
        -------
        Rectangle
            The rectangle with its margin.

        Examples
        --------
        >>> smallest = Rectangle.smallest(np.array([[0.0, 0.0], [2.0, 0.0], [2.0, 1.0], [0.0, 1.0]]), 0.0)
        >>> smallest.centre.tolist(), np.abs(smallest.axes).tolist()
        ([1.0, 0.5], [[1.0, 0.0], [0.0, 0.5]])
        """
        angles = np.pi * np.arange(_ORIENTATIONS) / _ORIENTATIONS
        found = [cls.around(points, np.array([np.cos(angle), np.sin(angle)]), margin) for angle in angles]
        return min(found, key=lambda rectangle: abs(np.linalg.det(rectangle.axes)))

    def excess(self, position: Array) -> Array:
        """Return the coordinates s (2,) of a position (2,) minus those of the nearest point of the rectangle."""
        local = self.local(position[None])[0]
        return np.asarray(local - np.clip(local, -1.0, 1.0))

    def local(self, positions: Array) -> Array:
        """Return the coordinates s (m, 2) of positions (m, 2)."""
        return np.asarray(np.linalg.solve(self.axes, (positions - self.centre).T).T)


@dataclass(frozen=True)
class ChebyshevGrid:
    """Nodes of a rectangle and the polynomials that interpolate between them.

    Parameters
    ----------
    rectangle : Rectangle
        The domain.
    counts : tuple of two int
        Number of nodes along both axes of the rectangle.
    """

    rectangle: Rectangle
    counts: tuple[int, int]

    @cached_property
    def nodes(self) -> Array:
        """Positions (N, 2) of the nodes."""
        first, second = (chebyshev.chebpts1(count) for count in self.counts)
        local = np.array([(s, t) for s in first for t in second])
        return np.asarray(self.rectangle.centre + local @ self.rectangle.axes.T)

    @cached_property
    def _coefficients(self) -> list[tuple[Array, Array]]:
        """For both axes, the Chebyshev coefficients of the Lagrange polynomials and of their derivatives."""
        pairs = []
        for count in self.counts:
            values = np.linalg.inv(chebyshev.chebvander(chebyshev.chebpts1(count), count - 1))
            slopes = np.vstack([chebyshev.chebder(values), np.zeros((1, count))]) if count > 1 else 0 * values
            pairs.append((np.asarray(values, dtype=np.float64), np.asarray(slopes, dtype=np.float64)))
        return pairs

    def weights(self, positions: Array) -> Array:
        """Return the Lagrange polynomials (m, N) at positions (m, 2) or the nearest points of the rectangle."""
        return self._products(np.clip(self.rectangle.local(positions), -1.0, 1.0), (0, 0))

    def weights_and_slopes(self, position: Array) -> Array:
        """Return the Lagrange polynomials and their two partial derivatives (3, N) at a position (2,)."""
        given = self.rectangle.local(position[None])
        local = np.clip(given, -1.0, 1.0)
        value, *slopes = (self._products(local, orders)[0] for orders in ((0, 0), (1, 0), (0, 1)))
        inside = (given == local).T  # outside, the value does not change in this direction
        return np.vstack([value, np.linalg.solve(self.rectangle.axes.T, np.array(slopes) * inside)])

    def _products(self, local: Array, orders: tuple[int, int]) -> Array:
        sides = [
            chebyshev.chebvander(local[:, axis], count - 1) @ self._coefficients[axis][orders[axis]]
            for axis, count in enumerate(self.counts)
        ]
        return np.asarray((sides[0][:, :, None] * sides[1][:, None, :]).reshape(len(local), np.prod(self.counts)))


class GaussianPrior(NamedTuple):
    """Gaussian prior in the plane: log p(z) = -(constant + 2 linear z + z quadratic z) / (2 variance)."""

    constant: float
    linear: Array
    quadratic: Array
    variance: float

    @classmethod
    def of_weights(cls, subspace: Any, variance: float) -> GaussianPrior:
        """Return the prior with this variance of every weight, restricted to a `Subspace`."""
        base, directions = subspace.base.double().cpu().numpy(), subspace.directions.double().cpu().numpy()
        return cls(float(base @ base), directions @ base, directions @ directions.T, variance)

    @classmethod
    def of_coordinates(cls, dim: int, variance: float) -> GaussianPrior:
        """Return the prior N(0, variance I) of z itself."""
        return cls(0.0, np.zeros(dim), np.eye(dim), variance)

    def log_density(self, z: Array) -> float:
        """Return the log density at z (k,), up to a constant."""
        return float(-(self.constant + 2 * self.linear @ z + z @ self.quadratic @ z) / (2 * self.variance))

    def score(self, z: Array) -> Array:
        """Return the gradient (k,) of the log density."""
        return np.asarray(-(self.linear + self.quadratic @ z) / self.variance)


class InterpolatedPosterior:
    """Tempered posterior of a classifier in the coordinates z of a plane, with interpolated logits.

    Parameters
    ----------
    grid : ChebyshevGrid
        The nodes.
    logits : array of shape (n, classes, N)
        Logits of the training examples at the nodes, in single precision.
    labels : array of shape (n,)
        Class labels.
    prior : GaussianPrior
        Prior in the plane.
    temperature : float
        The log posterior is divided by this number.
    """

    def __init__(
        self,
        grid: ChebyshevGrid,
        logits: NDArray[np.float32],
        labels: NDArray[np.int64],
        prior: GaussianPrior,
        temperature: float,
    ) -> None:
        self.grid, self.logits, self.labels = grid, logits, labels
        self.prior, self.temperature = prior, temperature

    def log_density(self, position: Array) -> float:
        """Return the log density at a position (2,), up to a constant."""
        logits = self._product(self.logits, self.grid.weights(position[None]))[..., 0]
        likelihoods = np.take_along_axis(log_softmax(logits), self.labels[:, None], axis=1)
        inside = (float(likelihoods.sum()) + self.prior.log_density(position)) / self.temperature
        return inside - _WALL / 2 * float(np.sum(self.grid.rectangle.excess(position) ** 2))

    def score(self, position: Array) -> Array:
        """Return the gradient (2,) of the log density at a position (2,)."""
        total = self._gradients(position, self.logits, self.labels).sum(axis=0)
        return np.asarray((total + self.prior.score(position)) / self.temperature + self._wall_score(position))

    def control_variates(self, position: Array) -> Array:
        """Return the gradients (n, 2) of the log likelihood of each example at a position."""
        return self._gradients(position, self.logits, self.labels)

    def minibatch(
        self, size: int, control_variates: Array | None = None
    ) -> Callable[[Array, np.random.Generator], Array]:
        """Return a function that estimates the score from a random minibatch, as `SubspacePosterior.minibatch`."""
        count = len(self.labels)
        variates = np.zeros((count, 2)) if control_variates is None else control_variates
        centred = variates - variates.mean(axis=0)

        def noisy_score(position: Array, generator: np.random.Generator) -> Array:
            rows = generator.choice(count, size, replace=False)
            gradients = self._gradients(position, self.logits[rows], self.labels[rows]) - centred[rows]
            total = count * gradients.mean(axis=0) + self.prior.score(position)
            return np.asarray(total / self.temperature + self._wall_score(position))

        return noisy_score

    def predict(self, position: Array, inputs: NDArray[np.float32]) -> Array:
        """Return the class probabilities (n, classes) at a position (2,) for logits (n, classes, N) at the nodes."""
        logits = self._product(inputs, self.grid.weights(position[None]))[..., 0]
        return np.asarray(np.exp(log_softmax(logits)))

    def predict_many(self, positions: Array, inputs: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the class probabilities (m, n, classes) at positions (m, 2), in single precision."""
        count, classes, nodes = inputs.shape
        table = inputs.reshape(count * classes, nodes).T
        result = np.empty((len(positions), count, classes), dtype=np.float32)
        weights = self.grid.weights(positions).astype(np.float32)
        step = max(1, _BLOCK // (count * classes))
        for first in range(0, len(positions), step):
            logits = (weights[first : first + step] @ table).reshape(-1, count, classes)
            logits -= logits.max(axis=2, keepdims=True)
            np.exp(logits, out=logits)
            result[first : first + step] = logits / logits.sum(axis=2, keepdims=True)
        return result

    def _wall_score(self, position: Array) -> Array:
        rectangle = self.grid.rectangle
        return np.asarray(-_WALL * np.linalg.solve(rectangle.axes.T, rectangle.excess(position)))

    def _gradients(self, position: Array, logits: NDArray[np.float32], labels: NDArray[np.int64]) -> Array:
        """Return the gradients (n, 2) of the log likelihoods of some examples."""
        parts = self._product(logits, self.grid.weights_and_slopes(position))
        weights = -np.exp(log_softmax(parts[..., 0]))
        weights[np.arange(len(labels)), labels] += 1.0
        return np.asarray(np.einsum("nc,nck->nk", weights, parts[..., 1:]))

    @staticmethod
    def _product(logits: NDArray[np.float32], weights: Array) -> Array:
        """Return logits (n, classes, N) times weights (m, N): (n, classes, m)."""
        count, classes, nodes = logits.shape
        flat = logits.reshape(count * classes, nodes) @ weights.T.astype(np.float32)
        return flat.reshape(count, classes, -1).astype(np.float64)


def log_softmax(logits: Array) -> Array:
    """Return the logarithms of the class probabilities (n, classes).

    Returns
    -------
    ndarray
        Log probabilities (n, classes).

    Examples
    --------
    >>> np.exp(log_softmax(np.array([[0.0, np.log(3.0)]]))).round(6).tolist()
    [[0.25, 0.75]]
    """
    shifted = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))
