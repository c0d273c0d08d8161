"""Helpers for the tests of the dashboard: runs to show, and clients without a browser."""

from __future__ import annotations

import http.client
import json
import socket
import time
from base64 import b64decode
from contextlib import contextmanager
from urllib.parse import urlsplit

import numpy as np

from steinstream.live import client, server, snapshot

EVIL = "<script>document.title='caught'</script><img src=x onerror=alert(1)>"


def update_often(monkeypatch):
    """Take snapshots more often than a person needs, and sleep less."""
    monkeypatch.setattr(client, "PERIOD", 0.01)
    monkeypatch.setattr(server, "_CPU_SHARE", 1.0)
    monkeypatch.setattr(snapshot, "PERIOD", 0.0)
    monkeypatch.setattr(snapshot, "_TIME_SHARE", 1e9)
    monkeypatch.setattr(snapshot, "_IDLE_SECONDS", 0.0)


def until(condition, what, seconds=300):
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
    """A page without a browser, which applies the differences that it receives."""

    def __init__(self, url, query=""):
        self.connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=300)
        self.connection.request("GET", f"{urlsplit(url).path}events{query}")
        self.response = self.connection.getresponse()
        assert self.response.status == 200
        self.points, self.origin, self.about, self.message = np.zeros((0, 2)), np.zeros(2), None, {}

    def receive(self):
        while True:
            line = self.response.readline()
            if line.startswith(b"data: "):
                break
            if not line:
                raise EOFError
        self.message = json.loads(line[6:])
        self.about = self.message.get("about", self.about)
        if "all" in self.message:
            self.origin = np.array(self.message["origin"])
            self.points = pairs(self.message["all"])
        elif "new" in self.message:
            gone = np.frombuffer(b64decode(self.message["gone"]), "<u4")
            self.points = np.vstack([np.delete(self.points, gone, axis=0), pairs(self.message["new"])])
        return self.message

    def receive_until(self, condition):
        while not condition(self.receive()):
            pass
        return self.message

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


def connect(url):
    """Open a connection, without a request."""
    address = urlsplit(url)
    return socket.create_connection((address.hostname, address.port), timeout=300)


@contextmanager
def stuck(url, path):
    """Request the stream of events, and never read it."""
    address = urlsplit(url)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((address.hostname, address.port))
        client.sendall(f"GET {address.path}{path} HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n".encode())
        yield client


def ask(url, path, method="GET", host=None):
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.netloc, timeout=300)
    connection.putrequest(method, path, skip_host=True)
    for name in [address.netloc] if host is None else host:
        connection.putheader("Host", name)
    connection.putheader("Content-Length", "0")
    connection.endheaders()
    answer = connection.getresponse()
    body = b"" if path.endswith("events") and answer.status == 200 else answer.read()
    connection.close()
    return answer, body


def text(browser, id):
    """Return the text of an element of the dashboard."""
    return browser.execute_script("return document.getElementById(arguments[0]).textContent", id)


def value(browser, id):
    """Return the number that an element of the dashboard shows, with all digits."""
    found = browser.execute_script("return document.getElementById(arguments[0]).dataset.value", id)
    return None if found in (None, "null") else float(found)
