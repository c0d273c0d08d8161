"""The built site is accessible: axe-core on every page (contrast, alternative texts, headings, labels), phones, links.

Requires the site (``make docs``), Chromium with selenium, and axe-core: the package from npm, or a file named by the
variable AXE_CORE.
"""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.browser import chromium, sideways
from tests.pages import SITE

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not SITE.exists(), reason="the site is not built: make docs"),
]
RUN = """
const done = arguments[arguments.length - 1];
axe.run(document, arguments[0]).then(
    found => done(found.violations.map(v => [v.id, v.impact, v.nodes.slice(0, 3).map(n => n.html.slice(0, 150))])),
    error => done([["axe", String(error), []]]));
"""
RULES = {"light": {}, "dark": {"runOnly": ["color-contrast"]}}


@pytest.fixture(scope="module")
def axe(tmp_path_factory):
    """Return the script of axe-core."""
    pytest.importorskip("selenium", reason="browser tests require selenium")
    if given := os.environ.get("AXE_CORE"):
        return Path(given).read_text()
    if not (npm := shutil.which("npm")):
        pytest.skip("axe-core is not available: install npm, or set AXE_CORE to the path of axe.min.js")
    folder = tmp_path_factory.mktemp("axe")
    call = [npm, "pack", "axe-core@4", "--silent", "--pack-destination", str(folder), "--cache", str(folder / "cache")]
    if subprocess.run(call, cwd=folder, capture_output=True, timeout=300).returncode:
        pytest.skip("npm cannot download axe-core")
    (archive,) = folder.glob("*.tgz")
    with tarfile.open(archive) as package:
        return package.extractfile("package/axe.min.js").read().decode()


def pages():
    return sorted((SITE / "docs").rglob("*.html")) + sorted((SITE / "experiments").rglob("README.html"))


@pytest.mark.parametrize("look", RULES)
def test_the_site_passes_axe(look, axe, tmp_path):
    faults = []
    with chromium(tmp_path, dark=look == "dark") as browser:
        for page in pages():
            browser.get(page.as_uri())
            browser.execute_script(axe)
            found = browser.execute_async_script(RUN, RULES[look])
            faults += [f"{page.relative_to(SITE)}: {rule} ({impact}) {nodes}" for rule, impact, nodes in found]
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
