r"""A mixture of Gaussians, of which everything is known: density, score, independent draws.

.. math:: p(x) = \sum_k w_k N(x; \mu_k, \Sigma_k), \qquad
    \nabla \log p(x) = - \sum_k r_k(x) \Sigma_k^{-1} (x - \mu_k), \quad r_k \propto w_k N(x; \mu_k, \Sigma_k)

With :math:`\Sigma = L L^T` and :math:`W = L^{-1}` a component is :math:`-\tfrac12 |W (x - \mu)|^2` plus a constant.
Sums over components run relative to the largest, so that they are right far out as well, where each underflows.

Cost: O(k d) a point with isotropic or diagonal covariances, O(k d^2) with full ones.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from steinstream._engine.jit import inlined, jit
from steinstream.errors import InputError
from steinstream.targets import Array, Compiled, Sample, whole_number

#: Of each component the mean (k, d), W (k, d, d) or, if they are diagonal, their diagonals (k, 1, d), and the
#: constant (k,).
Parameters = tuple[Array, Array, Array]


@inlined
def _component(parameters: Parameters, k: int, x: Array, z: Array) -> float:
    """The log of a component's weighted density at x, and z = W (x - mean)."""
    means, factors, constants = parameters
    square = 0.0
    for i in range(z.size):
        if factors.shape[1] == 1:
            z[i] = factors[k, 0, i] * (x[i] - means[k, i])
        else:
            z[i] = 0.0
            for j in range(i + 1):
                z[i] += factors[k, i, j] * (x[j] - means[k, j])
        square += z[i] * z[i]
    value: float = constants[k] - 0.5 * square
    return value


@inlined
def _add_slope(parameters: Parameters, k: int, share: float, z: Array, score: Array) -> None:
    """Add share times the component's own score, -W^T z."""
    _, factors, _ = parameters
    for i in range(z.size):
        if factors.shape[1] == 1:
            score[i] -= share * (factors[k, 0, i] * z[i])
        else:
            for j in range(i + 1):
                score[j] -= share * (factors[k, i, j] * z[i])


@jit
def _shares(parameters: Parameters, x: Array, z: Array, shares: Array) -> float:
    """The log density at x; to each component its z (k, d) and its share (k,) in the density."""
    largest = -math.inf
    for k in range(shares.size):
        shares[k] = _component(parameters, k, x, z[k])
        largest = max(largest, shares[k])
    if not largest > -math.inf:  # too far for floating point, or not a number
        return largest
    total = 0.0
    for k in range(shares.size):
        shares[k] = math.exp(shares[k] - largest)
        total += shares[k]
    for k in range(shares.size):
        shares[k] /= total
    return largest + math.log(total)


@jit
def log_densities(parameters: Parameters, positions: Array, out: Array) -> None:
    """The log density at many positions (d, lanes), see `steinstream.targets.Compiled`."""
    components, dimension = parameters[0].shape
    z, shares = np.empty((components, dimension)), np.empty(components)
    for lane in range(out.size):
        out[lane] = _shares(parameters, positions[:, lane], z, shares)


@jit
def log_density_and_score(parameters: Parameters, position: Array, score: Array) -> float:
    """The log density and its gradient at one position (d,), see `steinstream.targets.Compiled`."""
    components, dimension = parameters[0].shape
    z, shares = np.empty((components, dimension)), np.empty(components)
    log_density = _shares(parameters, position, z, shares)
    score[:] = 0.0
    for k in range(components):
        _add_slope(parameters, k, shares[k], z[k], score)
    return log_density


@jit
def _at_points(parameters: Parameters, points: Array, densities: Array, scores: Array) -> None:
    """Both at many points (n, d)."""
    for i in range(len(points)):
        densities[i] = log_density_and_score(parameters, points[i], scores[i])


class Mixture:
    """A mixture of k Gaussians with the given means (k, d).

    Parameters
    ----------
    means
        One row per component.
    covariances
        Variances, never standard deviations: one number for all components and coordinates, or per component (k,)
        one number, (k, d) the diagonal of its covariance matrix, or (k, d, d) the whole matrix.
    weights
        (k,) positive numbers, divided by their sum; equal ones by default.

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
            raise InputError(f"means has shape {self.means.shape}.", "Give a row for each component: (k, d).")
        components, dimension = self.means.shape
        self.weights = _numbers(np.ones(components) if weights is None else weights, "weights")
        if self.weights.shape != (components,) or not (self.weights > 0).all():
            raise InputError(f"weights is {self.weights}.", f"Give {components} positive numbers.")
        self.weights /= self.weights.sum()
        self.covariances = _numbers(covariances, "covariances")
        self._roots, factors = _factorised(self.covariances, components, dimension)
        diagonals = self._roots[:, 0] if self._roots.shape[1] == 1 else np.diagonal(self._roots, axis1=1, axis2=2)
        constants = np.log(self.weights) - np.log(diagonals).sum(axis=1) - 0.5 * dimension * math.log(2 * math.pi)
        self._parameters: Parameters = (self.means, factors, constants)

    def log_density(self, position: Array) -> float:
        """The log density at one position (d,), constant included."""
        return float(self.log_densities(np.asarray(position)[None])[0])

    def score(self, position: Array) -> Array:
        """The gradient (d,) of the log density at one position (d,)."""
        score: Array = self.scores(np.asarray(position)[None])[0]
        return score

    def log_densities(self, points: ArrayLike) -> Array:
        """The log density (n,) at many points (n, d)."""
        return self._at(points)[0]

    def scores(self, points: ArrayLike) -> Array:
        """The scores (n, d) at many points (n, d)."""
        return self._at(points)[1]

    def sample(self, n: int, seed: int) -> Sample:
        """So many independent draws, and their scores."""
        generator = np.random.default_rng(whole_number(seed, "seed"))
        dimension = self.means.shape[1]
        component = generator.choice(len(self.means), size=whole_number(n, "n"), p=self.weights)
        draws = generator.standard_normal((n, dimension))
        for k, (mean, root) in enumerate(zip(self.means, self._roots, strict=True)):
            rows = component == k
            draws[rows] = mean + (draws[rows] @ root.T if len(root) > 1 else draws[rows] * root[0])
        return Sample(draws, self.scores(draws))

    def compiled(self) -> Compiled:
        """The functions above for a sampler that runs in machine code."""
        return Compiled(log_densities, log_density_and_score, self._parameters)

    def _at(self, points: ArrayLike) -> tuple[Array, Array]:
        x = np.ascontiguousarray(points, dtype=np.float64)
        dimension = self.means.shape[1]
        if x.ndim != 2 or x.shape[1] != dimension:
            raise InputError(f"The points have shape {x.shape}.", f"The target has {dimension} dimensions: (n, d).")
        densities, scores = np.empty(len(x)), np.empty_like(x)
        _at_points(self._parameters, x, densities, scores)
        return densities, scores


def _numbers(values: ArrayLike, what: str) -> Array:
    """Values given by the user, as an array of its own."""
    try:
        array = np.array(values, dtype=np.float64, order="C")
    except (TypeError, ValueError):
        raise InputError(f"{what} is {values!r}.", "Give an array of numbers.") from None
    if not np.isfinite(array).all():
        raise InputError(f"{what} has the value {array[~np.isfinite(array)][0]}.", "All must be finite.")
    return array


def _factorised(covariances: Array, components: int, dimension: int) -> tuple[Array, Array]:
    """L and its inverse W for each component: (k, d, d), or (k, 1, d) the diagonals of diagonal ones."""
    if covariances.shape == (components, dimension, dimension) and dimension > 1:
        roots = np.stack([_root(covariance, k) for k, covariance in enumerate(covariances)])
        return roots, np.ascontiguousarray(np.tril(np.linalg.inv(roots)))
    if covariances.shape not in ((), (components,), (components, dimension), (components, dimension, dimension)):
        raise InputError(
            f"covariances has shape {covariances.shape}.",
            f"Give a number, ({components},), ({components}, {dimension}) or ({components}, {dimension}, {dimension}).",
        )
    if not (covariances > 0).all():
        raise InputError(f"covariances has the value {covariances.min()}.", "Variances must be positive.")
    variances = covariances.reshape(components, 1, -1) if covariances.ndim else covariances
    roots = np.sqrt(np.broadcast_to(variances, (components, 1, dimension)))
    return roots, 1 / roots


def _root(covariance: Array, k: int) -> Array:
    """The lower triangular L with L L^T = covariance."""
    problem = f"The covariance matrix of component {k} is not"
    if not np.allclose(covariance, covariance.T, rtol=0, atol=1e-10 * np.abs(covariance).max()):
        raise InputError(f"{problem} symmetric.", "Give a symmetric matrix.")
    try:
        return np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
    except np.linalg.LinAlgError:
        raise InputError(f"{problem} positive definite.", "All its eigenvalues must be positive.") from None
