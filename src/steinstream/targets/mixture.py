r"""A mixture of Gaussians, with density, score and independent draws.

.. math:: p(x) = \sum_k w_k N(x; \mu_k, \Sigma_k), \qquad
    \nabla \log p(x) = - \sum_k r_k(x) \Sigma_k^{-1} (x - \mu_k), \quad r_k \propto w_k N(x; \mu_k, \Sigma_k)

With :math:`\Sigma = L L^T` and :math:`W = L^{-1}` a component is :math:`-\tfrac12 |W (x - \mu)|^2` plus a constant.
Sums over components are computed relative to the largest term, so that they are also correct far in the tails, where
every term underflows.

Cost per point: O(k d) with isotropic or diagonal covariances, O(k d^2) with full matrices.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from steinstream._engine.jit import inlined, jit
from steinstream._engine.translation import translated
from steinstream._typing import Array
from steinstream.errors import InputError
from steinstream.targets import CompiledTarget, Sample, Target, whole_number

#: Means (k, d) of the components; W (k, d, d), or the diagonals (k, 1, d) of diagonal ones; constants (k,).
Parameters = tuple[Array, Array, Array]


@inlined
def _component(parameters: Parameters, k: int, x: Array, z: Array) -> float:
    """Return the log of a component's weighted density at x; write z = W (x - mean)."""
    means, factors, constants = parameters
    square = 0.0
    for i in range(z.shape[0]):
        if factors.shape[1] == 1:
            z[i] = factors[k, 0, i] * (x[i] - means[k, i])
        else:
            z[i] = 0.0
            for j in range(i + 1):
                z[i] += factors[k, i, j] * (x[j] - means[k, j])
        square += z[i] * z[i]
    return float(constants[k] - 0.5 * square)


@inlined
def _add_slope(parameters: Parameters, k: int, share: float, z: Array, score: Array) -> None:
    """Add ``share`` times the score of a component, -W^T z."""
    _, factors, _ = parameters
    for i in range(z.shape[0]):
        if factors.shape[1] == 1:
            score[i] -= share * (factors[k, 0, i] * z[i])
        else:
            for j in range(i + 1):
                score[j] -= share * (factors[k, i, j] * z[i])


@jit
def _shares(parameters: Parameters, x: Array, z: Array, shares: Array) -> float:
    """Return the log density at x; write z (k, d) and the share (k,) of each component in the density."""
    largest = -math.inf
    for k in range(shares.shape[0]):
        shares[k] = _component(parameters, k, x, z[k])
        largest = max(largest, shares[k])
    if not largest > -math.inf:  # underflow, or not a number
        return largest
    total = 0.0
    for k in range(shares.shape[0]):
        shares[k] = math.exp(shares[k] - largest)
        total += shares[k]
    for k in range(shares.shape[0]):
        shares[k] /= total
    return largest + math.log(total)


@jit
def log_densities(parameters: Parameters, positions: Array, out: Array) -> None:
    """Evaluate the log density at positions (d, lanes), see `steinstream.targets.CompiledTarget`."""
    components, dimension = parameters[0].shape
    z, shares = np.empty((components, dimension)), np.empty(components)
    for lane in range(out.size):
        out[lane] = _shares(parameters, positions[:, lane], z, shares)


@inlined
def _density_and_score(parameters: Parameters, x: Array, score: Array, z: Array, shares: Array) -> float:
    """Return the log density at x; write the score; ``z`` (k, d) and ``shares`` (k,) are scratch."""
    log_density = _shares(parameters, x, z, shares)
    for i in range(score.shape[0]):
        score[i] = 0.0
    for k in range(shares.shape[0]):
        _add_slope(parameters, k, shares[k], z[k], score)
    return log_density


@jit
def log_density_and_score(parameters: Parameters, position: Array, score: Array) -> float:
    """Evaluate the log density and its gradient at a position (d,), see `steinstream.targets.CompiledTarget`."""
    components, dimension = parameters[0].shape
    return _density_and_score(parameters, position, score, np.empty((components, dimension)), np.empty(components))


@translated
def _at_points(parameters: Parameters, points: Array, densities: Array, scores: Array, z: Array, shares: Array) -> None:
    """Evaluate log densities and scores at points (n, d); ``z`` and ``shares`` are scratch."""
    for i in range(points.shape[0]):
        densities[i] = _density_and_score(parameters, points[i], scores[i], z, shares)


class Mixture(Target):
    """A mixture of k Gaussians.

    Parameters
    ----------
    means : array_like of shape (k, d)
        One row per component.
    covariances : array_like
        Variances, not standard deviations: one number for all components and coordinates, or for each component one
        number (k,), the diagonal of its covariance matrix (k, d), or the matrix (k, d, d).
    weights : array_like of shape (k,), optional
        Positive numbers, divided by their sum. Default: equal weights.

    Raises
    ------
    InputError
        If a shape is wrong, a weight is not positive, or a covariance is not positive definite.

    Examples
    --------
    >>> target = Mixture([[0.0, 0.0], [3.0, 3.0]], covariances=0.5, weights=[1, 3])
    >>> draws, scores = target.sample(20_000, seed=0)
    >>> round(float((draws.sum(axis=1) > 3).mean()), 2)
    0.75
    """

    def __init__(self, means: ArrayLike, covariances: ArrayLike, weights: ArrayLike | None = None) -> None:
        self.means = _numbers(means, "means")
        if self.means.ndim != 2 or not self.means.size:
            raise InputError(f"means must have shape (k, d), one row per component, got shape {self.means.shape}.")
        components, dimension = self.means.shape
        self.weights = _numbers(np.ones(components) if weights is None else weights, "weights")
        if self.weights.shape != (components,) or not (self.weights > 0).all():
            raise InputError(f"weights must be {components} positive numbers, got {self.weights}.")
        self.weights /= self.weights.sum()
        self.covariances = _numbers(covariances, "covariances")
        self._roots, factors = _factorised(self.covariances, components, dimension)
        diagonals = self._roots[:, 0] if self._roots.shape[1] == 1 else np.diagonal(self._roots, axis1=1, axis2=2)
        constants = np.log(self.weights) - np.log(diagonals).sum(axis=1) - 0.5 * dimension * math.log(2 * math.pi)
        self._parameters: Parameters = (self.means, factors, constants)

    def log_density(self, position: Array) -> float:
        return float(self.log_densities(np.asarray(position)[None])[0])

    def score(self, position: Array) -> Array:
        score: Array = self.scores(np.asarray(position)[None])[0]
        return score

    def log_densities(self, points: ArrayLike) -> Array:
        """Log densities (n,) at points (n, d).

        Parameters
        ----------
        points : array_like of shape (n, d)
            The positions, one per row.

        Returns
        -------
        array of shape (n,)
            Log densities, including the normalising constant.
        """
        return self._at(points)[0]

    def scores(self, points: ArrayLike) -> Array:
        """Scores (n, d) at points (n, d).

        Parameters
        ----------
        points : array_like of shape (n, d)
            The positions, one per row.

        Returns
        -------
        array of shape (n, d)
            Gradients of the log density.
        """
        return self._at(points)[1]

    def sample(self, n: int, seed: int) -> Sample:
        """Draw ``n`` independent draws, with their scores.

        Parameters
        ----------
        n : int
            Number of draws.
        seed : int
            Seed of the random numbers.

        Returns
        -------
        Sample
            Draws and scores, both (n, d).
        """
        generator = np.random.default_rng(whole_number(seed, "seed"))
        dimension = self.means.shape[1]
        component = generator.choice(len(self.means), size=whole_number(n, "n"), p=self.weights)
        draws = generator.standard_normal((n, dimension))
        for k, (mean, root) in enumerate(zip(self.means, self._roots, strict=True)):
            rows = component == k
            draws[rows] = mean + (draws[rows] @ root.T if len(root) > 1 else draws[rows] * root[0])
        return Sample(draws, self.scores(draws))

    def compiled(self) -> CompiledTarget:
        """Return the functions for samplers that run in compiled code.

        Returns
        -------
        CompiledTarget
            The functions and their parameters.
        """
        return CompiledTarget(log_densities, log_density_and_score, self._parameters)

    def _at(self, points: ArrayLike) -> tuple[Array, Array]:
        x = np.ascontiguousarray(points, dtype=np.float64)
        dimension = self.means.shape[1]
        if x.ndim != 2 or x.shape[1] != dimension:
            raise InputError(f"Points must have shape (n, {dimension}), got shape {x.shape}.")
        densities, scores = np.empty(len(x)), np.empty_like(x)
        _at_points(self._parameters, x, densities, scores, np.empty_like(self.means), np.empty(len(self.means)))
        return densities, scores


def _numbers(values: ArrayLike, what: str) -> Array:
    """Convert values given by the user to a new array."""
    try:
        array = np.array(values, dtype=np.float64, order="C")
    except (TypeError, ValueError):
        raise InputError(f"{what} must be an array of numbers, got {values!r}.") from None
    if not np.isfinite(array).all():
        raise InputError(f"{what} must be finite, got {array[~np.isfinite(array)][0]}.")
    return array


def _factorised(covariances: Array, components: int, dimension: int) -> tuple[Array, Array]:
    """Return L and its inverse W of each component: (k, d, d), or the diagonals (k, 1, d) of diagonal matrices."""
    if covariances.shape == (components, dimension, dimension) and dimension > 1:
        roots = np.stack([_root(covariance, k) for k, covariance in enumerate(covariances)])
        return roots, np.ascontiguousarray(np.tril(np.linalg.inv(roots)))
    if covariances.shape not in ((), (components,), (components, dimension), (components, dimension, dimension)):
        raise InputError(
            f"covariances must be a number or have shape ({components},), ({components}, {dimension}) or "
            f"({components}, {dimension}, {dimension}), got shape {covariances.shape}."
        )
    if not (covariances > 0).all():
        raise InputError(f"Variances must be positive, got {covariances.min()}.")
    variances = covariances.reshape(components, 1, -1) if covariances.ndim else covariances
    roots = np.sqrt(np.broadcast_to(variances, (components, 1, dimension)))
    return roots, 1 / roots


def _root(covariance: Array, k: int) -> Array:
    """Return the lower triangular L with L L^T = covariance."""
    problem = f"The covariance matrix of component {k} is not"
    if not np.allclose(covariance, covariance.T, rtol=0, atol=1e-10 * np.abs(covariance).max()):
        raise InputError(f"{problem} symmetric.", "Give a symmetric matrix.")
    try:
        return np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
    except np.linalg.LinAlgError:
        raise InputError(f"{problem} positive definite.", "All its eigenvalues must be positive.") from None
