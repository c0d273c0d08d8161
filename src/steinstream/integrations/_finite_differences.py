"""Scores of a log density that cannot be differentiated, by central differences.

One score in d dimensions costs 2 d evaluations. Repeated states, such as those of a random walk that rejects, are
evaluated once. The evaluations can run in several processes, and finished scores can be stored in a file, from which
another call continues.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from steinstream._processes import evaluate_in_processes
from steinstream._typing import Array, Flags, Integers
from steinstream.errors import InputError, one_of, positive
from steinstream.integrations._stored_draws import for_distinct_states
from steinstream.io._limits import check_archive, require_held
from steinstream.io.atomic import replacing
from steinstream.io.errors import reading
from steinstream.running_moments import Moments

_log = logging.getLogger("steinstream")

_SAVE_SECONDS = 30.0


def finite_difference_scores(
    log_density: Callable[[Array], float],
    draws: ArrayLike,
    *,
    accuracy: float = 1e-15,
    step: ArrayLike | None = None,
    processes: int = 1,
    on_error: str = "raise",
    progress: Callable[[float], None] | None = None,
    checkpoint: str | PathLike[str] | None = None,
) -> Array:
    """Compute the scores of draws by central differences of a log density.

    Parameters
    ----------
    log_density : callable
        Function of one draw (d,) that returns the log density of the target, up to a constant. With several processes
        it must be defined at the top level of a module.
    draws : array_like
        Draws, (n, d) or (chains, n, d), in unconstrained space.
    accuracy : float, default 1e-15
        Relative accuracy of the log density. For a simulation, use the tolerance of its solver, for example 1e-6.
    step : float or array_like, optional
        Step in each parameter, a number or (d,). Default: the cube root of ``accuracy`` times the standard deviation of
        the parameter over the draws.
    processes : int, default 1
        Number of processes that evaluate the log density.
    on_error : {"raise", "nan"}
        What to do if the log density raises an exception: raise it, after finished scores were stored; or set the score
        to NaN, so that ``on_bad="skip"`` skips the draw.
    progress : callable, optional
        Called after each state with the finished fraction, 0 to 1.
    checkpoint : path, optional
        File (npz) for finished scores, which is written every 30 seconds and at the end. If it exists, the computation
        continues from it.

    Returns
    -------
    array
        Scores in the shape of ``draws``, for :func:`steinstream.thin`. A score is NaN where the log density is not
        finite.

    Raises
    ------
    InputError
        If an argument is invalid, the log density does not return a number, or the checkpoint belongs to other draws.

    Examples
    --------
    >>> draws = np.random.default_rng(0).normal(size=(100, 2))
    >>> scores = finite_difference_scores(lambda x: -0.5 * x @ x, draws)
    >>> bool(np.allclose(scores, -draws, atol=1e-6))
    True
    """
    one_of(("raise", "nan"), on_error, "on_error")
    positive(processes, "processes")
    _require_accuracy(accuracy)

    def scores_of(states: Array) -> Array:
        steps = _as_steps(step, accuracy, draws, states.shape[1])
        work = _Work(states, steps, None if checkpoint is None else Path(checkpoint))
        try:
            for state, score in _evaluated(log_density, work, processes, on_error):
                work.add(state, score)
                if progress is not None:
                    progress(work.fraction)
        finally:
            work.save()
        return work.scores

    result = for_distinct_states(scores_of, draws)
    bad = int((~np.isfinite(result)).any(axis=-1).sum())
    if bad:
        _log.warning(
            "%d of %d draws have no finite score, because the log density failed or is not finite near them; skip them "
            'with on_bad="skip".',
            bad,
            result[..., 0].size,
        )
    return result


class RunningFiniteDifferences:
    """Scores of a stream of draws by central differences, with steps that follow the scales of the draws so far.

    The step in each parameter is the cube root of ``accuracy`` times the standard deviation of the parameter over the
    draws so far. A state that repeats one of the same or the previous block is not evaluated again.

    Examples
    --------
    >>> score = RunningFiniteDifferences(lambda x: -0.5 * x @ x)
    >>> bool(np.allclose(score([[1.0, 2.0], [3.0, 4.0]]), [[-1.0, -2.0], [-3.0, -4.0]]))
    True
    """

    def __init__(self, log_density: Callable[[Array], float], accuracy: float = 1e-15) -> None:
        _require_accuracy(accuracy)
        self._log_density, self._accuracy = log_density, accuracy
        self._moments: Moments | None = None
        self._largest: Array = np.zeros(1)
        self._known: dict[bytes, Array] = {}

    def __call__(self, draws: ArrayLike) -> Array:
        """Return the scores of the next draws (n, d); NaN where the log density is not finite."""
        x = np.asarray(draws, dtype=np.float64)
        finite = x[np.isfinite(x).all(axis=1)]
        self._moments = self._moments or Moments(x.shape[1])
        self._moments.add(finite)
        self._largest = np.maximum(self._largest, np.abs(finite).max(axis=0, initial=0.0))
        steps = _steps(np.sqrt(self._moments.variances), self._largest, self._accuracy)
        known: dict[bytes, Array] = {}
        for state in x:
            key = state.tobytes()
            if key not in known:
                score = self._known.get(key)
                known[key] = central_difference(self._log_density, steps, state) if score is None else score
        self._known = known
        return np.array([known[state.tobytes()] for state in x]).reshape(x.shape)


class _Work:
    """Scores of distinct states, of which some are finished."""

    def __init__(self, states: Array, steps: Array, path: Path | None) -> None:
        self.states, self.steps, self._path = states, steps, path
        self.scores: Array = np.full(states.shape, np.nan)
        self.done: Flags = np.zeros(len(states), dtype=np.bool_)
        self._saved = time.monotonic()
        if path is not None and path.exists():
            self._load(path)

    @property
    def fraction(self) -> float:
        """Part of the states that is finished."""
        return float(self.done.mean())

    @property
    def missing(self) -> Integers:
        """States that are not finished."""
        return np.flatnonzero(~self.done)

    def add(self, state: int, score: Array) -> None:
        """Add the score of a state, and save from time to time."""
        self.scores[state], self.done[state] = score, True
        if time.monotonic() - self._saved > _SAVE_SECONDS:
            self.save()

    def save(self) -> None:
        """Write the finished scores."""
        if self._path is None:
            return
        with replacing(self._path) as file:
            np.savez(file, states=self.states, steps=self.steps, scores=self.scores, done=self.done)
        self._saved = time.monotonic()

    def _load(self, path: Path) -> None:
        with reading(path, "a checkpoint of finite differences"), np.load(path, allow_pickle=False) as stored:
            check_archive(path, stored.zip)
            require_held(path, "its content", sum(part.file_size for part in stored.zip.infolist()), "Delete it.")
            arrays = {name: stored[name] for name in ("states", "steps", "scores", "done") if name in stored}
        same = len(arrays) == 4 and arrays["done"].dtype == np.bool_ and arrays["done"].shape == self.done.shape
        for name in ("states", "steps"):
            same = same and np.array_equal(arrays[name], getattr(self, name))
        if not same or arrays["scores"].shape != self.scores.shape:
            raise InputError(
                f"{path} does not contain scores of these draws with these steps.",
                "Pass another file as checkpoint, or delete this one.",
            )
        self.scores, self.done = arrays["scores"].astype(np.float64), arrays["done"]


def _require_accuracy(accuracy: float) -> None:
    if not 0 < accuracy < 1:
        raise InputError(f"accuracy must lie between 0 and 1, got {accuracy!r}.")


def _steps(spread: Array, size: Array, accuracy: float) -> Array:
    """Return the step of each parameter by its standard deviation, or by its largest value if it is constant."""
    constant = spread <= 1e-12 * size
    return np.asarray(accuracy ** (1 / 3) * np.where(constant, np.where(size > 0, size, 1.0), spread))


def _as_steps(step: ArrayLike | None, accuracy: float, draws: ArrayLike, dim: int) -> Array:
    """Return the step of each parameter."""
    if step is None:
        rows = np.asarray(draws, dtype=np.float64).reshape(-1, dim)
        rows = rows[np.isfinite(rows).all(axis=1)]
        largest = np.abs(rows).max(axis=0, initial=0.0)
        with np.errstate(over="ignore"):  # squares of draws above 1e154
            spread = rows.std(axis=0) if len(rows) else np.zeros(dim)
        return _steps(np.where(np.isfinite(spread), spread, largest), largest, accuracy)
    try:
        steps = np.broadcast_to(np.asarray(step, dtype=np.float64), (dim,)).copy()
    except (TypeError, ValueError):
        raise InputError(f"step must be a number or {dim} numbers, got {step!r}.") from None
    if not ((steps > 0) & np.isfinite(steps)).all():
        raise InputError("Every step must be positive and finite.")
    return steps


def central_difference(log_density: Callable[[Array], float], steps: Array, state: Array) -> Array:
    """Return the gradient of a log density at one state by central differences."""
    gradient = np.empty(len(state))
    for i, (value, step) in enumerate(zip(state.tolist(), steps.tolist(), strict=True)):
        above, below = state.copy(), state.copy()
        above[i], below[i] = value + step, value - step
        distance = (value + step) - (value - step)  # of the stored numbers, not 2 * step, because of rounding
        rise = _number(log_density(above)) - _number(log_density(below))
        # The step may be below the resolution of the state, or the state at the end of the range of numbers.
        gradient[i] = rise / distance if 0 < distance < math.inf else np.nan
    return np.where(np.isfinite(gradient), gradient, np.nan)


def _number(value: object) -> float:
    array = np.asarray(value, dtype=np.float64)
    if array.size != 1:
        raise InputError(
            f"The log density returned an array of shape {array.shape}.",
            "Return one number for one draw of shape (d,).",
        )
    return float(array.reshape(()))


def _evaluated(
    log_density: Callable[[Array], float], work: _Work, processes: int, on_error: str
) -> Iterator[tuple[int, Array]]:
    """Evaluate the missing states, and yield each with its score."""
    missing = work.missing.tolist()
    gradient = partial(central_difference, log_density, work.steps)
    for place, score, error in evaluate_in_processes(gradient, [*work.states[missing]], processes, "log density"):
        if error is not None and (on_error == "raise" or isinstance(error, InputError)):
            raise error
        yield missing[place], np.full(work.states.shape[1], np.nan) if error is not None else score
