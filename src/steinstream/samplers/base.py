"""Parts shared by the samplers: initial states, random numbers, evaluation of the target, validation.

The loop of a sampler is written once and runs both compiled and as plain Python. It calls the target through
:class:`TargetFunctions`. A compiled loop cannot raise: at an invalid log density or score it stops, writes the position
and the score to the row of the next draw, and returns the number of completed draws.
"""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from steinstream._typing import Array
from steinstream.errors import InputError
from steinstream.samplers import Draws
from steinstream.targets import whole_number
from steinstream.targets.function_pointer import function_pointers

#: Limit of the values of a score, equal to that of the validation. It is defined here, because the cache of compiled
#: code depends on the sources of the samplers.
SCORE_LIMIT = 1e100

_SHOWN = 10  # coordinates of a position in a message
_FINITE_SCORE = f"It must be finite and below {SCORE_LIMIT:g} wherever the log density is finite."


class TargetFunctions(NamedTuple):
    """Functions of a target in the form in which loops call them: see `steinstream.targets.CompiledTarget`.

    ``compiled`` is true if they are pointers to compiled functions. Functions that a loop does not call are None.
    """

    parameters: Any
    lanes: int
    compiled: bool
    log_densities: Any
    write_score: Any
    log_density_and_score: Any


class Current(NamedTuple):
    """Current position (d,) and score (d,) of a chain, updated in place by the loops."""

    position: Array
    score: Array


def target_functions(target: Any, *names: str) -> TargetFunctions:
    """Return the functions of these names: pointers if the target is compiled, else its Python functions."""
    compiled = target.compiled() if hasattr(target, "compiled") else None
    if compiled is not None:
        many, one = function_pointers(compiled)
        functions: dict[str, Any] = {"log_densities": many, "write_score": one, "log_density_and_score": one}
        return _select(functions, names, compiled.parameters, compiled.lanes, compiled=True)

    def log_densities(_: Any, positions: Array, out: Array) -> None:
        out[0] = log_density_at(target, positions[:, 0])

    def write_score(_: Any, position: Array, score: Array) -> None:
        score[:] = score_at(target.score, position)

    def log_density_and_score(_: Any, position: Array, score: Array) -> float:
        log_density = log_density_at(target, position)
        if math.isfinite(log_density):  # outside the support the score may be undefined
            write_score(_, position, score)
        return log_density

    functions = {
        "log_densities": log_densities,
        "write_score": write_score,
        "log_density_and_score": log_density_and_score,
    }
    return _select(functions, names, (), 1, compiled=False)


def _select(
    functions: dict[str, Any], names: tuple[str, ...], parameters: Any, lanes: int, *, compiled: bool
) -> TargetFunctions:
    """Leave out the other functions: a pointer is compiled when it is passed to a loop."""
    called = {name: function if name in names else None for name, function in functions.items()}
    return TargetFunctions(parameters, lanes, compiled, **called)


def log_density_at(target: Any, position: Array) -> float:
    """Call the Python function of the log density and convert the result to a float."""
    value = target.log_density(position.copy())
    where = f"The log density at {format_position(position)}"
    if np.ndim(value):
        raise InputError(f"{where} has shape {np.shape(value)}.", "Return one number.")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InputError(f"{where} is {value!r}.", "Return one number.") from None


def score_at(function: Any, position: Array, *arguments: Any) -> Array:
    """Call a Python function of the score and copy the result to a new array."""
    score = np.array(function(position.copy(), *arguments), dtype=np.float64)
    if score.shape != position.shape:
        raise InputError(
            f"The score at {format_position(position)} has shape {score.shape}.",
            f"It must have the shape of the position, {position.shape}.",
        )
    return score


def as_position(start: ArrayLike) -> Array:
    """Copy the start to a new vector."""
    try:
        position = np.array(start, dtype=np.float64)
    except (TypeError, ValueError):
        position = np.zeros(0)
    if position.ndim != 1 or not position.size or not np.isfinite(position).all():
        raise InputError(f"start must be a vector (d,) of finite numbers, got {start!r}.")
    return position


def random_state(seed: int) -> dict[str, Any]:
    """Return the initial state of the bit generator for a seed."""
    return dict(np.random.PCG64(whole_number(seed, "seed")).state)


def standard_normals(random: dict[str, Any], n: int, width: int) -> tuple[Array, dict[str, Any]]:
    """Return n rows of standard normal numbers, and the state of the bit generator after them."""
    bits: Any = np.random.PCG64()
    bits.state = random
    return np.random.Generator(bits).standard_normal((whole_number(n, "n"), width)), dict(bits.state)


def empty_draws(n: int, dimension: int) -> Draws:
    """Allocate a block of n draws, all marked as accepted."""
    return Draws(np.empty((n, dimension)), np.empty((n, dimension)), np.ones(n, dtype=np.bool_))


def check_score(position: Array, score: Array, when: str = "", remedy: str = _FINITE_SCORE) -> None:
    """Raise if a value of the score is not finite or too large."""
    bad = np.flatnonzero(~(np.abs(score) < SCORE_LIMIT))
    if len(bad):
        index = int(bad[0])
        raise InputError(
            f"The score at {format_position(position)} is {score[index]} in coordinate {index}{when}.", remedy
        )


def check_step(step: float, meaning: str) -> None:
    """Raise if a step size is not a positive finite number."""
    number = isinstance(step, int | float | np.number) and not isinstance(step, bool | np.complexfloating)
    if not number or not (math.isfinite(step) and step > 0):
        raise InputError(f"step must be a positive number, the {meaning}, got {step!r}.")


def describe(sampler: Any) -> dict[str, Any]:
    """Return the settings of a sampler as text and numbers; functions and targets by name."""
    values = {field.name: getattr(sampler, field.name) for field in fields(sampler)}
    return {"sampler": type(sampler).__name__} | {name: _as_text(value) for name, value in values.items()}


def _as_text(value: Any) -> Any:
    if value is None or isinstance(value, int | float | str):
        return value
    return getattr(value, "__qualname__", type(value).__name__)


def format_position(position: Array) -> str:
    """Format a position on one line, shortened if it is long."""
    numbers = ", ".join(f"{value:.9g}" for value in position[:_SHOWN])
    return f"[{numbers}]" if len(position) <= _SHOWN else f"[{numbers}, ... ({len(position)} numbers)]"
