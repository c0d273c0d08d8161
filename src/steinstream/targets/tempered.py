r"""A target to a power: :math:`\log p_\tau (x) = \tau \log p(x)`, flatter than p where :math:`\tau < 1`.

Whether it runs in machine code is up to the target within: its functions are called by their addresses, which are
among the parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from steinstream._engine.jit import jit
from steinstream.errors import InputError
from steinstream.targets import Array, Compiled, Target
from steinstream.targets.function_pointer import pointers

_Parameters = tuple[float, Any, Callable[[Any, Array, Array], None], Callable[[Any, Array, Array], float]]


@jit
def log_densities(parameters: _Parameters, positions: Array, out: Array) -> None:
    """The log density at many positions (d, lanes), see `steinstream.targets.Compiled`."""
    power, given, within, _ = parameters
    within(given, positions, out)
    for k in range(out.size):
        out[k] *= power


@jit
def log_density_and_score(parameters: _Parameters, position: Array, score: Array) -> float:
    """The log density and its gradient at one position (d,), see `steinstream.targets.Compiled`."""
    power, given, _, within = parameters
    log_density = within(given, position, score)
    for j in range(score.size):
        score[j] *= power
    return power * log_density


@dataclass(frozen=True, eq=False)
class Tempered:
    """A target whose density is raised to ``power``. The variance of a Gaussian becomes variance / power.

    >>> from steinstream.targets import Gaussian
    >>> target = Tempered(Gaussian(np.zeros(2), 1.0), power=0.125)
    >>> target.score(np.array([8.0, -16.0]))
    array([-1.,  2.])
    """

    target: Target
    power: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.power) and self.power > 0):
            raise InputError(f"power is {self.power!r}.", "Give a positive number, 1 for the target itself.")

    def log_density(self, position: Array) -> float:
        """The power times the target's log density at one position (d,)."""
        return float(self.power * self.target.log_density(position))

    def score(self, position: Array) -> Array:
        """The power times the target's score (d,) at one position (d,)."""
        return self.power * np.asarray(self.target.score(position), dtype=np.float64)

    def compiled(self) -> Compiled | None:
        """The functions above for a sampler that runs in machine code, if the target has such functions."""
        within = self.target.compiled() if hasattr(self.target, "compiled") else None
        if within is None:
            return None
        parameters = (float(self.power), within.parameters, *pointers(within))  # numba minds a function in first place
        return Compiled(log_densities, log_density_and_score, parameters, within.lanes)
