"""README, CONTRIBUTING and CITATION agree with the code: numbers, versions, names, the map of the package."""

from __future__ import annotations

import importlib.util
import json
import re
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

import steinstream as ss
from tests.browser import chromium

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "steinstream"
README = (ROOT / "README.md").read_text()
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
GITHUB = """
    body { font: 16px/1.5 Helvetica, Arial, sans-serif; max-width: 830px; margin: 32px auto }
    h2 { margin: 24px 0 16px; padding-bottom: 0.3em } p, table, pre { margin: 0 0 16px } img { max-width: 100% }
    pre { padding: 16px; font-size: 85%; line-height: 1.45; overflow: auto }
    table { border-collapse: collapse } td, th { border: 1px solid; padding: 6px 13px }
"""


@pytest.fixture(scope="module")
def script():
    path = ROOT / "benchmarks" / "readme.py"
    if not path.exists():
        pytest.skip("the benchmarks are not here")
    spec = importlib.util.spec_from_file_location("readme", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_say_what_was_measured(script):
    measured = json.loads(script.MEASURED.read_text())
    results, quality = script.RESULTS.read_text(), script.QUALITY.read_text()
    cells = json.loads(script.CELLS.read_text())
    parts = script.sections(measured, results, quality, cells)
    for page in script.PAGES:
        assert script.written(page.read_text(), parts) == page.read_text(), "run: python benchmarks/readme.py --text"
    assert parts["speed"] != script.sections({**measured, "our KSD": 1.0}, results, quality, cells)["speed"]
    (row,) = (line for line in results.splitlines() if line.startswith("| steinstream --help |"))
    slower = results.replace(row, row.replace("| 0.", "| 9.", 1))
    assert parts["costs"] != script.sections(measured, slower, quality, cells)["costs"]
    changed = script.sections(measured, results, re.sub(r"(\| default \| \d+ \| )\d+", r"\g<1>9999", quality), cells)
    assert parts["worth"] != changed["worth"] and parts["sizes"] != changed["sizes"]
    missed = [line for line in quality.splitlines() if " MISSED |" in line]
    assert missed and all(line.split(" | ")[0].strip("| ") in parts["missed"] for line in missed)
    cells["results"]["burn-in-gauss"]["default"]["50"]["ratios"][0] *= 100
    assert parts["worth"] != script.sections(measured, results, quality, cells)["worth"]


def test_a_measured_number_stands_only_in_a_generated_part():
    made = r"<!-- ([\w-]+): made by benchmarks/readme.py -->.*?<!-- end of \1 -->"
    typed = re.sub(made, "", README, flags=re.DOTALL)
    assert len(typed) < len(README) - 500
    assert re.findall(r"\d[\d.]* (?:s|ms|µs|MB|GB|%|times)\b", typed) == []


def test_the_readme_is_short():
    lines = README.splitlines()
    assert len(lines) < 100
    assert all(len(line) <= 140 or line.startswith("|") for line in lines)


def test_the_readme_fills_at_most_two_screens(tmp_path):
    """Rendered with the width and the sizes of GitHub, on screens that are 1080 pixels high."""
    markdown = pytest.importorskip("markdown_it", reason="rendering the README requires markdown-it-py")
    body = markdown.MarkdownIt("commonmark", {"html": True}).enable("table").render(README)
    body = body.replace('src="docs/', f'src="{(ROOT / "docs").as_uri()}/')
    page = tmp_path / "readme.html"
    page.write_text(f"<!doctype html><meta charset=utf-8><style>{GITHUB}</style>{body}")
    with chromium(tmp_path / "profile", width=1280, height=1080) as browser:
        browser.get(page.as_uri())
        height = browser.execute_script("return document.body.getBoundingClientRect().bottom")
        picture = browser.execute_script("return document.querySelector('img').naturalHeight")
    assert picture > 100
    assert height <= 2 * 1080, height


def test_pictures_and_pages_that_the_readme_shows_are_there():
    for name in re.findall(r"\]\((?!https?:)([^)#]+)", README):
        assert (ROOT / name).exists() or name.startswith(("benchmarks/", "experiments/")), name
    assert (ROOT / "docs" / "thinning.gif").stat().st_size < 1_000_000


def test_one_version_and_one_name_everywhere():
    yaml = pytest.importorskip("yaml")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    (author,) = PROJECT["authors"]
    assert citation["version"] == ss.__version__
    assert [each["name"] for each in citation["authors"]] == [author["name"]]
    assert citation["license"] == PROJECT["license"] == "MIT"
    assert citation["keywords"] == PROJECT["keywords"] and citation["abstract"].rstrip(".") == PROJECT["description"]
    assert {"cff-version", "message", "title"} <= citation.keys()
    bibliography = (ROOT / "docs" / "bibliography.md").read_text()
    assert f"version = {{{ss.__version__}}}" in bibliography and f"{{{{{author['name']}}}}}" in bibliography
    assert citation["title"] in bibliography
    assert f"\n## {ss.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    licence = (ROOT / "LICENSE").read_text()
    assert licence.startswith("MIT License") and author["name"] in licence


def test_the_map_lists_every_module_in_the_order_of_the_layers():
    """`make lint` checks the imports against the layers in pyproject.toml; the map must show the same order."""
    rows = [line.split("|")[1] for line in (ROOT / "CONTRIBUTING.md").read_text().splitlines() if line[:3] == "| `"]
    listed = {name: row for row, text in enumerate(rows) for name in re.findall(r"`(\w+)(?:/|\.py)`", text)}
    (contract,) = PYPROJECT["tool"]["importlinter"]["contracts"]
    layers = [layer.split(" | ") for layer in contract["layers"]]
    modules = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert listed.keys() == {name for layer in layers for name in layer} == modules - {"__init__", "__main__"}
    for upper, lower in pairwise(layers):
        assert max(listed[name] for name in upper) <= min(listed[name] for name in lower), (upper, lower)


def test_what_contributing_names_is_there():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    for name in re.findall(r"`((?:tests|docs|benchmarks|experiments)/[\w./-]*)`", text):
        if name.split("/")[0] in ("tests", "docs"):
            assert (ROOT / name).exists(), name
    for name in re.findall(r"`((?:cli|io|_engine|integrations)/\w+\.py)`", text):
        assert (PACKAGE / name).exists(), name
    for target in set(re.findall(r"(?:`| {4})make (\w+)", text)):
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), target
