r"""Random-walk Metropolis with an isotropic Gaussian proposal.

.. math:: x' = x + h z, \quad z \sim N(0, I), \qquad \text{accept if } \log u < \log p(x') - \log p(x)

N. Metropolis et al., "Equation of state calculations by fast computing machines", J. Chem. Phys. 21 (1953).

Proposals are prefetched. Most proposals are rejected, so the next few all start from the same state, and a compiled
target evaluates them together, one per SIMD lane. The first accepted proposal ends the batch; the rest is discarded.
Random numbers belong to steps, not to evaluations, so the chain is bit-identical to one proposal at a time.
A. E. Brockwell, "Parallel Markov chain Monte Carlo simulation by pre-fetching", JCGS 15 (2006).

Cost: with acceptance rate a and K lanes, a batch makes :math:`(1 - (1 - a)^K) / a` steps (9 of 16 at 8 %); each
accepted proposal costs one score. Memory O(n d) for a block of n draws.
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


def _random_walk(
    target: TargetFunctions, step: float, current: Current, log_density: float, noise: Array, block: Draws
) -> tuple[float, int]:
    """Fill the block, update ``current``, and return the last log density and the number of completed draws."""
    position, score = current
    draws, scores, accepted = block
    n, dimension = draws.shape
    lanes = target.lanes
    proposals, densities = np.zeros((dimension, lanes)), np.zeros(lanes)
    t = 0
    while t < n:
        ahead = min(lanes, n - t)
        for k in range(ahead):
            proposals[:, k] = position + step * noise[t + k, :dimension]
        target.log_densities(target.parameters, proposals, densities)
        for k in range(ahead):
            if math.isnan(densities[k]) or densities[k] == math.inf:
                draws[t] = proposals[:, k]
                return densities[k], t
            # Box-Muller: half the squared length of two standard normals is distributed as -log(uniform).
            z, w = noise[t, dimension], noise[t, dimension + 1]
            accept = -0.5 * (z * z + w * w) < densities[k] - log_density
            if accept:
                position[:] = proposals[:, k]
                log_density = densities[k]
                target.write_score(target.parameters, position, score)
            draws[t], scores[t], accepted[t] = position, score, accept
            if accept and not np.all(np.abs(score) < SCORE_LIMIT):
                return log_density, t
            t += 1
            if accept:
                break
    return log_density, t


@dataclass(frozen=True)
class RandomWalk(Metropolis):
    """Random-walk Metropolis.

    Parameters
    ----------
    target : Target
        The target.
    step : float
        Standard deviation of the proposal in every coordinate.

    Attributes
    ----------
    acceptance : float
        Acceptance rate that :func:`adapt_step` aims for, 0.234: optimal in many dimensions, and good in few.
        G. O. Roberts, A. Gelman and W. R. Gilks, Annals of Applied Probability 7 (1997).

    Raises
    ------
    InputError
        If the step is not positive.

    Examples
    --------
    >>> from steinstream.targets import Functions
    >>> sampler = RandomWalk(Functions(lambda x: -0.5 * float(x @ x), lambda x: -x), step=1.0)
    >>> state = sampler.init(np.zeros(2), seed=0)
    >>> state, block = sampler.sample(state, 1000)
    >>> block.draws.shape, state.steps
    ((1000, 2), 1000)
    """

    acceptance: ClassVar[float] = 0.234
    _step_meaning: ClassVar[str] = "standard deviation of the proposal"
    _functions: ClassVar[tuple[str, ...]] = ("log_densities", "write_score")
    _loops: ClassVar[tuple[Loop, Loop]] = (_random_walk, jit(_random_walk))
