"""All methods on one chain, at the same sizes: KSD, time and memory.

Each method runs in a process of its own, so that none profits from what another left behind. It is warmed up on a tiny
chain first: compilation does not count. *seconds* is the method alone, *reading* the time spent getting draws from the
file, which an online method does as it runs and any other beforehand. *megabytes* is the peak of resident memory above
what the process held before: with the chain for a method that needs it whole, without for one that streams it.
"""

from __future__ import annotations

import ctypes
import math
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from steinstream.baselines import METHODS, method, selector
from steinstream.baselines.job import Job, job, job_from_file, require_size
from steinstream.discrepancy import ksd
from steinstream.errors import InputError, SteinstreamError
from steinstream.io import Chain, open_chain
from steinstream.kernels import Kernel
from steinstream.preconditioning import Preconditioner
from steinstream.validation import Block

SIZES = (50, 200, 500)


@dataclass(frozen=True)
class Row:
    """A method at a size; where it failed, ``problem`` says why, and the numbers are not numbers."""

    method: str
    size: int
    ksd: float = math.nan
    normalised_ksd: float = math.nan
    distinct: int = 0  # different draws among those taken
    seconds: float = math.nan
    reading: float = math.nan
    megabytes: float = math.nan  # also where the system does not tell
    problem: str = ""


def compare(
    chain: Chain | str | Path,
    *,
    sizes: Sequence[int] = SIZES,
    methods: Sequence[str] = tuple(METHODS),
    kernel: Kernel | None = None,
    preconditioner: Preconditioner | str = "auto",
    seed: int = 0,
    on_bad: str = "raise",
    validate_scores: bool = True,
    looked: Callable[[float], None] | None = None,
    progress: Callable[[Row], None] | None = None,
) -> list[Row]:
    """A row for every method and size, all measured with the same kernel in the same coordinates.

    ``chain`` is a file, or what :func:`steinstream.io.open_chain` made of one. ``looked`` is called with the share of
    the file that was looked at, ``progress`` with every row. Processes are spawned: in a script, call this under
    ``if __name__ == "__main__":``.
    """
    names = [method(name) for name in methods]
    for size in sizes:
        require_size(size, math.inf)
    if not names or not sizes:
        raise InputError("There is nothing to compare.", "Give at least one method and one size.")
    source = chain if isinstance(chain, Chain) else open_chain(chain)
    work = job_from_file(source, kernel, preconditioner, seed, on_bad, validate_scores, looked)
    require_size(min(sizes), work.total)
    rows = []
    for name in dict.fromkeys(names):
        for row in _in_a_process(work, name, sorted(set(sizes))):
            rows.append(row)
            if progress is not None:
                progress(row)
    return rows


def _in_a_process(work: Job, name: str, sizes: Sequence[int]) -> Iterator[Row]:
    """The rows of a method as they come; should its process die, the rest say so."""
    context = get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_measure, args=(work, name, sizes, there), daemon=True)
    with _deaf_to_ctrl_c():  # the child inherits that: whoever stops us stops it
        process.start()
    there.close()
    waiting = list(sizes)
    try:
        while waiting:
            yield here.recv()
            del waiting[0]
    except EOFError:
        process.join()
        killed = process.exitcode == -9
        problem = "Killed: is there enough memory?" if killed else f"Its process ended with code {process.exitcode}."
        for size in waiting:
            yield Row(name, size, problem=problem)
    finally:
        process.terminate()
        process.join()
        here.close()


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Ctrl-C waits until this is over; a process started meanwhile never hears it."""
    if not hasattr(signal, "pthread_sigmask"):  # not POSIX
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # the first process starts it, and starting it would open our ears again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _measure(work: Job, name: str, sizes: Sequence[int], out: Connection) -> None:
    """What the process does: warm up, then measure size after size."""
    problem = ""
    try:
        selector(name)(_tiny(work))
    except SteinstreamError as error:
        problem = str(error)
    for size in sizes:
        out.send(Row(name, size, problem=problem) if problem else _row(work._replace(size=size), name))


def _tiny(work: Job) -> Job:
    """A job of the same kind that takes no time."""
    draws = np.random.default_rng(0).normal(size=(64, work.dim))
    return job(draws, -draws, 4, work.kernel, work.preconditioner)


def _row(work: Job, name: str) -> Row:
    stream = Timed(work.blocks)
    try:
        require_size(work.size, work.total)
        before, began = _fresh_peak(), time.perf_counter()
        chosen = selector(name)(work._replace(blocks=stream))
        spent, after = time.perf_counter() - began, _peak()
        value = ksd(chosen.draws, chosen.scores, kernel=work.kernel, preconditioner=work.preconditioner)
    except (SteinstreamError, MemoryError) as error:
        return Row(name, work.size, problem=str(error) or "Out of memory.")
    return Row(
        name, work.size, value, value * math.sqrt(work.size), len(np.unique(chosen.ids, axis=0)),
        spent - stream.seconds, stream.seconds, after - before,
    )  # fmt: skip


class Timed:
    """Blocks, and the seconds it took to get them."""

    def __init__(self, blocks: Callable[[], Iterable[Block]]) -> None:
        self._blocks = blocks
        self.seconds = 0.0

    def __call__(self) -> Iterator[Block]:
        blocks = iter(self._blocks())
        while True:
            began = time.perf_counter()
            block = next(blocks, None)
            self.seconds += time.perf_counter() - began
            if block is None:
                return
            yield block


def _fresh_peak() -> float:
    """Megabytes held now, of which the peak is to be counted; where the peak cannot start anew, the peak so far."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # what earlier sizes left could be used again unseen
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> float:
    """The peak of resident memory in megabytes, where the system tells."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024
    with suppress(ImportError):
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return used / (1 << 20 if sys.platform == "darwin" else 1 << 10)
    return math.nan
