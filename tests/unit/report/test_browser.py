"""The report in a real browser: in light and dark mode, on a phone and on paper."""

from __future__ import annotations

import base64
import re

import pytest

from tests.browser import chromium, complaints, inaccessible, requests, sideways
from tests.report_chain import NAMES

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser(folder):
    with chromium(folder / "profile") as window:
        yield window


_FIGURES = """
return [...document.querySelectorAll('figure svg')].map(s => s.getBoundingClientRect()).map(r => [r.width, r.height])
"""
_CONTRAST = """
const level = colour => { const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map(v => v / 255)
  .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b }
const paper = level(getComputedStyle(document.documentElement).backgroundColor)
const against = colour => { const l = level(colour); return (Math.max(l, paper) + .05) / (Math.min(l, paper) + .05) }
const all = [...document.querySelectorAll('p, h1, h2, dt, dd, td, th, figcaption')].map(e => getComputedStyle(e).color)
const svg = [...document.querySelectorAll('svg text')].map(e => getComputedStyle(e).fill)
return [paper, Math.min(...all.concat(svg).map(against))]
"""


def test_it_opens_without_errors_and_requests_nothing(written, browser):
    kept, path = written
    requests(browser)
    browser.get(path.as_uri())
    assert complaints(browser) == [] and requests(browser) == [path.as_uri()]
    sizes = browser.execute_script(_FIGURES)
    assert len(sizes) == 2 + 2 + 6 + 4 and all(width > 150 and height > 60 for width, height in sizes)
    shown = {e.get_attribute("data-number"): e.text for e in browser.find_elements("css selector", "[data-number]")}
    assert shown["ksd"] == f"{kept.ksd:.3g}" and shown["kept"] == "120"
    assert "".join(shown["seen"].split()) == "6000"
    assert not browser.find_elements("css selector", "script, body b b, iframe, object, link")
    names = [e.text for e in browser.find_elements("css selector", "#summary tbody th")]
    assert names == list(NAMES)
    images = browser.execute_script(
        "return Promise.all([...document.querySelectorAll('svg image')].map(i => { const p = new Image();"
        "p.src = i.getAttribute('href'); return p.decode().then(() => p.naturalWidth) }))"
    )
    assert len(images) >= 1 and min(images) > 0


def test_light_and_dark_mode_are_readable(written, folder, browser):
    _, path = written
    for dark in (False, True):
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
        browser.get(path.as_uri())
        paper, least = browser.execute_script(_CONTRAST)
        assert (paper < 0.05) if dark else (paper > 0.9)
        assert least >= 4.5
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_axe_finds_no_fault(written, browser, axe):
    _, path = written
    browser.get(path.as_uri())
    assert inaccessible(browser, axe) == []


def test_a_phone_does_not_scroll_sideways(written, folder):
    _, path = written
    with chromium(folder / "phone", width=390, height=844) as phone:
        phone.get(path.as_uri())
        assert sideways(phone) == 0
        assert all(150 < width <= 390 for width, _ in phone.execute_script(_FIGURES))
        heights = "return [...document.querySelectorAll('svg text')].map(t => t.getBoundingClientRect().height)"
        assert min(phone.execute_script(heights)) >= 7


def test_it_prints_in_light_mode_on_a_few_pages(written, browser):
    _, path = written
    scheme = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": scheme})
    browser.get(path.as_uri())
    paper, least = browser.execute_script(_CONTRAST)
    assert paper > 0.9 and least >= 4.5
    pdf = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})["data"])
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 8
