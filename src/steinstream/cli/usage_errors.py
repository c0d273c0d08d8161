"""A mistake at the command line in our own words: what is wrong, and what to type instead."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any

import click


class Commands(click.Group):
    """Commands in the order in which they were added; a misspelt one is told what it may have meant."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if ctx.resilient_parsing or name in self.commands:
            return super().resolve_command(ctx, args)
        remedy = nearest(name, self.commands) or f"There are {', '.join(self.commands)}."
        if not name.startswith("-") and ("." in name or "/" in name):
            remedy = f"A file goes behind a command: {ctx.command_path} thin {name} -o kept.npz"
        raise Mistake(f"there is no command {name}.", remedy)


class Mistake(click.ClickException):
    """A mistake with its remedy, found where click looks."""

    def __init__(self, problem: str, remedy: str) -> None:
        self.remedy = remedy
        super().__init__(problem)


def nearest(name: str, known: Iterable[str]) -> str:
    """A question that offers the closest names, or nothing.

    >>> nearest("thn", ["thin", "follow"])
    'Did you mean thin?'
    """
    close = difflib.get_close_matches(name, list(known), n=2)
    return f"Did you mean {' or '.join(close)}?" if close else ""


def told(mistake: click.ClickException) -> tuple[str, str]:
    """What click found, as a problem and its remedy."""
    if isinstance(mistake, Mistake):
        return mistake.message, mistake.remedy
    context: click.Context | None = getattr(mistake, "ctx", None)
    command = context.command_path if context else "steinstream"
    more = f"{command} --help names what there is."
    if isinstance(mistake, click.NoSuchOption):
        known = [name for option in _options(context) for name in (*option.opts, *option.secondary_opts)]
        return f"there is no option {mistake.option_name}.", f"{nearest(mistake.option_name, known)} {more}".strip()
    if isinstance(mistake, click.MissingParameter) and mistake.param:
        return f"{_name(mistake.param)} is missing.", f"For example: {_example(context)}"
    if isinstance(mistake, click.BadParameter) and mistake.param:
        problem = f"{_name(mistake.param)}: {lowered(mistake.message)}"
        return _plain(problem), _better(mistake) or more
    if isinstance(mistake, click.BadOptionUsage) and "requires" in mistake.message:
        return lowered(mistake.message), f"Put it behind {mistake.option_name}."
    return lowered(mistake.format_message()).rstrip(".") + ".", more


def _options(context: click.Context | None) -> list[click.Option]:
    return [each for each in context.command.params if isinstance(each, click.Option)] if context else []


def _name(parameter: click.Parameter) -> str:
    """As it is typed, or as the help names it."""
    return " / ".join(parameter.opts) if isinstance(parameter, click.Option) else (parameter.name or "").upper()


def _better(mistake: click.BadParameter) -> str:
    """The choice that may have been meant, or what numbers there may be."""
    kind: Any = mistake.param.type if mistake.param else None
    given = mistake.message.split("'")[1:2]
    if isinstance(kind, click.Choice):
        return nearest(given[0], map(str, kind.choices)) if given else ""
    if isinstance(kind, click.Path):
        return "Check the path."
    numbers = {click.types.IntParamType: "a whole number", click.types.FloatParamType: "a number"}
    what = next((text for each, text in numbers.items() if isinstance(kind, each)), "")
    least = getattr(kind, "min", None)
    return f"Give {what}{'' if least is None else f' of at least {least:g}'}." if what else ""


def _example(context: click.Context | None) -> str:
    """The first example in a command's help."""
    text = (context.command.help or "") if context else ""
    return text.partition("Example: ")[2].splitlines()[0] if "Example: " in text else "steinstream --help"


def _plain(text: str) -> str:
    """Without words of programmers."""
    for word, plain in ((" range.", "."), ("integer", "whole number"), ("float", "number")):
        text = text.replace(word, plain)
    return re.sub(r"is not in the range.*", "is out of range.", text)


def lowered(text: str) -> str:
    """As it stands behind a colon.

    >>> lowered("No such thing."), lowered("IMQ's c must be positive.")
    ('no such thing.', "IMQ's c must be positive.")
    """
    return text if text[1:2].isupper() else f"{text[:1].lower()}{text[1:]}"
