"""Stein point MCMC: of every m moves of a chain the best one is added, and the chain goes on from the last.

The best candidate y is the one with the least k0(y, y) / 2 + sum_i k0(y, x_i) over the kept draws x_i. Adding it and
thinning are the work of a `steinstream.Thinner` that was made with ``candidates=m``; here a chain is run into it.

W. Y. Chen et al., "Stein point Markov chain Monte Carlo", ICML 2019.

Cost: m moves, and O(m kept d) to compare them, a step. Memory: one block of some thousand draws.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from steinstream.errors import InputError
from steinstream.samplers import Sampler, State
from steinstream.targets import whole_number

if TYPE_CHECKING:
    from steinstream.thinner import Thinner

_BLOCK = 4096  # moves in one compiled call: changes nothing else


def spmcmc(sampler: Sampler, state: State, thinner: Thinner, steps: int, *, chain: int = 0) -> State:
    """Run a chain into a thinner for so many steps of ``thinner.candidates`` moves each; returns where it then is.

    With one candidate this is the plain thinning of a chain. Ids are (chain, position in the chain): the first draw
    after ``init`` is number 0, also if the thinner has not seen all of them. Several calls give the bits of one.

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
    moves = whole_number(steps, "steps") * thinner.candidates
    end = state.steps + moves
    while state.steps < end:
        first = state.steps
        state, block = sampler.sample(state, min(_BLOCK, end - first))
        numbers = np.arange(first, state.steps)
        thinner.extend(block.draws, block.scores, ids=np.column_stack([np.full_like(numbers, chain), numbers]))
    return state
