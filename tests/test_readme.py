"""The papers beside the code say what is so: the README's numbers, versions and names, the map of the house."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import tomllib
from pathlib import Path

import pytest

import steinstream as ss

ROOT = Path(__file__).parent.parent
HOUSE = ROOT / "src" / "steinstream"
README = (ROOT / "README.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def script():
    path = ROOT / "benchmarks" / "readme.py"
    if not path.exists():
        pytest.skip("the benchmarks are not here")
    spec = importlib.util.spec_from_file_location("readme", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_readme_says_what_was_measured(script):
    measured, results = json.loads(script.MEASURED.read_text()), script.RESULTS.read_text()
    assert script.written(README, measured, results) == README, "run: python benchmarks/readme.py --text"
    faster = {**measured, "our KSD": measured["our KSD"] / 2}
    assert script.written(README, faster, results) != README
    row = next(line for line in results.splitlines() if line.startswith("| steinstream --help |"))
    assert script.written(README, measured, results.replace(row, row.replace("| 0.", "| 9.", 1))) != README


def test_a_number_that_was_measured_stands_nowhere_else():
    made = r"<!-- (\w+): made by benchmarks/readme.py -->.*?<!-- end of \1 -->"
    typed = re.sub(made, "", README, flags=re.DOTALL)
    assert len(typed) < len(README) - 1000
    assert re.findall(r"\d[\d.]* (?:s|ms|µs|MB|GB|%|times)\b", typed) == []


def test_pictures_and_pages_that_the_readme_shows_are_there():
    for name in re.findall(r"\]\((?!https?:)([^)#]+)", README):
        assert (ROOT / name).exists() or name.startswith(("benchmarks/", "experiments/")), name
    assert (ROOT / "docs" / "thinning.gif").stat().st_size < 1_000_000


def test_one_version_and_one_name_everywhere():
    yaml = pytest.importorskip("yaml")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    (author,) = PROJECT["authors"]
    assert citation["version"] == PROJECT["version"] == ss.__version__
    assert [each["name"] for each in citation["authors"]] == [author["name"]]
    assert citation["license"] == PROJECT["license"] == "MIT"
    assert citation["keywords"] == PROJECT["keywords"] and citation["abstract"].rstrip(".") == PROJECT["description"]
    assert {"cff-version", "message", "title"} <= citation.keys()
    assert f"version = {{{ss.__version__}}}" in README and f"{{{{{author['name']}}}}}" in README
    assert citation["title"] in README
    assert f"\n## {ss.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    licence = (ROOT / "LICENSE").read_text()
    assert licence.startswith("MIT License") and author["name"] in licence


def layers():
    """The rows of the map: which part of the house is on which floor, the highest first."""
    rows = [line.split("|")[1] for line in (ROOT / "CONTRIBUTING.md").read_text().splitlines() if line[:3] == "| `"]
    return {name: floor for floor, row in enumerate(rows) for name in re.findall(r"`(\w+)(?:/|\.py)`", row)}


def imports(path):
    """The parts of the house that a file imports as soon as it is imported itself."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module == "steinstream":
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("steinstream."):
            yield node.module.split(".")[1]


def test_the_map_of_the_house_is_whole_and_imports_point_down():
    floor = layers()
    there = {path.stem for path in HOUSE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert floor.keys() == there - {"__init__", "__main__"}, "the map is in CONTRIBUTING.md"
    for path in HOUSE.rglob("*.py"):
        part = path.relative_to(HOUSE).parts[0].removesuffix(".py")
        for below in imports(path) if part in floor else ():
            assert floor[below] >= floor[part], f"{path} imports {below}, which is above it in CONTRIBUTING.md"


def test_what_contributing_names_is_there():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    for name in re.findall(r"`((?:tests|docs|benchmarks|experiments)/[\w./-]*)`", text):
        if name.split("/")[0] in ("tests", "docs"):
            assert (ROOT / name).exists(), name
    for name in re.findall(r"`((?:cli|io|_engine|integrations)/\w+\.py)`", text):
        assert (HOUSE / name).exists(), name
    for target in set(re.findall(r"(?:`| {4})make (\w+)", text)):
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), target
