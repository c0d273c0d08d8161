"""The live page in a real browser, and on the command line."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from urllib.parse import urlsplit

import pytest
from browser import chromium, complaints, requests, sideways
from live import EVIL, fed, normal, often, until

import steinstream as ss

__all__ = ["often"]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


def text(browser, id):
    return browser.execute_script("return document.getElementById(arguments[0]).textContent", id)


def value(browser, id):
    found = browser.execute_script("return document.getElementById(arguments[0]).dataset.value", id)
    return None if found in (None, "null") else float(found)


def shown(browser, thinner):
    return value(browser, "draws") == thinner.seen


def coloured(browser, id="scatter"):
    """How many pixels of a picture are green or blue."""
    return browser.execute_script(
        """const c = document.getElementById(arguments[0]);
        const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
        let found = 0;
        for (let i = 0; i < d.length; i += 4) found += d[i + 3] > 60 && Math.max(d[i + 1], d[i + 2]) > d[i] + 40;
        return found""",
        id,
    )


def test_the_page_shows_what_the_thinner_has_while_it_runs(browser):
    complaints(browser), requests(browser)
    draws = normal(4000, 3)
    thinner = fed(ss.Thinner(3, size=123), draws[:1000])
    with thinner.serve(title="a run", names=["mu", EVIL, "tau"]) as page:
        browser.get(page.url)
        for first in (1000, 2000, 3000):
            fed(thinner, draws[first : first + 1000])
            until(lambda: shown(browser, thinner), "the page keeps up")
            assert value(browser, "ksd") == thinner.ksd and value(browser, "kept") == 123
            assert text(browser, "ksd") == f"{thinner.ksd:#.4g}"
            assert text(browser, "draws").replace("\u202f", " ") == str(thinner.seen)
        assert text(browser, "title") == "a run" and text(browser, "said") in ("running", "waiting for draws")
        assert re.fullmatch(r"\d:\d\d", text(browser, "elapsed")) and value(browser, "rate") >= 0
        until(lambda: coloured(browser) > 300, "draws are drawn")
        until(
            lambda: coloured(browser, "ksd-curve") > 100 and coloured(browser, "kept-curve") > 100, "so are the curves"
        )
        options = [option.text for option in browser.find_elements("css selector", "#choose-y option")]
        assert options == ["draw (when it came)", "mu", EVIL, "tau"]  # as text
        assert browser.find_elements("css selector", "main img, main script") == [] and browser.title.startswith("KSD ")
        browser.find_element("css selector", "#choose-y select").send_keys("tau")
        until(lambda: any("events?x=0&y=2" in each for each in requests(browser)), "other coordinates are asked for")
        last = text(browser, "ksd")
    until(lambda: text(browser, "said") == "ended", "the end is said")
    assert text(browser, "ksd") == last and complaints(browser) == []


def test_nothing_is_asked_for_elsewhere_and_a_phone_need_not_scroll_sideways(tmp_path):
    names = [EVIL, "a_very_long_name_of_a_parameter_" * 8]
    thinner = fed(ss.Thinner(2, size=50), normal(500))
    with thinner.serve(names=names, title="long/" * 60) as page, chromium(tmp_path, width=390, dark=True) as phone:
        phone.get(page.url)
        until(lambda: shown(phone, thinner), "the page is there")
        assert sideways(phone) == 0
        assert all(each.startswith(page.url) for each in requests(phone)) and complaints(phone) == []
        dark = phone.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert sum(map(int, re.findall(r"\d+", dark)[:3])) < 200


def test_a_lost_connection_is_said_and_comes_back(browser, monkeypatch):
    monkeypatch.setattr("secrets.token_urlsafe", lambda size: "always-the-same")
    thinner = fed(ss.Thinner(2, size=50), normal(500))
    page = thinner.serve()
    browser.get(page.url)
    until(lambda: shown(browser, thinner), "the page is there")
    page._server.should_exit = page._server.force_exit = True  # as if the program had died
    until(lambda: text(browser, "said").startswith("connection lost"), "the loss is said")
    page._thread.join(60)
    fed(thinner, normal(100))
    with thinner.serve(urlsplit(page.url).port):
        until(lambda: shown(browser, thinner), "it is back")
        assert value(browser, "ksd") == thinner.ksd
        browser.refresh()  # closing and opening is no matter
        until(lambda: shown(browser, thinner) and text(browser, "said") != "connecting", "it is open again")
    complaints(browser)


def test_ten_thousand_draws_are_shown(browser):
    complaints(browser)
    thinner = fed(ss.Thinner(2, growth="none"), normal(10_000))
    with thinner.serve() as page:
        browser.get(page.url)
        until(lambda: browser.find_element("id", "scatter").get_attribute("data-count") == "10000", "all are there")
        until(lambda: coloured(browser) > 10_000, "all are drawn")
    assert complaints(browser) == []


# -- on the command line


def lines(draws):
    return "".join(",".join(repr(float(v)) for v in [*row, *-row]) + "\n" for row in draws)


def test_follow_serves_a_file_that_grows_until_ctrl_c(browser, tmp_path):
    complaints(browser)
    chain, draws = tmp_path / "chain.csv", normal(900)
    command = [
        sys.executable,
        "-m",
        "steinstream",
        "follow",
        chain,
        "-o",
        tmp_path / "kept.npz",
        "--size",
        "30",
        "--serve",
    ]
    with subprocess.Popen(
        [*map(str, command), "--scale", "identity"], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        url = re.fullmatch(r"watch it at (http://127.0.0.1:\d+/\S+/)\n", run.stderr.readline()).group(1)
        browser.get(url)
        until(lambda: text(browser, "said") == "waiting for draws", "it waits for the file")
        with chain.open("w") as file:
            file.write(f'a,"{EVIL}",score_a,"score_{EVIL}"\n')
            for first in range(0, 900, 300):
                file.write(lines(draws[first : first + 300]))
                file.flush()
                until(lambda first=first: value(browser, "draws") == first + 300, "the page follows the file")
        assert text(browser, "title") == "chain.csv" and value(browser, "kept") == 30
        assert EVIL in [option.text for option in browser.find_elements("css selector", "#choose-x option")]
        run.send_signal(signal.SIGINT)
        assert run.wait(60) == 130
        rest = run.stderr.read()
    until(lambda: text(browser, "said") == "ended", "the end is said")
    kept = ss.Kept.load(tmp_path / "kept.npz")
    assert value(browser, "ksd") == kept.ksd == fed(ss.Thinner(2, size=30), draws).ksd
    assert "Traceback" not in rest and complaints(browser) == []


def test_thin_serves_too_where_there_is_something_to_see(steinstream, chain):
    ran = steinstream("thin", chain, "-o", "kept.npz", "--size", 20, "--serve")
    assert ran.returncode == 0 and "watch it at http://127.0.0.1:" in ran.stderr, ran.stderr
    for options, said in (
        (["--method", "stride", "--serve"], "--serve shows one thinner at work"),
        (["--port", "8000"], "Add --serve"),
    ):
        ran = steinstream("thin", chain, "-o", "kept.npz", "--size", 20, *options)
        assert ran.returncode == 2 and said in ran.stderr, ran.stderr
