"""Errors that a user can act on: what was received, where, and what to do about it."""

from __future__ import annotations

import reprlib
import sys
from numbers import Integral
from pathlib import Path
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


class NotKeptError(InputError):
    """A file is not a kept set, and not a damaged one either: it may be a chain."""


class CheckpointError(InputError):
    """A checkpoint is truncated or damaged, was written by another program, or has other settings."""


class OutputError(SteinstreamError, OSError):
    """A file could not be written. An existing file of that name is unchanged."""


class SamplerError(SteinstreamError, RuntimeError):
    """A sampler in another process failed. ``kept`` holds the draws kept until then."""

    kept: Kept | None = None


class ProxyWarning(UserWarning):
    """The proxy of the gradient-free KSD is not close enough to the target.

    Parameters
    ----------
    problem : str
        What was found.
    remedy : str
        What to do in Python.
    """

    def __init__(self, problem: str, remedy: str) -> None:
        self.problem = problem
        super().__init__(f"{problem} {remedy}")


class ScoresWarning(UserWarning):
    """The scores do not match the draws: they belong to another density, or are in another order."""


class ParametersWarning(UserWarning):
    """Variables of a file are left out, because they are functions of other variables."""


class FailedRunsWarning(UserWarning):
    """Some evaluations of a function of the kept draws failed and are left out."""


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


def require_main_guard(instead: str = "") -> None:
    """Raise an `InputError` if a script starts processes outside of ``if __name__ == "__main__":``.

    Every new process imports the script and would start processes again. Interactive sessions have no script.

    Parameters
    ----------
    instead : str, optional
        What else the user can do.
    """
    import inspect

    main = sys.modules["__main__"]
    path, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    if path is None or (spec is not None and spec.name.endswith("__main__")):  # not imported by new processes
        return
    frame = inspect.currentframe()
    while frame is not None and not (frame.f_globals is main.__dict__ and frame.f_code.co_name == "<module>"):
        frame = frame.f_back
    if frame is None or _is_guarded(path, frame.f_lineno):
        return
    raise InputError(
        f'{path} starts worker processes in line {frame.f_lineno}, outside of if __name__ == "__main__":, and each of '
        "them would run the script again.",
        f'Put the call below if __name__ == "__main__":{instead and ", or "}{instead}.',
    )


def _is_guarded(path: str, line: int) -> bool:
    """Return whether a line of a script is inside an ``if`` that tests ``__name__``; True if it cannot be read."""
    import ast

    try:
        tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return True
    return any(
        isinstance(node, ast.If)
        and any(isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(node.test))
        and node.lineno <= line <= (node.end_lineno or node.lineno)
        for node in ast.walk(tree)
    )
