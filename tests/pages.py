"""Helpers for the documentation pages: their code blocks, links and commands, and how to run them."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path
from typing import NamedTuple

from click.testing import CliRunner

from steinstream.cli import commands

ROOT = Path(__file__).parents[1]
SITE = ROOT / "docs" / "_build" / "html"
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Block(NamedTuple):
    """A fenced code block."""

    language: str
    text: str
    line: int


def pages() -> list[Path]:
    """Return every page of the project."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "experiments").rglob("*.md")]
    found += (ROOT / "benchmarks").rglob("*.md")
    return sorted(page for page in found if "_build" not in page.parts and "runs" not in page.parts)


def text_of(page: Path) -> str:
    """Return the text of a page with comments blanked; line numbers do not change."""
    return re.sub(r"<!--.*?-->", lambda hidden: "\n" * hidden[0].count("\n"), page.read_text(), flags=re.DOTALL)


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page."""
    text = text_of(page)
    found = re.finditer(r"^```([^\n]*)\n(.*?)^```\n", text, flags=re.DOTALL | re.MULTILINE)
    return [Block(each[1].strip(), each[2], text.count("\n", 0, each.start()) + 1) for each in found]


def console(block: Block) -> list[tuple[str, str]]:
    """Return the commands of a console block, each with the output that the page shows."""
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]
    return [(line, wanted) for line, _, wanted in (part.partition("\n") for part in parts)]


def shown_commands(page: Path) -> list[str]:
    """Return every complete ``steinstream`` command of a page: in console blocks, indented, or inline."""
    text = text_of(page)
    found = re.findall(r"^(?:\$ |    )(steinstream [a-z].*)$", text, flags=re.MULTILINE)
    for inline in re.findall(r"`(steinstream [a-z]+ [^`\n]*)`", text):
        if not re.search(r"[A-Z]{2}|\.\.\.", inline.replace("KSD", "")):  # CHAIN and OUT stand for something
            found.append(inline)
    return [command.partition(" | ")[0] for command in found]


def parse(command: str):
    """Return the click context of a command; raise if it is invalid."""
    name, *arguments = shlex.split(command, comments=True)[1:]
    found = commands.commands[name]
    return found.make_context(name, arguments)


def run(page: Path) -> int:
    """Run all examples of a page in order, in the current folder; return their number."""
    names, runner, tried = {}, doctest.DocTestRunner(optionflags=FLAGS), 0
    checker = doctest.OutputChecker()
    for block in blocks(page):
        if block.language == "python":
            test = doctest.DocTestParser().get_doctest(block.text, names, page.name, str(page), block.line)
            failed, attempted = runner.run(test, clear_globs=False)
            assert not failed, f"{page.name}, line {block.line}"
            names.update(test.globs)
            tried += attempted
        if block.language == "console":
            for command, wanted in console(block):
                result = CliRunner().invoke(commands, shlex.split(command, comments=True)[1:], catch_exceptions=False)
                assert result.exit_code == 0, f"{page.name}: {command}\n{result.output}"
                assert not wanted or checker.check_output(wanted, result.output, FLAGS), (
                    f"{page.name}: {command}\n{result.output}"
                )
                tried += 1
    return tried


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub and the site name them."""
    headings = re.findall(r"^#+ (.*)$", text_of(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> list[str]:
    """Return the targets of links and pictures of a page, without external addresses."""
    prose = re.sub(r"^```.*?^```", "", text_of(page), flags=re.DOTALL | re.MULTILINE)
    prose = re.sub(r"`[^`\n]*`", "``", prose)
    found = re.findall(r"\]\(([^)\s]+)\)", prose)
    return [link for link in found if not re.match(r"[a-z]+:", link)]
