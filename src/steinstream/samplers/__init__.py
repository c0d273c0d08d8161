"""Samplers: each makes a stream of draws with their scores, and can be stopped and taken up anywhere.

All follow one small protocol (`Sampler`): the sampler is its settings, ``init`` makes a `State`, ``sample``
turns a state into a later one and the `Draws` between. A state is a value: nothing changes it, the same one
gives the same draws, and a chain has the same bits however it is cut into blocks.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from steinstream.targets import Array

if TYPE_CHECKING:
    from steinstream.samplers.random_walk import RandomWalk as RandomWalk

__all__ = ["Draws", "RandomWalk", "Sampler", "State"]

_HOMES = {"RandomWalk": "random_walk"}  # imported on first use: they need numba


class State(NamedTuple):
    """Where a chain is: all it takes to go on."""

    position: Array
    log_density: float
    score: Array
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
