"""Output of a command: text for a reader or one JSON object, warnings, and the exit code of ``--strict``."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, cast

import click

from steinstream.cli.help import PRINTING, option
from steinstream.cli.usage_errors import for_command
from steinstream.errors import InputError

if TYPE_CHECKING:
    from steinstream.cli.options import F

#: Exit code of ``--strict`` if a diagnostic check fired or a warning was given.
STRICT_CODE = 3


class Messages:
    """The output of a command: text or one JSON object; only warnings and errors if ``quiet``.

    If ``strict``, the command exits with code 3 after a warning.
    """

    def __init__(self, json: bool = False, quiet: bool = False, strict: bool = False) -> None:
        self._json, self._quiet, self._strict = json, quiet, strict
        self.warnings: list[str] = []
        self.draws_on_stdout = False  # if True, text goes to standard error

    def write_draws_to_stdout(self) -> None:
        """Reserve standard output for the kept draws; raise an `InputError` with ``--json``."""
        if self._json:
            raise InputError(
                "-o - and --json both write to standard output.", "Give -o the name of a file, or leave out --json."
            )
        self.draws_on_stdout = True

    def say(self, text: str) -> None:
        """Print a result, unless it is printed as JSON."""
        if not self._json and not self._quiet:
            click.echo(text, err=self.draws_on_stdout)

    def note(self, text: str) -> None:
        """Print a remark on the progress of the command to standard error."""
        if not self._quiet:
            click.echo(text, err=True)

    def warn(self, text: str) -> None:
        """Print a warning to standard error, once; with ``--strict`` it changes the exit code."""
        context = click.get_current_context(silent=True)
        text = text if context is None else for_command(text, context)
        if text in self.warnings:
            return
        self.warnings.append(text)
        click.echo(f"warning: {text}", err=True)

    def result(self, values: Mapping[str, Any]) -> None:
        """Print the result as JSON, if this is requested; numbers that are not finite become null."""
        if self._json:
            import json

            context = click.get_current_context(silent=True)
            command = {} if context is None else {"command": context.info_name}
            click.echo(json.dumps(_plain({**command, **values, "warnings": self.warnings})))

    def exit_if_strict(self) -> None:
        """Exit with code 3 if this is requested and a warning was given."""
        if self._strict and self.warnings:
            many = f"{len(self.warnings)} warnings" if len(self.warnings) > 1 else "1 warning"
            click.echo(f"--strict: {many}, exit code {STRICT_CODE}", err=True)
            sys.exit(STRICT_CODE)

    @contextmanager
    def collecting_warnings(self) -> Iterator[None]:
        """Print warnings of the library as those of the command."""
        with warnings.catch_warnings():
            show = warnings.showwarning

            def collect(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
                if issubclass(category, UserWarning):
                    self.warn(str(message))
                else:  # of a dependency, for developers
                    show(message, category, *where, **more)

            warnings.showwarning = collect
            yield


def _plain(value: Any) -> Any:
    """Convert to values that JSON knows."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bool | int | str | None):
        return value
    if hasattr(value, "tolist"):  # an array or a number of NumPy
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value)


def message_options(command: F) -> F:
    """Add ``--json``, ``--quiet`` and ``--strict``, and pass a `Messages` as the argument ``messages``."""

    @wraps(command)
    def with_messages(*, json: bool, quiet: bool, strict: bool, **values: Any) -> None:
        messages = Messages(json, quiet, strict)
        with messages.collecting_warnings():
            command(**values, messages=messages)
        messages.exit_if_strict()

    decorated: Any = with_messages
    for add in reversed(_OPTIONS):
        decorated = add(decorated)
    return cast("F", decorated)


_OPTIONS = (
    option("--json", is_flag=True, help="Print the result as one JSON object on standard output.", section=PRINTING),
    option("--quiet", is_flag=True, help="Print warnings and errors only.", section=PRINTING),
    option(
        "--strict",
        is_flag=True,
        help=f"Exit with code {STRICT_CODE} if a diagnostic check fires or a warning is given.",
        section=PRINTING,
    ),
)
