"""Growth and budget: how many draws to keep at least, and how much KSD^2 a removal may cost, as functions of step t.

Both are plain callables ``t -> value``; the presets below are callables with a name, so that they can be chosen on the
command line and written into a checkpoint.

>>> growth("sqrt")(np.array([1.0, 100.0]))
array([ 0.        , 21.45966026])
>>> str(growth("power:0.5")), str(budget("decaying", growth("linear")))
('power:0.5', 'decaying')
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steinstream.errors import InputError

Array = NDArray[np.float64]
Schedule = Callable[[Any], Any]

RULES = ("paper", "monotone")  # from where the budget counts: see Thinner


@dataclass(frozen=True)
class Everything:
    """Keep every draw."""

    def __call__(self, t: Array) -> Array:
        return np.full_like(t, np.inf)

    def __str__(self) -> str:
        return "none"


@dataclass(frozen=True)
class Linear:
    """t / 2: KSDT-LINEAR of the paper."""

    def __call__(self, t: Array) -> Array:
        return t / 2.0

    def __str__(self) -> str:
        return "linear"


@dataclass(frozen=True)
class SquareRoot:
    """sqrt(t log t): KSDT-SQRT of the paper."""

    def __call__(self, t: Array) -> Array:
        return np.sqrt(t * np.log(t))

    def __str__(self) -> str:
        return "sqrt"


@dataclass(frozen=True)
class Power:
    """sqrt(t^alpha log t) / 2 with 0 < alpha < 2."""

    alpha: float

    def __post_init__(self) -> None:
        _convert(self, "alpha")
        if not 0 < self.alpha < 2:
            raise InputError(f"The exponent of power growth must lie between 0 and 2, got {self.alpha}.")

    def __call__(self, t: Array) -> Array:
        return np.sqrt(t**self.alpha * np.log(t)) / 2.0

    def __str__(self) -> str:
        return f"power:{self.alpha!r}"


@dataclass(frozen=True)
class Constant:
    """The same number at every step: of draws as a growth, of KSD^2 as a budget."""

    value: float

    def __post_init__(self) -> None:
        _convert(self, "value")
        if not self.value >= 0:
            raise InputError(f"A constant schedule must not be negative, got {self.value}.")

    def __call__(self, t: Array) -> Array:
        return np.full_like(t, self.value)

    def __str__(self) -> str:
        return f"constant:{self.value!r}"


@dataclass(frozen=True)
class Decaying:
    """log(t) / f(t)^2 with the growth f: the budget of the paper's Theorem 1."""

    growth: Schedule

    def __call__(self, t: Array) -> Array:
        floor = evaluate(self.growth, t)
        return np.divide(np.log(t), floor**2, out=np.zeros_like(t), where=floor > 0)

    def __str__(self) -> str:
        return "decaying"


@dataclass(frozen=True)
class Share:
    """eta / n^2 with n draws kept at the moment: the budget under which E KSD^2 <= n (kappa + eta) / f(n)^2.

    It depends on the kept set, not on t alone, so the thinner reads ``eta`` and divides itself.
    """

    eta: float

    def __post_init__(self) -> None:
        _convert(self, "eta")
        if not self.eta >= 0:
            raise InputError(f"A shared budget must not be negative, got {self.eta}.")

    def __call__(self, t: Array) -> Array:
        return np.zeros_like(t)

    def __str__(self) -> str:
        return f"share:{self.eta!r}"


def growth(choice: str | float | Schedule) -> Schedule:
    """A growth by name (none, linear, sqrt, power:ALPHA, constant:N), by number (constant), or any callable."""
    if callable(choice):
        return choice
    name, _, value = str(choice).partition(":")
    match name, bool(value):
        case "none", False:
            return Everything()
        case "linear", False:
            return Linear()
        case "sqrt", False:
            return SquareRoot()
        case "power", True:
            return Power(_number(value, choice))
        case "constant", True:
            return Constant(_number(value, choice))
    return Constant(_number(choice, choice, "Growths are none, linear, sqrt, power:ALPHA, constant:N, or a number."))


def budget(choice: str | float | Schedule, floor: Schedule) -> Schedule:
    """A budget by name (decaying, constant:EPS, share:ETA), by number (constant), or any callable."""
    if callable(choice):
        return choice
    name, _, value = str(choice).partition(":")
    match name, bool(value):
        case "decaying", False:
            return Decaying(floor)
        case "constant", True:
            return Constant(_number(value, choice))
        case "share", True:
            return Share(_number(value, choice))
    return Constant(_number(choice, choice, "Budgets are decaying, constant:EPS, share:ETA, or a number."))


def evaluate(schedule: Schedule, t: Array) -> Array:
    """The schedule at many steps; a callable of the user is asked step by step."""
    if isinstance(schedule, Everything | Linear | SquareRoot | Power | Constant | Decaying | Share):
        return schedule(t)
    values = np.array([float(schedule(int(step))) for step in t], dtype=np.float64)
    if np.isnan(values).any():
        step = int(t[np.isnan(values)][0])
        raise InputError(f"The schedule {schedule!r} is not a number at step {step}.")
    return values


def name_of(schedule: Schedule, floor: Schedule) -> str | None:
    """By which name a growth or budget is found again, beside this growth; None for functions of one's own."""
    named = isinstance(schedule, Everything | Linear | SquareRoot | Power | Constant | Share)
    decaying = isinstance(schedule, Decaying) and schedule.growth == floor
    return str(schedule) if named or decaying else None


def _convert(schedule: Power | Constant | Share, name: str) -> None:
    """Make its number a plain one, which can be written down by name."""
    value = getattr(schedule, name)
    try:
        object.__setattr__(schedule, name, float(value))
    except (TypeError, ValueError):
        raise InputError(f"{type(schedule).__name__} must be given a number, got {value!r}.") from None


def _number(text: object, choice: object, hint: str = "A number must follow the colon.") -> float:
    try:
        return float(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InputError(f"Unknown schedule {choice!r}.", hint) from None
