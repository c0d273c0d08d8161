r"""Random-walk Metropolis with an isotropic Gaussian proposal.

.. math:: x' = x + h z, \quad z \sim N(0, I), \qquad \text{accept if } \log u < \log p(x') - \log p(x)

N. Metropolis et al., "Equation of state calculations by fast computing machines", J. Chem. Phys. 21 (1953).

Proposals are speculative: most are rejected, hence the next few all start from the same state, and a compiled
target evaluates them side by side. The first accepted one ends the batch, and the rest is thrown away. Random
numbers belong to the step, not to the proposal, so that the chain has the bits of one proposal at a time.
A. E. Brockwell, "Parallel Markov chain Monte Carlo simulation by pre-fetching", JCGS 15 (2006).

Cost: with acceptance rate a and K lanes a batch makes :math:`(1 - (1 - a)^K) / a` steps (9 of 16 at 8 %);
each accepted proposal costs one score. Memory O(n d) for a block of n draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numba import types
from numpy.typing import NDArray

from steinstream._engine.jit import jit
from steinstream.errors import InputError
from steinstream.samplers import Draws, State
from steinstream.samplers.pointer import Pointer
from steinstream.targets import Array, Target


def _walk(
    log_densities: Callable[[Any, Array, Array], None],
    write_score: Callable[[Any, Array, Array], Any],
    parameters: Any,
    lanes: int,
    step: float,
    position: Array,
    log_density: float,
    score: Array,
    noise: Array,
    draws: Array,
    scores: Array,
    accepted: NDArray[np.bool_],
) -> float:
    """Fill draws, scores and accepted; leave position and score at the last draw, return its log density."""
    n, dimension = draws.shape
    proposals, densities = np.zeros((dimension, lanes)), np.zeros(lanes)
    t = 0
    while t < n:
        ahead = min(lanes, n - t)
        for k in range(ahead):
            proposals[:, k] = position + step * noise[t + k, :dimension]
        log_densities(parameters, proposals, densities)
        for k in range(ahead):
            # Box and Muller backwards: half the squared length of two normals is -log of a uniform.
            z, w = noise[t, dimension], noise[t, dimension + 1]
            accept = -0.5 * (z * z + w * w) < densities[k] - log_density
            if accept:
                position[:] = proposals[:, k]
                log_density = densities[k]
                write_score(parameters, position, score)
            draws[t], scores[t], accepted[t] = position, score, accept
            t += 1
            if accept:
                break
    return log_density


_compiled_walk = jit(_walk)


@dataclass(frozen=True)
class RandomWalk:
    """Random-walk Metropolis on a target, with proposals of standard deviation ``step`` in every coordinate.

    >>> from steinstream.targets import Functions
    >>> sampler = RandomWalk(Functions(lambda x: -0.5 * float(x @ x), lambda x: -x), step=1.0)
    >>> state = sampler.init(np.zeros(2), seed=0)
    >>> state, block = sampler.sample(state, 1000)
    >>> block.draws.shape, state.steps
    ((1000, 2), 1000)
    """

    target: Target
    step: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.step) and self.step > 0):
            raise InputError(f"step is {self.step!r}.", "Give a positive standard deviation.")

    def init(self, start: Array, seed: int) -> State:
        """A chain at ``start`` (d,)."""
        position = np.array(start, dtype=np.float64)
        if position.ndim != 1 or not np.isfinite(position).all():
            raise InputError(f"start is {start!r}.", "Give a vector (d,) of finite numbers.")
        log_density = float(self.target.log_density(position))
        if not math.isfinite(log_density):
            raise InputError(f"The log density at {start!r} is {log_density}.", "Start where it is finite.")
        score = np.array(self.target.score(position), dtype=np.float64)
        if score.shape != position.shape:
            raise InputError(f"The score has shape {score.shape}.", f"It must be {position.shape}, as start.")
        return State(position, log_density, score, dict(np.random.PCG64(seed).state))

    def sample(self, state: State, n: int) -> tuple[State, Draws]:
        """The next n draws of the chain, and where it then is."""
        dimension = len(state.position)
        bits: Any = np.random.PCG64()
        bits.state = state.random
        noise = np.random.Generator(bits).standard_normal((n, dimension + 2))
        block = Draws(np.empty((n, dimension)), np.empty((n, dimension)), np.empty(n, dtype=np.bool_))
        position, score = state.position.copy(), state.score.copy()
        walk, functions = self._walker()
        reached = walk(*functions, float(self.step), position, state.log_density, score, noise, *block)
        accepted = state.accepted + int(block.accepted.sum())
        return State(position, float(reached), score, dict(bits.state), state.steps + n, accepted), block

    def _walker(self) -> tuple[Any, tuple[Any, ...]]:
        """The loop, compiled if the target is, and its first four arguments."""
        target = self.target
        if hasattr(target, "compiled"):
            many, one, parameters, lanes = target.compiled()
            given = numba.typeof(parameters)
            vector = types.float64[::1]
            many = Pointer(many, types.void, given, types.float64[:, ::1], vector)
            one = Pointer(one, types.float64, given, vector, vector)
            return _compiled_walk, (many, one, parameters, lanes)

        def log_density(_: Any, positions: Array, out: Array) -> None:
            out[0] = target.log_density(positions[:, 0].copy())

        def write_score(_: Any, position: Array, score: Array) -> None:
            score[:] = target.score(position.copy())

        return _walk, (log_density, write_score, (), 1)
