r"""Stochastic gradient Langevin dynamics: Langevin steps with noisy scores, without rejection.

.. math:: x' = x + \tfrac{h}{2} \hat s(x) + \sqrt{h} z, \qquad z \sim N(0, I)

The step h is the variance of the noise. The stationary distribution differs from the target: on
:math:`N(0, \sigma^2)` with the exact score its variance is :math:`\sigma^2 / (1 - h / 4 \sigma^2)`, and the noise of
the score adds to that.

The score recorded with a draw (``record``) matters if draws are selected by their scores:

- ``"step"``: the noisy score from which the next step is made. No further cost.
- ``"full"``: the score of the target. No noise, one full evaluation per draw.
- ``"independent"``: a noisy score from another minibatch, whose noise does not influence the chain.

Random numbers: the noise of the steps is one stream determined by the seed. Every minibatch has a generator of its own,
seeded with the seed, the step number and the purpose. A chain is therefore bit-identical for every division into
blocks, and for every number of random numbers that a minibatch uses.

M. Welling and Y. W. Teh, "Bayesian learning via stochastic gradient Langevin dynamics", ICML 2011.

Cost: one score per draw, two if another score is recorded. Memory O(n d) for a block of n draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from steinstream._engine.jit import jit
from steinstream._typing import Array
from steinstream.errors import InputError
from steinstream.samplers import Draws, Sampler, State, base
from steinstream.samplers.base import SCORE_LIMIT, Current, TargetFunctions

_FOR_STEP, _FOR_RECORD = 0, 1  # purposes of a minibatch


class HasScore(Protocol):
    """A target whose score is known, but not necessarily its log density."""

    def score(self, position: Array, /) -> Array:
        """Gradient (d,) of the log density at a position (d,)."""


def _langevin(target: TargetFunctions, step: float, current: Current, noise: Array, block: Draws) -> int:
    """Fill the block, update ``current``, and return the number of completed draws."""
    position, score = current
    half, root = 0.5 * step, math.sqrt(step)
    for t in range(len(noise)):
        position[:] = position + half * score + root * noise[t]
        target.write_score(target.parameters, position, score)
        block.draws[t], block.scores[t] = position, score
        if not np.all(np.abs(score) < SCORE_LIMIT):
            return t
    return len(noise)


_compiled_langevin = jit(_langevin)


@dataclass(frozen=True)
class SGLD(Sampler):
    """Stochastic gradient Langevin dynamics.

    Parameters
    ----------
    target : object with a method ``score``, or None
        The target; its log density is not needed. It may be None if ``minibatch`` is given and ``record`` is not
        ``"full"``.
    step : float
        Variance of the noise in every coordinate.
    minibatch : callable, optional
        ``minibatch(position, generator)`` returns a noisy score (d,). Default: the score of the target.
    record : {"step", "full", "independent"}, default "step"
        Score that is recorded with a draw: the one that makes the step, the score of the target, or the score of
        another minibatch.

    Raises
    ------
    InputError
        If the step is not positive, or the target or minibatch that ``record`` requires is missing.

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(1.0, 1.0, size=1000)  # data, with a flat prior for their mean
    >>> noisy = lambda x, generator: 1000 * (generator.choice(rows, 100).mean() - x)
    >>> sampler = SGLD(None, step=1e-4, minibatch=noisy, record="independent")
    >>> state, block = sampler.sample(sampler.init(np.zeros(1), seed=0), 1000)
    >>> bool(abs(block.draws[200:].mean() - rows.mean()) < 0.02)
    True
    """

    target: HasScore | None
    step: float
    minibatch: Callable[[Array, np.random.Generator], Array] | None = None
    record: Literal["step", "full", "independent"] = "step"

    def __post_init__(self) -> None:
        base.check_step(self.step, "variance of the noise")
        if self.record not in ("step", "full", "independent"):
            raise InputError(f'record must be "step", "full" or "independent", got {self.record!r}.')
        if self.record == "independent" and self.minibatch is None:
            raise InputError('record="independent" requires a minibatch, got None.', "Give minibatch.")
        if self.target is None and (self.minibatch is None or self.record == "full"):
            raise _missing_target()

    @property
    def settings(self) -> dict[str, Any]:
        """Settings as text and numbers."""
        return base.describe(self)

    def init(self, start: Array, seed: int) -> State:
        position, random = base.as_position(start), base.random_state(seed)
        score = self._score(position, random, 0, _FOR_STEP)
        base.check_score(position, score)
        return State(position, self._log_density(position), score, random)

    def sample(self, state: State, n: int) -> tuple[State, Draws]:
        noise, random = base.standard_normals(state.random, n, len(state.position))
        block = base.empty_draws(n, len(state.position))
        current = Current(state.position.copy(), state.score.copy())
        if self.minibatch is None:
            target = base.target_functions(self.target, "write_score")
            loop: Any = _compiled_langevin if target.compiled else _langevin
            done = loop(target, float(self.step), current, noise, block)
        else:
            done = self._langevin_with_minibatches(state, current, noise, block)
        if done < n:
            when = f", reached in step {state.steps + done + 1}"
            remedy = f"SGLD diverges if its step is too large: it is {self.step:g}."
            base.check_score(current.position, block.scores[done], when, remedy)
        log_density = self._log_density(current.position)
        return State(current.position, log_density, current.score, random, state.steps + n, state.accepted + n), block

    def _langevin_with_minibatches(self, state: State, current: Current, noise: Array, block: Draws) -> int:
        """Run the loop in which minibatches depend on the step number and another score may be recorded."""
        position, score = current
        half, root = 0.5 * self.step, math.sqrt(self.step)
        for t in range(len(noise)):
            position[:] = position + half * score + root * noise[t]
            number = state.steps + t + 1
            score[:] = self._score(position, state.random, number, _FOR_STEP)
            block.draws[t] = position
            for recorded in (score, self._recorded(position, score, state.random, number)):
                block.scores[t] = recorded
                if not np.all(np.abs(recorded) < SCORE_LIMIT):
                    return t
        return len(noise)

    def _recorded(self, position: Array, score: Array, random: dict[str, Any], number: int) -> Array:
        """Return the score to record with a draw."""
        if self.record == "independent":
            return self._score(position, random, number, _FOR_RECORD)
        if self.record == "full" and self.target is not None:
            return base.score_at(self.target.score, position)
        return score

    def _score(self, position: Array, random: dict[str, Any], number: int, purpose: int) -> Array:
        """Return the score of the minibatch of a step, or of the target if minibatches are not used."""
        if self.minibatch is not None:
            seed = [random["state"]["inc"], number, purpose]  # the increment is constant along the stream
            return base.score_at(self.minibatch, position, np.random.default_rng(seed))
        if self.target is None:
            raise _missing_target()
        return base.score_at(self.target.score, position)

    def _log_density(self, position: Array) -> float:
        known = self.minibatch is None and hasattr(self.target, "log_density")
        return base.log_density_at(self.target, position) if known else math.nan


def _missing_target() -> InputError:
    return InputError("SGLD requires the score of a target here, and target is None.", "Give a target, or a minibatch.")
