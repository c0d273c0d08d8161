r"""Posterior of the 38 parameters of a heart muscle cell, given one noisy calcium transient.

The cell of `experiments.targets.hinch` starts at rest. Its voltage is held at 0 mV for 200 ms and at -80 mV for the
next 300 ms. The observations are its calcium concentrations in uM at 5, 10, ..., 500 ms with independent Gaussian
noise of standard deviation 0.02 uM. The position is :math:`q = \log (\theta / \theta_0)` with the published
parameters :math:`\theta_0`; its prior is :math:`N(0, 0.3^2 I)`. The data are informative in about six directions.

The public chains of this model (M. Riabiz et al., "Optimal thinning of MCMC output", JRSS B 84, 2022) were published
without the observations, the prior and the list of parameters. **Those used here are a substitute**: the same model,
but another posterior.

Integration. Under the posterior to the power 1/8, release units relax at up to 35 per ms and calcium at up to 4 per ms,
in a transient of about 100 ms. This is too stiff for an explicit method, but the fast part is linear for given calcium.
Release units and troponin are therefore integrated implicitly, which requires the solution of a 3 x 3 system; the store
is integrated explicitly; calcium is integrated explicitly except for a term :math:`- \kappa C`, with :math:`\kappa`
constant within a step. The scheme ARK4(3)6L[2]SA has order 4 for any such splitting. Its 302 steps are short after the
jumps of the voltage and the same for all q. The error of calcium is below 1e-6 uM for half of the draws and below
1e-4 uM for 99 %. C. A. Kennedy and M. H. Carpenter, "Additive Runge-Kutta schemes for convection-diffusion-reaction
equations", Applied Numerical Mathematics 44 (2003).

The score is the exact gradient of the computed log density (discrete adjoint).

Cost: sixteen vectorised densities take 0.35 ms, and so does one score; with forward derivatives a score would take
3.7 times as long. One density with scipy's LSODA, with compiled slopes and errors of 2e-5 uM, takes as long as 110 of
these.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from experiments.targets._jit import inlined, jit
from experiments.targets.hinch import (
    CONSTANTS,
    PARAMETERS,
    REST,
    Groups,
    Numbers,
    constants,
    gather,
    scatter,
    slopes,
    stiffness,
)
from experiments.targets.hinch_adjoint import slopes_adjoint, stiffness_adjoint
from steinstream._typing import Array
from steinstream.errors import InputError
from steinstream.targets import CompiledTarget

NAMES = tuple(PARAMETERS)
LANES = 16
_DIMENSION = len(NAMES)
_THETA = np.array([value for value, _ in PARAMETERS.values()])
_PRECISION_PRIOR = 1 / 0.3**2
_NOISE = 0.02
_PRECISION = 1 / _NOISE**2
_MICRO = 1e3  # uM in one mM

_INTERVAL = 5.0  # ms between observations
_OBSERVATIONS = 100
_PULSE = 40  # observations before the voltage drops
_VOLTAGES = (0.0, -80.0)
_STEPS = np.repeat((30, 15, 5, 3, 2, 10, 5, 4, 2), (1, 1, 8, 10, 20, 1, 1, 8, 50))  # before each observation
_END = np.cumsum(_STEPS)  # number of steps up to each observation

_STAGES = 6
_GAMMA = 1 / 4
_FINAL = (82889 / 524892, 0.0, 15625 / 83664, 69875 / 102672, -2260 / 8211, _GAMMA)
_EXPLICIT = (
    (),
    (1 / 2,),
    (13861 / 62500, 6889 / 62500),
    (-116923316275 / 2393684061468, -2731218467317 / 15368042101831, 9408046702089 / 11113171139209),
    (
        -451086348788 / 2902428689909,
        -2682348792572 / 7519795681897,
        12662868775082 / 11960479115383,
        3355817975965 / 11060851509271,
    ),
    (
        647845179188 / 3216320057751,
        73281519250 / 8382639484533,
        552539513391 / 3454668386233,
        3354512671639 / 8306763924573,
        4040 / 17871,
    ),
    _FINAL,
)
_IMPLICIT = (
    (),
    (1 / 4,),
    (8611 / 62500, -1743 / 31250),
    (5012029 / 34652500, -654441 / 2922500, 174375 / 388108),
    (15267082809 / 155376265600, -71443401 / 120774400, 730878875 / 902184768, 2285395 / 8070912),
    _FINAL[:5],
    _FINAL,
)
_ROWS = 7  # slopes: explicit part of C', S', z1', z2', z3', B', implicit part of C'
_WEIGHTS = np.zeros((_STAGES + 1, _STAGES, _ROWS))  # of earlier stages in each stage; last: in the result
for _i in range(_STAGES + 1):
    _WEIGHTS[_i, : len(_EXPLICIT[_i]), :2] = np.array(_EXPLICIT[_i])[:, None]
    _WEIGHTS[_i, : len(_IMPLICIT[_i]), 2:] = np.array(_IMPLICIT[_i])[:, None]


@jit
def _constants(q: Array, voltage: float, k: Array, j: int) -> None:
    k[:, j] = 0.0
    scatter(constants(_THETA * np.exp(q), voltage), k, j)


@jit
def _constants_adjoint(q: Array, voltage: float, k_: Array, score: Array) -> None:
    """Add the derivative by q to the score, given the derivative k_ (36, 1) by the constants."""
    theta = (_THETA * np.exp(q)).astype(np.complex128)
    for j in range(_DIMENSION):
        real = theta[j]
        theta[j] = real * complex(1.0, 1e-30)
        k = np.zeros((CONSTANTS, 1), np.complex128)
        scatter(constants(theta, voltage), k, 0)
        theta[j] = real
        for i in range(CONSTANTS):
            score[j] += k_[i, 0] * (k[i, 0].imag * 1e30)


@inlined
def _logarithm(C: float, log: float, near: float) -> tuple[float, float]:
    """Return log C and its derivative from a series around C at the start of the step, which can be vectorised."""
    y = C * near - 1.0
    return log + y * (1.0 - y * (0.5 - y * (1.0 / 3.0))), (1.0 - y * (1.0 - y)) * near


@inlined
def _evaluate(k: Groups, x: Numbers, fixed: Numbers, g: float) -> Numbers:
    """Return the seven slopes of a stage, given the sums over the previous stages."""
    C, S, z1, z2, z3, B = x
    kappa, log, near = fixed
    C = C / (1.0 + g * kappa)
    log, _ = _logarithm(C, log, near)
    f = slopes(k, (C, S, z1, z2, z3, B), log, g)
    return f[0] + kappa * C, f[1], f[2], f[3], f[4], f[5], -kappa * C


@inlined
def _evaluate_adjoint(
    k: Groups, x: Numbers, fixed: Numbers, g: float, slopes_: Numbers
) -> tuple[Groups, Numbers, float, float]:
    """Return the derivatives by the constants, x, kappa and C at the start of the step (see `hinch_adjoint`)."""
    C, S, z1, z2, z3, B = x
    kappa, log, near = fixed
    inverse = 1.0 / (1.0 + g * kappa)
    C = C * inverse
    log, by_C = _logarithm(C, log, near)
    explicit_, S_, z1_, z2_, z3_, B_, implicit_ = slopes_
    k_, x_, log_ = slopes_adjoint(k, (C, S, z1, z2, z3, B), log, g, (explicit_, S_, z1_, z2_, z3_, B_))
    pull_ = explicit_ - implicit_
    C_ = (x_[0] + pull_ * kappa + log_ * by_C) * inverse
    return k_, (C_, x_[1], x_[2], x_[3], x_[4], x_[5]), (pull_ - g * C_) * C, log_ * (1.0 - by_C * C) * near


@inlined
def _sum(state: Array, slope: Array, stage: int, h: float, out: Array) -> None:
    """Write the start value of a stage, or the result of the step (stage 6), to out (6, lanes)."""
    lanes = state.shape[1]
    for row in range(6):
        for j in range(lanes):
            out[row, j] = state[row, j]
    for earlier in range(stage):
        for row in range(_ROWS):
            weight = h * _WEIGHTS[stage, earlier, row]
            for j in range(lanes):
                out[row % 6, j] += weight * slope[earlier, row, j]


@inlined
def _step(k: Array, state: Array, h: float, fixed: Array, sums: Array, slope: Array) -> None:
    """Advance the state (6, lanes) by one step. The adjoint uses fixed (3, lanes) and sums (6, 6, lanes)."""
    lanes = state.shape[1]
    for j in range(lanes):
        fixed[1, j] = math.log(state[0, j])
    for j in range(lanes):
        fixed[0, j] = stiffness(gather(k, j), state[0, j], state[5, j])
        fixed[2, j] = 1.0 / state[0, j]
    for stage in range(_STAGES):
        x, f = sums[stage], slope[stage]
        _sum(state, slope, stage, h, x)
        g = h * _GAMMA if stage else 0.0
        for j in range(lanes):
            f[0, j], f[1, j], f[2, j], f[3, j], f[4, j], f[5, j], f[6, j] = _evaluate(
                gather(k, j),
                (x[0, j], x[1, j], x[2, j], x[3, j], x[4, j], x[5, j]),
                (fixed[0, j], fixed[1, j], fixed[2, j]),
                g,
            )
    _sum(state, slope, _STAGES, h, state)


@inlined
def _step_adjoint(k: Array, h: float, fixed: Array, sums: Array, k_: Array, state_: Array, slope_: Array) -> None:
    """Replace the derivative by the end of a step with that by its start; update the derivative by the constants."""
    groups, numbers = gather(k, 0), (fixed[0, 0], fixed[1, 0], fixed[2, 0])
    for stage in range(_STAGES):
        for row in range(_ROWS):
            slope_[stage, row] = h * _WEIGHTS[_STAGES, stage, row] * state_[row % 6]
    kappa_, start_ = 0.0, 0.0
    for stage in range(_STAGES - 1, -1, -1):
        x, f_ = sums[stage], slope_[stage]
        groups_, x_, more_kappa_, more_start_ = _evaluate_adjoint(
            groups,
            (x[0, 0], x[1, 0], x[2, 0], x[3, 0], x[4, 0], x[5, 0]),
            numbers,
            h * _GAMMA if stage else 0.0,
            (f_[0], f_[1], f_[2], f_[3], f_[4], f_[5], f_[6]),
        )
        kappa_, start_ = kappa_ + more_kappa_, start_ + more_start_
        scatter(groups_, k_, 0)
        for row in range(6):
            state_[row] += x_[row]
        for earlier in range(stage):
            for row in range(_ROWS):
                slope_[earlier, row] += h * _WEIGHTS[stage, earlier, row] * x_[row % 6]
    groups_, C_, B_ = stiffness_adjoint(groups, sums[0, 0, 0], sums[0, 5, 0], kappa_)
    scatter(groups_, k_, 0)
    state_[0] += C_ + start_
    state_[5] += B_


@inlined
def _log_posterior(misfit: float, square: float) -> float:
    value = -0.5 * (_PRECISION * misfit + _PRECISION_PRIOR * square)
    return value if math.isfinite(value) else -math.inf


@jit
def _densities(y: Array, positions: Array, first: int, out: Array) -> None:
    """Compute the log density of at most LANES lanes, beginning with the lane ``first``."""
    # With constant shapes the compiler knows that rows do not overlap, and vectorises the loops.
    k, state, fixed = np.zeros((CONSTANTS, LANES)), np.zeros((6, LANES)), np.zeros((3, LANES))
    sums, slope = np.zeros((_STAGES, 6, LANES)), np.zeros((_STAGES, _ROWS, LANES))
    misfit = np.zeros(LANES)
    for row in range(6):
        state[row] = REST[row]
    for i in range(_OBSERVATIONS):
        if i in (0, _PULSE):
            for j in range(LANES):
                _constants(positions[:, min(first + j, out.size - 1)].copy(), _VOLTAGES[i // _PULSE], k, j)
        for _ in range(_STEPS[i]):
            _step(k, state, _INTERVAL / _STEPS[i], fixed, sums, slope)
        for j in range(LANES):
            error = y[i] - _MICRO * state[0, j]
            misfit[j] += error * error
    for j in range(min(LANES, out.size - first)):
        out[first + j] = _log_posterior(misfit[j], _square(positions[:, first + j]))


@jit
def _square(q: Array) -> float:
    total = 0.0
    for value in q:
        total += value * value
    return total


@jit
def log_densities(parameters: tuple[Array], positions: Array, out: Array) -> None:
    """Compute the log density at positions (38, lanes), see `steinstream.targets.CompiledTarget`."""
    (y,) = parameters
    for first in range(0, out.size, LANES):
        _densities(y, positions, first, out)


@jit
def _record(q: Array, k: Array, fixed: Array, sums: Array) -> None:
    """Integrate one cell and store k (2, 36, 1), fixed (n + 1, 3, 1) and sums (n + 1, 6, 6, 1)."""
    state, slope = np.zeros((6, 1)), np.zeros((_STAGES, _ROWS, 1))
    for row in range(6):
        state[row] = REST[row]
    _constants(q, _VOLTAGES[0], k[0], 0)
    _constants(q, _VOLTAGES[1], k[1], 0)
    t = 0
    for i in range(_OBSERVATIONS):
        phase = 1 if i >= _PULSE else 0
        for _ in range(_STEPS[i]):
            _step(k[phase], state, _INTERVAL / _STEPS[i], fixed[t], sums[t], slope)
            t += 1
    sums[t, 0] = state


@jit
def log_density_and_score(parameters: tuple[Array], q: Array, score: Array) -> float:
    """Compute the log density and its gradient at a position (38,), see `steinstream.targets.CompiledTarget`."""
    (y,) = parameters
    t = _END[-1]
    k, fixed, sums = np.empty((2, CONSTANTS, 1)), np.empty((t + 1, 3, 1)), np.empty((t + 1, _STAGES, 6, 1))
    _record(q, k, fixed, sums)
    misfit = 0.0
    for i in range(_OBSERVATIONS):
        error = y[i] - _MICRO * sums[_END[i], 0, 0, 0]
        misfit += error * error
    log_density = _log_posterior(misfit, _square(q))
    if log_density == -math.inf:
        score[:] = math.nan
        return log_density

    k_, state_, slope_ = np.zeros((2, CONSTANTS, 1)), np.zeros(6), np.zeros((_STAGES, _ROWS))
    for i in range(_OBSERVATIONS - 1, -1, -1):
        phase = 1 if i >= _PULSE else 0
        state_[0] += _MICRO * _PRECISION * (y[i] - _MICRO * sums[_END[i], 0, 0, 0])
        for _ in range(_STEPS[i]):
            t -= 1
            _step_adjoint(k[phase], _INTERVAL / _STEPS[i], fixed[t], sums[t], k_[phase], state_, slope_)
    for i in range(_DIMENSION):
        score[i] = -_PRECISION_PRIOR * q[i]
    _constants_adjoint(q, _VOLTAGES[0], k_[0], score)
    _constants_adjoint(q, _VOLTAGES[1], k_[1], score)
    return log_density


def trajectory(q: Array) -> tuple[Array, Array]:
    """Integrate the cell with parameters q (38,).

    Returns
    -------
    times : array of shape (303,)
        Times in ms.
    states : array of shape (303, 6)
        C and S in mM, z1, z2, z3, and B in mM.
    """
    sums = np.empty((_END[-1] + 1, _STAGES, 6, 1))
    _record(_position(q), np.empty((2, CONSTANTS, 1)), np.empty((_END[-1] + 1, 3, 1)), sums)
    times = [_INTERVAL * (i + j / n) for i, n in enumerate(_STEPS) for j in range(n)]
    return np.array([*times, _INTERVAL * _OBSERVATIONS]), sums[:, 0, :, 0].copy()


@dataclass(frozen=True, eq=False)
class Calcium:
    """Posterior of q = log(theta / theta_0).

    If calcium does not stay positive, the log density is -inf and the score is NaN. This is a property of the model:
    the initial state is the same for all q, and calcium becomes negative if there is too little troponin (1 of 80
    draws of the prior).

    Parameters
    ----------
    y : array of shape (100,)
        Observed calcium in uM at 5, 10, ..., 500 ms.

    Raises
    ------
    InputError
        If ``y`` has another shape or values that are not finite.

    Examples
    --------
    >>> target = Calcium.simulated(seed=0)
    >>> target.y.shape, len(NAMES)
    ((100,), 38)
    >>> float(target.solution(np.zeros(38)).max().round(3))
    0.898
    """

    y: Array

    def __post_init__(self) -> None:
        y = np.array(self.y, dtype=np.float64, order="C")
        if y.shape != (_OBSERVATIONS,):
            raise InputError(f"y has shape {y.shape}.", "Provide calcium in uM at 5, 10, ..., 500 ms, shape (100,).")
        if not np.isfinite(y).all():
            index = int(np.flatnonzero(~np.isfinite(y))[0])
            raise InputError(f"y has the value {y[index]} at index {index}.", "Observations must be finite.")
        object.__setattr__(self, "y", y)

    @classmethod
    def simulated(cls, seed: int = 0) -> Calcium:
        """Simulate observations of a cell with the published parameters; ``seed`` determines the noise."""
        _, states = trajectory(np.zeros(_DIMENSION))
        noise = np.random.default_rng(seed).normal(scale=_NOISE, size=_OBSERVATIONS)
        return cls(_MICRO * states[_END, 0] + noise)

    def solution(self, q: Array) -> Array:
        """Return the calcium concentrations (100,) in uM at the observation times."""
        _, states = trajectory(q)
        return np.asarray(_MICRO * states[_END, 0])

    def log_density(self, q: Array) -> float:
        """Return the log posterior at q (38,), up to a constant."""
        out = np.empty(1)
        log_densities((self.y,), _position(q)[:, None], out)
        return float(out[0])

    def score(self, q: Array) -> Array:
        """Return the gradient (38,) of the log posterior at q (38,)."""
        return self.log_density_and_score(q)[1]

    def log_density_and_score(self, q: Array) -> tuple[float, Array]:
        """Return log density and score at the cost of the score."""
        score = np.empty(_DIMENSION)
        return log_density_and_score((self.y,), _position(q), score), score

    def compiled(self) -> CompiledTarget:
        """Return the compiled functions for samplers."""
        return CompiledTarget(log_densities, log_density_and_score, (self.y,), LANES)


def _position(q: Array) -> Array:
    q = np.ascontiguousarray(q, dtype=np.float64)
    if q.shape != (_DIMENSION,):
        raise InputError(f"q has shape {q.shape}.", "Provide log(theta / theta_0) of the 38 parameters, shape (38,).")
    return q
