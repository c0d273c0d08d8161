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


def commands(page, data):
    """The arguments of every complete command ``python -m experiments`` and ``make reproduce`` on a page.

    Files in the folder DATA of the pages are replaced with empty files in the folder ``data``.
    """
    text = page.read_text()
    inline = re.findall(r"`python -m experiments ([^`]*)`", text)
    for found in [*inline, *re.findall(r"^    python -m experiments ([^#\n]*)", text, flags=re.MULTILINE)]:
        words = shlex.split(found)
        if re.search(r"[A-Z]{2}", found.replace("DATA/", "")):  # NAME and FILE are placeholders
            continue
        for place, word in enumerate(words):
            if word.startswith("DATA/"):
                path = data / word.removeprefix("DATA/")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
                words[place] = str(path)
        yield words
    for name, options in re.findall(r"make reproduce NAME=([\w-]+)(?: ARGS=(\S+))?", text):
        yield [name, *shlex.split(options.strip("`"))]


def test_every_command_on_a_page_is_valid(tmp_path):
    shown = [(page, arguments) for page in PAGES for arguments in commands(page, tmp_path)]
    assert len(shown) > 15
    assert sum("--data" in arguments for _, arguments in shown) >= 4
    assert sum("--observations" in arguments for _, arguments in shown) >= 4
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


def test_the_makefile_runs_every_measurement_beyond_the_paper():
    rule = re.search(r"^BEYOND :=.*?^compare:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE | re.DOTALL)[0]
    page = (ROOT / "experiments" / "README.md").read_text()
    beyond = page[page.index("## Beyond the paper") :]
    folders = re.findall(r"^\| \[[^]]*\]\(([\w-]+)/README.md\)", beyond, flags=re.MULTILINE)
    assert len(folders) > 8
    for name in (*folders, "weights/forward", "weights/surrogate", "networks/subspace", "networks/predictions"):
        assert re.search(rf"\b{name}\b", rule), name
