"""Progress bars, and a way to stop."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from steinstream._formatting import count as count
from steinstream._formatting import number as number

if TYPE_CHECKING:
    from rich.progress import Progress


@contextmanager
def bar(what: str, total: float | None) -> Iterator[Bar]:
    """A live bar on standard error; nothing at all when that is not a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[status]}"), TimeElapsedColumn()
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal, refresh_per_second=4) as progress:
        yield Bar(progress, progress.add_task(what, total=total, status=""))


class Bar:
    """One line of progress."""

    def __init__(self, progress: Progress, task: Any) -> None:
        self._progress, self._task = progress, task

    def show(self, done: float, status: str = "") -> None:
        """So much is done, and so it stands."""
        self._progress.update(self._task, completed=done, status=status)


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Ctrl-C and a termination signal set a flag, so that work can end between two blocks; the second one is final."""
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
    """Whether the user or the system asked for an end."""

    signal = 0

    @property
    def code(self) -> int:
        """The exit code that says so."""
        return 128 + self.signal
