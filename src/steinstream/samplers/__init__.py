"""Samplers: each makes a stream of draws with their scores, and can be stopped and taken up anywhere.

All follow one small protocol (`Sampler`): the sampler is its settings, ``init`` makes a `State`, ``sample``
turns a state into a later one and the `Draws` between. A state is a value: nothing changes it, the same one
gives the same draws, and a chain has the same bits however it is cut into blocks.

What ``step`` means: for `RandomWalk` and `MALA` the standard deviation of a proposal's noise, for `SGLD` its
variance, as each is written in the literature.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from steinstream.targets import Array

if TYPE_CHECKING:
    from steinstream.samplers.adaptation import adapted as adapted
    from steinstream.samplers.mala import MALA as MALA
    from steinstream.samplers.random_walk import RandomWalk as RandomWalk
    from steinstream.samplers.sgld import SGLD as SGLD
    from steinstream.samplers.stein_point_mcmc import spmcmc as spmcmc

__all__ = ["MALA", "SGLD", "Draws", "RandomWalk", "Sampler", "SamplerWarning", "State", "adapted", "spmcmc"]

_HOMES = {  # imported on first use: they need numba
    "MALA": "mala",
    "RandomWalk": "random_walk",
    "SGLD": "sgld",
    "adapted": "adaptation",
    "spmcmc": "stein_point_mcmc",
}


class SamplerWarning(UserWarning):
    """A chain runs, but not as anybody would want it to."""


class State(NamedTuple):
    """Where a chain is: all it takes to go on."""

    position: Array
    log_density: float
    """Not a number where the sampler does without one."""
    score: Array
    """The score from which the next step is made."""
    random: dict[str, Any]
    """The state of a PCG64 bit generator, as numpy gives it: plain integers."""
    steps: int = 0
    accepted: int = 0


class Draws(NamedTuple):
    """Consecutive draws (n, d) of a chain, and their scores (n, d). A rejected step repeats both."""

    draws: Array
    scores: Array
    accepted: NDArray[np.bool_]


class Sampler(Protocol):
    """What every sampler offers."""

    def init(self, start: Array, seed: int) -> State:
        """A chain at its start."""

    def sample(self, state: State, n: int) -> tuple[State, Draws]:
        """The next n draws, and where the chain then is."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
