"""``--serve`` shows a run of ``follow`` or ``thin`` in the dashboard."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from urllib.request import urlopen

import pytest

import steinstream as ss
from steinstream.cli._hooks import ThinHooks
from tests.browser import chromium, complaints
from tests.live import EVIL, Listener, fed, normal, text, until, update_often, value


@pytest.fixture(autouse=True)
def _update_often(monkeypatch):
    update_often(monkeypatch)


@contextmanager
def following(folder):
    """Run ``follow --serve`` on a file that does not exist yet; yield the process, the address and the file."""
    chain = folder / "chain.csv"
    options = ("-o", folder / "kept.npz", "--size", 30, "--preconditioner", "identity", "--serve")
    command = [sys.executable, "-m", "steinstream", "follow", chain, *options]
    pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([*map(str, command)], **pipes) as run:
        address = re.search(r"http://127.0.0.1:\d+/\S+/", run.stderr.readline())
        yield run, address.group(), chain


def append(path, draws):
    with path.open("a") as file:
        file.write("".join(",".join(repr(float(v)) for v in [*row, *-row]) + "\n" for row in draws))


def check_end(run, folder, draws):
    """Check the result after Ctrl-C, and return its KSD."""
    run.send_signal(signal.SIGINT)
    assert run.wait(600) == 130 and "Traceback" not in run.stderr.read()
    kept = ss.Kept.load(folder / "kept.npz")
    assert kept.ksd == fed(ss.Thinner(2, size=30), draws).ksd
    return kept.ksd


def test_follow_serves_a_growing_file_until_ctrl_c(tmp_path):
    draws = normal(900)
    with following(tmp_path) as (run, address, chain), Listener(address) as listener:
        assert listener.receive_until(lambda message: message["waiting"])["title"] == "chain.csv"
        chain.write_text(f'a,"{EVIL}",score_a,"score_{EVIL}"\n')
        for first in range(0, 900, 300):
            append(chain, draws[first : first + 300])
            listener.receive_until(lambda message, first=first: message.get("draws") == first + 300)
        assert listener.message["kept"] == 30 and listener.about["names"] == ["a", EVIL]
        ksd = check_end(run, tmp_path, draws)
        assert listener.receive_until(lambda message: message["ended"])["ksd"] == ksd


@pytest.mark.browser
def test_follow_is_shown_in_a_browser(tmp_path):
    draws = normal(900)
    with chromium(tmp_path / "profile") as browser, following(tmp_path) as (run, address, chain):
        browser.get(address)
        until(lambda: text(browser, "status") == "waiting for draws", "it waits for the file")
        chain.write_text(f'a,"{EVIL}",score_a,"score_{EVIL}"\n')
        for first in range(0, 900, 300):
            append(chain, draws[first : first + 300])
            until(lambda first=first: value(browser, "draws") == first + 300, "the page follows the file")
        assert text(browser, "title") == "chain.csv" and value(browser, "kept") == 30
        assert EVIL in [option.text for option in browser.find_elements("css selector", "#choose-x option")]
        ksd = check_end(run, tmp_path, draws)
        until(lambda: text(browser, "status") == "ended", "the end is shown")
        assert value(browser, "ksd") == ksd and complaints(browser) == []


def test_thin_serves_a_dashboard_while_it_runs(steinstream, chain, monkeypatch):
    pages, show = [], ThinHooks.on_block

    def on_block(self, thinner):
        show(self, thinner)
        with urlopen(self._dashboard.url) as page:
            pages.append((self._dashboard.url, page.read().decode()))

    monkeypatch.setattr(ThinHooks, "on_block", on_block)
    ran = steinstream("thin", chain, "-o", "kept.npz", "--size", 20, "--serve")
    url = re.search(r"^dashboard: (http://127.0.0.1:\d+/\S+/)$", ran.stderr, re.MULTILINE)[1]
    assert ran.returncode == 0 and pages[0][0] == url and "<html" in pages[0][1], ran.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--method", "stride", "--serve"], "--serve cannot be used with workers or other methods"),
        (["--workers", "0", "--serve"], "--serve cannot be used with workers or other methods"),
        (["--port", "8000"], "--port 8000 has no effect without --serve"),
    ],
)
def test_options_that_contradict_serve_are_refused(steinstream, chain, options, words):
    ran = steinstream("thin", chain, "-o", "kept.npz", "--size", 20, *options)
    assert ran.returncode == 2 and words in ran.stderr, ran.stderr
