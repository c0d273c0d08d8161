"""Evaluation of a user's function for many arguments, in this process or in several.

An exception is a result like any other, so that a failed evaluation does not lose the finished ones. A function that
ends its process, as a solver in C may do, fails for this argument alone.
"""

from __future__ import annotations

import pickle
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from multiprocessing import current_process, get_context
from typing import Any, NamedTuple

from steinstream.errors import InputError


class Evaluation(NamedTuple):
    """Result of one evaluation."""

    place: int
    """Position of the argument."""
    value: Any
    """What the function returned; None if it failed."""
    error: Exception | None


def evaluate_in_processes(
    function: Callable[[Any], Any], arguments: Sequence[Any], processes: int, what: str
) -> Iterator[Evaluation]:
    """Call a function for each argument, and yield the results as they become available.

    With several processes, the function must be defined at the top level of a module. Messages call it ``what``.

    Yields
    ------
    Evaluation
        In order of the arguments with one process, in order of completion otherwise.

    Raises
    ------
    InputError
        If the function cannot be sent to another process, or new processes cannot start.
    """
    if processes == 1:
        for place, argument in enumerate(arguments):
            try:
                value = function(argument)
            except Exception as error:
                yield Evaluation(place, None, error)
            else:
                yield Evaluation(place, value, None)
        return
    try:
        pickle.dumps(function)
    except Exception as error:
        raise InputError(
            f"The {what} cannot be sent to another process: {error}.",
            "Define it at the top level of a module, or use processes=1.",
        ) from None
    if getattr(current_process(), "_inheriting", False):
        raise SystemExit(1)  # a new process runs the user's script again, which has no guard: reported by its parent
    waiting = iter(range(len(arguments)))
    while True:
        running: dict[Future[Any], int] = {}
        suspects: set[int] = set()
        with _started(processes) as pool:
            try:
                while True:
                    for place in islice(waiting, 2 * processes - len(running)):
                        suspects.add(place)
                        running[pool.submit(function, arguments[place])] = place
                    if not running:
                        return
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        if isinstance(future.exception(), BrokenProcessPool):
                            raise BrokenProcessPool
                        result = _finished(running.pop(future), future)
                        suspects.remove(result.place)
                        yield result
            except BrokenProcessPool:
                pass
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
        for place in sorted(suspects):  # one of them ended its process: each gets a process of its own
            with _started(1) as alone:
                yield _finished(place, alone.submit(function, arguments[place]))


def _started(processes: int) -> ProcessPoolExecutor:
    """Return a pool whose processes can start."""
    pool = ProcessPoolExecutor(processes, get_context("spawn"))
    try:
        pool.submit(int).result()
    except BrokenProcessPool:
        pool.shutdown()
        raise InputError(
            "A new process ended before its first evaluation.",
            'In a script, put the call under if __name__ == "__main__": because each process imports the script.',
        ) from None
    return pool


def _finished(place: int, future: Future[Any]) -> Evaluation:
    error = future.exception()
    if isinstance(error, BrokenProcessPool):
        error = RuntimeError("its process ended unexpectedly")
    elif error is not None and not isinstance(error, Exception):
        raise error
    return Evaluation(place, None if error is not None else future.result(), error)


@contextmanager
def sigint_blocked() -> Iterator[None]:
    """Defer SIGINT until the block exits; processes and threads that are started in the block never receive it."""
    if not hasattr(signal, "pthread_sigmask"):  # not POSIX
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # started with the first process, which would unblock SIGINT
    received: list[int] = []  # another thread may receive it, and then Python calls the handler in the main thread
    in_main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, lambda number, frame: received.append(number)) if in_main else None
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if in_main:
            signal.signal(signal.SIGINT, handler or signal.SIG_DFL)
            if received:
                signal.raise_signal(signal.SIGINT)
