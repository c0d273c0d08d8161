"""Metropolis samplers: what the random walk and MALA share.

A sampler gives its loop, ``loop(target, step, current, log_density, noise, block)``, in plain Python and compiled. Row
t of the noise has d standard normal numbers for the proposal of step t and two for its acceptance. The loop fills the
block, updates ``current``, and returns the last log density and the number of completed draws.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from steinstream._typing import Array
from steinstream.errors import InputError
from steinstream.samplers import Draws, Sampler, SamplerWarning, State, base
from steinstream.samplers.base import Current
from steinstream.targets import Target

_STUCK = 1000  # number of proposals, all rejected, that leads to a warning

Loop = Callable[..., tuple[float, int]]


@dataclass(frozen=True)
class Metropolis(Sampler):
    """A sampler that proposes a position and accepts or rejects it."""

    target: Target
    step: float

    acceptance: ClassVar[float]
    """Acceptance rate that :func:`adapt_step` aims for."""
    _step_meaning: ClassVar[str]
    _functions: ClassVar[tuple[str, ...]]
    """Functions of the target that the loop calls."""
    _loops: ClassVar[tuple[Loop, Loop]]
    """The loop in plain Python, and compiled."""

    def __post_init__(self) -> None:
        base.check_step(self.step, self._step_meaning)

    @property
    def settings(self) -> dict[str, Any]:
        """Settings as text and numbers."""
        return base.describe(self)

    def init(self, start: Array, seed: int) -> State:
        position = base.as_position(start)
        log_density = base.log_density_at(self.target, position)
        if not math.isfinite(log_density):
            raise InputError(
                f"The log density at {base.format_position(position)} is {log_density}.",
                "Start at a position where it is finite.",
            )
        score = base.score_at(self.target.score, position)
        base.check_score(position, score)
        return State(position, log_density, score, base.random_state(seed))

    def sample(self, state: State, n: int) -> tuple[State, Draws]:
        if not math.isfinite(state.log_density):
            raise InputError(
                f"The log density of the state is {state.log_density}.",
                "Create the state with init(state.position, seed) of this sampler.",
            )
        dimension = len(state.position)
        target = base.target_functions(self.target, *self._functions)
        noise, random = base.standard_normals(state.random, n, dimension + 2)
        block = base.empty_draws(n, dimension)
        current = Current(state.position.copy(), state.score.copy())
        loop = self._loops[target.compiled]
        log_density, done = loop(target, float(self.step), current, state.log_density, noise, block)
        _check_completed(state, block, log_density, done)
        _warn_if_stuck(block, self.step)
        accepted = state.accepted + int(block.accepted.sum())
        reached = State(current.position, float(log_density), current.score, random, state.steps + n, accepted)
        return reached, block


def _check_completed(state: State, block: Draws, log_density: float, done: int) -> None:
    """Raise if a loop stopped at an invalid log density or score."""
    if done == len(block.draws):
        return
    position, step = block.draws[done], state.steps + done + 1
    if math.isnan(log_density) or log_density == math.inf:
        raise InputError(
            f"The log density at {base.format_position(position)} is {log_density}, proposed in step {step}.",
            "It must be a finite number, or -inf outside the support.",
        )
    base.check_score(position, block.scores[done], f", proposed in step {step}")


def _warn_if_stuck(block: Draws, step: float) -> None:
    proposals = len(block.accepted)
    if proposals >= _STUCK and not block.accepted.any():
        warnings.warn(
            f"None of {proposals} proposals was accepted with step {step:g}: the chain does not move. "
            f"Try step {step / 10:g}, or tune the step with steinstream.samplers.adapt_step.",
            SamplerWarning,
            stacklevel=3,
        )
