"""Help: its examples work, every option is in a section, and nothing heavy is imported."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import click.testing
import pytest

import steinstream as ss
from steinstream.cli import commands

ROOT = Path(__file__).parents[2]


def options(name):
    command = commands.commands[name]
    found = command.get_params(click.Context(command, help_option_names=["-h", "--help"]))
    return [option for option in found if isinstance(option, click.Option)]


def examples(text):
    """Return the command lines in a text: ``steinstream ...`` on lines of their own, without the text behind them."""
    for line in text.splitlines():
        found = re.match(r"^(?: {4,}|Example: +)(steinstream \S.*)$", line)
        if found:
            yield shlex.split(re.split(r" {2,}", found[1])[0], comments=True)


def parse(words):
    """Raise an error if the command does not exist, or does not have these options."""
    name, command, rest = commands.resolve_command(click.Context(commands), words[1:])
    command.make_context(name, rest)


@pytest.mark.parametrize("name", commands.commands)
def test_the_examples_in_the_help_of_a_command_are_right(name):
    text = commands.commands[name].help
    found = list(examples(text[text.index("Example: ") :]))
    assert found and all(words[:2] == ["steinstream", name] for words in found)
    for words in found:
        parse(words)
    for option in options(name):
        assert option.help, option.opts


@pytest.mark.parametrize("name", commands.commands)
def test_help_shows_every_option_once(name):
    text = click.testing.CliRunner().invoke(commands, [name, "--help"]).output
    for option in options(name):
        assert len(re.findall(rf"^  (-\w, )?{option.opts[-1]}(?![\w-])", text, re.MULTILINE)) == 1, option.opts
    titles = re.findall(r"^(\S.*):$", text, re.MULTILINE)
    assert len(titles) == len(set(titles)) and titles[-1] == "Options"
    if name in ("thin", "follow"):
        assert re.search(r"^Options:\n  (-h, )?--help", text, re.MULTILINE)


def test_the_first_help_has_an_example_of_each_command():
    found = list(examples("\n".join(f"    {line.strip()}" for line in commands.help.splitlines())))
    assert {words[1] for words in found} >= commands.commands.keys() - {"completion"}
    for words in found:
        parse(words)


def test_the_commands_in_the_readme_are_right():
    found = list(examples((ROOT / "README.md").read_text()))
    assert found
    for words in found:
        parse(words)


@pytest.mark.parametrize(
    "line", ["steinstream thn a.npz -o b.npz", "steinstream thin a.npz --siez 3 -o b.npz", "steinstream merge a.npz"]
)
def test_a_wrong_example_would_be_found(line):
    with pytest.raises(click.ClickException):
        parse(shlex.split(line))


def test_help_shows_examples_on_lines_of_their_own(steinstream):
    ran = steinstream("--help")
    assert "\\" not in ran.stdout and "\n  steinstream demo " in ran.stdout
    for name in commands.commands:
        ran = steinstream(name, "--help")
        assert ran.returncode == 0
        assert "\\b" not in ran.stdout and f"  Example: steinstream {name}" in ran.stdout, name


def test_without_a_command_the_help_is_shown_with_the_first_steps_first(steinstream):
    ran = steinstream()
    assert ran.returncode == 0 and ran.stderr == "" and ran.stdout == steinstream("--help").stdout
    assert re.findall(r"^  (\w+)  +[A-Z]", ran.stdout, re.MULTILINE)[:3] == ["demo", "inspect", "thin"]
    assert "Usage: steinstream" in ran.stdout
    assert steinstream("--version").stdout == f"steinstream, version {ss.__version__}\n"


def imported(*lines):
    """Return the heavy packages that are imported by these command lines."""
    program = f"""
import io, json, sys
from contextlib import redirect_stdout
from steinstream.cli import main
for line in {lines!r}:
    sys.argv = ["steinstream", *line]
    try:
        with redirect_stdout(io.StringIO()):
            main()
    except SystemExit as end:
        if end.code:
            raise
heavy = {{"numpy", "numba", "xarray", "matplotlib", "torch", "pyarrow", "rich", "asyncio", "distributed"}}
heavy |= {{"numpy.ma", "statistics", "concurrent.futures"}}  # 5 to 20 ms each
print(json.dumps(sorted(heavy & sys.modules.keys())))
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return json.loads(ran.stdout)


def test_importing_and_listing_the_commands_loads_nothing_heavy():
    assert imported() == []
    lines = ["--help"], ["--version"], ["completion", "zsh"]
    assert imported(*lines, *([name, "--help"] for name in ("demo", "report", "merge", "refine", "completion"))) == []


def test_the_help_of_a_command_with_settings_loads_numpy_at_most():
    assert set(imported(*([name, "--help"] for name in commands.commands))) <= {"numpy"}
