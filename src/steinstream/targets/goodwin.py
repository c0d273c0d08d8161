r"""The Goodwin oscillator: the posterior of four rate constants given two noisy time series.

.. math:: u' = \frac{a}{1 + b v^{10}} - c u, \qquad v' = d u - c v, \qquad u(0) = v(0) = 0

Both species are observed at :math:`t_i = 1 + 0.01 i`, with independent Gaussian noise of standard deviation 0.1 on u
and 0.05 on v. The position is
:math:`q = \log (a, b, c, d)`, with prior :math:`N(0, I)`.

The score requires the sensitivities :math:`\partial (u, v) / \partial q_j`. Each satisfies a linear equation, the
derivative of the one above in the direction :math:`q_j`; all four are integrated together with u and v, as lanes of one
vector.

B. C. Goodwin, "Oscillatory behavior in enzymatic control processes", Advances in Enzyme Regulation 3 (1965);
as a benchmark of thinning: M. Riabiz et al., "Optimal thinning of MCMC output", JRSS B 84 (2022).

Cost: 2 499 Runge-Kutta steps (order 4, h = 0.01) for 2 400 observations. Each step depends on the one before, so a
single density is bound by latency: sixteen densities together take 1.4 times as long, one score 1.3 times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from steinstream._engine.jit import inlined, jit
from steinstream._typing import Array
from steinstream.errors import InputError
from steinstream.targets import CompiledTarget, Target

TRUTH = (1.0, 3.0, 0.5, 1.0)
LANES = 16
_DIRECTIONS = 8  # four coordinates of q and four unused lanes: a loop of four would be unrolled, not vectorised
_STEP = 0.01
_STEPS_BEFORE = 99  # steps before the one that reaches t = 1, the first observation
_PRECISION_U = 1 / 0.1**2
_PRECISION_V = 1 / 0.05**2

_Pair = tuple[float, float]
_Four = tuple[float, float, float, float]


@inlined
def _slope(theta: _Four, dtheta: _Four, u: float, v: float, du: float, dv: float) -> _Four:
    """Compute the right-hand side and its derivative in the direction (dtheta, du, dv)."""
    a, b, c, d = theta
    da, db, dc, dd = dtheta
    v2 = v * v
    v4 = v2 * v2
    v8 = v4 * v4
    gate = 1.0 / (1.0 + b * (v8 * v2))
    rate = a * gate
    return (
        rate - c * u,
        d * u - c * v,
        da * gate - rate * gate * (db * (v8 * v2) + 10.0 * b * (v8 * v) * dv) - dc * u - c * du,
        dd * u + d * du - dc * v - c * dv,
    )


@inlined
def _advance(theta: _Four, dtheta: _Four, u: float, v: float, du: float, dv: float) -> _Four:
    """Advance the state and its derivative by one Runge-Kutta step."""
    half, sixth = _STEP / 2, _STEP / 6
    u1, v1, p1, q1 = _slope(theta, dtheta, u, v, du, dv)
    u2, v2, p2, q2 = _slope(theta, dtheta, u + half * u1, v + half * v1, du + half * p1, dv + half * q1)
    u3, v3, p3, q3 = _slope(theta, dtheta, u + half * u2, v + half * v2, du + half * p2, dv + half * q2)
    u4, v4, p4, q4 = _slope(theta, dtheta, u + _STEP * u3, v + _STEP * v3, du + _STEP * p3, dv + _STEP * q3)
    return (
        u + sixth * (u1 + 2.0 * (u2 + u3) + u4),
        v + sixth * (v1 + 2.0 * (v2 + v3) + v4),
        du + sixth * (p1 + 2.0 * (p2 + p3) + p4),
        dv + sixth * (q1 + 2.0 * (q2 + q3) + q4),
    )


@inlined
def _advance_state(theta: _Four, u: float, v: float) -> _Pair:
    """Advance the state alone, with the same rounding: the compiler removes the unused derivative."""
    u, v, _, _ = _advance(theta, (0.0, 0.0, 0.0, 0.0), u, v, 0.0, 0.0)
    return u, v


@inlined
def _log_posterior(misfit: float, a: float, b: float, c: float, d: float) -> float:
    """Combine likelihood and prior; -inf after an overflow."""
    value = -0.5 * (misfit + (a * a + b * b + c * c + d * d))
    return value if math.isfinite(value) else -math.inf


@jit
def trajectory(q: Array, out: Array) -> None:
    """Write u and v at the observation times to out (n, 2)."""
    theta = (math.exp(q[0]), math.exp(q[1]), math.exp(q[2]), math.exp(q[3]))
    u, v = 0.0, 0.0
    for i in range(-_STEPS_BEFORE, out.shape[0]):
        u, v = _advance_state(theta, u, v)
        if i >= 0:
            out[i, 0], out[i, 1] = u, v


@jit
def log_densities(parameters: tuple[Array], positions: Array, out: Array) -> None:
    """Evaluate the log density at positions (4, lanes), see `steinstream.targets.CompiledTarget`."""
    (y,) = parameters
    lanes = out.size
    a, b, c, d = np.exp(positions[0]), np.exp(positions[1]), np.exp(positions[2]), np.exp(positions[3])
    u, v, misfit = np.zeros(lanes), np.zeros(lanes), np.zeros(lanes)
    for _ in range(_STEPS_BEFORE):
        for k in range(lanes):
            u[k], v[k] = _advance_state((a[k], b[k], c[k], d[k]), u[k], v[k])
    for i in range(y.shape[0]):
        observed_u, observed_v = y[i, 0], y[i, 1]
        for k in range(lanes):
            u[k], v[k] = _advance_state((a[k], b[k], c[k], d[k]), u[k], v[k])
            error_u, error_v = observed_u - u[k], observed_v - v[k]
            misfit[k] += _PRECISION_U * (error_u * error_u) + _PRECISION_V * (error_v * error_v)
    for k in range(lanes):
        out[k] = _log_posterior(misfit[k], positions[0, k], positions[1, k], positions[2, k], positions[3, k])


@jit
def log_density_and_score(parameters: tuple[Array], q: Array, score: Array) -> float:
    """Evaluate the log density and its gradient at a position (4,), see `steinstream.targets.CompiledTarget`."""
    (y,) = parameters
    theta = (math.exp(q[0]), math.exp(q[1]), math.exp(q[2]), math.exp(q[3]))
    # Rows of one array have known offsets; ten separate arrays might overlap, which prevents vectorisation.
    rows = np.zeros((10, _DIRECTIONS))
    a, b, c, d = rows[0], rows[1], rows[2], rows[3]  # d theta_i / d q_j
    u, v, misfit = rows[4], rows[5], rows[6]  # equal in every lane
    du, dv, gradient = rows[7], rows[8], rows[9]
    for j in range(4):
        rows[j, j] = theta[j]
    for _ in range(_STEPS_BEFORE):
        for j in range(_DIRECTIONS):
            u[j], v[j], du[j], dv[j] = _advance(theta, (a[j], b[j], c[j], d[j]), u[j], v[j], du[j], dv[j])
    for i in range(y.shape[0]):
        observed_u, observed_v = y[i, 0], y[i, 1]
        for j in range(_DIRECTIONS):
            u[j], v[j], du[j], dv[j] = _advance(theta, (a[j], b[j], c[j], d[j]), u[j], v[j], du[j], dv[j])
            error_u, error_v = observed_u - u[j], observed_v - v[j]
            misfit[j] += _PRECISION_U * (error_u * error_u) + _PRECISION_V * (error_v * error_v)
            gradient[j] += _PRECISION_U * (error_u * du[j]) + _PRECISION_V * (error_v * dv[j])
    for j in range(4):
        score[j] = gradient[j] - q[j]
    return _log_posterior(misfit[0], q[0], q[1], q[2], q[3])


@dataclass(frozen=True, eq=False)
class Goodwin(Target):
    r"""Posterior of :math:`q = \log(a, b, c, d)`, given observations of u and v at the times 1, 1.01, 1.02 and so on.

    Where the integration overflows, the log density is -inf and the score is undefined.

    Parameters
    ----------
    y : ndarray of shape (n, 2)
        Observations of u and v.

    Raises
    ------
    InputError
        If the shape is wrong or a value is not finite.

    Examples
    --------
    >>> target = Goodwin.simulated(seed=0)
    >>> target.y.shape
    (2400, 2)
    """

    y: Array

    def __post_init__(self) -> None:
        y = np.array(self.y, dtype=np.float64, order="C")
        if y.ndim != 2 or y.shape[1] != 2 or not len(y):
            raise InputError(f"y must have shape (n, 2), one row (u, v) per observation time, got shape {y.shape}.")
        if not np.isfinite(y).all():
            row = int(np.flatnonzero(~np.isfinite(y).all(axis=1))[0])
            raise InputError(f"Observations must be finite, got {y[row]} in row {row} of y.")
        object.__setattr__(self, "y", y)

    @classmethod
    def simulated(cls, seed: int = 0, observations: int = 2400) -> Goodwin:
        """Simulate observations with the parameters (1, 3, 0.5, 1).

        Parameters
        ----------
        seed : int, default 0
            Random seed of the noise.
        observations : int, default 2400
            Number of observation times.

        Returns
        -------
        Goodwin
            The posterior given these observations.
        """
        solution = np.empty((observations, 2))
        trajectory(np.log(TRUTH), solution)
        return cls(solution + np.random.default_rng(seed).normal(scale=(0.1, 0.05), size=solution.shape))

    def solution(self, q: Array) -> Array:
        """Solution (n, 2) of the equations for q (4,) at the observation times.

        Parameters
        ----------
        q : array of shape (4,)
            The logarithms of the rate constants a, b, c and d.

        Returns
        -------
        array of shape (n, 2)
            The values of u and v at the observation times.
        """
        out = np.empty_like(self.y)
        trajectory(_position(q), out)
        return out

    def log_density(self, position: Array) -> float:
        out = np.empty(LANES)  # all lanes: the same instructions, and therefore rounding, as in a chain
        log_densities((self.y,), np.repeat(_position(position)[:, None], LANES, axis=1), out)
        return float(out[0])

    def score(self, position: Array) -> Array:
        return self.log_density_and_score(position)[1]

    def log_density_and_score(self, q: Array) -> tuple[float, Array]:
        """Log posterior and its gradient (4,) at q (4,), at the cost of the gradient.

        Parameters
        ----------
        q : array of shape (4,)
            The logarithms of the rate constants a, b, c and d.

        Returns
        -------
        float
            Log posterior, up to a constant.
        array of shape (4,)
            Its gradient.
        """
        score = np.empty(4)
        return log_density_and_score((self.y,), _position(q), score), score

    def compiled(self) -> CompiledTarget:
        """Return the functions for samplers that run in compiled code.

        Returns
        -------
        CompiledTarget
            The functions and their parameters.
        """
        return CompiledTarget(log_densities, log_density_and_score, (self.y,), LANES)


def _position(q: Array) -> Array:
    q = np.ascontiguousarray(q, dtype=np.float64)
    if q.shape != (4,):
        raise InputError(f"q must have shape (4,), the logarithms of the parameters, got shape {q.shape}.")
    return q
