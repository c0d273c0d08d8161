"""Only requests with the token and from this machine are answered; the dashboard starts and ends cleanly."""

from __future__ import annotations

import http.client
import logging
import os
import socket
import struct
import subprocess
import sys
import time
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

import steinstream as ss
from steinstream.errors import InputError
from steinstream.live import Dashboard, server
from tests.live import Listener, ask, connect, fed, normal, until

FILES = ["", "page.css", "page.js", "axes.js", "curve.js", "density.js", "scatter.js", "table.js"]
PATHS = [*FILES, "events", "none", "../page.js", "%2e%2e/"]


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
        for path in [*FILES, "events"]:
            answer, _ = ask(dashboard.url, f"/{token}/{path}")
            assert answer.status == 200, path
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            assert answer.headers["Referrer-Policy"] == "no-referrer" and answer.headers["Cache-Control"] == "no-store"
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert not any(name.lower().startswith("access-control") for name in answer.headers)
        assert ask(dashboard.url, f"/{token}/none")[0].status == 404
        assert ask(dashboard.url, f"/{token}/events?x=a")[0].status == 400


def test_only_get_and_head_requests_are_accepted():
    with Dashboard() as dashboard:
        path = urlsplit(dashboard.url).path
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW"):
            answer, _ = ask(dashboard.url, path, method)
            assert answer.status == 405 and answer.headers["Allow"] == "GET, HEAD", method
        answer, body = ask(dashboard.url, path, "HEAD")
        assert answer.status == 200 and int(answer.headers["Content-Length"]) > 1000 and body == b""
        assert ask(dashboard.url, f"{path}events", "HEAD")[0].status == 200


def test_the_host_must_be_a_loopback_name_with_the_port_of_the_dashboard():
    with Dashboard() as dashboard:
        address = urlsplit(dashboard.url)
        for host in ([f"localhost:{address.port}"], [f"LocalHost:{address.port}"], [f"[::1]:{address.port}"]):
            assert ask(dashboard.url, address.path, host=host)[0].status == 200, host
        for host in (["evil.example"], [], ["localhost"], ["localhost:1"], [address.netloc, address.netloc]):
            assert ask(dashboard.url, address.path, host=host)[0].status == 403, host


def test_it_listens_on_the_loopback_address_only():
    with Dashboard() as dashboard, socket.socket() as other, pytest.raises(OSError):
        other.connect(("127.0.0.2", urlsplit(dashboard.url).port))


def test_the_number_of_open_pages_is_limited(monkeypatch):
    monkeypatch.setattr(server, "_MAX_STREAMS", 2)
    with fed(ss.Thinner(2), normal(10)).serve() as dashboard:
        with Listener(dashboard.url) as first, Listener(dashboard.url) as second:
            first.receive(), second.receive()
            assert ask(dashboard.url, f"{urlsplit(dashboard.url).path}events")[0].status == 503
        until(
            lambda: ask(dashboard.url, f"{urlsplit(dashboard.url).path}events")[0].status == 200,
            "a place is free again",
        )


# -- limits


def get(dashboard, path=""):
    """Return the status of a request for a file."""
    return ask(dashboard.url, urlsplit(dashboard.url).path + path)[0].status


def is_closed(client):
    """Return whether the server closes the connection, or has closed it, without an answer."""
    client.settimeout(300)
    try:
        return client.recv(100) == b""
    except ConnectionResetError:
        return True


def test_the_number_of_connections_is_limited_and_a_page_still_opens():
    with Dashboard() as dashboard:
        idle = [connect(dashboard.url) for _ in range(3 * server._MAX_CONNECTIONS)]
        assert get(dashboard) == 200
        assert len(dashboard._server._connections) <= server._MAX_CONNECTIONS
        assert is_closed(idle[0])
        for client in idle:
            client.close()


@pytest.mark.parametrize(
    "begin", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n", b"\n\n", b"\x16\x03\x01"]
)
def test_a_connection_without_a_complete_request_is_closed_in_time(begin, monkeypatch):
    monkeypatch.setattr(server, "_REQUEST_SECONDS", 0.2)
    with Dashboard() as dashboard, connect(dashboard.url) as client:
        client.sendall(begin)
        assert is_closed(client)


def test_a_request_that_arrives_slowly_does_not_extend_its_time(monkeypatch):
    monkeypatch.setattr(server, "_REQUEST_SECONDS", 0.5)
    with Dashboard() as dashboard, connect(dashboard.url) as client:
        client.sendall(b"GET / HTTP/1.1\r\n")
        with pytest.raises(OSError):
            for _ in range(6000):  # a header per 10 ms, without end
                client.sendall(b"a: b\r\n")
                time.sleep(0.01)
        assert get(dashboard) == 200


def test_a_client_that_does_not_read_its_response_is_closed_in_time(monkeypatch):
    monkeypatch.setattr(server, "_RESPONSE_SECONDS", 0.2)
    with Dashboard() as dashboard:
        dashboard._server._files["large"] = (b"x" * 50_000_000, "text/plain")
        with connect(dashboard.url) as client:
            client.sendall(request(dashboard, "large"))
            until(lambda: dashboard._server._connections, "the request is received")
            until(lambda: not dashboard._server._connections, "the connection is closed")
        assert get(dashboard) == 200


def test_a_page_that_does_not_read_its_events_is_closed_in_time(monkeypatch):
    monkeypatch.setattr(server, "_EVENT_SECONDS", 0.2)
    monkeypatch.setattr("steinstream.live.client._HEARTBEAT", 0.0)
    with Dashboard(title="x" * 100_000) as dashboard, connect(dashboard.url) as client:
        client.sendall(request(dashboard, "events"))
        until(lambda: dashboard._server._connections, "the request is received")
        until(lambda: not dashboard._server._connections, "the connection is closed")


def request(dashboard, path="", extra=""):
    address = urlsplit(dashboard.url)
    return f"GET {address.path}{path} HTTP/1.1\r\nHost: {address.netloc}\r\n{extra}\r\n".encode()


def answer_to(client, data):
    """Send bytes and return everything that the server answers."""
    client.settimeout(300)
    received = b""
    with suppress(OSError):  # the server may refuse a request while it is sent
        client.sendall(data)
    with suppress(ConnectionResetError):
        while more := client.recv(65536):
            received += more
    return received


def test_long_requests_are_refused():
    with Dashboard() as dashboard:
        for extra in ("a: b\r\n" * 2000, f"cookie: {'x' * 20_000_000}\r\n"):
            with connect(dashboard.url) as client:
                assert b"200 OK" not in answer_to(client, request(dashboard, extra=extra))
        with connect(dashboard.url) as client:
            first = answer_to(client, request(dashboard, extra=f"a: {'x' * 9000}\r\n"))
            assert first.startswith(b"HTTP/1.1 431 ")
        with connect(dashboard.url) as client:  # a body is not read
            data = request(dashboard, extra="content-length: 30000\r\n") + b"x" * 30_000
            assert answer_to(client, data).startswith(b"HTTP/1.1 200 ")
        assert get(dashboard) == 200


def test_half_closed_connections_are_answered_or_closed():
    with fed(ss.Thinner(2), normal(10)).serve() as dashboard:
        with connect(dashboard.url) as client:  # a complete request
            client.sendall(request(dashboard))
            client.shutdown(socket.SHUT_WR)
            assert answer_to(client, b"").startswith(b"HTTP/1.1 200 ")
        with connect(dashboard.url) as client:  # an incomplete one
            client.sendall(b"GET /")
            client.shutdown(socket.SHUT_WR)
            assert is_closed(client)
        with connect(dashboard.url) as client:  # events
            client.sendall(request(dashboard, "events"))
            client.shutdown(socket.SHUT_WR)
            answer_to(client, b"")
        until(lambda: not dashboard._server._connections, "all are closed")
        assert get(dashboard) == 200


def test_connections_that_are_reset_leave_nothing_behind():
    with fed(ss.Thinner(2, growth="none"), normal(5000)).serve() as dashboard:
        for path in ("", "page.js", "events"):
            for received in (0, 1, 1000):
                client = connect(dashboard.url)
                client.sendall(request(dashboard, path))
                if received:
                    client.recv(received)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.close()  # sends a reset
        until(lambda: not dashboard._server._connections, "all are closed")
        assert get(dashboard) == 200 and not dashboard.failed


def test_more_than_one_request_on_a_connection_of_events_closes_it():
    with Dashboard() as dashboard, connect(dashboard.url) as client:
        client.sendall(request(dashboard, "events"))
        assert client.recv(15) == b"HTTP/1.1 200 OK"
        client.sendall(request(dashboard))
        until(lambda: not dashboard._server._connections, "it is closed")


def test_without_free_descriptors_the_server_waits_and_recovers(monkeypatch):
    monkeypatch.setattr(server, "_RETRY_SECONDS", 0.05)
    full = True

    class Listening:
        """A listening socket that cannot accept connections for a while."""

        def __init__(self, inner):
            self.inner, self.failures = inner, 0

        def accept(self):
            if full:
                self.failures += 1
                raise OSError(24, "Too many open files")
            return self.inner.accept()

        def __getattr__(self, name):
            return getattr(self.inner, name)

    monkeypatch.setattr(server, "_descriptor_limit", lambda: float("inf"))
    listen = sys.modules["steinstream.live.dashboard"]._listen
    monkeypatch.setattr("steinstream.live.dashboard._listen", lambda port: Listening(listen(port)))
    with Dashboard() as dashboard, connect(dashboard.url) as client:
        until(lambda: dashboard._server._listening.failures >= 2, "it tries again")
        full = False
        assert answer_to(client, request(dashboard)).startswith(b"HTTP/1.1 200 ")


@pytest.mark.skipif(os.name != "posix", reason="descriptors are small numbers on POSIX systems only")
def test_no_connection_is_accepted_while_many_descriptors_are_in_use(monkeypatch):
    with Dashboard() as dashboard:
        monkeypatch.setattr(server, "_descriptor_limit", lambda: 3)
        with connect(dashboard.url) as client:
            assert is_closed(client)
        monkeypatch.undo()
        assert get(dashboard) == 200


def test_the_thread_sleeps_in_proportion_to_its_work(monkeypatch):
    monkeypatch.setattr(server, "_CPU_SHARE", 0.05)
    clock, pauses = [0.0], []

    def thread_time():
        clock[0] += 0.01
        return clock[0]

    with Dashboard() as dashboard:
        monkeypatch.setattr(server.time, "thread_time", thread_time)
        wait = dashboard._server._stop.wait
        monkeypatch.setattr(dashboard._server._stop, "wait", lambda seconds: pauses.append(seconds) or wait(0))
        assert get(dashboard) == 200
        until(lambda: len(pauses) > 1, "it has worked")
    assert all(pause == pytest.approx(0.19) for pause in pauses[1:])  # 19 times the work


def test_long_work_is_followed_by_several_pauses(monkeypatch):
    monkeypatch.setattr(server, "_CPU_SHARE", 0.05)
    clock, pauses = [0.0], []
    monkeypatch.setattr(server.time, "thread_time", lambda: clock[0])
    with Dashboard() as dashboard:
        stop = dashboard._server._stop
        wait = stop.wait
        monkeypatch.setattr(stop, "wait", lambda seconds: pauses.append(seconds) or wait(0))
        assert get(dashboard) == 200
        pauses.clear()
        clock[0] = 0.1  # requires 1.9 seconds
        for _ in range(5):
            assert get(dashboard) == 200
        until(lambda: len(pauses) >= 2, "it has slept")
    assert pauses == [pytest.approx(1.0), pytest.approx(0.9)]


# -- errors


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), MemoryError(), ValueError("odd"), SystemExit(1)])
def test_an_error_of_the_server_ends_the_dashboard_and_not_the_run(error, monkeypatch, caplog):
    def fail(*_):
        raise error

    thinner = fed(ss.Thinner(2, size=20), normal(100))
    with thinner.serve() as dashboard:
        monkeypatch.setattr("steinstream.live.client.Client.message", fail)
        with pytest.raises((EOFError, http.client.HTTPException, OSError)), Listener(dashboard.url) as listener:
            while True:
                listener.receive()
        until(lambda: dashboard.failed and not dashboard._thread.is_alive(), "the dashboard has stopped")
        assert thinner.observer is None
        fed(thinner, normal(100))
        assert dashboard.show(thinner).observer.thinner is thinner and thinner.observer is None
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.name for record in warnings] == ["steinstream"]
    assert type(error).__name__ in warnings[0].message and "The run continues" in warnings[0].message
    assert thinner.ksd == fed(fed(ss.Thinner(2, size=20), normal(100)), normal(100)).ksd


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
        assert program.wait(300) == 0 and program.stderr.read() == ""
