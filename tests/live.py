"""What tests of the live page share: a run to watch, and who watches it without a browser."""

from __future__ import annotations

import http.client
import json
import socket
import time
from base64 import b64decode
from contextlib import contextmanager
from urllib.parse import urlsplit

import numpy as np
import pytest

pytest.importorskip("starlette", reason="the live page needs starlette and uvicorn")
pytest.importorskip("uvicorn", reason="the live page needs starlette and uvicorn")

from steinstream.live import server, snapshot

EVIL = "<script>document.title='caught'</script><img src=x onerror=alert(1)>"


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """Look more often than a person would, and sleep less."""
    monkeypatch.setattr(server, "PERIOD", 0.01)
    monkeypatch.setattr(snapshot, "PERIOD", 0.0)
    monkeypatch.setattr(snapshot, "_SHARE", 1e9)


def until(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.01)


def normal(count, dim=2, seed=0):
    return np.random.default_rng(seed).normal(size=(count, dim))


def fed(thinner, draws):
    thinner.extend(draws, -draws)
    return thinner


class Listener:
    """A page without a browser: it adds up what it is told."""

    def __init__(self, url, query=""):
        self.connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
        self.connection.request("GET", f"{urlsplit(url).path}events{query}")
        self.response = self.connection.getresponse()
        assert self.response.status == 200
        self.points, self.origin, self.about, self.said = np.zeros((0, 2)), np.zeros(2), None, {}

    def hear(self):
        while True:
            line = self.response.readline()
            if line.startswith(b"data: "):
                break
            if not line:
                raise EOFError
        self.said = json.loads(line[6:])
        self.about = self.said.get("about", self.about)
        if "all" in self.said:
            self.origin = np.array(self.said["origin"])
            self.points = pairs(self.said["all"])
        elif "new" in self.said:
            gone = np.frombuffer(b64decode(self.said["gone"]), "<u4")
            self.points = np.vstack([np.delete(self.points, gone, axis=0), pairs(self.said["new"])])
        return self.said

    def hear_until(self, condition):
        while not condition(self.hear()):
            pass
        return self.said

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.response.close()
        self.connection.close()


def pairs(text):
    return np.frombuffer(b64decode(text), "<f4").reshape(-1, 2).astype(float)


def same_points(listener, expected):
    mine, theirs = listener.points + listener.origin, np.asarray(expected)
    return mine.shape == theirs.shape and np.allclose(mine[np.lexsort(mine.T)], theirs[np.lexsort(theirs.T)], atol=1e-5)


@contextmanager
def stuck(url, path):
    """Asks for the stream, and then never reads."""
    address = urlsplit(url)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((address.hostname, address.port))
        client.sendall(f"GET {address.path}{path} HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n".encode())
        yield client


def ask(url, path, method="GET", host=None):
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.netloc, timeout=60)
    connection.putrequest(method, path, skip_host=True)
    for name in [address.netloc] if host is None else host:
        connection.putheader("Host", name)
    connection.putheader("Content-Length", "0")
    connection.endheaders()
    answer = connection.getresponse()
    body = b"" if path.endswith("events") and answer.status == 200 else answer.read()
    connection.close()
    return answer, body
