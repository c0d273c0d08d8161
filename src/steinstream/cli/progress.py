"""Progress: bars on a terminal and lines in a log, and stopping by a signal."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from steinstream._engine.compile_clock import compile_clock
from steinstream._formatting import count as count
from steinstream._formatting import number as number
from steinstream.errors import InputError

if TYPE_CHECKING:
    from rich.progress import Progress

    from steinstream.io import Chain


_COMPILING = "compiling (first use only)"
_LOG_INTERVAL = "STEINSTREAM_LOG_INTERVAL"  # environment variable: seconds between two lines of a log
_LOG_SHARE = 0.1  # of the work between two lines


@contextmanager
def bar(what: str, total: float | None) -> Iterator[Bar]:
    """Show progress on standard error: a bar on a terminal, otherwise lines of a log; nothing with ``--quiet``.

    Without ``what``, the first stage is yet to `Bar.begin`. ``total`` is the amount of work, None if it is unknown.

    Yields
    ------
    Bar
        The progress bar.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    texts = [TextColumn(f"{{task.{text}}}") for text in ("description", "fields[status]", "fields[time]")]
    columns = texts[0], BarColumn(), *texts[1:]
    console, context = Console(stderr=True), click.get_current_context(silent=True)
    quiet = context is not None and bool(context.params.get("quiet"))
    hidden = quiet or not console.is_terminal
    log = None if quiet or console.is_terminal else ProgressLog(_log_interval())
    with Progress(*columns, console=console, disable=hidden, refresh_per_second=4) as progress:
        shown = Bar(progress, log)
        if what:
            shown.begin(what, total)
        compile_clock.observers.append(shown.show_compilation)
        try:
            yield shown
        finally:
            compile_clock.observers.remove(shown.show_compilation)
            shown.end()


def _log_interval() -> float:
    """Return the number of seconds between two lines of a log."""
    text = os.environ.get(_LOG_INTERVAL, "30")
    try:
        return float(text)
    except ValueError:
        raise InputError(
            f"The environment variable {_LOG_INTERVAL} must be a number of seconds, got {text!r}.", "Unset it."
        ) from None


class Bar:
    """A progress bar with one line per stage of the work, and its log without a terminal.

    Compilation has a line of its own, and its time is not part of any stage.
    """

    def __init__(self, progress: Progress, log: ProgressLog | None = None) -> None:
        self._progress, self._log = progress, log
        self._task: Any = None
        self._compilation: Any = None
        self._started = working_time()

    @property
    def seconds(self) -> float:
        """Seconds of the current stage, without compilation."""
        return working_time() - self._started

    def begin(self, what: str, total: float | None) -> None:
        """Begin a stage of the work on a line of its own."""
        self.end()
        self._started = working_time()
        self._task = self._progress.add_task(what, total=total, status="", time=_Duration(lambda: self.seconds))
        if self._log is not None:
            self._log.begin(what, total)

    def end(self) -> None:
        """End the current stage: its time does not change any more."""
        seconds = self.seconds
        if self._task is not None:
            self._progress.update(self._task, time=_Duration(lambda: seconds))

    def show_compilation(self, begins: bool) -> None:
        if self._compilation is None:
            before = compile_clock.seconds
            duration = _Duration(lambda: compile_clock.seconds - before)
            self._compilation = self._progress.add_task(_COMPILING, status="", time=duration)
            if self._log is not None:
                self._log.note(_COMPILING)
        self._progress.update(self._compilation, total=None if begins else 1.0, completed=0.0 if begins else 1.0)

    def show(self, done: float, status: str = "") -> None:
        """Show the amount of work that is done, and a text."""
        self._progress.update(self._task, completed=done, status=status)
        if self._log is not None:
            self._log.show(done, status)

    def show_chain(self, chain: Chain, draws: int, status: str = "") -> None:
        """Show how much of a chain is read."""
        self.show(draws if chain.length else chain.fraction() or 0.0, status or f"{count(draws)} draws")


class _Duration:
    """A number of seconds that is read when it is shown."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds

    def __format__(self, _: str) -> str:
        return str(timedelta(seconds=int(max(self._seconds(), 0.0))))


def working_time() -> float:
    """Return seconds on a clock that stops during compilation; only differences have a meaning."""
    return time.perf_counter() - compile_clock.seconds


class ProgressLog:
    """Progress as lines of a log, for batch jobs.

    A line is printed when ``interval`` seconds and a tenth of the work have passed since the last one, whichever is
    later. If the amount of work is unknown, or none of it is known to be done, the time alone decides.
    """

    def __init__(self, interval: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval, self._clock = interval, clock
        self._started = clock()

    def begin(self, what: str, total: float | None) -> None:
        """Begin a stage of the work."""
        self._what, self._total = what.strip(), total
        self._time, self._share = self._clock(), 0.0  # of the last line

    def show(self, done: float, status: str = "") -> None:
        """Print a line if it is due."""
        now, share = self._clock(), done / self._total if self._total else 0.0
        advanced = share == 0 or share >= self._share + _LOG_SHARE or share >= 1 > self._share
        if now - self._time < self._interval or not advanced:
            return
        self._time, self._share = now, share
        known = f" {share:.0%}" if share else ""
        self.note(f"{self._what}{known}  {status}")

    def note(self, text: str) -> None:
        """Print a line with the time, unless no lines are wanted."""
        if self._interval < math.inf:
            minutes, seconds = divmod(round(self._clock() - self._started), 60)
            click.echo(f"{minutes // 60}:{minutes % 60:02}:{seconds:02}  {text}", err=True)


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Turn SIGINT and SIGTERM into a flag, so that work can end between two blocks; a second signal interrupts it."""
    stop = Stop()

    def note(number: int, frame: FrameType | None) -> None:
        if stop.signal:
            raise KeyboardInterrupt
        stop.signal = number

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Stop:
    """Whether a signal requested the end of the command."""

    signal = 0

    @property
    def code(self) -> int:
        """Exit code for the signal."""
        return 128 + self.signal
