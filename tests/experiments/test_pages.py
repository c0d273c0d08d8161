"""The commands of the experiments that the pages show exist, and every option is documented."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from experiments.__main__ import reproduce

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "experiments").glob("**/*.md")])


def commands(page):
    """The arguments of every complete command ``python -m experiments`` and ``make reproduce`` on a page."""
    text = page.read_text()
    inline = re.findall(r"`python -m experiments ([^`]*)`", text)
    for found in [*inline, *re.findall(r"^    python -m experiments ([^#\n]*)", text, flags=re.MULTILINE)]:
        if not re.search(r"[A-Z]{2}", found):  # NAME and FILE are placeholders
            yield shlex.split(found)
    for name, options in re.findall(r"make reproduce NAME=([\w-]+)(?: ARGS=(\S+))?", text):
        yield [name, *shlex.split(options.strip("`"))]


def test_every_command_on_a_page_is_valid():
    shown = [(page, arguments) for page in PAGES for arguments in commands(page)]
    assert len(shown) > 8
    for page, arguments in shown:
        try:
            reproduce.make_context("experiments", list(arguments))
        except click.exceptions.Exit:
            assert "--list" in arguments
        except click.ClickException as error:
            pytest.fail(f"{page}: {arguments}: {error}")


def test_every_option_is_documented():
    written = set(re.findall(r"`(--?[a-z][a-z-]*)", (ROOT / "experiments" / "README.md").read_text()))
    options = {name for option in reproduce.params if isinstance(option, click.Option) for name in option.opts}
    assert options <= written, options - written


@pytest.mark.parametrize("name", ["coordinates", "hard-cap", "honest-ksd", "linear", "passes", "weights"])
def test_the_makefile_runs_existing_scripts(name):
    assert (ROOT / "experiments" / name / "run.py").exists() and name in (ROOT / "Makefile").read_text()
