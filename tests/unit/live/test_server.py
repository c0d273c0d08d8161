"""Only requests with the token and from this machine are answered; the dashboard starts and ends cleanly."""

from __future__ import annotations

import socket
import subprocess
import sys
from urllib.parse import urlsplit

import pytest

import steinstream as ss
from steinstream.errors import InputError
from steinstream.live import Dashboard, server
from tests.live import Listener, ask, fed, normal, until

PATHS = ["", "page.css", "page.js", "axes.js", "curve.js", "scatter.js", "events", "none", "../page.js", "%2e%2e/"]


def test_without_the_token_the_status_is_403_everywhere():
    with fed(ss.Thinner(2, size=20), normal(100)).serve() as dashboard:
        token = urlsplit(dashboard.url).path.strip("/")
        assert len(token) >= 32
        for wrong in ("", token[:-1], token + "a", token.swapcase(), "%00", "é", "x" * 5000):
            for path in PATHS:
                for method in ("GET", "HEAD", "POST", "OPTIONS"):
                    answer, body = ask(dashboard.url, f"/{wrong}/{path}".replace("é", "%C3%A9"), method)
                    assert answer.status == 403, (wrong, path, method)
                    assert token.encode() not in body
        for path in ("*", "//", f"//{token}/", f"/a/{token}/", f"http://{urlsplit(dashboard.url).netloc}/page.js"):
            assert ask(dashboard.url, path, "OPTIONS" if path == "*" else "GET")[0].status == 403, path
        assert ask(dashboard.url, f"/{token}")[0].headers["Location"] == f"/{token}/"
        for path in PATHS[:7]:
            answer, _ = ask(dashboard.url, f"/{token}/{path}")
            assert answer.status == 200, path
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            assert answer.headers["Referrer-Policy"] == "no-referrer" and answer.headers["Cache-Control"] == "no-store"
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert ask(dashboard.url, f"/{token}/none")[0].status == 404
        assert ask(dashboard.url, f"/{token}/events?x=a")[0].status == 400


def test_only_names_of_this_machine_and_only_get_requests_are_accepted():
    with Dashboard() as dashboard:
        address = urlsplit(dashboard.url)
        for host in (
            ["evil.example"],
            ["127.0.0.1.evil.example"],
            [],
            [""],
            ["evil.example:80"],
            [address.netloc, "evil.example"],
        ):
            assert ask(dashboard.url, address.path, host=host)[0].status in (400, 403), host
        for host in (["localhost"], [f"localhost:{address.port}"], ["LOCALHOST:1"]):
            assert ask(dashboard.url, address.path, host=host)[0].status == 200, host
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
            assert ask(dashboard.url, address.path, method)[0].status == 405, method
        assert ask(dashboard.url, f"{address.path}events", "HEAD")[0].status == 200


def test_it_listens_on_the_loopback_address_only():
    with Dashboard() as dashboard, socket.socket() as other, pytest.raises(OSError):
        other.connect(("127.0.0.2", urlsplit(dashboard.url).port))


def test_the_number_of_open_pages_is_limited(monkeypatch):
    monkeypatch.setattr(server, "_MAX_CLIENTS", 2)
    with fed(ss.Thinner(2), normal(10)).serve() as dashboard:
        with Listener(dashboard.url) as first, Listener(dashboard.url) as second:
            first.receive(), second.receive()
            assert ask(dashboard.url, f"{urlsplit(dashboard.url).path}events")[0].status == 503
        until(
            lambda: ask(dashboard.url, f"{urlsplit(dashboard.url).path}events")[0].status == 200,
            "a place is free again",
        )


# -- start and end


def test_a_port_in_use_is_a_clear_error():
    with Dashboard() as dashboard:
        port = urlsplit(dashboard.url).port
        with pytest.raises(InputError, match=f"Cannot bind to 127.0.0.1:{port}: .*in use.* Use another port"):
            ss.Thinner(2).serve(port)
    with ss.Thinner(2).serve(port) as dashboard:  # free again
        assert urlsplit(dashboard.url).port == port
    for wrong in (-1, 70000, "80", True):
        with pytest.raises(InputError, match="port must be"):
            Dashboard(wrong)
    with (
        pytest.raises(InputError, match="3 names were given, but the draws have 2 dimensions"),
        Dashboard() as dashboard,
    ):
        dashboard.show(ss.Thinner(2), ["a", "b", "c"])


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.delitem(sys.modules, "steinstream.live.server")
    monkeypatch.delattr("steinstream.live.server")
    monkeypatch.setitem(sys.modules, "starlette.applications", None)
    with pytest.raises(InputError, match=r'pip install "steinstream\[live\]"'):
        ss.Thinner(2).serve()


def test_a_thinner_has_one_dashboard_and_continues_without_it():
    thinner = fed(ss.Thinner(2, size=20), normal(100))
    former = thinner.serve()
    with Listener(former.url) as listener:
        dashboard = thinner.serve()
        assert former.ended and not dashboard.ended and "closed" in repr(former)
        assert listener.receive_until(lambda message: message["ended"])["kept"] == 20
    dashboard.close()
    dashboard.close()  # a second time does no harm
    assert thinner.observer is None and dashboard.url not in dashboard._repr_html_()
    assert fed(thinner, normal(100)).seen == 200


def test_the_dashboard_ends_with_the_program(tmp_path):
    code = """if True:
        import numpy as np, steinstream as ss
        thinner = ss.Thinner(2, size=20)
        print(thinner.serve().url, flush=True)
        draws = np.random.default_rng(0).normal(size=(500, 2))
        thinner.extend(draws, -draws)
        input()
    """
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-W", "error", "-c", code], **pipes) as program:
        with Listener(program.stdout.readline().strip()) as listener:
            listener.receive_until(lambda message: message.get("draws") == 500)
            program.stdin.write("\n")
            program.stdin.flush()
            assert listener.receive_until(lambda message: message["ended"])["kept"] == 20
        assert program.wait(60) == 0 and program.stderr.read() == ""
