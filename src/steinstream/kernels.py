r"""Base kernels as radial profiles, and the Stein kernel derived from them.

A base kernel is :math:`k(x, y) = \phi(u)` with :math:`u = |x - y|^2`. With the score
:math:`s = \nabla \log p` the Stein kernel is

.. math:: k_0(x, y) = \phi \langle s_x, s_y \rangle
          - 2 \phi' \left( \langle s_x - s_y, x - y \rangle + d \right) - 4 \phi'' u .

A profile returns the three factors :math:`\phi, -2\phi', 4\phi''`. Each profile is written once and used three times:
on NumPy arrays as the reference, in compiled scalar code (``steinstream._engine.kernel_pair``), and traced to vector
code (``steinstream._engine.kernel_row``).

With a linear term :math:`b (1 + \langle x, y \rangle)` in the base kernel, the Stein kernel gains

.. math:: b \left( \langle s_x, s_y \rangle (1 + \langle x, y \rangle)
          + \langle s_x, x \rangle + \langle s_y, y \rangle + d \right) .

A radial kernel decays, so it is not sensitive to the width of a set; the linear term is sensitive to mean and second
moments. It depends on x itself and not on differences: the draws must be centred, or the preconditioner must have a
centre.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from steinstream._typing import Array
from steinstream.errors import InputError


class KernelParameters(NamedTuple):
    """Numbers that define a kernel: number of the profile, its two parameters, and the grid of its values.

    ``linear`` is the weight of the linear term. ``base_grid`` is the grid of the values of phi: sums of 2^17 of them
    are exact doubles.
    """

    profile: int
    first: float
    second: float
    grid: float
    linear: float
    base_grid: float


def inverse_square_root(u: Any, c2: Any, beta: Any) -> Any:
    """Return the profile of IMQ with beta = -1/2: one square root and one division."""
    w2 = 1.0 / (u + c2)
    w = np.sqrt(w2)
    w3 = w * w2
    return w, w3, 3.0 * (w3 * w2)


def inverse_power(u: Any, c2: Any, beta: Any) -> Any:
    """Return the profile of IMQ with any exponent."""
    w = 1.0 / (u + c2)
    phi = (u + c2) ** beta
    slope = -2.0 * beta * (phi * w)
    return phi, slope, 2.0 * (1.0 - beta) * (slope * w)


def gaussian(u: Any, rate: Any, _: Any) -> Any:
    """Return the profile exp(-rate u) of RBF."""
    phi = np.exp(-(rate * u))
    slope = 2.0 * rate * phi
    return phi, slope, 2.0 * rate * slope


PROFILES = (inverse_square_root, inverse_power, gaussian)

_LARGEST = 1e30  # limit of parameters, and of the inverse of positive ones: none of their powers overflows
_SCALE_HINT = "In coordinates of unit scale, use a value near 1."


class Kernel:
    """Base class of :class:`IMQ` and :class:`RBF`."""

    linear: float

    def parameters(self, dim: int) -> KernelParameters:
        """Return the numbers that define the kernel.

        ``k0(x, x) >= -2 phi'(0) d`` for every draw; this number sets the scale. The grid is 2^-53 of it, as fine as the
        rounding of the smallest diagonal entry, and sums are exact up to 2^40 times it.

        Returns
        -------
        KernelParameters
            Profile, parameters, and the grid that makes sums exact.
        """
        profile, first, second = self._profile(dim)
        phi, slope, _ = PROFILES[profile](0.0, first, second)
        smallest = float(slope) * dim
        grid, base_grid = (2.0 ** (np.floor(np.log2(each)) - bits) for each, bits in ((smallest, 53), (float(phi), 36)))
        return KernelParameters(profile, first, second, float(grid), self.linear, float(base_grid))

    def _profile(self, dim: int) -> tuple[int, float, float]:
        """Return the number of the profile and its two parameters."""
        raise TypeError(f"{type(self).__name__} defines no profile")

    def base_matrix(self, x: Array, y: Array) -> Array:
        """Return phi of every row of ``x`` with every row of ``y``, without the linear term, in plain NumPy."""
        profile, first, second = self._profile(x.shape[1])
        u = np.sum((x[:, None, :] - y[None, :, :]) ** 2, axis=-1)
        return np.asarray(PROFILES[profile](u, first, second)[0])

    def matrix(self, x: Array, sx: Array, y: Array, sy: Array) -> Array:
        """Return the Stein kernel of every row of ``x`` (n, d) with every row of ``y`` (m, d), in plain NumPy.

        This is the reference for the compiled kernel; it is slow and takes O(n m d) memory.

        Returns
        -------
        array
            Kernel values (n, m).

        Examples
        --------
        >>> x = np.array([[0.0], [2.0]])
        >>> IMQ().matrix(x, -x, x, -x)
        array([[ 1.        , -0.48299068],
               [-0.48299068,  5.        ]])
        """
        x, sx, y, sy = (np.atleast_2d(np.asarray(a, dtype=np.float64)) for a in (x, sx, y, sy))
        dim = x.shape[1]
        profile, first, second = self._profile(dim)
        difference = x[:, None, :] - y[None, :, :]
        u = np.sum(difference**2, axis=-1)
        cross = np.sum((sx[:, None, :] - sy[None, :, :]) * difference, axis=-1)
        scores = np.sum(sx[:, None, :] * sy[None, :, :], axis=-1)
        phi, slope, curvature = PROFILES[profile](u, first, second)
        matrix: Array = phi * scores + slope * (cross + dim) - curvature * u
        if self.linear:
            products = np.sum(x[:, None, :] * y[None, :, :], axis=-1)  # x @ y.T may differ for equal rows
            own = np.sum(sx * x, axis=1)[:, None] + np.sum(sy * y, axis=1)[None, :]
            matrix += self.linear * (scores * (1.0 + products) + own + dim)
        return matrix

    def diagonal(self, scores: Array, draws: Array | None = None) -> Array:
        """Return the Stein kernel of each draw with itself; the draws are required only with a linear term.

        Returns
        -------
        array
            Kernel values (n,).

        Raises
        ------
        InputError
            If the kernel has a linear term and ``draws`` is missing.

        Examples
        --------
        >>> IMQ().diagonal(np.array([[0.0], [-2.0]]))
        array([1., 5.])
        """
        dim = scores.shape[1]
        profile, first, second = self._profile(dim)
        phi, slope, _ = PROFILES[profile](0.0, first, second)
        diagonal = np.asarray(phi * np.sum(scores**2, axis=1) + slope * dim)
        if not self.linear:
            return diagonal
        if draws is None:
            raise InputError(
                "With a linear term the diagonal of the Stein kernel depends on the draws, and none were given.",
                "Pass the draws as well.",
            )
        return np.asarray(diagonal + self.linear_diagonal(scores, draws))

    def linear_diagonal(self, scores: Array, draws: Array) -> Array:
        """Return the part of the linear term in the diagonal (n,)."""
        squares, own = np.sum(scores**2, axis=1), np.sum(scores * draws, axis=1)
        lengths = np.sum(draws**2, axis=1)
        return np.asarray(self.linear * (squares * (1.0 + lengths) + 2.0 * own + scores.shape[1]))

    def square_factor(self, draws: Array) -> Array:
        """Return the factor of the squared score in the diagonal of the Stein kernel, one per draw.

        Returns
        -------
        array
            Factors (n,).

        Examples
        --------
        >>> IMQ(c=2.0).square_factor(np.zeros((1, 3)))
        array([0.5])
        """
        profile, first, second = self._profile(draws.shape[1])
        phi, _, _ = PROFILES[profile](0.0, first, second)
        return np.asarray(phi + self.linear * (1.0 + np.sum(draws**2, axis=1)))

    def length(self, dim: int) -> float:
        """Return the length scale sqrt(phi(0) / -2 phi'(0)), which is c for IMQ with beta = -1/2."""
        profile, first, second = self._profile(dim)
        phi, slope, _ = PROFILES[profile](0.0, first, second)
        return float(np.sqrt(phi / slope))

    def _validate_linear(self) -> None:
        """Convert the weight of the linear term to a float and validate it."""
        object.__setattr__(self, "linear", _as_float(self.linear))
        if not 0 <= self.linear < _LARGEST:
            raise InputError(
                f"The linear term of a kernel must be a number of at least 0, got {self.linear}.",
                "Use 0 for no linear term.",
            )


@dataclass(frozen=True)
class IMQ(Kernel):
    r"""Inverse multiquadric kernel :math:`(c^2 + u)^\beta` of the squared distance u. Its KSD controls convergence.

    Parameters
    ----------
    c : float, default 1.0
        Length scale.
    beta : float, default -0.5
        Exponent, between -1 and 0.
    linear : float, default 0.0
        Weight of a linear term :math:`1 + x^T y`. The draws must then be centred.

    Raises
    ------
    InputError
        If a parameter is out of range.

    Examples
    --------
    >>> IMQ(), IMQ(linear=0.1)
    (IMQ(c=1.0, beta=-0.5), IMQ(c=1.0, beta=-0.5, linear=0.1))
    """

    c: float = 1.0
    beta: float = -0.5
    linear: float = 0.0

    def __post_init__(self) -> None:
        self._validate_linear()
        for name in ("c", "beta"):
            object.__setattr__(self, name, _as_float(getattr(self, name)))
        if not 1 / _LARGEST < self.c < _LARGEST:
            raise InputError(f"IMQ's c must be positive, got {self.c}.", _SCALE_HINT)
        if not -1 < self.beta < 0:
            raise InputError(f"IMQ's beta must be between -1 and 0, got {self.beta}.", "The default is -0.5.")

    def __repr__(self) -> str:
        return f"IMQ(c={self.c}, beta={self.beta}{_linear_repr(self.linear)})"

    def _profile(self, dim: int) -> tuple[int, float, float]:
        return 0 if self.beta == -0.5 else 1, self.c**2, self.beta


@dataclass(frozen=True)
class RBF(Kernel):
    r"""Gaussian kernel :math:`\exp(-u / (2 h))` of the squared distance u.

    Parameters
    ----------
    h : float, optional
        Squared length scale. Default: the number of dimensions, as in the paper.
    linear : float, default 0.0
        Weight of a linear term :math:`1 + x^T y`. The draws must then be centred.

    Raises
    ------
    InputError
        If a parameter is out of range.

    Examples
    --------
    >>> RBF(h=2.0)
    RBF(h=2.0)
    """

    h: float | None = None
    linear: float = 0.0

    def __post_init__(self) -> None:
        self._validate_linear()
        if self.h is not None:
            object.__setattr__(self, "h", _as_float(self.h))
        if self.h is not None and not 1 / _LARGEST < self.h < _LARGEST:
            raise InputError(f"RBF's h must be positive, got {self.h}.", _SCALE_HINT)

    def __repr__(self) -> str:
        return f"RBF(h={self.h}{_linear_repr(self.linear)})"

    def _profile(self, dim: int) -> tuple[int, float, float]:
        return 2, 1.0 / (2.0 * (self.h or dim)), 0.0


def _as_float(value: Any) -> float:
    """Convert to a float, which compiled code requires; NaN if that is not possible."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")


def _linear_repr(weight: float) -> str:
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
