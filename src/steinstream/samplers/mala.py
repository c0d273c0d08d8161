r"""The Metropolis-adjusted Langevin algorithm.

.. math:: x' = x + \tfrac{h^2}{2} s(x) + h z, \quad z \sim N(0, I), \qquad s = \nabla \log p

and with :math:`q(y | x)` the density of such a proposal, accept if

.. math:: \log u < \log p(x') - \log p(x) + \log q(x | x') - \log q(x' | x)
    = \log p(x') - \log p(x) - \tfrac12 |z'|^2 + \tfrac12 |z|^2, \qquad
    z' = \tfrac1h (x - x' - \tfrac{h^2}{2} s(x')).

The step h is the standard deviation of the noise; much of the literature names :math:`h^2` (or half of it) the
step size.

G. O. Roberts and R. L. Tweedie, "Exponential convergence of Langevin distributions and their discrete
approximations", Bernoulli 2 (1996).

Cost: one log density and one score a proposal. Memory O(n d) for a block of n draws.
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


def _move(
    log_density_and_score: Callable[[Any, Array, Array], float],
    parameters: Any,
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
    drift = 0.5 * step * step
    proposal, there = np.zeros(dimension), np.zeros(dimension)
    for t in range(n):
        z = noise[t, :dimension]
        proposal[:] = position + drift * score + step * z
        density = log_density_and_score(parameters, proposal, there)
        if math.isnan(density) or density == math.inf:
            draws[t] = proposal
            return density, t
        # Box and Muller backwards: half the squared length of two normals is -log of a uniform.
        a, b = noise[t, dimension], noise[t, dimension + 1]
        log_uniform = -0.5 * (a * a + b * b)
        # Running sums, for they have one order in numpy and in machine code.
        ratio = density - log_density + 0.5 * np.cumsum(z * z)[-1]
        accept = log_uniform < ratio  # if not, no way back can make up for it, and the score there is of no interest
        if accept:
            if not np.all(np.abs(there) < HUGE):
                draws[t], scores[t] = proposal, there
                return density, t
            back = (position - proposal - drift * there) / step
            accept = log_uniform < ratio - 0.5 * np.cumsum(back * back)[-1]
        if accept:
            position[:], score[:] = proposal, there
            log_density = density
        draws[t], scores[t], accepted[t] = position, score, accept
    return log_density, n


_compiled_move = jit(_move)


@dataclass(frozen=True)
class MALA:
    """Langevin proposals with noise of standard deviation ``step`` in every coordinate, accepted or rejected.

    >>> from steinstream.targets import Functions
    >>> sampler = MALA(Functions(lambda x: -0.5 * float(x @ x), lambda x: -x), step=1.0)
    >>> state, block = sampler.sample(sampler.init(np.zeros(2), seed=0), 1000)
    >>> block.draws.shape, state.accepted > 800
    ((1000, 2), True)
    """

    target: Target
    step: float

    #: Which part of the proposals should be accepted: best in many dimensions, and good in few.
    #: G. O. Roberts and J. S. Rosenthal, JRSS B 60 (1998).
    acceptance: ClassVar[float] = 0.574

    def __post_init__(self) -> None:
        base.require_step(self.step, "standard deviation of the noise")

    @property
    def settings(self) -> dict[str, Any]:
        """The sampler in plain words and numbers."""
        return base.settings(self)

    def init(self, start: Array, seed: int) -> State:
        """A chain at ``start`` (d,)."""
        return base.begin(self.target, start, seed)

    def sample(self, state: State, n: int) -> tuple[State, Draws]:
        """The next n draws of the chain, and where it then is."""
        names = ("log_density_and_score", "parameters")
        return base.metropolis(self, state, n, _move, _compiled_move, names)
