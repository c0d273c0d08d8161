"""A message names only options that exist, and options of other commands together with the command."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import click
import pytest

import steinstream
from steinstream.cli import commands
from steinstream.cli.usage_errors import for_command, option_names

PACKAGE = Path(steinstream.__file__).parent
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*(?![\w:=-])")
OPTIONS = {name: option_names(command) | {"--help"} for name, command in commands.commands.items()}
ALL = {"--version", *set.union(*OPTIONS.values())}


def texts(path):
    """Return the string literals of a module that can be messages: not docstrings, and more than one word."""
    tree = ast.parse(path.read_text())
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
        if " " in text.strip() and id(node) not in docstrings:
            yield text


def test_every_option_in_a_message_exists():
    for path in PACKAGE.rglob("*.py"):
        named = {option for text in texts(path) for option in OPTION.findall(text)}
        assert named <= ALL, (path, named - ALL)


def test_a_command_names_its_own_options():
    """An option of another command follows the name of that command."""
    for name in commands.commands:
        for text in texts(PACKAGE / "cli" / f"{name.replace('-', '_')}.py"):
            for option in OPTION.finditer(text):
                others = re.findall(r"steinstream (\w+)|\bfor (thin|refine)\b", text)
                owners = {name, *(word for pair in others for word in pair if word in OPTIONS)}
                assert any(option[0] in OPTIONS[owner] for owner in owners), f"{name}: {text!r}: {option[0]}"


@pytest.mark.parametrize(
    ("command", "text", "expected"),
    [
        ("thin", 'Skip them with on_bad="skip" (--on-bad skip).', "Skip them with --on-bad skip."),
        ("ksd", 'Skip them with on_bad="skip" (--on-bad skip).', "Skip them with steinstream thin --on-bad skip."),
        ("follow", "Match its moments (--weights chain).", "Match its moments (steinstream refine --weights chain)."),
        ("thin", "Leave out log_density=... (--gradient-free).", "Leave out --gradient-free."),
        ("ksd", "Use steinstream follow --until-idle 5.", "Use steinstream follow --until-idle 5."),
        ("ksd", "Name them (--draws-name, --scores-name).", "Name them (--draws-name, --scores-name)."),
    ],
)
def test_a_message_of_the_library_is_adapted_to_the_command(command, text, expected):
    context = click.Context(commands.commands[command], parent=click.Context(commands))
    assert for_command(text, context) == expected
