r"""Base kernels as radial profiles, and the Stein kernel made from one.

A base kernel is :math:`k(x, y) = \phi(u)` with :math:`u = |x - y|^2`. With the score
:math:`s = \nabla \log p` the Stein kernel is

.. math:: k_0(x, y) = \phi \langle s_x, s_y \rangle
          - 2 \phi' \left( \langle s_x - s_y, x - y \rangle + d \right) - 4 \phi'' u .

A profile returns the three factors :math:`\phi, -2\phi', 4\phi''`. The same lines serve twice: on numpy arrays as the
readable reference, and traced on vector registers as the compiled kernel (``steinstream._engine.simd``).

With a linear term :math:`b (1 + \langle x, y \rangle)` in the base kernel, the Stein kernel gains

.. math:: b \left( \langle s_x, s_y \rangle (1 + \langle x, y \rangle)
          + \langle s_x, x \rangle + \langle s_y, y \rangle + d \right) .

A radial kernel decays, so it hardly sees how wide a set is; the linear term sees mean and second moments. It speaks
of x itself, not of differences: the draws must be centred, or the coordinates have a centre.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from steinstream.errors import InputError

Array = NDArray[np.float64]


class Compiled(NamedTuple):
    """What the engine needs of a kernel: which profile, its two parameters, and the grid its values live on.

    ``linear`` is None without a linear term, and the engine then compiled without one.
    """

    profile: int
    first: float
    second: float
    grid: float
    linear: float | None = None


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

_LARGEST = 1e30  # parameters, and the inverse of those that must be positive: none of their powers overflows
_SENSIBLE = "In coordinates of unit scale something near 1 serves."


class Kernel:
    """A base kernel; see :class:`IMQ` and :class:`RBF`."""

    linear: float

    def compiled(self, dim: int) -> Compiled:
        """Profile number and parameters for ``dim`` dimensions, with the grid that makes sums exact.

        ``k0(x, x) >= -2 phi'(0) d`` for every point, so that number sets the scale: the grid is 2^-53 of it, as fine
        as the rounding of the smallest diagonal entry, and sums stay exact up to 2^51 times it.
        """
        profile, first, second = self._parameters(dim)
        _, slope, _ = PROFILES[profile](0.0, first, second)
        least = float(slope) * dim
        grid = 2.0 ** (np.floor(np.log2(least)) - 53)
        return Compiled(profile, first, second, grid, float(self.linear) if self.linear else None)

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
        if self.linear:
            points = np.sum(x[:, None, :] * y[None, :, :], axis=-1)  # x @ y.T may tell equal rows apart in the last bit
            own = np.sum(sx * x, axis=1)[:, None] + np.sum(sy * y, axis=1)[None, :]
            matrix += self.linear * (scores * (1.0 + points) + own + dim)
        return matrix

    def diagonal(self, scores: Array, points: Array | None = None) -> Array:
        """The Stein kernel of each point with itself; only with a linear term do the points matter beside the scores.

        >>> IMQ().diagonal(np.array([[0.0], [-2.0]]))
        array([1., 5.])
        """
        dim = scores.shape[1]
        profile, first, second = self._parameters(dim)
        phi, slope, _ = PROFILES[profile](0.0, first, second)
        diagonal = np.asarray(phi * np.sum(scores**2, axis=1) + slope * dim)
        if not self.linear:
            return diagonal
        if points is None:
            raise InputError("With a linear term the diagonal of the Stein kernel depends on the points.", "Give them.")
        return np.asarray(diagonal + self.linear_diagonal(scores, points))

    def linear_diagonal(self, scores: Array, points: Array) -> Array:
        """The linear term's part of the diagonal."""
        squares, own = np.sum(scores**2, axis=1), np.sum(scores * points, axis=1)
        lengths = np.sum(points**2, axis=1)
        return np.asarray(self.linear * (squares * (1.0 + lengths) + 2.0 * own + scores.shape[1]))

    def square_factor(self, points: Array) -> Array:
        """What |s|^2 is multiplied by in the Stein kernel of each point with itself.

        >>> IMQ(c=2.0).square_factor(np.zeros((1, 3)))
        array([0.5])
        """
        profile, first, second = self._parameters(points.shape[1])
        phi, _, _ = PROFILES[profile](0.0, first, second)
        return np.asarray(phi + self.linear * (1.0 + np.sum(points**2, axis=1)))

    def length(self, dim: int) -> float:
        """Return the length scale sqrt(phi(0) / -2 phi'(0)), which is c for IMQ with beta = -1/2."""
        profile, first, second = self._parameters(dim)
        phi, slope, _ = PROFILES[profile](0.0, first, second)
        return float(np.sqrt(phi / slope))

    def spectrum(self, dim: int, rng: np.random.Generator, count: int) -> Array:
        """Rates s of which exp(-s u), averaged, is the base kernel up to a factor; each has frequencies N(0, 2 s I)."""
        raise TypeError(f"{type(self).__name__} defines no spectrum")

    def _require_linear(self) -> None:
        object.__setattr__(self, "linear", _number(self.linear))
        if not 0 <= self.linear < _LARGEST:
            raise InputError(
                f"The linear term of a kernel must be a number of at least 0, got {self.linear}.",
                "0 leaves it out.",
            )


@dataclass(frozen=True)
class IMQ(Kernel):
    """Inverse multiquadric (c^2 + u)^beta with -1 < beta < 0; KSD with it controls weak convergence.

    ``linear`` adds that many times 1 + <x, y>; the draws must then be centred.

    >>> IMQ(), IMQ(linear=0.1)
    (IMQ(c=1.0, beta=-0.5), IMQ(c=1.0, beta=-0.5, linear=0.1))
    """

    c: float = 1.0
    beta: float = -0.5
    linear: float = 0.0

    def __post_init__(self) -> None:
        self._require_linear()
        for name in ("c", "beta"):
            object.__setattr__(self, name, _number(getattr(self, name)))
        if not 1 / _LARGEST < self.c < _LARGEST:
            raise InputError(f"IMQ's c must be positive, got {self.c}.", _SENSIBLE)
        if not -1 < self.beta < 0:
            raise InputError(f"IMQ's beta must lie between -1 and 0, got {self.beta}.")

    def __repr__(self) -> str:
        return f"IMQ(c={self.c}, beta={self.beta}{_linear(self.linear)})"

    def _parameters(self, dim: int) -> tuple[int, float, float]:
        return 0 if self.beta == -0.5 else 1, self.c**2, self.beta

    def spectrum(self, dim: int, rng: np.random.Generator, count: int) -> Array:
        """(c^2 + u)^beta is the mean of exp(-s u) over a gamma distribution, up to a factor."""
        return rng.gamma(-self.beta, 1.0 / self.c**2, count)


@dataclass(frozen=True)
class RBF(Kernel):
    """Gaussian exp(-u / (2 h)); h is the number of dimensions unless given, as in the paper. ``linear`` as for IMQ.

    >>> RBF(h=2.0)
    RBF(h=2.0)
    """

    h: float | None = None
    linear: float = 0.0

    def __post_init__(self) -> None:
        self._require_linear()
        if self.h is not None:
            object.__setattr__(self, "h", _number(self.h))
        if self.h is not None and not 1 / _LARGEST < self.h < _LARGEST:
            raise InputError(f"RBF's h must be positive, got {self.h}.", _SENSIBLE)

    def __repr__(self) -> str:
        return f"RBF(h={self.h}{_linear(self.linear)})"

    def _parameters(self, dim: int) -> tuple[int, float, float]:
        return 2, 1.0 / (2.0 * (self.h or dim)), 0.0

    def spectrum(self, dim: int, rng: np.random.Generator, count: int) -> Array:
        """One rate."""
        return np.full(count, 1.0 / (2.0 * (self.h or dim)))


def _number(value: Any) -> float:
    """As a plain float, which compiled code wants; not a number if it is none."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")


def _linear(weight: float) -> str:
    return f", linear={weight}" if weight else ""


def as_kernel(value: Kernel | str | None) -> Kernel:
    """Convert a user's value to a kernel.

    Parameters
    ----------
    value : Kernel, str or None
        A kernel, a string such as ``"imq"``, ``"imq:c=1,beta=-0.5"`` or ``"rbf:h=2"``, or None for the default.

    Returns
    -------
    Kernel
        The kernel.

    Raises
    ------
    InputError
        If the value is neither a kernel nor the name of one.

    Examples
    --------
    >>> as_kernel("imq:c=2,linear=0.1")
    IMQ(c=2.0, beta=-0.5, linear=0.1)

    """
    if value is None or isinstance(value, Kernel):
        return value or IMQ()
    if isinstance(value, str):
        name, _, rest = value.partition(":")
        kinds: dict[str, type[Kernel]] = {"imq": IMQ, "rbf": RBF}
        pairs = [part.partition("=") for part in rest.split(",") if part]
        try:
            return kinds[name.strip().lower()](**{key.strip(): float(number) for key, _, number in pairs})
        except (KeyError, ValueError, TypeError) as problem:
            if isinstance(problem, InputError):
                raise
    raise InputError(
        f"Unknown kernel {value!r}.",
        'Kernels are ss.IMQ() and ss.RBF(), or strings: "imq", "imq:c=1,beta=-0.5", "rbf", "rbf:h=2"; linear=0.1 adds '
        "a linear term.",
    )
