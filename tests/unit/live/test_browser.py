"""The dashboard in a real browser."""

from __future__ import annotations

import re
import subprocess
import sys
from urllib.parse import urlsplit

import numpy as np
import pytest

import steinstream as ss
from tests.browser import chromium, complaints, inaccessible, requests, sideways
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
        options = browser.find_elements("css selector", "#choose-y option")
        assert [option.get_attribute("title") for option in options] == ["step", "mu", EVIL, "tau"]  # as text
        assert [option.text for option in options] == ["step", "mu", f"{EVIL[:11]}…{EVIL[-12:]}", "tau"]
        assert browser.find_elements("css selector", "main img, main script") == [] and browser.title.startswith("KSD ")
        browser.find_element("css selector", "#choose-y select").send_keys("tau")
        until(lambda: any("events?x=0&y=2" in each for each in requests(browser)), "other coordinates are asked for")
        last = text(browser, "ksd")
    until(lambda: text(browser, "status") == "ended", "the end is shown")
    assert text(browser, "ksd") == last and complaints(browser) == []


def test_axe_finds_no_fault(browser, axe):
    thinner = fed(ss.Thinner(3, size=50), normal(500, 3))
    with thinner.serve(names=["mu", "nu", "tau"], title="a run") as dashboard:
        browser.get(dashboard.url)
        until(lambda: shown(browser, thinner), "the page is there")
        assert inaccessible(browser, axe) == []


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
    code = """if True:
        import secrets, steinstream as ss
        secrets.token_urlsafe = lambda size: "always-the-same"
        print(ss.Thinner(2, size=50).serve().url, flush=True)
        input()
    """
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as program:
        url = program.stdout.readline().strip()
        browser.get(url)
        until(lambda: text(browser, "status") == "waiting for draws", "the page is there")
        program.kill()
    until(lambda: text(browser, "status").startswith("connection lost"), "the loss is shown")
    monkeypatch.setattr("secrets.token_urlsafe", lambda size: "always-the-same")
    thinner = fed(ss.Thinner(2, size=50), normal(500))
    with thinner.serve(urlsplit(url).port):
        until(lambda: shown(browser, thinner), "it is back")
        assert value(browser, "ksd") == thinner.ksd
        browser.refresh()  # the page can be closed and opened again
        until(lambda: shown(browser, thinner) and text(browser, "status") != "connecting", "it is open again")
    complaints(browser)


def test_a_dashboard_that_has_failed_says_that_the_run_continues(browser):
    thinner = fed(ss.Thinner(2, size=50), normal(500))
    with thinner.serve() as dashboard:
        browser.get(dashboard.url)
        until(lambda: shown(browser, thinner), "the page is there")
        dashboard.fail(MemoryError())
        until(lambda: "the run continues" in text(browser, "status"), "the failure is shown")
    complaints(browser)


def table(browser):
    """Return the texts of the cells of each row."""
    return browser.execute_script(
        "return [...document.querySelectorAll('#moments tbody tr')].map(row => [...row.cells].map(c => c.textContent))"
    )


def test_mean_and_sd_of_kept_draws_and_stream_are_in_a_table(browser):
    complaints(browser)
    draws = normal(3000) * [1.0, 0.002] + [0.0, 5.0]
    thinner = ss.Thinner(2, size=100, preconditioner=ss.Streaming(), stream_weight=0)
    thinner.extend(draws, -(draws - [0.0, 5.0]) / [1.0, 4e-6])
    with thinner.serve(names=["mu", EVIL]) as dashboard:
        browser.get(dashboard.url)
        until(lambda: len(table(browser)) == 2, "the table is there")
        kept = thinner.kept.draws
        for row, name, digits, j in zip(table(browser), ("mu", EVIL), (2, 5), (0, 1), strict=True):
            numbers = [float(cell.replace("\u2212", "-")) for cell in row[1:]]
            means, sds = (
                [each.mean(axis=0)[j] for each in (kept, draws)],
                [each.std(axis=0)[j] for each in (kept, draws)],
            )
            assert row[0] == name and np.allclose(numbers[:4], [*means, *sds], rtol=0, atol=2 * 0.1**digits)
            assert numbers[4] == pytest.approx((means[0] - means[1]) / sds[1], abs=0.01)
            assert numbers[5] == pytest.approx(sds[0] / sds[1], abs=0.01)
        assert browser.find_element("id", "mmd-number").is_displayed() is False
    assert complaints(browser) == []


def test_numbers_that_round_to_zero_have_no_sign(browser):
    draws = normal(2000)
    draws -= draws.mean(axis=0) + 1e-5  # all draws are kept, so the means are equal and almost 0
    with fed(ss.Thinner(2, **{**ss.PAPER, "growth": "none"}), draws).serve() as dashboard:
        browser.get(dashboard.url)
        until(lambda: len(table(browser)) == 2, "the table is there")
        assert [row[1] for row in table(browser)] == ["0.00", "0.000"]


def test_checks_that_fail_are_shown_in_full(browser):
    draws = normal(1000)
    thinner = ss.Thinner(2, size=100, preconditioner="identity")
    thinner.extend(draws, -0.3 * draws)
    with thinner.serve() as dashboard:
        browser.get(dashboard.url)
        until(lambda: len(browser.find_elements("css selector", "#checks li")) == 2, "the checks are there")
        scores, finite = browser.find_elements("css selector", "#checks li")
        assert "The scores do not match the draws" in scores.text and scores.get_attribute("data-state") == "warning"
        assert "finite draws" in finite.text and finite.get_attribute("data-state") == "passed"
    assert complaints(browser) == []


def test_the_density_of_the_stream_is_behind_the_kept_draws(browser):
    complaints(browser)
    draws = normal(3000)
    with fed(ss.Thinner(2, size=1), draws).serve() as dashboard:
        browser.get(dashboard.url)
        until(lambda: browser.find_element("id", "scatter").get_attribute("data-stream") == "3000", "it is sent")
        shaded = """const c = document.getElementById("scatter");
            const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
            const levels = new Map();
            for (let i = 3; i < d.length; i += 4) levels.set(d[i], (levels.get(d[i]) || 0) + 1);
            return [...levels].filter(([alpha, count]) => alpha && alpha < 255 && count > 1000).length"""
        until(lambda: browser.execute_script(shaded) == 3, "three regions are shaded")
        assert browser.find_element("id", "stream-legend").is_displayed()
        labels = [label.text.split("\n")[0].strip() for label in browser.find_elements("css selector", ".axes label")]
        assert [label[:6] for label in labels] == ["x axis", "y axis"]
    assert complaints(browser) == []


def test_without_scores_the_page_says_so_and_shows_mmd(browser):
    complaints(browser)
    thinner = ss.Thinner(2, size=50)
    thinner.extend(normal(500))
    with thinner.serve() as dashboard:
        browser.get(dashboard.url)
        until(lambda: shown(browser, thinner), "the page is there")
        assert text(browser, "ksd") == "no scores" and value(browser, "mmd") == thinner.mmd
        assert browser.title.startswith("MMD ") and text(browser, "measure").startswith("MMD")
        until(lambda: coloured(browser, "ksd-curve") > 100, "the curve of MMD is drawn")
    assert complaints(browser) == []


def test_ten_thousand_draws_are_shown(browser):
    complaints(browser)
    thinner = fed(ss.Thinner(2, growth="none"), normal(10_000))
    with thinner.serve() as dashboard:
        browser.get(dashboard.url)
        until(lambda: browser.find_element("id", "scatter").get_attribute("data-count") == "10000", "all are there")
        until(lambda: coloured(browser) > 10_000, "all are drawn")
    assert complaints(browser) == []
