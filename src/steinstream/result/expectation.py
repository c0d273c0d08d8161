"""Expectations of functions of the draws, and the evaluation of such functions, which may fail for some draws."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from steinstream._typing import Array
from steinstream.errors import FailedRunsWarning, InputError, positive

NO_OUTPUT = "no output"


class FunctionValues(NamedTuple):
    """Values of a function for several draws."""

    values: Array
    """(k, m); the rows of failed evaluations have no meaning."""
    reasons: list[str]
    """Why each evaluation failed; empty if it did not."""
    shape: tuple[int, ...]
    """Shape of one value."""


def expectation(draws: Array, f: Callable[[Array], ArrayLike] | ArrayLike, weights: Array, processes: int) -> Any:
    """Average a function of one draw (d,), or an array with one row per kept draw, over the kept draws.

    Returns
    -------
    float or array
        The weighted mean without draws for which the function failed or is not finite; a `FailedRunsWarning` says
        which.
    """
    mass = weights
    if callable(f):
        states, inverse = np.unique(draws, axis=0, return_inverse=True)
        mass = np.bincount(inverse.ravel(), weights=weights).astype(np.float64)
        states, mass = states[mass > 0], mass[mass > 0]
        values, reasons, shape = evaluate_function(f, states, processes)
    else:
        values, reasons, shape = rows_of_array(f, len(draws), "kept draw")
    good = np.array([not why for why in reasons]) & (mass > 0)
    if not good.any():
        raise InputError(f"The function failed for all draws; the first: {reasons[0]}.", "Correct the function.")
    lost = 1.0 - mass[good].sum() / mass.sum()
    if lost > 0:
        why = Counter(why for why in reasons if why).most_common(1)[0][0]
        warnings.warn(
            f"{len(mass) - int(good.sum())} of {len(mass)} evaluations failed ({why}) and are left out, {lost:.1%} of "
            "the weight. The other weights are divided by their sum.",
            FailedRunsWarning,
            stacklevel=3,
        )
    return np.asarray(mass[good] @ values[good] / mass[good].sum()).reshape(shape)[()]


def evaluate_function(f: Callable[[Array], ArrayLike], states: Array, processes: int) -> FunctionValues:
    """Call a function for each state (k, d)."""
    from steinstream._processes import evaluate_in_processes  # imports multiprocessing

    positive(processes, "processes")
    outputs: list[Array | None] = [None] * len(states)
    reasons = [NO_OUTPUT] * len(states)
    first: Exception | None = None
    for place, value, error in evaluate_in_processes(f, [*states], processes, "function"):
        if error is None:
            try:
                outputs[place] = output = _as_numbers(value)
                reasons[place] = "" if np.isfinite(output).all() else "the output is not finite"
                continue
            except (TypeError, ValueError) as wrong:
                error = wrong
        first = first or error
        reasons[place] = f"{type(error).__name__}: {error}"
    finished = [output for output in outputs if output is not None]
    if not finished:
        raise InputError(
            f"All {len(states)} evaluations failed; one of them: {first!r}.", "Correct the function."
        ) from first
    shape, *others = {output.shape for output in finished}
    if others:
        raise InputError(f"The outputs have different shapes, {shape} and {others[0]}.", "Return arrays of one shape.")
    _require_numbers(shape)
    blank = np.full(shape, np.nan)
    values = np.array([blank if one is None else one for one in outputs]).reshape(len(states), -1)
    return FunctionValues(values, reasons, shape)


def rows_of_array(outputs: Any, count: int, what: str) -> FunctionValues:
    """Return the values in an array with ``count`` rows; a row that is not finite is a failed evaluation."""
    try:
        values = _as_numbers(outputs)
    except (TypeError, ValueError):
        raise InputError(f"The outputs are not an array of numbers: {type(outputs).__name__}.") from None
    if values.ndim == 0 or len(values) != count:
        raise InputError(
            f"The outputs have shape {values.shape}, but there are {count} {what}s.",
            f"Pass one row per {what}, with NaN for failed ones.",
        )
    _require_numbers(values.shape[1:])
    flat = values.reshape(count, -1)
    reasons = ["" if np.isfinite(row).all() else "the output is not finite" for row in flat]
    return FunctionValues(flat, reasons, values.shape[1:])


def _as_numbers(value: Any) -> Array:
    """Return an array of floats; raise a `TypeError` for complex numbers, whose imaginary part would be lost."""
    if np.asarray(value).dtype.kind == "c":
        raise TypeError("complex numbers")
    return np.asarray(value, dtype=np.float64)


def _require_numbers(shape: tuple[int, ...]) -> None:
    """Raise an `InputError` if an output of this shape contains no number."""
    if 0 in shape:
        raise InputError(f"Each output has shape {shape} and contains no number.", "Pass at least one number for each.")
