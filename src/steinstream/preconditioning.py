"""A preconditioner is a change of coordinates and nothing else.

With M = L L^T, draws x -> L^-1 x and scores s -> L^T s leave the Stein kernel's formula untouched. L may be a number (a
length scale), a vector (a scale per coordinate) or a lower triangular matrix (a full covariance).

Estimated coordinates multiply the covariance by 2 d: in whitened coordinates two independent draws are at a squared
distance of about 2 d, so the kernel neither sees all draws as one nor each as alone, in any number of dimensions.

A radial kernel does not care where the origin lies. For what does, coordinates may have a centre m: x -> L^-1 (x - m).
"""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steinstream.errors import InputError, positive

Array = NDArray[np.float64]

_SINGULAR = 1e10  # condition of a correlation matrix beyond which its narrowest direction may be rounding
_WIDE = 200  # dimensions above which ``auto`` takes scales alone

KINDS = ("identity", "scale", "scales", "covariance", "auto")
_FIXED = "ss.Preconditioner, an array of d scales, or a covariance (d, d)"
FOLLOWED = ("auto", "covariance", "scales")  # what Streaming can follow


@dataclass(frozen=True, eq=False)
class Preconditioner:
    """x -> L^-1 x, s -> L^T s with ``factor`` L: a number, (d,) scales or a (d, d) lower triangular matrix.

    >>> c = Preconditioner.scales([1.0, 10.0])
    >>> c.apply(np.array([[1.0, 10.0]]), np.array([[-1.0, -0.1]]))
    (array([[1., 1.]]), array([[-1., -1.]]))

    With a ``centre`` (d,) draws are measured from there.
    """

    factor: Array
    centre: Array | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "factor", _as_factor(self.factor))
        if self.centre is not None:
            object.__setattr__(self, "centre", _as_centre(self.centre))

    @classmethod
    def identity(cls) -> Preconditioner:
        """The draws as they are."""
        return cls(np.array(1.0))

    @classmethod
    def length_scale(cls, length: float) -> Preconditioner:
        """One length for all coordinates."""
        return cls(_positive(length, "The length scale", 0))

    @classmethod
    def scales(cls, scales: ArrayLike) -> Preconditioner:
        """A length for each coordinate."""
        return cls(_positive(scales, "Every scale", 1))

    @classmethod
    def covariance(cls, matrix: ArrayLike) -> Preconditioner:
        """A full covariance (d, d)."""
        matrix = np.asarray(matrix, dtype=np.float64)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise InputError(f"A covariance must be a square matrix, got shape {matrix.shape}.")
        if not np.allclose(matrix, matrix.T, rtol=1e-8, atol=0):
            raise InputError("A covariance must be symmetric, and this one is not.")
        try:
            return cls(np.linalg.cholesky(matrix))
        except np.linalg.LinAlgError:
            raise InputError(
                "The covariance is not positive definite.",
                "Add a small multiple of the identity, or use scales instead.",
            ) from None

    @classmethod
    def estimate(cls, kind: str, draws: ArrayLike, *, centred: bool = False) -> Preconditioner:
        """Preconditioner from draws: ``identity``, ``scale`` (median distance), ``scales``, ``covariance`` or ``auto``.

        With fewer than 10 d distinct draws, or where it is singular, the covariance is shrunk towards its diagonal by
        d / (d + number of distinct draws); otherwise not at all, for 1 % of the diagonal already hides the narrow
        directions of strongly correlated parameters. ``auto`` takes the covariance up to 200 dimensions, scales above.
        A coordinate that stands still is taken to have a standard deviation of 1.
        ``centred`` puts the centre at the mean of the draws.
        """
        if kind not in KINDS:
            raise InputError(f"Unknown coordinates {kind!r}.", f"Choose one of {', '.join(KINDS)}, or give an array.")
        draws = _as_numbers(draws, "Draws")
        if draws.ndim != 2 or draws.size == 0:
            raise InputError(f"Draws to estimate coordinates from must have shape (n, d), got shape {draws.shape}.")
        centre = draws.mean(axis=0) if centred else None
        if kind == "identity":
            return replace(cls.identity(), centre=centre)
        distinct = np.unique(draws, axis=0)
        count, dim = distinct.shape
        if kind == "scale":
            return replace(cls.length_scale(_median_distance(distinct)), centre=centre)
        moved = draws - draws[0]  # exactly 0 where nothing moves, which a mean is not
        matrix = np.cov(moved, rowvar=False).reshape(dim, dim) if wants_matrix(kind, dim) and count > 1 else None
        return cls.from_moments(count, moved.std(axis=0), matrix, centre)

    @classmethod
    def from_moments(
        cls, distinct: int, spread: Array, matrix: Array | None, centre: Array | None = None
    ) -> Preconditioner:
        """What :meth:`estimate` makes of the standard deviations and the covariance of so many distinct draws.

        Without the covariance, or with fewer than two draws, scales.
        """
        dim, still = len(spread), ~(spread > 0)
        spread = np.where(still, 1.0, spread) * np.sqrt(2.0 * dim)
        if matrix is None or distinct < 2:
            return replace(cls.scales(spread), centre=centre)
        matrix = (matrix + np.diag(still)) * (2.0 * dim)
        if not (distinct >= 10 * dim and np.linalg.cond(matrix / np.outer(spread, spread)) < _SINGULAR):
            shrink = dim / (dim + distinct)
            matrix = (1.0 - shrink) * matrix + shrink * np.diag(spread**2)
        return replace(cls.covariance(matrix), centre=centre)

    def __str__(self) -> str:
        if self.factor.ndim == 0:
            return "identity" if float(self.factor) == 1.0 else f"length scale {float(self.factor):.6g}"
        return "scales" if self.factor.ndim == 1 else "covariance"

    @property
    def is_identity(self) -> bool:
        """Whether nothing changes."""
        return self.factor.ndim == 0 and float(self.factor) == 1.0 and self.centre is None

    def require(self, dim: int) -> None:
        """Raise unless these coordinates fit draws of ``dim`` dimensions."""
        if self.factor.ndim > 0 and self.factor.shape[0] != dim:
            raise InputError(f"The coordinates are for {self.factor.shape[0]} dimensions, the draws have {dim}.")
        if self.centre is not None and self.centre.shape != (dim,):
            raise InputError(f"The coordinates' centre has shape {self.centre.shape}, the draws have {dim} dimensions.")

    def apply(self, draws: Array, scores: Array) -> tuple[Array, Array]:
        """Draws and scores in these coordinates; the bits do not depend on how many come at once."""
        if self.centre is not None:
            draws = draws - self.centre
        if self.factor.ndim < 2:
            return draws / self.factor, scores * self.factor
        from steinstream._engine.triangular import multiply  # compiled: only where it is used

        return multiply(self._inverse, draws), multiply(self.factor, scores)

    @cached_property
    def _inverse(self) -> Array:
        return np.ascontiguousarray(np.linalg.inv(self.factor).T)


@dataclass(frozen=True)
class Warmup:
    """Preconditioner of this kind, estimated from the first draws of the stream, which wait until then.

    The first half of them is taken for burn-in and not looked at.

    >>> Warmup("scales", draws=500)
    Warmup(kind='scales', draws=500)
    """

    kind: str = "auto"
    draws: int = 1000

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"Unknown coordinates {self.kind!r}.", f"Choose one of {', '.join(KINDS)}.")
        object.__setattr__(self, "draws", positive(self.draws, "draws"))
        if self.draws < 2:
            raise InputError(f"A warm-up needs at least 2 draws, got {self.draws}.")

    def end(self, draws: Array) -> Preconditioner:
        """The coordinates, once the draws have come, or as well as those that have come allow."""
        first = draws[: self.draws]
        return Preconditioner.estimate(self.kind, first[len(first) // 2 :])


@dataclass(frozen=True)
class Streaming:
    """Preconditioner that follow the stream: its covariance, estimated anew each time the number of draws has doubled.

    Each estimate is made of the draws since the doubling before, so that burn-in is forgotten. The influences of the
    kept draws and their KSD are then computed anew (O(kept^2 d)): KSD before and after are two different measures.

    The first estimate comes after ``first`` draws, and sees the second half of them. Until then coordinates are the
    identity: what was kept by them is soon replaced, and nothing is held back. (Waiting for the first estimate, as
    :class:`Warmup` does, made no set better that was measured later.) With ``forget`` an estimate is made of so many
    draws at most, and as often; otherwise a stream that drifts late is followed late. Draws that are all the same, of a
    chain that is stuck, change nothing. ``kind`` is ``auto``, ``covariance`` or ``scales``, as in
    :meth:`Preconditioner.estimate`; ``centred`` as there.

    >>> Streaming(first=200)
    Streaming(kind='auto', first=200, forget=None, centred=False)
    """

    kind: str = "auto"
    first: int = 100
    forget: int | None = None
    centred: bool = False

    def __post_init__(self) -> None:
        if self.kind not in FOLLOWED:
            raise InputError(
                f"Preconditioner {self.kind!r} cannot follow a stream.", f"Choose one of {', '.join(FOLLOWED)}."
            )
        for name, value in (("first", self.first), ("forget", self.forget)):
            if value is not None:
                object.__setattr__(self, name, positive(value, name))
                if value < 4:
                    raise InputError(f"{name} must be a whole number of at least 4 draws, got {value!r}.")
        object.__setattr__(self, "centred", bool(self.centred))

    def __str__(self) -> str:
        return "streaming"


def wants_matrix(kind: str, dim: int) -> bool:
    """Whether coordinates of this kind are made of the whole covariance, not of its diagonal alone."""
    return kind == "covariance" or (kind == "auto" and dim <= _WIDE)


def as_preconditioner(
    value: Preconditioner | Warmup | Streaming | ArrayLike | None,
) -> Preconditioner | Warmup | Streaming:
    """What a user gives for coordinates: None is the identity, an array (d,) has scales, (d, d) is a covariance.

    >>> str(as_preconditioner(None)), str(as_preconditioner([1.0, 10.0]))
    ('identity', 'scales')
    """
    if value is None:
        return Preconditioner.identity()
    if isinstance(value, Warmup | Streaming):
        return value
    return as_fixed(value, f"Give ss.Warmup or ss.Streaming, {_FIXED}.")


def as_fixed(value: Preconditioner | ArrayLike, remedy: str = f"Give {_FIXED}.") -> Preconditioner:
    """The same where there is no stream to be followed or waited for."""
    if isinstance(value, Preconditioner):
        return value
    if isinstance(value, np.ndarray | Sequence) and not isinstance(value, str | bytes):
        array = _as_numbers(value, "Preconditioner")
        if array.ndim in (1, 2):
            return Preconditioner.scales(array) if array.ndim == 1 else Preconditioner.covariance(array)
    raise InputError(f"Preconditioner cannot be {reprlib.repr(value)}.", remedy)


def _as_numbers(value: ArrayLike, what: str) -> Array:
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{what} must be numbers, got {reprlib.repr(value)}.") from None


def _as_factor(value: ArrayLike) -> Array:
    """One that can be divided by."""
    factor = _as_numbers(value, "Preconditioner")
    if factor.ndim < 2:
        return _positive(factor, "The factor of coordinates", factor.ndim)
    if factor.ndim > 2 or factor.shape[0] != factor.shape[1] or np.triu(factor, 1).any():
        raise InputError(
            f"The factor of coordinates must be a number, (d,) or lower triangular (d, d), got shape {factor.shape}.",
            "A covariance goes to Preconditioner.covariance.",
        )
    if not np.isfinite(factor).all() or not np.diagonal(factor).all():
        raise InputError("The factor of coordinates must be finite, with no 0 on its diagonal.")
    return factor


def _as_centre(value: ArrayLike) -> Array:
    centre = _as_numbers(value, "The centre of coordinates")
    if centre.ndim != 1 or not np.isfinite(centre).all():
        raise InputError(f"The centre of coordinates must be d finite numbers, got {reprlib.repr(value)}.")
    return centre


def _positive(value: ArrayLike, what: str, dimensions: int) -> Array:
    array = _as_numbers(value, what)
    if array.ndim != dimensions or not (np.isfinite(array).all() and (array > 0).all()):
        shape = "a number" if dimensions == 0 else "a vector of numbers"
        raise InputError(f"{what} must be {shape} above 0, got {value!r}.")
    return array


def _median_distance(draws: Array) -> float:
    """Over at most 1000 evenly spaced draws."""
    some = draws[:: -(-len(draws) // 1000)]
    some = some - some.mean(axis=0)  # far from the origin their squares would swallow the distances
    squares = (some**2).sum(axis=1)
    distances = squares[:, None] + squares[None, :] - 2.0 * some @ some.T
    upper = distances[np.triu_indices(len(some), 1)]
    middle = float(np.median(upper)) if len(upper) else 0.0
    return float(np.sqrt(middle)) if middle > 0 else 1.0
