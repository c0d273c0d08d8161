r"""Metropolis-adjusted Langevin algorithm.

.. math:: x' = x + \tfrac{h^2}{2} s(x) + h z, \quad z \sim N(0, I), \qquad s = \nabla \log p

With :math:`q(y | x)` the density of the proposal, x' is accepted if

.. math:: \log u < \log p(x') - \log p(x) + \log q(x | x') - \log q(x' | x)
    = \log p(x') - \log p(x) - \tfrac12 |z'|^2 + \tfrac12 |z|^2, \qquad
    z' = \tfrac1h (x - x' - \tfrac{h^2}{2} s(x')).

The step h is the standard deviation of the noise; much of the literature calls :math:`h^2` (or half of it) the step
size.

G. O. Roberts and R. L. Tweedie, "Exponential convergence of Langevin distributions and their discrete
approximations", Bernoulli 2 (1996).

Cost: one log density and one score per proposal. Memory O(n d) for a block of n draws.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from steinstream._engine.jit import jit
from steinstream._typing import Array
from steinstream.samplers import Draws
from steinstream.samplers.base import SCORE_LIMIT, Current, TargetFunctions
from steinstream.samplers.metropolis import Loop, Metropolis


def _mala(
    target: TargetFunctions, step: float, current: Current, log_density: float, noise: Array, block: Draws
) -> tuple[float, int]:
    """Fill the block, update ``current``, and return the last log density and the number of completed draws."""
    position, score = current
    draws, scores, accepted = block
    n, dimension = draws.shape
    drift = 0.5 * step * step
    proposal, proposal_score = np.zeros(dimension), np.zeros(dimension)
    for t in range(n):
        z = noise[t, :dimension]
        proposal[:] = position + drift * score + step * z
        density = target.log_density_and_score(target.parameters, proposal, proposal_score)
        if math.isnan(density) or density == math.inf:
            draws[t] = proposal
            return density, t
        # Box-Muller: half the squared length of two standard normals is distributed as -log(uniform).
        a, b = noise[t, dimension], noise[t, dimension + 1]
        log_uniform = -0.5 * (a * a + b * b)
        # Cumulative sums have the same order of summation in NumPy and in compiled code.
        ratio = density - log_density + 0.5 * np.cumsum(z * z)[-1]
        accept = log_uniform < ratio  # necessary: the remaining term is negative. The score may be undefined otherwise.
        if accept:
            if not np.all(np.abs(proposal_score) < SCORE_LIMIT):
                draws[t], scores[t] = proposal, proposal_score
                return density, t
            back = (position - proposal - drift * proposal_score) / step
            accept = log_uniform < ratio - 0.5 * np.cumsum(back * back)[-1]
        if accept:
            position[:], score[:] = proposal, proposal_score
            log_density = density
        draws[t], scores[t], accepted[t] = position, score, accept
    return log_density, n


@dataclass(frozen=True)
class MALA(Metropolis):
    """Metropolis-adjusted Langevin algorithm.

    Parameters
    ----------
    target : Target
        The target.
    step : float
        Standard deviation of the noise in every coordinate.

    Attributes
    ----------
    acceptance : float
        Acceptance rate that :func:`adapt_step` aims for, 0.574: optimal in many dimensions, and good in few.
        G. O. Roberts and J. S. Rosenthal, JRSS B 60 (1998).

    Raises
    ------
    InputError
        If the step is not positive.

    Examples
    --------
    >>> from steinstream.targets import Functions
    >>> sampler = MALA(Functions(lambda x: -0.5 * float(x @ x), lambda x: -x), step=1.0)
    >>> state, block = sampler.sample(sampler.init(np.zeros(2), seed=0), 1000)
    >>> block.draws.shape, state.accepted > 800
    ((1000, 2), True)
    """

    acceptance: ClassVar[float] = 0.574
    _step_meaning: ClassVar[str] = "standard deviation of the noise"
    _functions: ClassVar[tuple[str, ...]] = ("log_density_and_score",)
    _loops: ClassVar[tuple[Loop, Loop]] = (_mala, jit(_mala))
