r"""Growth and budget schedules: functions of the step number t.

A growth :math:`f(t)` is the smallest number of draws that may be kept after step t. A budget :math:`\epsilon(t)` is the
increase of the objective that the removals of step t may cause. A schedule is any callable that takes t and returns the
value, a number of at least 0; other values raise an error that names the step. The classes in this module are
schedules with a text form, so that they can be chosen on the command line and stored in a checkpoint.

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

from steinstream._formatting import nearest
from steinstream._typing import Array
from steinstream.errors import InputError

Schedule = Callable[[Any], Any]

#: What the budget is measured against: see the parameter ``rule`` of :class:`~steinstream.Thinner`.
RULES = ("paper", "monotone")

_GROWTHS = "Growths are none, linear, sqrt, power:ALPHA, constant:N, or a number."
_BUDGETS = "Budgets are decaying, constant:EPS, share:ETA, or a number."


class NamedSchedule:
    """Base class of the schedules that have a text form, ``str(schedule)``. They accept an array of steps."""

    def __call__(self, t: Array) -> Array:
        raise NotImplementedError

    def _convert(self, name: str) -> None:
        """Convert a parameter to float, so that the text form is a plain number."""
        value = getattr(self, name)
        try:
            object.__setattr__(self, name, float(value))
        except (TypeError, ValueError):
            raise InputError(f"{name} of {type(self).__name__} must be a number, got {value!r}.") from None


@dataclass(frozen=True)
class KeepAll(NamedSchedule):
    """Growth that keeps every draw; text form ``none``.

    >>> KeepAll()(np.array([1.0, 2.0]))
    array([inf, inf])
    """

    def __call__(self, t: Array) -> Array:
        return np.full_like(t, np.inf)

    def __str__(self) -> str:
        return "none"


@dataclass(frozen=True)
class Linear(NamedSchedule):
    """Growth :math:`t / 2`, KSDT-LINEAR of the paper; text form ``linear``.

    >>> Linear()(np.array([1.0, 100.0]))
    array([ 0.5, 50. ])
    """

    def __call__(self, t: Array) -> Array:
        return t / 2.0

    def __str__(self) -> str:
        return "linear"


@dataclass(frozen=True)
class SquareRoot(NamedSchedule):
    r"""Growth :math:`\sqrt{t \log t}`, KSDT-SQRT of the paper; text form ``sqrt``.

    >>> SquareRoot()(np.array([1.0, 100.0]))
    array([ 0.        , 21.45966026])
    """

    def __call__(self, t: Array) -> Array:
        return np.sqrt(t * np.log(t))

    def __str__(self) -> str:
        return "sqrt"


@dataclass(frozen=True)
class Power(NamedSchedule):
    r"""Growth :math:`\sqrt{t^\alpha \log t} / 2`; text form ``power:ALPHA``.

    Parameters
    ----------
    alpha : float
        Exponent, between 0 and 2.

    Raises
    ------
    InputError
        If the exponent is not between 0 and 2.

    Examples
    --------
    >>> Power(1.5)(np.array([1.0, 100.0]))
    array([ 0.        , 33.93070212])
    """

    alpha: float

    def __post_init__(self) -> None:
        self._convert("alpha")
        if not 0 < self.alpha < 2:
            raise InputError(f"The exponent of power growth must lie between 0 and 2, got {self.alpha}.")

    def __call__(self, t: Array) -> Array:
        return np.sqrt(t**self.alpha * np.log(t)) / 2.0

    def __str__(self) -> str:
        return f"power:{self.alpha!r}"


@dataclass(frozen=True)
class Constant(NamedSchedule):
    """The same value at every step, as a growth or as a budget; text form ``constant:VALUE``.

    Parameters
    ----------
    value : float
        The value, at least 0.

    Raises
    ------
    InputError
        If the value is negative.

    Examples
    --------
    >>> Constant(20)(np.array([1.0, 100.0]))
    array([20., 20.])
    """

    value: float

    def __post_init__(self) -> None:
        self._convert("value")
        if not self.value >= 0:
            raise InputError(f"A constant schedule must not be negative, got {self.value}.")

    def __call__(self, t: Array) -> Array:
        return np.full_like(t, self.value)

    def __str__(self) -> str:
        return f"constant:{self.value!r}"


@dataclass(frozen=True)
class Decaying(NamedSchedule):
    r"""Budget :math:`\log(t) / f(t)^2` with the growth f, as in Theorem 1 of the paper; text form ``decaying``.

    Parameters
    ----------
    growth : callable
        The growth f.

    Examples
    --------
    >>> Decaying(Linear())(np.array([1.0, 100.0])).round(6)
    array([0.      , 0.001842])
    """

    growth: Schedule

    def __call__(self, t: Array) -> Array:
        floor = evaluate(self.growth, t)
        return np.divide(np.log(t), floor**2, out=np.zeros_like(t), where=floor > 0)

    def __str__(self) -> str:
        return "decaying"


@dataclass(frozen=True)
class Share(NamedSchedule):
    r"""Budget :math:`\eta / n^2` with n the number of kept draws; text form ``share:ETA``.

    After t steps with independent draws, :math:`E\, \mathrm{KSD}^2 \le t (\kappa + \eta) / f(t)^2`. The budget depends
    on the kept set and not on t alone: the thinner reads ``eta`` and divides by :math:`n^2`, and the schedule itself is
    0.

    Parameters
    ----------
    eta : float
        The share :math:`\eta`, at least 0.

    Raises
    ------
    InputError
        If the share is negative.

    Examples
    --------
    >>> Share(0.5).eta, str(Share(0.5))
    (0.5, 'share:0.5')
    """

    eta: float

    def __post_init__(self) -> None:
        self._convert("eta")
        if not self.eta >= 0:
            raise InputError(f"The share of a budget must not be negative, got {self.eta}.")

    def __call__(self, t: Array) -> Array:
        return np.zeros_like(t)

    def __str__(self) -> str:
        return f"share:{self.eta!r}"


def growth(choice: str | float | Schedule) -> Schedule:
    """Return the growth schedule of a name, a number or a callable.

    Parameters
    ----------
    choice : str, float or callable
        ``"none"``, ``"linear"``, ``"sqrt"``, ``"power:ALPHA"``, ``"constant:N"``, a number (constant), or a function of
        the step number.

    Returns
    -------
    callable
        The schedule; a callable is returned unchanged.

    Raises
    ------
    InputError
        If the name is unknown or its number is invalid.

    Examples
    --------
    >>> growth("power:1.5"), growth(20)
    (Power(alpha=1.5), Constant(value=20.0))
    """
    if callable(choice):
        return choice
    if not isinstance(choice, str):
        return Constant(_number(choice, choice, "growth", _GROWTHS))
    name, _, value = choice.partition(":")
    match name, bool(value):
        case "none", False:
            return KeepAll()
        case "linear", False:
            return Linear()
        case "sqrt", False:
            return SquareRoot()
        case "power", True:
            return Power(_number(value, choice, "growth", _GROWTHS))
        case "constant", True:
            return Constant(_number(value, choice, "growth", _GROWTHS))
    suggestion = nearest(name, ("none", "linear", "sqrt", "power", "constant"))
    return Constant(_number(choice, choice, "growth", suggestion + _GROWTHS))


def budget(choice: str | float | Schedule, floor: Schedule) -> Schedule:
    """Return the budget schedule of a name, a number or a callable.

    Parameters
    ----------
    choice : str, float or callable
        ``"decaying"``, ``"constant:EPS"``, ``"share:ETA"``, a number (constant), or a function of the step number.
    floor : callable
        The growth schedule, which ``"decaying"`` depends on.

    Returns
    -------
    callable
        The schedule; a callable is returned unchanged.

    Raises
    ------
    InputError
        If the name is unknown or its number is invalid.

    Examples
    --------
    >>> budget("share:0.5", SquareRoot()), budget(0, SquareRoot())
    (Share(eta=0.5), Constant(value=0.0))
    """
    if callable(choice):
        return choice
    if not isinstance(choice, str):
        return Constant(_number(choice, choice, "budget", _BUDGETS))
    name, _, value = choice.partition(":")
    match name, bool(value):
        case "decaying", False:
            return Decaying(floor)
        case "constant", True:
            return Constant(_number(value, choice, "budget", _BUDGETS))
        case "share", True:
            return Share(_number(value, choice, "budget", _BUDGETS))
    suggestion = nearest(name, ("decaying", "constant", "share"))
    return Constant(_number(choice, choice, "budget", suggestion + _BUDGETS))


def evaluate(schedule: Schedule, t: Array) -> Array:
    """Evaluate a schedule at an array of steps; a user's function is called once per step.

    Returns
    -------
    ndarray of shape (n,)
        Values of the schedule.

    Raises
    ------
    InputError
        If a value of a function is not a number, is NaN or is negative.

    Examples
    --------
    >>> evaluate(lambda t: 2 * t, np.array([1.0, 3.0]))
    array([2., 6.])
    """
    if isinstance(schedule, NamedSchedule):
        return schedule(t)
    return np.array([_value_at(schedule, int(step)) for step in t], dtype=np.float64)


def _value_at(schedule: Schedule, step: int) -> float:
    """Return the value of a function of the user at a step."""
    returned = schedule(step)
    try:
        if isinstance(returned, str | bytes):
            raise TypeError("text")
        value = float(returned)
    except (TypeError, ValueError, OverflowError):
        shown = repr(returned)
        raise InputError(
            f"The schedule {schedule!r} is not a number at step {step}: it returned "
            f"{shown if len(shown) <= 80 else type(returned).__name__}.",
            "Return one number for each step.",
        ) from None
    if not value >= 0.0:
        what = "not a number" if np.isnan(value) else f"negative ({value})"
        raise InputError(f"The schedule {schedule!r} is {what} at step {step}.", "Return a number of at least 0.")
    return value


def name_of(schedule: Schedule, floor: Schedule) -> str | None:
    """Return the text form from which :func:`growth` or :func:`budget`, with the growth ``floor``, restores a schedule.

    Returns
    -------
    str or None
        The text form. None for a function of the user, and for a decaying budget of another growth.

    Examples
    --------
    >>> name_of(Share(1), SquareRoot()), name_of(Decaying(Linear()), SquareRoot())
    ('share:1.0', None)
    """
    if isinstance(schedule, Decaying) and schedule.growth != floor:
        return None
    return str(schedule) if isinstance(schedule, NamedSchedule) else None


def _number(text: object, choice: object, what: str, remedy: str) -> float:
    """Convert the number of a schedule; the error names the whole choice."""
    try:
        return float(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InputError(f"Unknown {what} {choice!r}.", remedy) from None
