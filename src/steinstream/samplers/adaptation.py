r"""Adaptation of the step size to an acceptance rate during burn-in.

The chain runs in windows of proposals. After window k with acceptance rate :math:`a_k`,

.. math:: \log h \leftarrow \log h + \gamma_k (a_k - a), \qquad \gamma_k = 2 (1 + c_k)^{-2/3},

where :math:`c_k` is the number of sign changes of :math:`a_k - a` so far: the step changes fast while it is far from
its goal, and slowly afterwards. The result is the mean of :math:`\log h` over the second half of the windows.

H. Robbins and S. Monro (1951) for the iteration, H. Kesten, "Accelerated stochastic approximation" (1958) for the
gains, B. T. Polyak and A. B. Juditsky (1992) for the mean.

The draws of the adaptation are not draws of the target, because the step depends on the past of the chain. They are
not returned.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, TypeVar

from steinstream.errors import InputError
from steinstream.samplers import State
from steinstream.targets import whole_number

_WINDOW = 50  # proposals
_MIN_WINDOWS = 20

S = TypeVar("S", bound=Any)


def adapt_step(sampler: S, state: State, steps: int, acceptance: float | None = None) -> tuple[S, State]:
    """Run a chain to tune the step of its sampler.

    The chain should reach the bulk of the target within half of the steps.

    Parameters
    ----------
    sampler : RandomWalk or MALA
        The sampler, with an initial guess of the step.
    state : State
        State of the chain.
    steps : int
        Number of steps, at least 1000.
    acceptance : float, optional
        Acceptance rate to aim for. Default: 0.234 for :class:`RandomWalk`, 0.574 for :class:`MALA`.

    Returns
    -------
    sampler : RandomWalk or MALA
        The sampler with the tuned step.
    state : State
        State of the chain after the steps; ``steps`` and ``accepted`` include them.

    Raises
    ------
    InputError
        If the sampler has no acceptance rate, or a number is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from steinstream.samplers import RandomWalk
    >>> from steinstream.targets import Gaussian
    >>> sampler = RandomWalk(Gaussian(np.zeros(5), 0.01), step=100.0)
    >>> sampler, state = adapt_step(sampler, sampler.init(np.zeros(5), seed=0), 5000)
    >>> 0.05 < sampler.step < 0.2
    True
    """
    goal = getattr(sampler, "acceptance", None) if acceptance is None else acceptance
    if goal is None:
        raise InputError(
            f"{type(sampler).__name__} accepts every proposal, so its step cannot be adapted.", "Choose the step."
        )
    if not 0 < goal < 1:
        raise InputError(f"acceptance must lie between 0 and 1, got {acceptance!r}.")
    if whole_number(steps, "steps") < _WINDOW * _MIN_WINDOWS:
        raise InputError(f"steps must be at least {_WINDOW * _MIN_WINDOWS} to adapt a step size, got {steps}.")
    log_step, sign_changes, before = math.log(sampler.step), 0, 0.0
    log_steps = []
    for done in range(0, steps, _WINDOW):
        state, block = replace(sampler, step=math.exp(log_step)).sample(state, min(_WINDOW, steps - done))
        error = float(block.accepted.mean()) - goal
        sign_changes += error * before < 0
        before = error
        log_step += 2.0 * (1 + sign_changes) ** (-2 / 3) * error
        log_steps.append(log_step)
    late = log_steps[len(log_steps) // 2 :]
    return replace(sampler, step=math.exp(sum(late) / len(late))), state
