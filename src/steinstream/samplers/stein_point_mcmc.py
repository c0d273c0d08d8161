r"""Stein point MCMC: the best of every m steps of a chain is added to the kept set; the chain continues from the last.

The best candidate y minimises :math:`k_0(y, y) / 2 + \sum_i k_0(y, x_i)` over the kept draws :math:`x_i`. A
:class:`steinstream.Thinner` with ``candidates=m`` adds it and thins; this module runs a chain into the thinner.

W. Y. Chen et al., "Stein point Markov chain Monte Carlo", ICML 2019.

Cost per step: m steps of the chain, and :math:`O(m n d)` for n kept draws to compare them. Memory: one block of a few
thousand draws.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from steinstream.errors import InputError
from steinstream.samplers import Sampler, State
from steinstream.targets import whole_number

if TYPE_CHECKING:
    from steinstream.thinner import Thinner

_BLOCK = 4096  # draws in one call of the sampler; does not influence the result


def spmcmc(sampler: Sampler, state: State, thinner: Thinner, steps: int, *, chain: int = 0) -> State:
    """Run a chain into a thinner.

    With one candidate per step this is plain thinning of a chain. Several calls are bit-identical to one call with
    the sum of the steps.

    Parameters
    ----------
    sampler : Sampler
        The sampler.
    state : State
        State of the chain.
    thinner : Thinner
        The thinner; each of its steps uses ``thinner.config.candidates`` draws.
    steps : int
        Number of steps of the thinner.
    chain : int, default 0
        Number of the chain. Ids are (chain, index in the chain); the first draw after ``init`` has index 0, even if the
        thinner did not receive all draws.

    Returns
    -------
    State
        State of the chain after the steps.

    Raises
    ------
    InputError
        If the chain and the thinner differ in their number of parameters, or ``steps`` is negative.

    Examples
    --------
    >>> import numpy as np
    >>> from steinstream import Thinner
    >>> from steinstream.samplers import RandomWalk
    >>> from steinstream.targets import Gaussian
    >>> sampler, thinner = RandomWalk(Gaussian(np.zeros(2), 1.0), step=1.5), Thinner(2, candidates=10)
    >>> state = spmcmc(sampler, sampler.init(np.zeros(2), seed=0), thinner, steps=500)
    >>> thinner.steps, state.steps
    (500, 5000)
    """
    dimension = len(state.position)
    if dimension != thinner.dim:
        raise InputError(f"The chain has {dimension} dimensions, the thinner {thinner.dim}.")
    end = state.steps + whole_number(steps, "steps") * thinner.config.candidates
    while state.steps < end:
        first = state.steps
        state, block = sampler.sample(state, min(_BLOCK, end - first))
        indices = np.arange(first, state.steps)
        thinner.extend(block.draws, block.scores, ids=np.column_stack([np.full_like(indices, chain), indices]))
    return state
