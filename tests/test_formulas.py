"""Formulas of the pages are written so that the site and GitHub show them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [path for folder in ("docs", "experiments") for path in sorted((ROOT / folder).glob("**/*.md"))]
FORMULA = re.compile(r"\$\$(.+?)\$\$|\$(?! )([^$\n]+?)(?<! )\$", re.DOTALL)
#: Formulas in plain text: powers, roots, Greek letters and symbols with a value.
PLAIN = re.compile(r"\^|\bsqrt\(|\b(?:alpha|kappa|rho|epsilon)\b(?![-\]])|\bm = \d|\de[+-]\d\d\b|\bE KSD\b|\bN\(0")


def text_without_code(page):
    """The text of a page without blocks of code, code in a line and targets of links."""
    text = re.sub(r"^```.*?^```|^    .*?$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`]*`|\]\([^)]*\)", "", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_github_shows_the_formulas_of_the_site(page):
    formulas = [one or two for one, two in FORMULA.findall(text_without_code(page))]
    for formula in formulas:
        assert not re.search(r"\\[!-/:-@\[-`{-~]", formula), f"GitHub removes the backslash: {formula}"


@pytest.mark.parametrize("page", sorted((ROOT / "experiments").glob("*/summary.md")), ids=lambda page: page.parent.name)
def test_summaries_contain_no_formula_in_plain_text(page):
    *lines, settings = page.read_text().strip().splitlines()
    lines = lines if settings.startswith("(experiment ") else [*lines, settings]
    text = FORMULA.sub("", re.sub(r"`[^`]*`", "", "\n".join(lines)))
    # ``alpha`` and ``alpha-authors`` are the names of problems in the first column of a table.
    text = re.sub(r"^\| alpha(-authors)? \|", "|", text, flags=re.MULTILINE)
    assert not PLAIN.findall(text)
