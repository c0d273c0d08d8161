"""The live page and the run: what a server, an open page and a page that hangs cost the run.

A thinner in its steady state, on one thread, takes the same draws each time: in blocks of 5000, one by one as fast as
it goes, and one by one at a thousand a second. *served*: a server and no page. *open*: a page that reads all that is
sent, from a process of its own. *hangs*: one that asks for the stream and never reads. *time* is that of the run's
thread, without what it waited for a core that another process had: the median ratio to a run without a server in the
same round, the order of a round being random. *none again* compares two runs without a server: what it is away from 1
is noise. The other columns tell apart what could cost the run, in shares of its own CPU time: *snapshots*, the copies
that its thread makes for the page; *waits* for other threads, beyond those without a server; and *server*, the CPU
time of the server's thread, on another core if there is one.
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
from typing import NamedTuple, TextIO
from urllib.parse import urlsplit

from steinstream.thinner._pace import Pace

from benchmarks.step import Case, duplicate, steady
from benchmarks.table import Options, Row, at_most
from steinstream.live import Watch

CASES = (
    ("blocks", 1000, 10, 200_000),
    ("blocks", 10_000, 10, 20_000),
    ("pushes", 1000, 10, 6000),
    ("1000 a second", 1000, 10, 1000),
)
WAYS = ("none", "none again", "served", "open", "hangs")
READER = "import sys, urllib.request as u\nfor line in u.urlopen(sys.argv[1]): pass"


class Spent(NamedTuple):
    """Seconds of one run."""

    inside: float  # the thinner, without waiting for a core
    own: float  # CPU of the run's thread, in the thinner
    server: float  # CPU of other threads
    total: float


def waits(runs: list[Spent]) -> float:
    """The share of waiting, and of reading the clock."""
    return median((one.inside - one.own) / one.own for one in runs)


def run(options: Options) -> list[Row]:
    Pace.choose = lambda self: None  # type: ignore[method-assign]
    return [row for case in CASES for row in measure(*case, rounds=2 if options.quick else 9)]


def measure(how: str, size: int, dim: int, steps: int, rounds: int) -> list[Row]:
    case = steady(size, dim, steps, before=2 * size)
    spent: dict[str, list[Spent]] = {way: [] for way in WAYS}
    copying: dict[str, list[float]] = {way: [] for way in WAYS}
    copies = dict.fromkeys(WAYS, 0.0)
    for _ in range(rounds):
        for way in random.sample(WAYS, len(WAYS)):
            with watched(case, way) as snapshots:
                one = timed(case, how)
            spent[way].append(one)
            copying[way].append(sum(snapshots) / one.own)
            copies[way] = len(snapshots) / one.total
    rows = []
    for way in WAYS[1:]:
        ratio = median(one.inside / other.inside for one, other in zip(spent[way], spent["none"], strict=True))
        shares = {
            "snapshots": median(copying[way]),
            "waits": max(0.0, waits(spent[way]) - waits(spent["none"])),
            "server": median(one.server / one.own for one in spent[way]),
        }
        rows.append(
            {
                "draws come": how,
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


def timed(case: Case, how: str) -> Spent:
    """Let the thinner take the draws, from the same state each time."""
    thinner, paced = case.thinner, how == "1000 a second"
    thinner._dictionary._store = duplicate(case.store)
    thinner.steps = thinner._numbered[0] = case.start
    block = 5000 if how == "blocks" else 1
    inside = own = 0.0
    began, all_threads, this_thread = time.perf_counter(), time.process_time(), time.thread_time()
    with Path("/proc/thread-self/schedstat").open() as queue:
        for first in range(0, len(case.draws), block):
            if paced:
                time.sleep(max(0.0, began + first / 1000 - time.perf_counter()))
            if paced or first == 0:
                entered, used = clock(queue), time.thread_time()
            thinner.extend(case.draws[first : first + block], case.scores[first : first + block])
            if paced or first + block >= len(case.draws):
                own += time.thread_time() - used
                inside += clock(queue) - entered
    server = (time.process_time() - all_threads) - (time.thread_time() - this_thread)
    return Spent(inside, own, max(0.0, server), time.perf_counter() - began)


def clock(queue: TextIO) -> float:
    """Seconds, without those in which this thread stood in the queue for a core."""
    queue.seek(0)
    return time.perf_counter() - int(queue.read().split()[1]) * 1e-9


@contextmanager
def watched(case: Case, way: str) -> Iterator[list[float]]:
    """A server, or none, and who looks. Gives the CPU seconds of each snapshot that the run's thread takes."""
    snapshots: list[float] = []
    if way not in PAGES:
        yield snapshots
        return
    take, runs, looked = Watch.take, threading.get_ident(), threading.Event()

    def counted(self: Watch) -> None:
        began = time.thread_time()
        take(self)
        snapshots.append(time.thread_time() - began if threading.get_ident() == runs else 0.0)
        looked.set()

    Watch.take = counted  # type: ignore[method-assign]
    try:
        with case.thinner.serve() as page, PAGES[way](page.url):
            if way != "served" and not looked.wait(60):
                raise TimeoutError("the page was never looked at")
            snapshots.clear()
            yield snapshots
    finally:
        Watch.take = take  # type: ignore[method-assign]


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


PAGES = {"served": nobody, "open": reader, "hangs": stuck}
