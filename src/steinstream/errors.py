"""Errors that a user can act on: what was received, where, and what to do about it."""

from __future__ import annotations

import reprlib
from numbers import Integral
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steinstream.result import Kept


class SteinstreamError(Exception):
    """Base class of all errors that a user can correct.

    Parameters
    ----------
    problem : str
        What was received and what was expected, in one sentence.
    remedy : str, optional
        What to do, in one sentence.

    Examples
    --------
    >>> import steinstream as ss
    >>> try:
    ...     ss.Thinner(dim=0)
    ... except ss.SteinstreamError as error:
    ...     print(error.problem)
    dim must be a whole number of at least 1, got 0.

    """

    def __init__(self, problem: str, remedy: str = "") -> None:
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{problem} {remedy}".strip())

    def __reduce__(self) -> tuple[type[SteinstreamError], tuple[str, str]]:
        return type(self), (self.problem, self.remedy)  # both parts survive pickling between processes


class InputError(SteinstreamError, ValueError):
    """A value, an array or a file is invalid."""


class NegatedScoresError(InputError):
    """The sign of the scores is wrong: they are minus the gradient of the log density."""


class CheckpointError(InputError):
    """A checkpoint is truncated or damaged, was written by another program, or has other settings."""


class OutputError(SteinstreamError, OSError):
    """A file could not be written. An existing file of that name is unchanged."""


class SamplerError(SteinstreamError, RuntimeError):
    """A sampler in another process failed. ``kept`` holds the draws kept until then."""

    kept: Kept | None = None


class ProxyWarning(UserWarning):
    """The proxy of the gradient-free KSD is not close to the target."""


class ScoresWarning(UserWarning):
    """The scores do not match the draws: they belong to another density, or are in another order."""


def one_of(choices: tuple[str, ...], value: str, what: str) -> str:
    """Return the value if it is one of the choices, or raise an `InputError`."""
    if value not in choices:
        raise InputError(f"{what} must be {' or '.join(map(repr, choices))}, got {value!r}.")
    return value


def positive(value: int, what: str) -> int:
    """Return the value if it is a whole number from 1 to 2^53, or raise an `InputError`."""
    if isinstance(value, bool) or not isinstance(value, int | Integral) or value < 1:
        raise InputError(f"{what} must be a whole number of at least 1, got {reprlib.repr(value)}.")
    if value > 2**53:
        raise InputError(f"{what} must be at most 2^53, got {reprlib.repr(value)}.")
    return int(value)
