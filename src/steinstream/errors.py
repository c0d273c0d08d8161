"""Errors a user can act on: what was found, where, and what to do about it."""

from __future__ import annotations

import reprlib
from numbers import Integral
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steinstream.result import Kept


class SteinstreamError(Exception):
    """Something the user can repair: ``problem`` says what was found, ``remedy`` what to do, in a sentence each.

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
        return type(self), (self.problem, self.remedy)  # from one process to another as it is


class InputError(SteinstreamError, ValueError):
    """A value, an array or a file is not what was asked for."""


class NegatedScoresError(InputError):
    """The scores point away from the mass: they are minus the gradient of the log density."""


class CheckpointError(InputError):
    """A checkpoint is truncated, foreign, damaged, or belongs to other settings."""


class OutputError(SteinstreamError, OSError):
    """A file could not be written; whatever stood in its place is untouched."""


class SamplerError(SteinstreamError, RuntimeError):
    """A sampler that ran beside us has died. ``kept`` is what was kept of its draws until then."""

    kept: Kept | None = None


class ScoresWarning(UserWarning):
    """The scores that came do not fit the draws: they are of another density, or in another order."""


class PreconditionerWarning(UserWarning):
    """Nobody chose coordinates, and the draws are much wider or narrower than the kernel, or than each other."""


def one_of(choices: tuple[str, ...], value: str, what: str) -> str:
    """The value, if it is one of the choices."""
    if value not in choices:
        raise InputError(f"{what} must be {' or '.join(map(repr, choices))}, got {value!r}.")
    return value


def positive(value: int, what: str) -> int:
    """The value, if it is a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int | Integral) or value < 1:
        raise InputError(f"{what} must be a whole number of at least 1, got {reprlib.repr(value)}.")
    return int(value)
