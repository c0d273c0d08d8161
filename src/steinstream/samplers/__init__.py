"""Samplers that produce draws with their scores, and that can be stopped and continued at any step.

All samplers follow one protocol (:class:`Sampler`). The sampler object holds the settings, ``init`` creates a
:class:`State`, and ``sample`` returns a later state and the :class:`Draws` in between. States are immutable values: the
same state gives the same draws, and a chain is bit-identical for every division into blocks.

The meaning of ``step`` follows the literature: the standard deviation of the proposal noise for :class:`RandomWalk` and
:class:`MALA`, its variance for :class:`SGLD`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from steinstream._typing import Array, Flags

if TYPE_CHECKING:
    from steinstream.samplers.adaptation import adapt_step as adapt_step
    from steinstream.samplers.mala import MALA as MALA
    from steinstream.samplers.random_walk import RandomWalk as RandomWalk
    from steinstream.samplers.sgld import SGLD as SGLD
    from steinstream.samplers.stein_point_mcmc import spmcmc as spmcmc

__all__ = ["MALA", "SGLD", "Draws", "RandomWalk", "Sampler", "SamplerWarning", "State", "adapt_step", "spmcmc"]

_MODULES = {  # imported on first use, because they import numba
    "MALA": "mala",
    "RandomWalk": "random_walk",
    "SGLD": "sgld",
    "adapt_step": "adaptation",
    "spmcmc": "stein_point_mcmc",
}


class SamplerWarning(UserWarning):
    """A chain runs, but its settings look wrong."""


class State(NamedTuple):
    """State of a chain, from which a sampler continues.

    Attributes
    ----------
    position : ndarray of shape (d,)
        Current position.
    log_density : float
        Log density at the position; nan for samplers that do not need it.
    score : ndarray of shape (d,)
        Score from which the next step is made.
    random : dict
        State of a NumPy PCG64 bit generator, plain integers.
    steps : int
        Number of steps so far.
    accepted : int
        Number of accepted steps so far.
    """

    position: Array
    log_density: float
    score: Array
    random: dict[str, Any]
    steps: int = 0
    accepted: int = 0


class Draws(NamedTuple):
    """Consecutive draws of a chain.

    Attributes
    ----------
    draws : array of shape (n, d)
        The draws.
    scores : array of shape (n, d)
        Their scores.
    accepted : array of bool of shape (n,)
        Whether the step was accepted. A rejected step repeats the draw and the score before it.
    """

    draws: Array
    scores: Array
    accepted: Flags


class Sampler(Protocol):
    """Interface of a sampler."""

    def init(self, start: Array, seed: int) -> State:
        """Create the state of a chain at its start (d,).

        Parameters
        ----------
        start : array_like of shape (d,)
            First position.
        seed : int
            Seed of the random numbers.

        Returns
        -------
        State
            State of the chain before its first step.
        """

    def sample(self, state: State, n: int) -> tuple[State, Draws]:
        """Return the state after ``n`` more steps, and the draws of these steps.

        Parameters
        ----------
        state : State
            State from which the chain continues.
        n : int
            Number of steps.

        Returns
        -------
        State
            State after the last step.
        Draws
            Draws, scores and acceptance of the steps.
        """


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
