"""The built site is accessible: axe-core on every page (contrast, alternative texts, headings, labels), phones, links.

Requires the site (``make docs``), Chromium with selenium, and axe-core (`tests.conftest.axe`).
"""

from __future__ import annotations

import html
import re
from urllib.parse import unquote

import pytest

from tests.browser import chromium, inaccessible, sideways
from tests.pages import SITE

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not SITE.exists(), reason="the site is not built: make docs"),
]


def pages():
    """Return the pages of the site; of the experiments those with text."""
    patterns = ("C*.html", "SECURITY.html", "docs/**/*.html", "benchmarks/**/*.html", "experiments/**/README.html")
    return sorted(page for pattern in patterns for page in SITE.glob(pattern))


@pytest.mark.parametrize("look", ("light", "dark"))
def test_the_site_passes_axe(look, axe, tmp_path):
    faults = []
    with chromium(tmp_path, dark=look == "dark") as browser:
        for page in pages():
            browser.get(page.as_uri())
            found = inaccessible(browser, axe, *(["color-contrast"] if look == "dark" else ()))
            faults += [f"{page.relative_to(SITE)}: {fault}" for fault in found]
    assert not faults, "\n".join(faults)


def test_no_page_is_wider_than_a_phone(tmp_path):
    with chromium(tmp_path, width=390) as browser:
        for page in pages():
            browser.get(page.as_uri())
            assert sideways(browser) <= 0, page.relative_to(SITE)


def test_links_between_the_built_pages_lead_somewhere():
    """Also those that Sphinx makes, and to anchors."""
    anchors = {page: set(re.findall(r'\bid="([^"]+)"', page.read_text())) for page in SITE.rglob("*.html")}
    for page in anchors:
        for link in re.findall(r'<a\b[^>]*\bhref="([^"]+)"', page.read_text()):
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = unquote(html.unescape(link)).partition("#")
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), f"{page.relative_to(SITE)}: {link}"
            assert not anchor or target.suffix != ".html" or anchor in anchors[target], (
                f"{page.relative_to(SITE)}: {link}"
            )
