r"""Preconditioners: linear changes of coordinates in which the kernel is evaluated.

With :math:`M = L L^T`, draws :math:`x \mapsto L^{-1} x` and scores :math:`s \mapsto L^T s` leave the formula of the
Stein kernel unchanged. L is a number (one length scale), a vector (one scale per coordinate) or a lower triangular
matrix (a full covariance).

Estimated preconditioners multiply the covariance by 2 d. In whitened coordinates two independent draws have a squared
distance of about 2 d, so the kernel distinguishes draws equally well in any number of dimensions.

A radial kernel does not depend on the origin. A kernel with a linear term does: a preconditioner may therefore have a
centre m, with :math:`x \mapsto L^{-1} (x - m)`.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from steinstream._typing import AnyArray, Array, Flags
from steinstream.errors import InputError, positive
from steinstream.running_moments import Moments
from steinstream.validation import OVERFLOW_LIMIT, Block, largest_magnitude

#: Preconditioners that `Preconditioner.estimate` knows by name.
KINDS = ("identity", "scale", "scales", "covariance", "auto")

#: Preconditioners that `Streaming` can estimate while the stream runs.
STREAMING_KINDS = ("auto", "covariance", "scales")

_SINGULAR = 1e10  # condition number of a correlation matrix above which its narrowest direction may be rounding error
_COVARIANCE_LIMIT = 200  # dimensions above which "auto" estimates scales only
_MEDIAN_DRAWS = 1000  # draws from which the median distance is computed
_SMALLEST_SCALE, _LARGEST_SCALE = 1e-150, 1e150  # squares of scales must not underflow or overflow
_RECORDED_CHANGES = 100  # most recent changes of a streaming preconditioner that are recorded

_FIXED = "an ss.Preconditioner, an array of d scales, or a covariance (d, d)"


@dataclass(frozen=True, eq=False)
class Preconditioner:
    r"""Linear change of coordinates: :math:`x \mapsto L^{-1} (x - m)` for draws, :math:`s \mapsto L^T s` for scores.

    Parameters
    ----------
    factor : array_like
        Factor L: a number, scales (d,), or a lower triangular matrix (d, d).
    centre : array_like, optional
        Origin m of the new coordinates, (d,). Default: the origin of the draws.

    Examples
    --------
    >>> preconditioner = Preconditioner.scales([1.0, 10.0])
    >>> preconditioner.apply(np.array([[1.0, 10.0]]), np.array([[-1.0, -0.1]]))
    (array([[1., 1.]]), array([[-1., -1.]]))
    """

    factor: Array
    centre: Array | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "factor", _as_factor(self.factor))
        if self.centre is not None:
            object.__setattr__(self, "centre", _as_centre(self.centre))

    @classmethod
    def identity(cls) -> Preconditioner:
        """Return the identity.

        Returns
        -------
        Preconditioner
            The preconditioner.
        """
        return cls(np.array(1.0))

    @classmethod
    def length_scale(cls, length: float) -> Preconditioner:
        """Return a preconditioner with one length scale for all coordinates.

        Parameters
        ----------
        length : float
            The length scale.

        Returns
        -------
        Preconditioner
            The preconditioner.
        """
        return cls(_as_positive(length, "The length scale", 0))

    @classmethod
    def scales(cls, scales: ArrayLike) -> Preconditioner:
        """Return a preconditioner with one length scale per coordinate, (d,).

        Parameters
        ----------
        scales : array_like of shape (d,)
            The length scales.

        Returns
        -------
        Preconditioner
            The preconditioner.
        """
        return cls(_as_positive(scales, "Every scale", 1))

    @classmethod
    def covariance(cls, matrix: ArrayLike) -> Preconditioner:
        """Return the preconditioner of a covariance matrix.

        Parameters
        ----------
        matrix : array_like
            Covariance, (d, d), symmetric and positive definite.

        Returns
        -------
        Preconditioner
            The preconditioner with the Cholesky factor of the matrix.

        Raises
        ------
        InputError
            If the matrix is not square, symmetric and positive definite.
        """
        matrix = np.asarray(matrix, dtype=np.float64)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise InputError(f"A covariance must be a square matrix, got shape {matrix.shape}.")
        if not np.allclose(matrix, matrix.T, rtol=1e-8, atol=0):
            raise InputError("A covariance must be symmetric.", "Symmetrise it: (M + M.T) / 2.")
        try:
            return cls(np.linalg.cholesky(matrix))
        except np.linalg.LinAlgError:
            raise InputError(
                "The covariance is not positive definite.",
                "Add a small multiple of the identity, or use scales instead.",
            ) from None

    @classmethod
    def estimate(cls, kind: str, draws: ArrayLike, *, centred: bool = False) -> Preconditioner:
        """Estimate a preconditioner from draws.

        Parameters
        ----------
        kind : {"identity", "scale", "scales", "covariance", "auto"}
            ``"scale"`` uses the median distance, ``"scales"`` the standard deviations, ``"covariance"`` the
            covariance, ``"auto"`` the covariance up to 200 dimensions and the standard deviations above.
        draws : array_like
            Draws, (n, d). A coordinate with zero variance is assigned standard deviation 1.
        centred : bool, default False
            Use the mean of the draws as the centre.

        Returns
        -------
        Preconditioner
            The estimate.

        Raises
        ------
        InputError
            If the kind is unknown or the draws have another shape.

        Notes
        -----
        With fewer than 10 d distinct draws, or if it is singular, the covariance is shrunk towards its diagonal by
        d / (d + number of distinct draws). Otherwise it is not shrunk at all, because 1 % of the diagonal already
        hides the narrow directions of strongly correlated parameters.
        """
        as_kind(kind)
        draws = _as_floats(draws, "The draws")
        if draws.ndim != 2 or draws.size == 0:
            raise InputError(
                f"The draws to estimate a preconditioner from must have shape (n, d), got shape {draws.shape}."
            )
        centre = draws.mean(axis=0) if centred else None
        if kind == "identity":
            return replace(cls.identity(), centre=centre)
        distinct = np.unique(draws, axis=0)
        count, dim = distinct.shape
        if kind == "scale":
            return replace(cls.length_scale(_median_distance(distinct)), centre=centre)
        shifted = draws - draws[0]  # exactly 0 in a constant coordinate, unlike the distance to a mean
        matrix = np.cov(shifted, rowvar=False).reshape(dim, dim) if needs_covariance(kind, dim) and count > 1 else None
        return cls.from_moments(count, shifted.std(axis=0), matrix, centre)

    @classmethod
    def from_moments(
        cls, distinct: int, sds: Array, matrix: Array | None, centre: Array | None = None
    ) -> Preconditioner:
        """Create the preconditioner that `estimate` returns, from the moments of some number of ``distinct`` draws.

        Without the covariance ``matrix``, or with fewer than two distinct draws, scales are used.

        Returns
        -------
        Preconditioner
            The preconditioner.
        """
        dim, constant = len(sds), ~(sds > _SMALLEST_SCALE)
        sds = np.where(constant, 1.0, sds) * np.sqrt(2.0 * dim)
        if matrix is None or distinct < 2:
            return replace(cls.scales(sds), centre=centre)
        matrix = (matrix + np.diag(constant)) * (2.0 * dim)
        if not (distinct >= 10 * dim and np.linalg.cond(matrix / np.outer(sds, sds)) < _SINGULAR):
            shrink = dim / (dim + distinct)
            matrix = (1.0 - shrink) * matrix + shrink * np.diag(sds**2)
        return replace(cls.covariance(matrix), centre=centre)

    def __str__(self) -> str:
        if self.factor.ndim == 0:
            return "identity" if float(self.factor) == 1.0 else f"length scale {float(self.factor):.6g}"
        return "scales" if self.factor.ndim == 1 else "covariance"

    @property
    def is_identity(self) -> bool:
        """Whether draws and scores stay as they are."""
        return self.factor.ndim == 0 and float(self.factor) == 1.0 and self.centre is None

    def require(self, dim: int) -> None:
        """Raise an `InputError` unless the preconditioner fits draws of ``dim`` dimensions."""
        if self.factor.ndim > 0 and self.factor.shape[0] != dim:
            raise InputError(f"The preconditioner is for {self.factor.shape[0]} dimensions, the draws have {dim}.")
        if self.centre is not None and self.centre.shape != (dim,):
            raise InputError(
                f"The centre of the preconditioner has shape {self.centre.shape}, the draws have {dim} dimensions."
            )

    def apply(self, draws: Array, scores: Array) -> tuple[Array, Array]:
        """Transform draws and scores.

        Parameters
        ----------
        draws : array
            Draws, (n, d).
        scores : array
            Scores, (n, d).

        Returns
        -------
        tuple of array
            Draws and scores in the new coordinates. The bits do not depend on n.

        Raises
        ------
        InputError
            If a value exceeds the overflow limit in the new coordinates.
        """
        return self.apply_to_draws(draws), self.apply_to_scores(scores)

    def apply_to_draws(self, draws: Array) -> Array:
        """Transform draws (n, d). The bits of a row do not depend on the others.

        Parameters
        ----------
        draws : array of shape (n, d)
            Draws.

        Returns
        -------
        array of shape (n, d)
            Preconditioned draws.
        """
        return self._require_range("draw", self._transform_draws(draws))

    def apply_to_scores(self, scores: Array) -> Array:
        """Transform scores (n, d). The bits of a row do not depend on the others.

        Parameters
        ----------
        scores : array of shape (n, d)
            Scores.

        Returns
        -------
        array of shape (n, d)
            Scores of the preconditioned draws.
        """
        return self._require_range("score", self._transform_scores(scores))

    def keeps_in_range(self, draw: float, score: float, limit: float = OVERFLOW_LIMIT) -> bool:
        """Return whether all draws and scores up to these magnitudes stay below a limit in the new coordinates."""
        draw_growth, score_growth = self._largest_growth
        return (draw + self._distance) * draw_growth < limit and (score + self._distance) * score_growth < limit

    def rows_in_range(self, block: Block, on_bad: str, limit: float = OVERFLOW_LIMIT) -> Flags:
        """Return a mask of the rows that stay below a limit in the new coordinates.

        Parameters
        ----------
        block : Block
            Draws and scores. Rows that are not finite are not in range.
        on_bad : {"raise", "skip"}
            Raise an `InputError` for the first row that is out of range, or only mask it.
        limit : float, default 1e100
            The limit.

        Returns
        -------
        array of bool
            The mask, (n,).
        """
        rows, dim = np.ones(len(block.draws), dtype=bool), block.draws.shape[1]
        draw_growth, score_growth = self._largest_growth
        parts: list[tuple[str, Array, float, Callable[[Array], Array]]] = [
            ("draw", block.draws, draw_growth, self._transform_draws)
        ]
        for first in range(0, block.scores.shape[1], dim):  # scores and second scores
            scores = block.scores[:, first : first + dim]
            parts.append(("score", scores, score_growth, self._transform_scores))
        for what, values, growth, transform in parts:
            if (largest_magnitude(values) + self._distance) * growth < limit:
                continue
            new = transform(values)
            inside = (np.abs(new) < limit).all(axis=1)
            if on_bad == "raise" and not inside.all():
                row = int(np.flatnonzero(~inside)[0])
                raise self._overflow("The {} of chain {}, draw {}".format(what, *block.ids[row]), new[row], limit)
            rows &= inside
        return rows

    def _transform_draws(self, draws: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            if self.centre is not None:
                draws = draws - self.centre
            if self.factor.ndim < 2:
                return np.asarray(draws / self.factor)
        from steinstream._engine.linalg import multiply  # loads numba only where it is needed

        return multiply(self._inverse, draws)

    def _transform_scores(self, scores: Array) -> Array:
        if self.factor.ndim < 2:
            with np.errstate(over="ignore", invalid="ignore"):
                return np.asarray(scores * self.factor)
        from steinstream._engine.linalg import multiply  # loads numba only where it is needed

        return multiply(self.factor, scores)

    def _require_range(self, what: str, values: Array) -> Array:
        """Return transformed values, or raise an `InputError` if one exceeds the overflow limit."""
        if not largest_magnitude(values) < OVERFLOW_LIMIT:
            raise self._overflow(f"A {what}", values, OVERFLOW_LIMIT)
        return values

    def _overflow(self, what: str, values: Array, limit: float) -> InputError:
        value = values[~(np.abs(values) < limit)][0]
        return InputError(
            f"{what} is {value:.3g} in the coordinates of the preconditioner ({self}), above the limit of {limit:g}.",
            "Use scales near the standard deviations of the draws, and scores that match the draws.",
        )

    @cached_property
    def _inverse(self) -> Array:
        return np.ascontiguousarray(np.linalg.inv(self.factor).T)

    @cached_property
    def _largest_growth(self) -> tuple[float, float]:
        """Upper bounds of the factors by which the largest coordinate of a draw and of a score may grow."""
        if self.factor.ndim < 2:
            return float(1.0 / self.factor.min()), float(self.factor.max())
        of_draws, of_scores = (float(np.abs(each).sum(axis=0).max()) for each in (self._inverse, self.factor))
        return of_draws, of_scores

    @cached_property
    def _distance(self) -> float:
        """Largest coordinate of the centre."""
        return 0.0 if self.centre is None else float(np.abs(self.centre).max(initial=0.0))


@dataclass(frozen=True)
class Warmup:
    """Preconditioner estimated from the first draws of a stream, which are held back until then.

    The first half of these draws is treated as burn-in and not used.

    Parameters
    ----------
    kind : str, default "auto"
        What to estimate: see `Preconditioner.estimate`.
    draws : int, default 1000
        Number of draws to wait for, at least 2.

    Raises
    ------
    InputError
        If there are fewer than 2 draws, or the kind is unknown.

    Examples
    --------
    >>> Warmup("scales", draws=500)
    Warmup(kind='scales', draws=500)
    """

    kind: str = "auto"
    draws: int = 1000

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str):
            raise InputError(
                f"The kind of a warm-up must be one of {', '.join(KINDS)}, got {self.kind!r}.",
                "Pass the number of draws by name: ss.Warmup(draws=500).",
            )
        as_kind(self.kind)
        object.__setattr__(self, "draws", positive(self.draws, "draws"))
        if self.draws < 2:
            raise InputError(f"A warm-up needs at least 2 draws, got {self.draws}.")

    def fit(self, draws: Array) -> Preconditioner:
        """Estimate the preconditioner from the first draws of the stream, (n, d).

        Parameters
        ----------
        draws : array of shape (n, d)
            First draws of the stream.

        Returns
        -------
        Preconditioner
            The preconditioner.
        """
        first = draws[: self.draws]
        return Preconditioner.estimate(self.kind, first[len(first) // 2 :])


@dataclass(frozen=True)
class Streaming:
    """Preconditioner that is estimated again whenever the number of draws has doubled.

    Each estimate uses the draws since the previous one, so burn-in is forgotten. The influences of the kept draws and
    their KSD are then computed again, at a cost of :math:`O(n^2 d)` for n kept draws. KSD values before and
    after a change are different measures.

    Parameters
    ----------
    kind : {"auto", "covariance", "scales"}, default "auto"
        What to estimate: see `Preconditioner.estimate`.
    first : int, default 100
        Number of draws before the first estimate, which uses the second half of them. Until then the preconditioner
        is the identity.
    forget : int, optional
        Largest number of draws in one estimate, and between two estimates. Default: no limit, so a late drift of the
        stream is followed late.
    centred : bool, default False
        Use the mean of the draws as the centre.

    Raises
    ------
    InputError
        If a number of draws is too small, or the kind cannot be estimated from a running stream.

    Examples
    --------
    >>> Streaming(first=200)
    Streaming(kind='auto', first=200, forget=None, centred=False)
    """

    kind: str = "auto"
    first: int = 100
    forget: int | None = None
    centred: bool = False

    def __post_init__(self) -> None:
        if self.kind not in STREAMING_KINDS:
            raise InputError(
                f"The preconditioner {self.kind!r} cannot be estimated from a running stream.",
                f"Choose one of {', '.join(STREAMING_KINDS)}.",
            )
        for name, value in (("first", self.first), ("forget", self.forget)):
            if value is not None:
                object.__setattr__(self, name, positive(value, name))
                if value < 4:
                    raise InputError(f"{name} must be a whole number of at least 4 draws, got {value!r}.")
        object.__setattr__(self, "centred", bool(self.centred))

    def __str__(self) -> str:
        return "streaming"


class DoublingWindow:
    """Moments of the draws since the number of draws last doubled.

    The first result is that of the second half of the ``first`` draws. A window has at most ``forget`` draws. Without
    ``covariance``, variances alone are accumulated.
    """

    def __init__(self, dim: int, first: int, forget: int | None = None, covariance: bool = True) -> None:
        self._dim, self._first, self._forget, self._covariance = dim, first, forget, covariance
        self.seen = 0
        """Number of draws so far."""
        self._due = first // 2  # number of draws at which the current window ends
        self._moments = Moments(dim, covariance)

    def steps_until_due(self, candidates: int) -> int:
        """Return the number of steps of ``candidates`` draws each before the window ends."""
        return -(-(self._due - self.seen) // candidates)

    def update(self, draws: Array) -> Moments | None:
        """Add draws (n, d) and return the moments of a window that ended, if it has a result."""
        self._moments.add(draws)
        self.seen += len(draws)
        if self.seen < self._due:
            return None
        window, self._moments = self._moments, Moments(self._dim, self._covariance)
        before_first = self.seen < self._first
        while self._due <= self.seen:
            self._due += min(self._due, self._forget or self._due)
        if before_first:
            self._due = self._first
            return None
        return window

    def state(self) -> dict[str, Any]:
        """Return counters and moments for a checkpoint."""
        return {"seen": self.seen, "due": self._due, "moments": self._moments.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from the result of `state`."""
        self.seen, self._due = state["seen"], state["due"]
        self._moments.restore(state["moments"])


class StreamingEstimator:
    """Estimates of a `Streaming` preconditioner."""

    def __init__(self, streaming: Streaming, dim: int) -> None:
        self.streaming = streaming
        self.changes: list[int] = []
        """Steps after which the preconditioner changed: the 100 most recent ones."""
        covariance = needs_covariance(streaming.kind, dim)
        self._window = DoublingWindow(dim, streaming.first, streaming.forget, covariance)

    def steps_until_due(self, candidates: int) -> int:
        """Return the number of steps of ``candidates`` draws each before the preconditioner may change."""
        return self._window.steps_until_due(candidates)

    def update(self, draws: Array, step: int) -> Preconditioner | None:
        """Add draws and return a new estimate if one is due.

        Parameters
        ----------
        draws : array
            Draws of the steps up to and including ``step``, (n, d).
        step : int
            Number of steps taken so far.

        Returns
        -------
        Preconditioner or None
            The new preconditioner. None if it does not change: no estimate is due, or the chain did not move.
        """
        window = self._window.update(draws)
        if window is None or window.distinct < 2:
            return None
        self.changes = [*self.changes, step][-_RECORDED_CHANGES:]
        centre = window.mean if self.streaming.centred else None
        return Preconditioner.from_moments(window.distinct, np.sqrt(window.variances), window.covariance, centre)

    def state(self) -> dict[str, Any]:
        """Return counters and moments for a checkpoint."""
        return {"changes": self.changes, "window": self._window.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from the result of `state`."""
        self.changes = state["changes"]
        self._window.restore(state["window"])


def needs_covariance(kind: str, dim: int) -> bool:
    """Return whether a preconditioner of this kind uses the full covariance, not only its diagonal."""
    return kind == "covariance" or (kind == "auto" and dim <= _COVARIANCE_LIMIT)


def as_kind(name: str) -> str:
    """Return the name of an estimated preconditioner, or raise an `InputError`."""
    if name not in KINDS:
        raise InputError(f"Unknown preconditioner {name!r}.", f"Choose one of {', '.join(KINDS)}, or pass {_FIXED}.")
    return name


def as_preconditioner(value: Preconditioner | ArrayLike) -> Preconditioner:
    """Convert a user's value to a fixed preconditioner.

    Parameters
    ----------
    value : Preconditioner or array_like
        A preconditioner, scales (d,), or a covariance (d, d).

    Returns
    -------
    Preconditioner
        The preconditioner.

    Raises
    ------
    InputError
        If the value is something else.

    Examples
    --------
    >>> str(as_preconditioner([1.0, 10.0]))
    'scales'
    """
    if isinstance(value, Preconditioner):
        return value
    if isinstance(value, np.ndarray | Sequence) and not isinstance(value, str | bytes):
        array = _as_floats(value, "A preconditioner")
        if array.ndim in (1, 2):
            return Preconditioner.scales(array) if array.ndim == 1 else Preconditioner.covariance(array)
    raise InputError(f"{reprlib.repr(value)} is not a preconditioner.", f"Pass {_FIXED}.")


def same_preconditioner(one: Preconditioner, other: Preconditioner) -> bool:
    """Return whether two preconditioners are equal to the last bit."""
    if (one.centre is None) != (other.centre is None) or not np.array_equal(one.factor, other.factor):
        return False
    return one.centre is None or other.centre is None or np.array_equal(one.centre, other.centre)


def _as_floats(value: ArrayLike, what: str) -> Array:
    try:
        if np.iscomplexobj(value):
            raise TypeError
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{what} must be an array of numbers, got {reprlib.repr(value)}.") from None


def _as_factor(value: ArrayLike) -> Array:
    """Validate a factor: positive scales or an invertible lower triangular matrix."""
    factor = _as_floats(value, "The factor of a preconditioner")
    if factor.ndim < 2:
        return _as_positive(factor, "The factor of a preconditioner", factor.ndim)
    if factor.ndim > 2 or factor.shape[0] != factor.shape[1] or np.triu(factor, 1).any():
        raise InputError(
            "The factor of a preconditioner must be a number, (d,) or lower triangular (d, d), got shape "
            f"{factor.shape}.",
            "Pass a covariance to Preconditioner.covariance.",
        )
    diagonal = np.abs(np.diagonal(factor))
    if not (np.abs(factor) < _LARGEST_SCALE).all() or not (diagonal > _SMALLEST_SCALE).all():
        raise InputError(
            f"The factor of a preconditioner must have values below {_LARGEST_SCALE:g}, and above {_SMALLEST_SCALE:g} "
            "on its diagonal."
        )
    return factor


def _as_centre(value: ArrayLike) -> Array:
    centre = _as_floats(value, "The centre of a preconditioner")
    if centre.ndim != 1 or not np.isfinite(centre).all():
        raise InputError(f"The centre of a preconditioner must be d finite numbers, got {reprlib.repr(value)}.")
    return centre


def _as_positive(value: ArrayLike, what: str, ndim: int) -> Array:
    array: AnyArray = _as_floats(value, what)
    shape = "a number" if ndim == 0 else "a vector of numbers"
    if array.ndim != ndim or not (np.isfinite(array).all() and (array > 0).all()):
        raise InputError(f"{what} must be {shape} above 0, got {value!r}.")
    if not ((array > _SMALLEST_SCALE) & (array < _LARGEST_SCALE)).all():
        raise InputError(
            f"{what} must be {shape} between {_SMALLEST_SCALE:g} and {_LARGEST_SCALE:g}, got {value!r}.",
            "Use a scale near the standard deviation of the draws.",
        )
    return array


def _median_distance(draws: Array) -> float:
    """Return the median distance between evenly spaced draws."""
    some = draws[:: -(-len(draws) // _MEDIAN_DRAWS)]
    some = some - some.mean(axis=0)  # avoids cancellation far from the origin
    squares = (some**2).sum(axis=1)
    distances = squares[:, None] + squares[None, :] - 2.0 * some @ some.T
    upper = distances[np.triu_indices(len(some), 1)]
    median = float(np.median(upper)) if len(upper) else 0.0
    distance = float(np.sqrt(median))
    return distance if distance > _SMALLEST_SCALE else 1.0
