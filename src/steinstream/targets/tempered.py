r"""A target raised to a power: :math:`\log p_\tau (x) = \tau \log p(x)`, flatter than p for :math:`\tau < 1`.

It is compiled if the underlying target is. The compiled functions call those of the target through pointers, which are
among the parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from steinstream._engine.jit import jit
from steinstream._typing import Array
from steinstream.errors import InputError
from steinstream.targets import CompiledTarget, Target
from steinstream.targets.function_pointer import function_pointers

_Parameters = tuple[float, Any, Callable[[Any, Array, Array], None], Callable[[Any, Array, Array], float]]


@jit
def log_densities(parameters: _Parameters, positions: Array, out: Array) -> None:
    """Evaluate the log density at positions (d, lanes), see `steinstream.targets.CompiledTarget`."""
    power, inner_parameters, inner, _ = parameters
    inner(inner_parameters, positions, out)
    for k in range(out.size):
        out[k] *= power


@jit
def log_density_and_score(parameters: _Parameters, position: Array, score: Array) -> float:
    """Evaluate the log density and its gradient at a position (d,), see `steinstream.targets.CompiledTarget`."""
    power, inner_parameters, _, inner = parameters
    log_density = inner(inner_parameters, position, score)
    for j in range(score.size):
        score[j] *= power
    return power * log_density


@dataclass(frozen=True, eq=False)
class Tempered(Target):
    """A target whose density is raised to a power.

    The variance of a Gaussian becomes variance / power.

    Parameters
    ----------
    target : Target
        The target.
    power : float
        Positive exponent; 1 gives the target itself.

    Raises
    ------
    InputError
        If the power is not positive and finite.

    Examples
    --------
    >>> from steinstream.targets import Gaussian
    >>> target = Tempered(Gaussian(np.zeros(2), 1.0), power=0.125)
    >>> target.score(np.array([8.0, -16.0]))
    array([-1.,  2.])
    """

    target: Target
    power: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.power) and self.power > 0):
            raise InputError(f"power must be positive and finite, got {self.power!r}.")

    def log_density(self, position: Array) -> float:
        return float(self.power * self.target.log_density(position))

    def score(self, position: Array) -> Array:
        return self.power * np.asarray(self.target.score(position), dtype=np.float64)

    def compiled(self) -> CompiledTarget | None:
        """Return the functions for samplers that run in compiled code; None if the target has none.

        Returns
        -------
        CompiledTarget or None
            The functions; None if the target has none.
        """
        inner = self.target.compiled() if hasattr(self.target, "compiled") else None
        if inner is None:
            return None
        # Numba does not accept a tuple whose first entry is a function.
        parameters = (float(self.power), inner.parameters, *function_pointers(inner))
        return CompiledTarget(log_densities, log_density_and_score, parameters, inner.lanes)
