"""Target distributions with a log density and a score, for sampling and for tests.

A target is an object with two functions of one position, ``log_density`` and ``score`` (:class:`Target`);
:class:`Functions` makes a target of two callables. If a target also has a method ``compiled``, samplers run whole
chains in compiled code (:class:`CompiledTarget`). The method returns None if that is not possible.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from steinstream._typing import Array
from steinstream.errors import InputError

if TYPE_CHECKING:
    from steinstream.targets.gaussian import Gaussian as Gaussian
    from steinstream.targets.goodwin import Goodwin as Goodwin
    from steinstream.targets.mixture import Mixture as Mixture
    from steinstream.targets.tempered import Tempered as Tempered

__all__ = ["CompiledTarget", "Functions", "Gaussian", "Goodwin", "Mixture", "Sample", "Target", "Tempered"]

_MODULES = {  # imported on first use, because they import numba
    "Gaussian": "gaussian",
    "Goodwin": "goodwin",
    "Mixture": "mixture",
    "Tempered": "tempered",
}


class Target(Protocol):
    """Interface of a target distribution."""

    def log_density(self, position: Array, /) -> float:
        """Log density at a position (d,), up to a constant; -inf outside the support.

        Parameters
        ----------
        position : array of shape (d,)
            The position.

        Returns
        -------
        float
            Log density, up to a constant; -inf outside the support.
        """

    def score(self, position: Array, /) -> Array:
        """Gradient (d,) of the log density at a position (d,).

        Parameters
        ----------
        position : array of shape (d,)
            The position.

        Returns
        -------
        array of shape (d,)
            Gradient of the log density.
        """


class Functions(NamedTuple):
    """A target made of two Python functions.

    Parameters
    ----------
    log_density : callable
        Function of a position (d,) that returns the log density, up to a constant.
    score : callable
        Function of a position (d,) that returns the gradient (d,) of the log density.

    Examples
    --------
    >>> gaussian = Functions(lambda x: -0.5 * float(x @ x), lambda x: -x)
    >>> gaussian.log_density(np.ones(2))
    -1.0
    """

    log_density: Callable[[Array], float]
    score: Callable[[Array], Array]


class CompiledTarget(NamedTuple):
    """Compiled functions of a target, as returned by its method ``compiled``.

    Both functions must be module-level numba functions, because numba does not cache closures between processes, and
    must not raise.

    Parameters
    ----------
    log_densities : callable
        ``log_densities(parameters, positions, out)`` reads positions (d, lanes) and writes out (lanes,). The result of
        a lane must not depend on the other lanes or on their number.
    log_density_and_score : callable
        ``log_density_and_score(parameters, position, score)`` reads position (d,), writes score (d,) and returns the
        log density.
    parameters : tuple
        Parameters of the target: numbers and writable C-contiguous arrays.
    lanes : int, default 1
        Number of positions that ``log_densities`` evaluates together at little more than the cost of one.
    """

    log_densities: Any
    log_density_and_score: Any
    parameters: tuple[Any, ...]
    lanes: int = 1


class Sample(NamedTuple):
    """Independent draws from a target.

    Attributes
    ----------
    draws : array of shape (n, d)
        Independent draws.
    scores : array of shape (n, d)
        Their scores.
    """

    draws: Array
    scores: Array


def whole_number(value: int, what: str) -> int:
    """Return a seed or a number of draws; raise an `InputError` if it is not an integer of at least 0."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise InputError(f"{what} must be an integer of at least 0, got {value!r}.")
    return int(value)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
