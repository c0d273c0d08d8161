"""Targets: distributions with a log density and a score, to sample and to test on.

A target is any object with two functions of one position, ``log_density`` and ``score`` (`Target`;
`Functions` makes one of two callables). A target that also has a method ``compiled`` lets a sampler run
whole chains in machine code (`Compiled`); the method returns None where there is no such way.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from steinstream.errors import InputError

if TYPE_CHECKING:
    from steinstream.targets.gaussian import Gaussian as Gaussian
    from steinstream.targets.goodwin import Goodwin as Goodwin
    from steinstream.targets.mixture import Mixture as Mixture
    from steinstream.targets.tempered import Tempered as Tempered

__all__ = ["Compiled", "Functions", "Gaussian", "Goodwin", "Mixture", "Sample", "Target", "Tempered"]

_HOMES = {  # imported on first use: they need numba
    "Gaussian": "gaussian",
    "Goodwin": "goodwin",
    "Mixture": "mixture",
    "Tempered": "tempered",
}

Array: TypeAlias = NDArray[np.float64]


class Target(Protocol):
    """What every sampler needs."""

    def log_density(self, position: Array, /) -> float:
        """The log density at one position (d,), up to a constant; -inf where there is none."""

    def score(self, position: Array, /) -> Array:
        """The gradient (d,) of the log density at one position (d,)."""


class Functions(NamedTuple):
    """A target made of two Python functions.

    >>> gaussian = Functions(lambda x: -0.5 * float(x @ x), lambda x: -x)
    >>> gaussian.log_density(np.ones(2))
    -1.0
    """

    log_density: Callable[[Array], float]
    score: Callable[[Array], Array]


class Compiled(NamedTuple):
    """What ``target.compiled()`` gives: two numba functions, the arrays they read, the lanes that pay.

    - ``log_densities(parameters, positions, out)`` reads positions (d, lanes) and writes out (lanes,).
      What a lane gets must not depend on the other lanes, nor on their number.
    - ``log_density_and_score(parameters, position, score)`` reads position (d,), writes score (d,) and
      returns the log density.

    Both are module-level functions, for numba does not keep closures from one process to the next, and
    neither raises. What makes one target differ from another goes into ``parameters``: a tuple of numbers and
    writable C-contiguous arrays. ``lanes`` is how many positions at once cost little more than one.
    """

    log_densities: Any
    log_density_and_score: Any
    parameters: tuple[Any, ...]
    lanes: int = 1


class Sample(NamedTuple):
    """Independent draws (n, d) from a target, and their scores (n, d)."""

    draws: Array
    scores: Array


def whole_number(value: int, what: str) -> int:
    """A seed or a number of draws, as given by the user."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise InputError(f"{what} is {value!r}.", "Give a whole number of at least 0.")
    return int(value)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
