r"""Stochastic gradient Langevin dynamics: Langevin steps from noisy scores, none of them rejected.

.. math:: x' = x + \tfrac{h}{2} \hat s(x) + \sqrt{h} z, \qquad z \sim N(0, I)

The step h is the variance of the noise. The stationary distribution is not quite the target: on
:math:`N(0, \sigma^2)` with the exact score its variance is :math:`\sigma^2 / (1 - h / 4 \sigma^2)`, and a noisy
score adds to that.

Which score goes with a draw matters to whoever selects draws by it (``record``):

- ``"step"``: the noisy one from which the next step is made. It costs nothing more.
- ``"full"``: the target's own score. No noise, one full evaluation a draw.
- ``"independent"``: from a minibatch of its own, so that its noise has no part in where the chain goes.

Random numbers: the noise is one stream from the seed. Every minibatch has a generator of its own, made of the
seed, the number of the step and its purpose, so that a chain has the same bits however it is cut into blocks and
however many numbers a minibatch takes.

M. Welling and Y. W. Teh, "Bayesian learning via stochastic gradient Langevin dynamics", ICML 2011.

Cost: one score a draw, two with a score recorded apart. Memory O(n d) for a block of n draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from steinstream._engine.jit import jit
from steinstream.errors import InputError
from steinstream.samplers import Draws, State, base
from steinstream.samplers.base import HUGE
from steinstream.targets import Array

_STEP, _APART = 0, 1  # what a minibatch is for
_NO_TARGET = "There is no target to ask for its score."


class Scored(Protocol):
    """A target of which only the score is known."""

    def score(self, position: Array, /) -> Array:
        """The gradient (d,) of the log density at one position (d,)."""


def _drift(
    write_score: Callable[[Any, Array, Array], Any],
    parameters: Any,
    step: float,
    position: Array,
    score: Array,
    noise: Array,
    draws: Array,
    scores: Array,
) -> int:
    """Fill draws and scores; leave position and score at the last draw. Returns the number of good draws."""
    half, root = 0.5 * step, math.sqrt(step)
    for t in range(len(draws)):
        position[:] = position + half * score + root * noise[t]
        write_score(parameters, position, score)
        draws[t], scores[t] = position, score
        if not np.all(np.abs(score) < HUGE):
            return t
    return len(draws)


_compiled_drift = jit(_drift)


@dataclass(frozen=True)
class SGLD:
    """Langevin steps with noise of variance ``step`` in every coordinate.

    ``minibatch(position, generator)`` gives a noisy score at a position; without it the target's score is used. The
    target needs no log density; with a minibatch and ``record`` other than ``"full"`` it may be None.

    >>> rows = np.random.default_rng(0).normal(1.0, 1.0, size=1000)  # and a flat prior for their mean
    >>> noisy = lambda x, generator: 1000 * (generator.choice(rows, 100).mean() - x)
    >>> sampler = SGLD(None, step=1e-4, minibatch=noisy, record="independent")
    >>> state, block = sampler.sample(sampler.init(np.zeros(1), seed=0), 1000)
    >>> bool(abs(block.draws[200:].mean() - rows.mean()) < 0.02)
    True
    """

    target: Scored | None
    step: float
    minibatch: Callable[[Array, np.random.Generator], Array] | None = None
    record: Literal["step", "full", "independent"] = "step"

    def __post_init__(self) -> None:
        base.require_step(self.step, "variance of the noise")
        if self.record not in ("step", "full", "independent"):
            raise InputError(f"record is {self.record!r}.", 'Use "step", "full" or "independent".')
        if self.record == "independent" and self.minibatch is None:
            raise InputError('record="independent" means a fresh minibatch, and there is none.', "Give minibatch.")
        if self.target is None and (self.minibatch is None or self.record == "full"):
            raise InputError(_NO_TARGET, "Give a target, or a minibatch.")

    @property
    def settings(self) -> dict[str, Any]:
        """The sampler in plain words and numbers."""
        return base.settings(self)

    def init(self, start: Array, seed: int) -> State:
        """A chain at ``start`` (d,). The log density is not a number if the target has none or a minibatch is used."""
        position, random = base.first_position(start), base.random_state(seed)
        score = self._score(position, random, 0, _STEP)
        base.check_score(position, score)
        return State(position, self._log_density(position), score, random)

    def sample(self, state: State, n: int) -> tuple[State, Draws]:
        """The next n draws of the chain, and where it then is."""
        noise, random = base.normals(state.random, n, len(state.position))
        block = base.empty_block(n, len(state.position))
        position, score = state.position.copy(), state.score.copy()
        if self.minibatch is None:
            target = base.evaluations(self.target)
            drift: Any = _compiled_drift if target.compiled else _drift
            done = drift(
                target.write_score, target.parameters,
                float(self.step), position, score, noise, block.draws, block.scores,
            )  # fmt: skip
        else:
            done = self._drift_by_minibatch(state, position, score, noise, block)
        if done < n:
            when = f", reached in step {state.steps + done + 1}"
            remedy = f"SGLD leaves for infinity when its step is too large: it is {self.step:g}."
            base.check_score(position, block.scores[done], when, remedy)
        reached = self._log_density(position)
        return State(position, reached, score, random, state.steps + n, state.accepted + n), block

    def _drift_by_minibatch(self, state: State, position: Array, score: Array, noise: Array, block: Draws) -> int:
        """The same loop, where the number of the step matters and the recorded score may be another one."""
        half, root = 0.5 * self.step, math.sqrt(self.step)
        for t in range(len(noise)):
            position[:] = position + half * score + root * noise[t]
            number = state.steps + t + 1
            score[:] = self._score(position, state.random, number, _STEP)
            block.draws[t] = position
            for recorded in (score, self._recorded(position, score, state.random, number)):
                block.scores[t] = recorded
                if not np.all(np.abs(recorded) < HUGE):
                    return t
        return len(noise)

    def _recorded(self, position: Array, score: Array, random: dict[str, Any], number: int) -> Array:
        if self.record == "independent":
            return self._score(position, random, number, _APART)
        if self.record == "full" and self.target is not None:
            return base.score_at(self.target.score, position)
        return score

    def _score(self, position: Array, random: dict[str, Any], number: int, purpose: int) -> Array:
        """The score of the minibatch that belongs to a step, or the target's where there are no minibatches."""
        if self.minibatch is not None:
            seed = [random["state"]["inc"], number, purpose]  # the increment never changes along a stream
            return base.score_at(self.minibatch, position, np.random.default_rng(seed))
        if self.target is None:
            raise InputError(_NO_TARGET, "Give a target, or a minibatch.")
        return base.score_at(self.target.score, position)

    def _log_density(self, position: Array) -> float:
        own = self.minibatch is None and hasattr(self.target, "log_density")
        return base.log_density_at(self.target, position) if own else math.nan
