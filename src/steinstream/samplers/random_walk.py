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
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from steinstream._engine.jit import jit
from steinstream.samplers import Draws, State, base
from steinstream.samplers.base import HUGE
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
) -> tuple[float, int]:
    """Fill draws, scores and accepted; leave position and score at the last draw.

    Returns its log density and the number of draws, see `steinstream.samplers.base`.
    """
    n, dimension = draws.shape
    proposals, densities = np.zeros((dimension, lanes)), np.zeros(lanes)
    t = 0
    while t < n:
        ahead = min(lanes, n - t)
        for k in range(ahead):
            proposals[:, k] = position + step * noise[t + k, :dimension]
        log_densities(parameters, proposals, densities)
        for k in range(ahead):
            if math.isnan(densities[k]) or densities[k] == math.inf:
                draws[t] = proposals[:, k]
                return densities[k], t
            # Box and Muller backwards: half the squared length of two normals is -log of a uniform.
            z, w = noise[t, dimension], noise[t, dimension + 1]
            accept = -0.5 * (z * z + w * w) < densities[k] - log_density
            if accept:
                position[:] = proposals[:, k]
                log_density = densities[k]
                write_score(parameters, position, score)
            draws[t], scores[t], accepted[t] = position, score, accept
            if accept and not np.all(np.abs(score) < HUGE):
                return log_density, t
            t += 1
            if accept:
                break
    return log_density, t


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

    #: Which part of the proposals should be accepted: best in many dimensions, and good in few.
    #: G. O. Roberts, A. Gelman and W. R. Gilks, Annals of Applied Probability 7 (1997).
    acceptance: ClassVar[float] = 0.234

    def __post_init__(self) -> None:
        base.require_step(self.step, "standard deviation")

    @property
    def settings(self) -> dict[str, Any]:
        """The sampler in plain words and numbers."""
        return base.settings(self)

    def init(self, start: Array, seed: int) -> State:
        """A chain at ``start`` (d,)."""
        return base.begin(self.target, start, seed)

    def sample(self, state: State, n: int) -> tuple[State, Draws]:
        """The next n draws of the chain, and where it then is."""
        names = ("log_densities", "write_score", "parameters", "lanes")
        return base.metropolis(self, state, n, _walk, _compiled_walk, names)
