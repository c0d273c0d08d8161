"""What all samplers share: how a chain begins, what its random numbers are, how a target is called, what is checked.

A sampler's loop is written once, for the compiler and for Python alike, and calls the target through
`Evaluations`. It cannot raise: at a value that is no density or no score it stops, leaves the position and the
score where the next draw would be, and returns the log density and the number of draws made (`check`).
"""

from __future__ import annotations

import math
import warnings
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from steinstream.errors import InputError
from steinstream.samplers import Draws, SamplerWarning, State
from steinstream.targets import Array, whole_number
from steinstream.targets.function_pointer import pointers

HUGE = 1e100  # beyond this a squared score overflows; the thinner refuses such draws too
_STUCK = 1000  # so many proposals, none of them accepted, are worth a warning
_SHOWN = 10  # numbers of a position in a message
_FINITE_SCORE = f"It must be finite and below {HUGE:g} wherever the log density is finite."


class Evaluations(NamedTuple):
    """A target's functions as a loop calls them: see `steinstream.targets.Compiled`."""

    compiled: bool
    log_densities: Any
    write_score: Any
    log_density_and_score: Any
    parameters: Any
    lanes: int


def evaluations(target: Any) -> Evaluations:
    """The compiled functions of a target as pointers, or its Python functions in the same form."""
    compiled = target.compiled() if hasattr(target, "compiled") else None
    if compiled is not None:
        many, one = pointers(compiled)
        return Evaluations(True, many, one, one, compiled.parameters, compiled.lanes)

    def log_densities(_: Any, positions: Array, out: Array) -> None:
        out[0] = log_density_at(target, positions[:, 0])

    def write_score(_: Any, position: Array, score: Array) -> None:
        score[:] = score_at(target.score, position)

    def log_density_and_score(_: Any, position: Array, score: Array) -> float:
        log_density = log_density_at(target, position)
        if math.isfinite(log_density):  # elsewhere there need be no score
            write_score(_, position, score)
        return log_density

    return Evaluations(False, log_densities, write_score, log_density_and_score, (), 1)


def log_density_at(target: Any, position: Array) -> float:
    """The log density by the target's Python function, as a number."""
    value = target.log_density(position.copy())
    if np.ndim(value):
        raise InputError(f"The log density at {shown(position)} has shape {np.shape(value)}.", "Return one number.")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InputError(f"The log density at {shown(position)} is {value!r}.", "Return one number.") from None


def score_at(function: Any, position: Array, *more: Any) -> Array:
    """The score by a Python function, in an array of its own."""
    score = np.array(function(position.copy(), *more), dtype=np.float64)
    if score.shape != position.shape:
        raise InputError(
            f"The score at {shown(position)} has shape {score.shape}.", f"It must be {position.shape}, as the position."
        )
    return score


def begin(target: Any, start: ArrayLike, seed: int) -> State:
    """A chain at ``start`` that needs both the log density and the score there."""
    position = first_position(start)
    log_density = log_density_at(target, position)
    if not math.isfinite(log_density):
        raise InputError(f"The log density at {shown(position)} is {log_density}.", "Start where it is finite.")
    score = score_at(target.score, position)
    check_score(position, score)
    return State(position, log_density, score, random_state(seed))


def first_position(start: ArrayLike) -> Array:
    """The start as a vector of its own."""
    try:
        position = np.array(start, dtype=np.float64)
    except (TypeError, ValueError):
        position = np.zeros(0)
    if position.ndim != 1 or not position.size or not np.isfinite(position).all():
        raise InputError(f"start is {start!r}.", "Give a vector (d,) of finite numbers.")
    return position


def random_state(seed: int) -> dict[str, Any]:
    """The random numbers that belong to a seed, before the first was drawn."""
    return dict(np.random.PCG64(whole_number(seed, "seed")).state)


def normals(random: dict[str, Any], n: int, width: int) -> tuple[Array, dict[str, Any]]:
    """The next n rows of standard normal numbers, and where the stream of them then is."""
    bits: Any = np.random.PCG64()
    bits.state = random
    return np.random.Generator(bits).standard_normal((whole_number(n, "n"), width)), dict(bits.state)


def empty_block(n: int, dimension: int) -> Draws:
    """Room for n draws, all of them accepted until a sampler says otherwise."""
    return Draws(np.empty((n, dimension)), np.empty((n, dimension)), np.ones(n, dtype=np.bool_))


def require_density(state: State) -> None:
    """Only with a log density can a proposal be compared with the state."""
    if not math.isfinite(state.log_density):
        raise InputError(
            f"The log density of the state is {state.log_density}.",
            "Begin with init(state.position, seed) of this sampler.",
        )


def metropolis(
    sampler: Any, state: State, n: int, loop: Any, compiled_loop: Any, names: tuple[str, ...]
) -> tuple[State, Draws]:
    """The next n draws by one of these loops, which takes the target's functions of these names before all else."""
    require_density(state)
    dimension = len(state.position)
    noise, random = normals(state.random, n, dimension + 2)
    block = empty_block(n, dimension)
    position, score = state.position.copy(), state.score.copy()
    target = evaluations(sampler.target)
    functions = [getattr(target, name) for name in names]
    run = compiled_loop if target.compiled else loop
    reached, done = run(*functions, float(sampler.step), position, state.log_density, score, noise, *block)
    check(state, block, reached, done)
    warn_if_stuck(block, sampler.step)
    accepted = state.accepted + int(block.accepted.sum())
    return State(position, float(reached), score, random, state.steps + n, accepted), block


def check(state: State, block: Draws, log_density: float, done: int) -> None:
    """Raise if the loop stopped before its block was full, with what it met."""
    if done == len(block.draws):
        return
    position, step = block.draws[done], state.steps + done + 1
    if math.isnan(log_density) or log_density == math.inf:
        raise InputError(
            f"The log density at {shown(position)} is {log_density}, proposed in step {step}.",
            "It must be a finite number, or -inf where there is no density.",
        )
    check_score(position, block.scores[done], f", proposed in step {step}")


def check_score(position: Array, score: Array, when: str = "", remedy: str = _FINITE_SCORE) -> None:
    """Raise if the score has a value with which nothing can be done."""
    bad = np.flatnonzero(~(np.abs(score) < HUGE))
    if len(bad):
        problem = f"The score at {shown(position)} is {score[bad[0]]} in coordinate {int(bad[0])}{when}."
        raise InputError(problem, remedy)


def warn_if_stuck(block: Draws, step: float) -> None:
    """Say so if a long block of proposals accepted none."""
    proposals = len(block.accepted)
    if proposals >= _STUCK and not block.accepted.any():
        warnings.warn(
            f"None of {proposals} proposals was accepted with step {step:g}: the chain stands still. "
            f"Try step {step / 10:g}, or let steinstream.samplers.adapted find one.",
            SamplerWarning,
            stacklevel=4,
        )


def require_step(step: float, meaning: str) -> None:
    """Raise if it is not a step size."""
    number = isinstance(step, int | float | np.number) and not isinstance(step, bool | np.complexfloating)
    if not number or not (math.isfinite(step) and step > 0):
        raise InputError(f"step is {step!r}.", f"Give a positive {meaning}.")


def settings(sampler: Any) -> dict[str, Any]:
    """A sampler in plain words and numbers, to be stored beside its draws; functions and targets by name."""
    values = {field.name: getattr(sampler, field.name) for field in fields(sampler)}
    return {"sampler": type(sampler).__name__} | {name: _plain(value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, int | float | str):
        return value
    return getattr(value, "__qualname__", type(value).__name__)


def shown(position: Array) -> str:
    """A position on one line; of a long one the beginning."""
    numbers = ", ".join(f"{value:.9g}" for value in position[:_SHOWN])
    return f"[{numbers}]" if len(position) <= _SHOWN else f"[{numbers}, ... ({len(position)} numbers)]"
