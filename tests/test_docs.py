"""The pages are correct: their code runs, their commands and options exist, their links have targets.

Python on a page is run by ``make doctest``, by the tests of its tool, or here if the page has commands too.
"""

from __future__ import annotations

import importlib
import json
import re
import signal
import sys
import tomllib
from types import ModuleType

import click
import numpy as np
import pytest

import steinstream as ss
from steinstream.cli import commands
from steinstream.thinner import config
from tests.pages import ROOT, SITE, anchors, blocks, links, pages, parse, run, shown_commands, text_of

COMMAND_LINE = ROOT / "docs" / "command-line.md"
OWN_TESTS = {  # pages of optional tools, each run by the tests of its tool
    "networks.md": "integrations/torch/test_docs_page.py", "arviz.md": "integrations/test_arviz.py",
    "blackjax.md": "integrations/test_blackjax.py", "emcee.md": "integrations/test_emcee.py",
    "generic.md": "integrations/test_generic.py", "numpyro.md": "integrations/test_numpyro.py",
    "nutpie.md": "integrations/test_nutpie.py", "pymc.md": "integrations/test_pymc.py",
    "r.md": "integrations/test_r.py", "stan.md": "integrations/test_stan.py",
    "without-scores.md": "unit/test_gradient_free.py", "gallery.md": "test_docs.py",
}  # fmt: skip
WITH_COMMANDS = [page for page in pages() if any(block.language == "console" for block in blocks(page))]
MODULES = (
    *(
        module.__name__.removeprefix("steinstream.")
        for name in ss.__all__
        if isinstance(module := getattr(ss, name), ModuleType) and name != "integrations"
    ),
    *(f"integrations.{tool}" for tool in ss.integrations.__all__),
)


def named(page):
    return str(page.relative_to(ROOT))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the files that the pages use."""
    monkeypatch.chdir(tmp_path)
    widths = np.array([1.0, 0.1, 10.0])
    x = np.random.default_rng(0).normal(size=(2_000, 3)) * widths
    for name in ("chain", "warmup"):
        np.savez(f"{name}.npz", draws=x, scores=-x / widths**2)
    for i, name in enumerate("abc"):
        y = np.random.default_rng(i).normal(size=(500, 3))
        ss.thin(y, -y, size=50).save(f"{name}.npz")
    rows = np.hstack([x[:500], -x[:500] / widths**2])
    np.savetxt("run.csv", rows, delimiter=",", header="a,b,c,score_a,score_b,score_c", comments="")
    return tmp_path


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=named)
def test_a_page_with_commands_runs_as_it_is_written(page, folder):
    if "report" in page.read_text():
        pytest.importorskip("matplotlib")
    assert run(page) > 0


def test_every_example_in_python_is_run_by_some_test():
    for page in pages():
        for block in blocks(page):
            place = f"{named(page)}, line {block.line}"
            assert block.language in ("python", "r", "console", "{eval-rst}", "{toctree}"), (
                f"{place}: {block.language!r}"
            )
            assert block.language != "python" or block.text.startswith(">>> "), f"{place}: not a doctest"
        if not any(block.language in ("python", "r") for block in blocks(page)) or page in WITH_COMMANDS:
            continue
        if page.name in OWN_TESTS:
            assert re.search(page.name, (ROOT / "tests" / OWN_TESTS[page.name]).read_text()), page.name
        else:  # make doctest
            assert page == ROOT / "README.md" or page.parent == ROOT / "docs", page


def test_every_command_that_a_page_shows_is_one():
    shown = [(page, command) for page in pages() for command in shown_commands(page)]
    assert len(shown) > 30
    for page, command in shown:
        try:
            parse(command)
        except (click.ClickException, KeyError) as problem:
            pytest.fail(f"{named(page)}: {command}: {problem}")


def sections(text):
    """By the name of its heading: a command, or the anchor of a section that commands share."""
    parts = re.split(r"^## (.*)$", text, flags=re.MULTILINE)[1:]
    found = {}
    for heading, body in zip(parts[::2], parts[1::2], strict=True):
        command = re.match(r"`steinstream ([\w-]+)", heading)
        found[command[1] if command else heading.lower().replace(" ", "-")] = body
    return found


def parameters(name):
    """Return the parameters of a command, without --help."""
    command = commands.commands[name]
    return [parameter for parameter in command.get_params(click.Context(command)) if "--help" not in parameter.opts]


def test_every_command_and_option_is_documented():
    documented = sections(text_of(COMMAND_LINE))
    for name in sorted(commands.commands):
        assert name in documented, f"docs/command-line.md has no section on steinstream {name}"
        shared = re.findall(r"those of (.*?)\.(?:\s|$)", documented[name], flags=re.DOTALL)
        shared = re.findall(r"\(#([\w-]+)\)", " ".join(shared))
        text = documented[name] + "".join(documented[section] for section in shared)
        written = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", " ".join(re.findall(r"`([^`]*)`", text))))
        options = [parameter for parameter in parameters(name) if isinstance(parameter, click.Option)]
        missing = {spelling for option in options for spelling in (*option.opts, *option.secondary_opts)} - written
        assert not missing, f"docs/command-line.md does not describe steinstream {name} {' '.join(sorted(missing))}"


def test_every_option_in_a_section_of_the_command_line_exists():
    known = {"--help", "--version"}
    for name in commands.commands:
        known.update(spelling for each in parameters(name) for spelling in (*each.opts, *each.secondary_opts))
    written = set(re.findall(r"`(--[a-z][a-z-]*)", text_of(COMMAND_LINE)))
    assert written <= known, written - known


def test_every_public_name_is_in_the_reference():
    reference = "\n".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    there = re.findall(r"^\.\. (?:auto\w+|py:data):: (\S+)$", reference, flags=re.MULTILINE)
    there = {name.removeprefix("steinstream.") for name in there}
    wanted = {name for name in ss.__all__ if name != "__version__" and not isinstance(getattr(ss, name), ModuleType)}
    for module in MODULES:
        try:
            names = getattr(importlib.import_module(f"steinstream.{module}"), "__all__", ())
        except (ImportError, ss.SteinstreamError):
            names = ()  # its tool is not installed
        wanted |= {module, *(f"{module}.{name}" for name in names)}
    assert not wanted - there, sorted(wanted - there)


def test_links_and_pictures_lead_somewhere():
    for page in pages():
        for link in links(page):
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            assert target.exists(), f"{named(page)}: {link}"
            assert not anchor or anchor in anchors(target), f"{named(page)}: {link}"


def test_pages_quote_the_numbers_of_their_figures():
    """The code of a figure gives the stored numbers, and each of them is in the section of the figure."""
    pytest.importorskip("matplotlib")
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        pictures = importlib.import_module("pictures")
    finally:
        sys.path.pop(0)
    known = json.loads((ROOT / "docs" / "pictures" / "numbers.json").read_text())
    prose = [text_of(page) for page in pages() if page.parent == ROOT / "docs"]
    assert known.keys() == {picture.__name__ for picture in pictures.PICTURES}
    for picture in pictures.PICTURES:
        name = picture.__name__
        assert pictures.numbers_of(picture) == known[name], name
        file = re.escape(f"(pictures/{name.replace('_', '-')}.png)")
        sections = [re.search(rf"{file}(.*?)(?:^#|\Z)", text, re.DOTALL | re.MULTILINE) for text in prose]
        (section,) = [re.sub(r"\s+", " ", found[1]) for found in sections if found]
        for what, number in known[name].items():
            assert re.search(rf"(?<![\d.]){re.escape(number)}(?![\d%])", section), f"{name}: {what} is {number}"


def test_the_gallery_shows_the_figures_that_its_code_makes(tmp_path, monkeypatch):
    """The page gallery.md shows each figure that its code saves, and no other."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs" / "gallery.md"
    assert run(page) > 10
    made = {path.name for path in tmp_path.glob("*.png")}
    shown = set(re.findall(r"\(gallery/([\w-]+\.png)\)", page.read_text()))
    assert made == shown == {path.name for path in page.with_suffix("").glob("*.png")}


def test_all_exit_codes_and_extras_are_documented():
    source = "".join(path.read_text() for path in (ROOT / "src" / "steinstream" / "cli").glob("*.py"))
    known = {int(code) for code in re.findall(r"(?:sys\.exit\(|_CODE = |_BROKEN_PIPE = )(\d+)", source)}
    known |= {0, *(128 + number for number in (signal.SIGINT, signal.SIGTERM))}
    table = re.search(r"\| exit code \|.*?\n\n", (ROOT / "docs" / "command-line.md").read_text(), re.DOTALL)[0]
    first = re.findall(r"^\| ([\d, ]+) \|", table, flags=re.MULTILINE)
    assert {int(code) for cell in first for code in cell.split(",")} == known
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    listed = re.findall(r"^\| `([\w-]+)` \|", (ROOT / "docs" / "install.md").read_text(), flags=re.MULTILINE)
    assert sorted(listed) == sorted(extras)


def test_every_page_is_reachable_in_two_clicks():
    """From docs/index.md; all numbers of an experiment (summary.md) are one click further."""

    def targets(page):
        listed = [block.text for block in blocks(page) if block.language == "{toctree}"]
        entries = re.findall(r"^(?:.*<)?([\w./-]+)>?$", "\n".join(listed), flags=re.MULTILINE)
        paths = [f"{entry}.md" for entry in entries] + [link.partition("#")[0] for link in links(page)]
        return {(page.parent / path).resolve() for path in paths if path.endswith((".md", ".ipynb"))}

    index = ROOT / "docs" / "index.md"
    first = targets(index)
    reached = {index} | first | {page for near in first if near.suffix == ".md" for page in targets(near)}
    on_site = [page for page in pages() if page.parent != ROOT or page.name in ("CHANGELOG.md", "CONTRIBUTING.md")]
    far = [named(page) for page in on_site if page not in reached and page.name not in ("summary.md", "README.md")]
    assert not far


def test_the_page_of_settings_lists_every_setting():
    """With its option, if it has one."""
    text = (ROOT / "docs" / "settings.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]*)\|", text, flags=re.MULTILINE))
    assert rows.keys() == set(config.NAMES)
    for name, option in rows.items():
        assert bool(option.strip()) == (name in config.COMMAND_LINE), name
    known = {spelling for each in parameters("thin") for spelling in (*each.opts, *each.secondary_opts)}
    assert {option.strip(" `") for option in rows.values()} - {""} <= known


def test_pictures_are_small():
    for picture in (ROOT / "docs" / "pictures").glob("*.png"):
        assert picture.stat().st_size < 200_000, picture.name


def test_the_site_asks_nobody():
    """No page of the built site loads anything from outside."""
    if not SITE.exists():
        pytest.skip("the site is not built: make docs")
    built = list(SITE.rglob("*.html"))
    assert len(built) > 50
    loads = r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"(?:https?:)?//|<link\b[^>]*\bhref=\"(?:https?:)?//"
    for page in built:
        assert not re.search(loads, page.read_text()), page
    for sheet in SITE.rglob("*.css"):
        assert not re.search(r"url\(\s*['\"]?(?:https?:)?//|@import\s+['\"](?:https?:)?//", sheet.read_text()), sheet


TERMS = {
    "KSD": "ksd",
    "MMD": "mmd",
    "preconditioner": "preconditioner",
    "stream term": "stream",
    "[Bb]urn-in": "burn-in",
    "[Ss]cores?": "score",
    "ESS": "effective-sample-size-ess",
    "[Ii]nfluence": "influence",
}
WITHOUT_LINKS = ("glossary.md", "bibliography.md")
GENERATED = r"<!-- \S+: made by .*?<!-- end"


def test_pages_link_terms_to_the_glossary():
    missing = []
    for page in pages():
        if page.parent not in (ROOT / "docs", ROOT / "docs" / "integrations") or page.name in WITHOUT_LINKS:
            continue
        prose = re.sub(rf"^```.*?^```|{GENERATED}", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        prose = re.sub(r"^(?:    |#|\||\*|!).*$|`[^`\n]*`|\]\([^)\n]*\)", "", prose, flags=re.MULTILINE)
        for term, anchor in TERMS.items():
            if re.search(rf"\b{term}\b", prose) and f"glossary.md#{anchor}" not in page.read_text():
                missing.append(f"{named(page)}: {term}")
    assert not missing


def test_every_work_in_the_bibliography_has_an_address():
    text = (ROOT / "docs" / "bibliography.md").read_text()
    works = [
        " ".join(work.split()) for work in re.findall(r"^- (.*?)(?=^- |^#|\Z)", text, flags=re.DOTALL | re.MULTILINE)
    ]
    assert len(works) > 20 and all(re.search(r"\]\(https?://", work) for work in works)
    for name, address in re.findall(r"\[(?:arXiv|doi):(\S+)\]\((https://\S+)\)(?=[.,])", text):
        assert address.endswith(f"/{name}"), name
