"""External addresses of the pages are well formed. ``make links`` requests them, which needs the internet."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.pages import ROOT, links, pages

DOI = r"10\.\d{4,9}/[-._;()/:A-Za-z0-9]*[A-Za-z0-9)]"
ARXIV = r"(?:abs|pdf)/\d{4}\.\d{4,5}(?:v\d+)?"
HOST = r"(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+[a-z]{2,}"
LOCAL = "http://127.0.0.1:"  # the dashboard, in examples


def addresses(text: str) -> list[str]:
    """Return the external addresses of a text, without the marks that end a sentence or a link."""
    found = re.findall(r"\bhttps?:[^\s<>\"'`\\\]]*", text)
    found = [each[: each.find(")")] if ")" in each and "(" not in each else each for each in found]
    return [each.rstrip(".,;:") for each in found if not each.startswith(LOCAL)]


def fault(address: str) -> str:
    """Return what is wrong with an external address, or an empty text."""
    parts = urlsplit(address)
    if parts.scheme != "https":
        return "not https"
    if not re.fullmatch(HOST, parts.netloc):
        return "no host name"
    if not re.fullmatch(r"[-A-Za-z0-9._~:/?#\[\]@!$&()*+,;=%]+", address) or re.search(r"%(?![0-9A-Fa-f]{2})", address):
        return "a character that is not allowed"
    if "//" in parts.path:
        return "an empty part of the path"
    if parts.netloc in ("doi.org", "dx.doi.org") and not re.fullmatch(DOI, parts.path[1:]):
        return "not a DOI"
    if parts.netloc == "arxiv.org" and not re.fullmatch(ARXIV, parts.path[1:]):
        return "not a page of arXiv"
    return ""


def sources() -> list[Path]:
    """Return the files with addresses that a reader may follow."""
    notebooks = (ROOT / "docs" / "tutorials").glob("*.ipynb")
    return [*pages(), *sorted(notebooks), ROOT / "pyproject.toml", ROOT / "CITATION.cff"]


@pytest.mark.parametrize("source", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_external_addresses_are_well_formed(source):
    found = {address: fault(address) for address in addresses(source.read_text(encoding="utf-8"))}
    assert not {address: problem for address, problem in found.items() if problem and "w3.org" not in address}
    for doi in re.findall(r"\b(?:doi:|DOI )\s*([^\s,)\]]+)", source.read_text(encoding="utf-8")):
        assert re.fullmatch(DOI, doi.rstrip(".")), doi


def test_the_pages_have_external_addresses():
    assert len({address for page in pages() for address in addresses(page.read_text())}) > 10
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"].values()
    assert set(urls) <= set(addresses((ROOT / "pyproject.toml").read_text()))


def test_the_addresses_of_the_readme_are_on_the_site():
    """The README is not a page of the site, which ``make links`` reads."""
    on_site = {address for page in pages() if page.parent != ROOT for address in addresses(page.read_text())}
    assert set(addresses((ROOT / "README.md").read_text())) <= on_site


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("http://example.org/page", "not https"),
        ("https://example/page", "no host name"),
        ("https:///page", "no host name"),
        ("https://example.org/a%2", "a character that is not allowed"),
        ("https://example.org//page", "an empty part of the path"),
        ("https://doi.org/10.7910", "not a DOI"),
        ("https://doi.org/doi:10.7910/DVN/MDKNWM", "not a DOI"),
        ("https://doi.org/10.7910/DVN/MDKNWM", ""),
        ("https://arxiv.org/2201.07130", "not a page of arXiv"),
        ("https://arxiv.org/abs/2201.07130", ""),
    ],
)
def test_a_wrong_address_is_found(address, problem):
    assert addresses(f"See [the page]({address}), and more.") == [address]
    assert fault(address) == problem


def test_no_page_links_to_a_scheme_other_than_the_web():
    """A link without scheme is a file, which ``tests/test_docs.py`` looks for."""
    for page in pages():
        assert not [link for link in links(page) if link.startswith(("//", "www."))], page


WORKFLOWS = ROOT / ".github" / "workflows"


@pytest.mark.skipif(not WORKFLOWS.exists(), reason="workflows are not part of a source distribution")
def test_workflows_call_targets_of_the_makefile():
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    called = {
        path.name: re.findall(r"\bmake ([a-z][a-z-]*)\s*(?:#.*)?$", path.read_text(), flags=re.MULTILINE)
        for path in WORKFLOWS.glob("*.yml")
    }
    assert all(called.values()), called
    assert {name for names in called.values() for name in names} <= targets
    assert called["links.yml"] == ["links"]
    merged = re.findall(r"^make ([a-z-]+)", (ROOT / ".ci" / "run").read_text(), flags=re.MULTILINE)
    assert set(merged) == set(called["ci.yml"]) - {"coverage"}
