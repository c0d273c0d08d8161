r"""Base kernels as radial profiles, and the Stein kernel made from one.

A base kernel is :math:`k(x, y) = \phi(u)` with :math:`u = |x - y|^2`. With the score
:math:`s = \nabla \log p` the Stein kernel is

.. math:: k_0(x, y) = \phi \langle s_x, s_y \rangle
          - 2 \phi' \left( \langle s_x - s_y, x - y \rangle + d \right) - 4 \phi'' u .

A profile returns the three factors :math:`\phi, -2\phi', 4\phi''`. The same lines serve twice: on numpy arrays as the
readable reference, and traced on vector registers as the compiled kernel (:mod:`steinstream._engine.lanes`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from steinstream.errors import InputError

Array = NDArray[np.float64]


class Compiled(NamedTuple):
    """What the engine needs of a kernel: which profile, its two parameters, and the grid its values live on."""

    profile: int
    first: float
    second: float
    grid: float


def inverse_square_root(u: Any, c2: Any, beta: Any) -> Any:
    """IMQ with beta = -1/2: one square root and one division."""
    w2 = 1.0 / (u + c2)
    w = np.sqrt(w2)
    w3 = w * w2
    return w, w3, 3.0 * (w3 * w2)


def inverse_power(u: Any, c2: Any, beta: Any) -> Any:
    """IMQ with any exponent."""
    w = 1.0 / (u + c2)
    phi = (u + c2) ** beta
    slope = -2.0 * beta * (phi * w)
    return phi, slope, 2.0 * (1.0 - beta) * (slope * w)


def gaussian(u: Any, rate: Any, _: Any) -> Any:
    """exp(-rate u)."""
    phi = np.exp(-(rate * u))
    slope = 2.0 * rate * phi
    return phi, slope, 2.0 * rate * slope


PROFILES = (inverse_square_root, inverse_power, gaussian)


class Kernel:
    """A base kernel; see :class:`IMQ` and :class:`RBF`."""

    def compiled(self, dim: int) -> Compiled:
        """Profile number and parameters for ``dim`` dimensions, with the grid that makes sums exact.

        ``k0(x, x) >= -2 phi'(0) d`` for every point, so that number sets the scale: the grid is 2^-53 of it, as fine
        as the rounding of the smallest diagonal entry, and sums stay exact up to 2^51 times it.
        """
        profile, first, second = self._parameters(dim)
        _, slope, _ = PROFILES[profile](0.0, first, second)
        least = float(slope) * dim
        return Compiled(profile, first, second, 2.0 ** (np.floor(np.log2(least)) - 53))

    def _parameters(self, dim: int) -> tuple[int, float, float]:
        raise TypeError(f"{type(self).__name__} defines no profile")

    def matrix(self, x: Array, sx: Array, y: Array, sy: Array) -> Array:
        """The Stein kernel of every row of ``x`` with every row of ``y``, in plain numpy: slow, short, the reference.

        >>> x = np.array([[0.0], [2.0]])
        >>> IMQ().matrix(x, -x, x, -x)
        array([[ 1.        , -0.48299068],
               [-0.48299068,  5.        ]])
        """
        x, sx, y, sy = (np.atleast_2d(np.asarray(a, dtype=np.float64)) for a in (x, sx, y, sy))
        dim = x.shape[1]
        profile, first, second = self._parameters(dim)
        difference = x[:, None, :] - y[None, :, :]
        u = np.sum(difference**2, axis=-1)
        cross = np.sum((sx[:, None, :] - sy[None, :, :]) * difference, axis=-1)
        scores = np.sum(sx[:, None, :] * sy[None, :, :], axis=-1)
        phi, slope, curvature = PROFILES[profile](u, first, second)
        matrix: Array = phi * scores + slope * (cross + dim) - curvature * u
        return matrix

    def diagonal(self, scores: Array) -> Array:
        """The Stein kernel of each point with itself; the points do not matter, only their scores (n, d).

        >>> IMQ().diagonal(np.array([[0.0], [-2.0]]))
        array([1., 5.])
        """
        dim = scores.shape[1]
        profile, first, second = self._parameters(dim)
        phi, slope, _ = PROFILES[profile](0.0, first, second)
        return np.asarray(phi * np.sum(scores**2, axis=1) + slope * dim)


@dataclass(frozen=True)
class IMQ(Kernel):
    """Inverse multiquadric (c^2 + u)^beta with -1 < beta < 0; KSD with it controls weak convergence.

    >>> IMQ()
    IMQ(c=1.0, beta=-0.5)
    """

    c: float = 1.0
    beta: float = -0.5

    def __post_init__(self) -> None:
        if not self.c > 0:
            raise InputError(f"IMQ's c must be positive, got {self.c}.")
        if not -1 < self.beta < 0:
            raise InputError(f"IMQ's beta must lie between -1 and 0, got {self.beta}.")

    def _parameters(self, dim: int) -> tuple[int, float, float]:
        return 0 if self.beta == -0.5 else 1, self.c**2, self.beta


@dataclass(frozen=True)
class RBF(Kernel):
    """Gaussian exp(-u / (2 h)); h is the number of dimensions unless given, as in the paper.

    >>> RBF(h=2.0)
    RBF(h=2.0)
    """

    h: float | None = None

    def __post_init__(self) -> None:
        if self.h is not None and not self.h > 0:
            raise InputError(f"RBF's h must be positive, got {self.h}.")

    def _parameters(self, dim: int) -> tuple[int, float, float]:
        return 2, 1.0 / (2.0 * (self.h or dim)), 0.0
