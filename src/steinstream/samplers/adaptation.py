r"""A step size that accepts as many proposals as it should, found while the chain burns in.

The chain runs in windows of some proposals; after each, with a part :math:`a_k` of them accepted,

.. math:: \log h \leftarrow \log h + \gamma_k (a_k - a), \qquad \gamma_k = 2 (1 + c_k)^{-2/3},

where :math:`c_k` counts how often :math:`a_k - a` has changed its sign: the step goes fast while it is far off and
settles once it is near. The result is the mean of :math:`\log h` over the second half of the windows.

H. Robbins and S. Monro (1951) for the iteration, H. Kesten, "Accelerated stochastic approximation" (1958) for the
gains, B. T. Polyak and A. B. Juditsky (1992) for the mean.

The draws made on the way are no draws of the target, for the chain that makes them looks back at its past; they are
not returned.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, TypeVar

from steinstream.errors import InputError
from steinstream.samplers import State
from steinstream.targets import whole_number

_WINDOW = 50
_FEWEST = 20  # windows

S = TypeVar("S", bound=Any)


def adapted(sampler: S, state: State, steps: int, acceptance: float | None = None) -> tuple[S, State]:
    """Run a chain for some steps to tune its sampler; returns the sampler with its final step, and where the chain is.

    ``acceptance`` is the part of the proposals to be accepted: by default 0.234 for a random walk, 0.574 for MALA.
    The chain should have reached the bulk of the target by half of the steps. ``state.steps`` and ``state.accepted``
    count on.

    >>> import numpy as np
    >>> from steinstream.samplers import RandomWalk
    >>> from steinstream.targets import Gaussian
    >>> sampler = RandomWalk(Gaussian(np.zeros(5), 0.01), step=100.0)
    >>> sampler, state = adapted(sampler, sampler.init(np.zeros(5), seed=0), 5000)
    >>> 0.05 < sampler.step < 0.2
    True
    """
    wanted = getattr(sampler, "acceptance", None) if acceptance is None else acceptance
    if wanted is None:
        raise InputError(f"{type(sampler).__name__} accepts whatever it proposes.", "Choose its step by other means.")
    if not 0 < wanted < 1:
        raise InputError(f"acceptance is {acceptance!r}.", "Give a number between 0 and 1.")
    if whole_number(steps, "steps") < _WINDOW * _FEWEST:
        raise InputError(f"steps is {steps}.", f"It takes at least {_WINDOW * _FEWEST} to find a step size.")
    log_step, turns, before = math.log(sampler.step), 0, 0.0
    visited = []
    for done in range(0, steps, _WINDOW):
        state, block = replace(sampler, step=math.exp(log_step)).sample(state, min(_WINDOW, steps - done))
        error = float(block.accepted.mean()) - wanted
        turns += error * before < 0
        before = error
        log_step += 2.0 * (1 + turns) ** (-2 / 3) * error
        visited.append(log_step)
    late = visited[len(visited) // 2 :]
    return replace(sampler, step=math.exp(sum(late) / len(late))), state
