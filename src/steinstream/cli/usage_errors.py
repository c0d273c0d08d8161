"""Errors in the use of the command line, in plain language: the problem, and what to type instead."""

from __future__ import annotations

import re
from typing import Any

import click

from steinstream._formatting import nearest


class Commands(click.Group):
    """A group that lists its commands in the order of their declaration and suggests a command for a misspelt one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command, or raise a `UsageProblem` with a suggestion."""
        name = args[0]
        if ctx.resilient_parsing or name in self.commands:
            return super().resolve_command(ctx, args)
        remedy = nearest(name, self.commands, most=2).strip() or f"The commands are {', '.join(self.commands)}."
        if not name.startswith("-") and ("." in name or "/" in name):
            remedy = f"A file follows a command: {ctx.command_path} thin {name} -o kept.npz"
        raise UsageProblem(f"unknown command {name}.", remedy)


class UsageProblem(click.ClickException):
    """An error of the command line with its remedy."""

    def __init__(self, problem: str, remedy: str) -> None:
        self.remedy = remedy
        super().__init__(problem)


_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
_OF_COMMAND = re.compile(r"steinstream (\w+)[^.;,]*$")
_SETTING = re.compile(r"\b(\w+)(=\S+)? \((--([\w-]+)[^)]*)\)")


def for_command(text: str, context: click.Context) -> str:
    """Adapt a message of the library to the command that prints it.

    A setting in Python is replaced by its option. An option that the command does not have is written with a command
    that has it.

    Returns
    -------
    str
        The message: for ``steinstream ksd``, ``on_bad="skip" (--on-bad skip)`` becomes ``steinstream thin --on-bad
        skip``.
    """
    text = _SETTING.sub(
        lambda found: found[3] if found[2] or found[1] == found[4].replace("-", "_") else found[0], text
    )
    group = context.find_root().command
    if not isinstance(group, Commands):
        return text
    mine = option_names(context.command)

    def with_command(option: re.Match[str]) -> str:
        named = _OF_COMMAND.search(text, 0, option.start())
        if option[0] in mine or named:
            return option[0]
        for name in ("refine", "thin", *group.commands):
            if option[0] in option_names(group.commands[name]):
                return f"steinstream {name} {option[0]}"
        return option[0]

    return _OPTION.sub(with_command, text)


def option_names(command: click.Command) -> set[str]:
    """Return all spellings of the options of a command."""
    parameters = command.get_params(click.Context(command))
    return {name for each in parameters for name in (*each.opts, *each.secondary_opts) if name.startswith("-")}


def problem_and_remedy(error: click.ClickException) -> tuple[str, str]:
    """Return an error of click as a problem and its remedy."""
    if isinstance(error, UsageProblem):
        return error.message, error.remedy
    context: click.Context | None = getattr(error, "ctx", None)
    command = context.command_path if context else "steinstream"
    more = f"See {command} --help."
    if isinstance(error, click.NoSuchOption):
        known = [name for option in _options(context) for name in (*option.opts, *option.secondary_opts)]
        return f"unknown option {error.option_name}.", nearest(error.option_name, known, most=2) + more
    if isinstance(error, click.MissingParameter) and error.param:
        return f"{_name(error.param)} is missing.", f"Example: {_example(context)}"
    if isinstance(error, click.BadParameter) and error.param:
        problem = f"{_name(error.param)}: {lowered(error.message)}"
        return _plain(problem), _remedy(error) or more
    if isinstance(error, click.BadOptionUsage) and "requires" in error.message:
        return lowered(error.message), f"Type it after {error.option_name}."
    return lowered(error.format_message()).rstrip(".") + ".", more


def _options(context: click.Context | None) -> list[click.Option]:
    return [each for each in context.command.params if isinstance(each, click.Option)] if context else []


def _name(parameter: click.Parameter) -> str:
    """Return the name of a parameter as it is typed, or as the help shows it."""
    return " / ".join(parameter.opts) if isinstance(parameter, click.Option) else (parameter.name or "").upper()


def _remedy(error: click.BadParameter) -> str:
    """Suggest a choice, or describe the numbers that are valid."""
    kind: Any = error.param.type if error.param else None
    given = error.message.split("'")[1:2]
    if isinstance(kind, click.Choice):
        return nearest(given[0], map(str, kind.choices), most=2).strip() if given else ""
    if isinstance(kind, click.Path):
        return "Check the path."
    numbers = {click.types.IntParamType: "a whole number", click.types.FloatParamType: "a number"}
    what = next((text for each, text in numbers.items() if isinstance(kind, each)), "")
    least, most = getattr(kind, "min", None), getattr(kind, "max", None)
    limits = "" if least is None else f" of at least {least:g}" if most is None else f" from {least} to {most}"
    return f"Give {what}{limits}." if what else ""


def _example(context: click.Context | None) -> str:
    """Return the first example in the help of a command."""
    text = (context.command.help or "") if context else ""
    return text.partition("Example: ")[2].splitlines()[0] if "Example: " in text else "steinstream --help"


def _plain(text: str) -> str:
    """Replace the words of click for types."""
    for word, plain in ((" range.", "."), ("integer", "whole number"), ("float", "number")):
        text = text.replace(word, plain)
    return re.sub(r"is not in the range.*", "is out of range.", text)


def lowered(text: str) -> str:
    """Change the first letter of a sentence to lower case, unless it starts with an abbreviation or a file name.

    Returns
    -------
    str
        The sentence as it follows a colon.

    Examples
    --------
    >>> lowered("No such file."), lowered("IMQ requires a positive c."), lowered("Fit.npz: the chain is empty.")
    ('no such file.', 'IMQ requires a positive c.', 'Fit.npz: the chain is empty.')
    """
    first = text.partition(" ")[0].rstrip(".,")
    return text if text[1:2].isupper() or set(first) & set("./\\:") else f"{text[:1].lower()}{text[1:]}"
