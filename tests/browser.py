"""A headless Chromium for the tests of pages: what it shows, which errors it logs, what it requests.

Requires selenium and Debian's chromium and chromium-driver (or any Chromium and ChromeDriver on the path).
"""

from __future__ import annotations

import json
import shutil
from contextlib import contextmanager

import pytest

FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"),
)


_AXE = """
const done = arguments[arguments.length - 1];
axe.run(document, arguments[0]).then(
    found => done(found.violations.map(v =>
        `${v.id} (${v.impact}) ${v.nodes.slice(0, 3).map(n => n.html.slice(0, 150))}`)),
    error => done([String(error)]));
"""


@contextmanager
def chromium(profile, width=1200, height=900, dark=False):
    """Start Chromium with an empty profile in that folder; skip the test if it is not installed."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="browser tests require selenium")
    binary, driver = shutil.which("chromium") or shutil.which("chromium-browser"), shutil.which("chromedriver")
    if not (binary and driver):
        pytest.skip("no chromium and chromedriver: Debian's packages chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (*FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"):
        options.add_argument(flag)
    if dark:
        options.add_argument("--force-dark-mode")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
        yield browser
    finally:
        browser.quit()


def complaints(browser) -> list[str]:
    """Return the errors and warnings on the console: of scripts, and refused requests."""
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def requests(browser) -> list[str]:
    """Return every address that was requested since the last call."""
    events = (json.loads(entry["message"])["message"] for entry in browser.get_log("performance"))
    asked = (e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent")
    own = ("chrome:", "chrome-untrusted:", "data:")  # tabs of the browser itself
    return [address for address in asked if not address.startswith(own)]


def sideways(browser) -> int:
    """Return by how many pixels the page is wider than the window."""
    return browser.execute_script("return document.documentElement.scrollWidth - window.innerWidth")


def inaccessible(browser, axe: str, *rules: str) -> list[str]:
    """Return what axe-core finds on the page: all rules, or the given ones."""
    browser.execute_script(axe)
    return browser.execute_async_script(_AXE, {"runOnly": rules} if rules else {})
