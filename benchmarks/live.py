"""Cost of the dashboard: a server, an open page, a page that hangs and a flood of requests, against no server.

A thinner in its steady state, on one thread, processes the same draws each time: in blocks of 5000, one by one
without pause, and one by one at a thousand per second. *served*: a server and no page. *open*: a page that reads all
events, in a separate process. *hangs*: a page that requests the events and never reads them. *flood*: a separate
process that requests a file again and again, as fast as it can. *time* is that of the thread of the run, without
waiting for a core that another process used: the shortest of nine runs, relative to the shortest run without a server;
the order within a round is random. *none again* is a second set of runs without a server; its distance from 1 is noise.
The other columns are shares of the CPU time of the run: *snapshots*, copies that its thread takes for the page; *waits*
for other threads, beyond those without a server; *server*, CPU time of the thread of the server, on another core if
there is one.
"""

from __future__ import annotations

import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, TextIO
from urllib.parse import urlsplit

from benchmarks.steady import Steady
from benchmarks.table import Options, Row, at_most
from steinstream import Thinner
from steinstream.thinner.run import Observer
from steinstream.thinner.threads import ThreadChooser

CASES = (
    ("blocks", 1000, 10, 200_000),
    ("blocks", 10_000, 10, 20_000),
    ("pushes", 1000, 10, 6000),
    ("1000 a second", 1000, 10, 1000),
)
WAYS = ("none", "none again", "served", "open", "hangs", "flood")
READER = "import sys, urllib.request as u\nfor line in u.urlopen(sys.argv[1]): pass"
FLOOD = """
import socket, sys
host, port, request = sys.argv[1], int(sys.argv[2]), sys.argv[3].encode()
clients = []
while True:
    clients.append(socket.create_connection((host, port)))
    clients[-1].sendall(request)
    if len(clients) > 50:
        clients.pop(0).close()
"""


class Spent(NamedTuple):
    """Seconds of one run."""

    inside: float  # the thinner, without waiting for a core
    own: float  # CPU of the run's thread, in the thinner
    server: float  # CPU of other threads
    total: float


def waits(runs: list[Spent]) -> float:
    """Share of waiting and of reading the clock."""
    return median((one.inside - one.own) / one.own for one in runs)


def run(options: Options) -> list[Row]:
    ThreadChooser.choose = lambda self: None  # type: ignore[method-assign]
    return [row for case in CASES for row in measure(*case, rounds=2 if options.quick else 9)]


def measure(how: str, size: int, dim: int, steps: int, rounds: int) -> list[Row]:
    steady = Steady(size, dim, steps=steps, before=2 * size)
    spent: dict[str, list[Spent]] = {way: [] for way in WAYS}
    copying: dict[str, list[float]] = {way: [] for way in WAYS}
    copies = dict.fromkeys(WAYS, 0.0)
    for _ in range(rounds):
        for way in random.sample(WAYS, len(WAYS)):
            thinner = steady.thinner()
            with watched(thinner, way) as snapshots:
                one = timed(thinner, steady.draws, how)
            spent[way].append(one)
            copying[way].append(sum(snapshots) / one.own)
            copies[way] = len(snapshots) / one.total
    rows = []
    for way in WAYS[1:]:
        ratio = min(one.inside for one in spent[way]) / min(one.inside for one in spent["none"])
        shares = {
            "snapshots": median(copying[way]),
            "waits": max(0.0, waits(spent[way]) - waits(spent["none"])),
            "server": median(one.server / one.own for one in spent[way]),
        }
        rows.append(
            {
                "input": how,
                "kept": size,
                "d": dim,
                "a step, us": min(one.inside for one in spent["none"]) / steps * 1e6,
                "page": way,
                "time": ratio,
                "goal (time)": at_most(ratio, 1.03) if way in PAGES else "",
                **{name: f"{share:.2%}" for name, share in shares.items()},
                "snapshots a second": copies[way],
            }
        )
    return rows


def timed(thinner: Thinner, draws: Any, how: str) -> Spent:
    """Let the thinner process the draws."""
    paced, block = how == "1000 a second", 5000 if how == "blocks" else 1
    inside = own = 0.0
    began, all_threads, this_thread = time.perf_counter(), time.process_time(), time.thread_time()
    with Path("/proc/thread-self/schedstat").open() as queue:
        for first in range(0, len(draws), block):
            if paced:
                time.sleep(max(0.0, began + first / 1000 - time.perf_counter()))
            if paced or first == 0:
                entered, used = clock(queue), time.thread_time()
            thinner.extend(draws[first : first + block], -draws[first : first + block])
            if paced or first + block >= len(draws):
                own += time.thread_time() - used
                inside += clock(queue) - entered
    server = (time.process_time() - all_threads) - (time.thread_time() - this_thread)
    return Spent(inside, own, max(0.0, server), time.perf_counter() - began)


def clock(queue: TextIO) -> float:
    """Seconds, without those in which this thread waited for a core."""
    queue.seek(0)
    return time.perf_counter() - int(queue.read().split()[1]) * 1e-9


class TimedObserver:
    """Observer that passes everything on and records the CPU seconds of each snapshot in the thread of the run."""

    def __init__(self, thinner: Thinner) -> None:
        self.inner: Observer = thinner.observer
        self.snapshots: list[float] = []
        self.first = threading.Event()
        self._run, self._inside = threading.get_ident(), 0
        self._peek = thinner.peek
        thinner.observer, thinner.peek = self, self.peek  # type: ignore[method-assign]

    @property
    def max_steps(self) -> int:
        return self.inner.max_steps

    def on_start(self, steps: int) -> None:
        self.inner.on_start(steps)

    def on_steps(self, steps: int, draws: int) -> None:
        before, began = self._inside, time.thread_time()
        self.inner.on_steps(steps, draws)
        if self._inside > before:
            self.snapshots.append(time.thread_time() - began)

    def on_end(self, draws: int) -> None:
        self.inner.on_end(draws)

    def peek(self, columns: list[int]) -> Any:
        if threading.get_ident() == self._run:
            self._inside += 1
        else:
            self.snapshots.append(0.0)
        self.first.set()
        return self._peek(columns)


@contextmanager
def watched(thinner: Thinner, way: str) -> Iterator[list[float]]:
    """Serve the thinner, or not, and open a page. Yields the CPU seconds of each snapshot in the thread of the run."""
    if way not in PAGES:
        yield []
        return
    with thinner.serve() as dashboard:
        observer = TimedObserver(thinner)
        with PAGES[way](dashboard.url):
            if way in ("open", "hangs") and not observer.first.wait(60):
                raise TimeoutError("the page requested no snapshot")
            observer.snapshots.clear()
            yield observer.snapshots


@contextmanager
def nobody(url: str) -> Iterator[None]:
    yield


@contextmanager
def reader(url: str) -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-c", READER, f"{url}events"]) as process:
        try:
            yield
        finally:
            process.kill()


@contextmanager
def stuck(url: str) -> Iterator[None]:
    address = urlsplit(url)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((address.hostname, address.port))
        client.sendall(f"GET {address.path}events HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n".encode())
        yield


@contextmanager
def flood(url: str) -> Iterator[None]:
    address = urlsplit(url)
    request = f"GET {address.path}page.js HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n"
    command = [sys.executable, "-c", FLOOD, address.hostname, str(address.port), request]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            time.sleep(0.5)  # until it is at work
            yield
        finally:
            process.kill()


PAGES = {"served": nobody, "open": reader, "hangs": stuck, "flood": flood}
