"""``--serve`` shows a run of ``follow`` or ``thin`` in the dashboard."""

from __future__ import annotations

import os
import re
import signal
import socket
import struct
import subprocess
import sys
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Timer
from urllib.parse import urlsplit
from urllib.request import urlopen

import numpy as np
import pytest

import steinstream as ss
from steinstream.cli._hooks import ThinHooks
from tests.browser import chromium, complaints
from tests.live import EVIL, Listener, connect, fed, normal, text, until, update_often, value


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


@contextmanager
def following_a_pipe(folder, *options, descriptors):
    """Run ``follow`` on a named pipe with a limit on descriptors; yield the process and the open pipe."""
    pipe = folder / "chain.csv"
    os.mkfifo(pipe)
    given = ("-o", folder / "kept.npz", "--size", 30, "--preconditioner", "identity", *options)
    limited = ("sh", "-c", f'ulimit -n {descriptors} && exec "$@"', "sh")
    command = [*limited, sys.executable, "-W", "error", "-m", "steinstream", "follow", pipe, *given]
    with subprocess.Popen([*map(str, command)], stderr=subprocess.PIPE, text=True) as run:
        watchdog = Timer(600, run.kill)  # a run that hangs fails the test
        watchdog.start()
        try:
            yield run, pipe
        finally:
            watchdog.cancel()
            pipe.unlink()


def lines(draws):
    return "".join(",".join(repr(float(v)) for v in [*row, *-row]) + "\n" for row in draws)


def attack(address, clients):
    """Open connections of many bad kinds; those that stay open are closed by ``clients``."""
    url = urlsplit(address)
    good = f"GET {url.path}%s HTTP/1.1\r\nHost: {url.netloc}\r\n%s\r\n"
    endless = f"GET {url.path} HTTP/1.1\r\n".encode()  # without an end
    bad = [
        b"\x00" * 100,
        b"\x16\x03\x01\x02\x00\x01\x00",  # TLS
        b"GET\r\n\r\n",
        b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 99999999999999\r\n\r\n" + b"x" * 100_000,
        (good % ("", f"a: {'x' * 1_000_000}\r\n")).encode(),
        (good % (f"events?x={'9' * 4000}", "")).encode(),
        (good % ("events?x=1e5", "")).encode(),
    ]
    for data in bad:
        client = clients.enter_context(connect(address))
        with suppress(OSError):
            client.sendall(data)
    for _ in range(30):  # slow requests
        clients.enter_context(connect(address)).sendall(endless)
    for path in ("", "page.js", "events"):
        for half_closed in (True, False):  # or reset, during the response
            client = clients.enter_context(connect(address))
            with suppress(OSError):
                client.sendall((good % (path, "")).encode())
                client.recv(1)
                if half_closed:
                    client.shutdown(socket.SHUT_WR)
                else:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    client.close()


DRAWS = normal(4000)


@pytest.fixture(scope="module")
def without_dashboard(tmp_path_factory):
    folder = tmp_path_factory.mktemp("without")
    with following_a_pipe(folder, descriptors=256) as (run, pipe):
        with pipe.open("w") as chain:
            chain.write("a,b,score_a,score_b\n" + lines(DRAWS))
        assert run.wait() == 0, run.stderr.read()
    return ss.Kept.load(folder / "kept.npz")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize("descriptors", [64, 256])
def test_no_client_can_end_a_run_or_change_its_result(tmp_path, descriptors, without_dashboard):
    with following_a_pipe(tmp_path, "--serve", descriptors=descriptors) as (run, pipe), ExitStack() as clients:
        address = re.search(r"http://127.0.0.1:\d+/\S+/", run.stderr.readline()).group()
        with pipe.open("w") as chain:
            chain.write("a,b,score_a,score_b\n")
            for part in np.split(DRAWS, 2):
                chain.write(lines(part))  # larger than the buffer of a pipe: returns when the run has read most of it
                chain.flush()
                for _ in range(300):
                    clients.enter_context(connect(address))
                attack(address, clients)
                descriptors_in_use = Path(f"/proc/{run.pid}/fd")
                if descriptors_in_use.exists():
                    assert len([*descriptors_in_use.iterdir()]) <= 64
        stderr = run.stderr.read()
        assert run.wait() == 0, stderr
    assert "Traceback" not in stderr and "Warning" not in stderr and "dashboard" not in stderr, stderr
    kept = ss.Kept.load(tmp_path / "kept.npz")
    assert np.array_equal(kept.ids, without_dashboard.ids) and kept.ksd == without_dashboard.ksd


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), RuntimeError("can't start new thread")])
def test_a_dashboard_that_cannot_start_does_not_stop_the_run(steinstream, chain, monkeypatch, caplog, error):
    def fail(*_):
        raise error

    monkeypatch.setattr("threading.Thread.start", fail)
    ran = steinstream("thin", chain, "-o", "kept.npz", "--size", 20, "--serve")
    assert ran.returncode == 0 and "dashboard: " not in ran.stderr, ran.stderr
    assert [record.name for record in caplog.records if record.levelname == "WARNING"] == ["steinstream"]
    assert "The run continues without it" in caplog.text


def test_a_port_in_use_is_reported_before_the_run(steinstream, chain):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ran = steinstream("thin", chain, "-o", "kept.npz", "--size", 20, "--serve", "--port", port)
    assert ran.returncode == 2 and f"cannot bind to 127.0.0.1:{port}" in ran.stderr


def check_end(run, folder, draws):
    """Check the result after Ctrl-C, and return its KSD."""
    run.send_signal(signal.SIGINT)
    assert run.wait(600) == 130 and "Traceback" not in run.stderr.read()
    kept = ss.Kept.load(folder / "kept.npz")
    assert kept.ksd == fed(ss.Thinner(2, size=30, preconditioner="identity"), draws).ksd
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
        shortened = f"{EVIL[:11]}…{EVIL[-12:]}"
        assert shortened in [option.text for option in browser.find_elements("css selector", "#choose-x option")]
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
