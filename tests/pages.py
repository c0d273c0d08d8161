"""The pages of the project: their blocks, their links, and how to run them."""

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
    """What stands between two fences."""

    language: str
    text: str
    line: int


def pages() -> list[Path]:
    """Every page of the project."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "experiments").rglob("*.md")]
    found += (ROOT / "benchmarks").rglob("*.md")
    return sorted(page for page in found if "_build" not in page.parts and "runs" not in page.parts)


def text_of(page: Path) -> str:
    """What a reader sees: comments are blanked, lines stay where they are."""
    return re.sub(r"<!--.*?-->", lambda hidden: "\n" * hidden[0].count("\n"), page.read_text(), flags=re.DOTALL)


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page."""
    text = text_of(page)
    found = re.finditer(r"^```([^\n]*)\n(.*?)^```\n", text, flags=re.DOTALL | re.MULTILINE)
    return [Block(each[1].strip(), each[2], text.count("\n", 0, each.start()) + 1) for each in found]


def console(block: Block) -> list[tuple[str, str]]:
    """The commands of a console block, each with the output that the page shows."""
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]
    return [(line, wanted) for line, _, wanted in (part.partition("\n") for part in parts)]


def shown_commands(page: Path) -> list[str]:
    """Every whole ``steinstream`` command that a page shows: in console blocks, indented, or within a sentence."""
    text = text_of(page)
    found = re.findall(r"^(?:\$ |    )(steinstream [a-z].*)$", text, flags=re.MULTILINE)
    for inline in re.findall(r"`(steinstream [a-z]+ [^`\n]*)`", text):
        if not re.search(r"[A-Z]{2}|\.\.\.", inline.replace("KSD", "")):  # CHAIN and OUT stand for something
            found.append(inline)
    return [command.partition(" | ")[0] for command in found]


def parse(command: str):
    """The command and its options, as click understands them; raises where it does not."""
    name, *arguments = shlex.split(command, comments=True)[1:]
    found = commands.commands[name]
    return found.make_context(name, arguments)


def run(page: Path) -> int:
    """All examples of a page, in the current folder, one after another; how many there were."""
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
    """Where a link may lead to within a page: its headings, as GitHub and the site name them."""
    headings = re.findall(r"^#+ (.*)$", text_of(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> list[str]:
    """Where the links and pictures of a page lead to, but for addresses outside."""
    prose = re.sub(r"^```.*?^```", "", text_of(page), flags=re.DOTALL | re.MULTILINE)
    prose = re.sub(r"`[^`\n]*`", "``", prose)
    found = re.findall(r"\]\(([^)\s]+)\)", prose)
    return [link for link in found if not re.match(r"[a-z]+:", link)]
