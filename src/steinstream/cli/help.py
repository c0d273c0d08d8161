"""Help of a command: its options in sections, the most used ones first.

Some options are generated from metadata of the library (settings, methods). Importing that takes longer than printing
the list of commands, so `Command` generates them only when the command itself is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import click

from steinstream.cli.usage_errors import for_command
from steinstream.errors import SteinstreamError

F = TypeVar("F", bound=Callable[..., Any])

# Titles of the sections.
MOST_USED, SELECTION, MEASURE, INPUT = "Most used options", "Number and choice of draws", "Measuring KSD", "Input"
OTHER_METHODS, CHECKPOINTS = "Other methods", "Stop and resume"
WORKERS, DASHBOARD, PRINTING, OTHER = "Workers", "Dashboard", "Printing", "Options"
VALIDATION = "Validation of the input"

#: Titles of the sections that the metadata of the settings name.
SECTIONS = {"most used": MOST_USED, "selection": SELECTION, "measure": MEASURE, "validation": VALIDATION}

#: Order of the sections in the help: rarely used options come last.
ORDER = (
    *(MOST_USED, INPUT, SELECTION, CHECKPOINTS, DASHBOARD, PRINTING),
    *(MEASURE, OTHER_METHODS, WORKERS, VALIDATION, OTHER),
)


class Option(click.Option):
    """An option with a section in the help, which shows the default if there is one."""

    def __init__(self, *args: Any, section: str = OTHER, **attributes: Any) -> None:
        super().__init__(*args, **{"show_default": attributes.get("default") is not None, **attributes})
        self.section = section
        if self.metavar is None and isinstance(self.type, click.types.IntParamType | click.types.FloatParamType):
            self.metavar = "N" if isinstance(self.type, click.types.IntParamType) else "NUMBER"


class NumberRange(click.FloatRange):
    """A range of numbers without NaN, which compares as false with both ends."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Convert the value, or raise an error of click."""
        number: float = super().convert(value, param, ctx)
        if number != number:
            self.fail("nan is not a number.", param, ctx)
        return number


#: Declares an option; ``section`` is its section in the help.
option = partial(click.option, cls=Option)


def generated(options: Callable[[], Sequence[click.Option]]) -> Callable[[F], F]:
    """Return a decorator that adds options to a `Command` when it is first used."""

    def decorate(command: F) -> F:
        command.__dict__["generated_options"] = [options, *command.__dict__.get("generated_options", ())]
        return command

    return decorate


class Command(click.Command):
    """A command with sections in its help. Generated options follow the required ones."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._generators = list(getattr(self.callback, "generated_options", ()))

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return all parameters; the first call generates those that are not declared."""
        if self._generators:
            new = [option for generate in self._generators for option in generate()]
            required = [parameter for parameter in self.params if parameter.required]
            self.params = [*required, *new, *(parameter for parameter in self.params if not parameter.required)]
            self._generators = []
        return super().get_params(ctx)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; the remedy of an error names options of this command."""
        import logging  # not for the help

        logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # Zarr's tasks: errors are reported where they matter
        try:
            return super().invoke(ctx)
        except SteinstreamError as error:
            error.remedy = for_command(error.remedy, ctx)
            raise

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections in the order of `ORDER`."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            line = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if line is not None:
                sections.setdefault(getattr(parameter, "section", OTHER), []).append(line)
        for title in sorted(sections, key=ORDER.index):
            with formatter.section(title):
                formatter.write_dl(sections[title])
