"""The dashboard in a real browser."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest

import steinstream as ss
from tests.browser import chromium, complaints, requests, sideways
from tests.live import EVIL, fed, normal, text, until, value

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


def shown(browser, thinner):
    return value(browser, "draws") == thinner.seen


def coloured(browser, id="scatter"):
    """Return the number of green or blue pixels of a canvas."""
    return browser.execute_script(
        """const c = document.getElementById(arguments[0]);
        const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
        let found = 0;
        for (let i = 0; i < d.length; i += 4) found += d[i + 3] > 60 && Math.max(d[i + 1], d[i + 2]) > d[i] + 40;
        return found""",
        id,
    )


def test_the_page_shows_the_state_of_the_thinner_while_it_runs(browser):
    complaints(browser), requests(browser)
    draws = normal(4000, 3)
    thinner = fed(ss.Thinner(3, size=123), draws[:1000])
    with thinner.serve(title="a run", names=["mu", EVIL, "tau"]) as dashboard:
        browser.get(dashboard.url)
        for first in (1000, 2000, 3000):
            fed(thinner, draws[first : first + 1000])
            until(lambda: shown(browser, thinner), "the page keeps up")
            assert value(browser, "ksd") == thinner.ksd and value(browser, "kept") == 123
            assert text(browser, "ksd") == f"{thinner.ksd:#.4g}"
            assert text(browser, "draws").replace("\u202f", " ") == str(thinner.seen)
        assert text(browser, "title") == "a run" and text(browser, "status") in ("running", "waiting for draws")
        assert re.fullmatch(r"\d:\d\d", text(browser, "elapsed")) and value(browser, "rate") >= 0
        until(lambda: coloured(browser) > 300, "draws are drawn")
        until(
            lambda: coloured(browser, "ksd-curve") > 100 and coloured(browser, "kept-curve") > 100, "so are the curves"
        )
        options = [option.text for option in browser.find_elements("css selector", "#choose-y option")]
        assert options == ["draw (order of arrival)", "mu", EVIL, "tau"]  # as text
        assert browser.find_elements("css selector", "main img, main script") == [] and browser.title.startswith("KSD ")
        browser.find_element("css selector", "#choose-y select").send_keys("tau")
        until(lambda: any("events?x=0&y=2" in each for each in requests(browser)), "other coordinates are asked for")
        last = text(browser, "ksd")
    until(lambda: text(browser, "status") == "ended", "the end is shown")
    assert text(browser, "ksd") == last and complaints(browser) == []


def test_nothing_is_requested_elsewhere_and_a_phone_does_not_scroll_sideways(tmp_path):
    names = [EVIL, "a_very_long_name_of_a_parameter_" * 8]
    thinner = fed(ss.Thinner(2, size=50), normal(500))
    with thinner.serve(names=names, title="long/" * 60) as dashboard, chromium(tmp_path, width=390, dark=True) as phone:
        phone.get(dashboard.url)
        until(lambda: shown(phone, thinner), "the page is there")
        assert sideways(phone) == 0
        assert all(each.startswith(dashboard.url) for each in requests(phone)) and complaints(phone) == []
        dark = phone.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert sum(map(int, re.findall(r"\d+", dark)[:3])) < 200


def test_a_lost_connection_is_shown_and_restored(browser, monkeypatch):
    monkeypatch.setattr("secrets.token_urlsafe", lambda size: "always-the-same")
    thinner = fed(ss.Thinner(2, size=50), normal(500))
    dashboard = thinner.serve()
    browser.get(dashboard.url)
    until(lambda: shown(browser, thinner), "the page is there")
    dashboard._server.should_exit = dashboard._server.force_exit = True  # as if the program had died
    until(lambda: text(browser, "status").startswith("connection lost"), "the loss is shown")
    dashboard._thread.join(60)
    fed(thinner, normal(100))
    with thinner.serve(urlsplit(dashboard.url).port):
        until(lambda: shown(browser, thinner), "it is back")
        assert value(browser, "ksd") == thinner.ksd
        browser.refresh()  # the page can be closed and opened again
        until(lambda: shown(browser, thinner) and text(browser, "status") != "connecting", "it is open again")
    complaints(browser)


def test_ten_thousand_draws_are_shown(browser):
    complaints(browser)
    thinner = fed(ss.Thinner(2, growth="none"), normal(10_000))
    with thinner.serve() as dashboard:
        browser.get(dashboard.url)
        until(lambda: browser.find_element("id", "scatter").get_attribute("data-count") == "10000", "all are there")
        until(lambda: coloured(browser) > 10_000, "all are drawn")
    assert complaints(browser) == []
