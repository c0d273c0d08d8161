"""Progress bars, and stopping by a signal."""

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

    from steinstream.io import Chain


@contextmanager
def bar(what: str, total: float | None) -> Iterator[Bar]:
    """Show a progress bar on standard error, if that is a terminal.

    Parameters
    ----------
    what : str
        Description; empty if the first stage is yet to `Bar.begin`.
    total : float or None
        Amount of work; None if it is unknown.

    Yields
    ------
    Bar
        The progress bar.

    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[status]}"), TimeElapsedColumn()
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal, refresh_per_second=4) as progress:
        shown = Bar(progress)
        if what:
            shown.begin(what, total)
        yield shown


class Bar:
    """A progress bar with one line per stage of the work."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: Any = None

    def begin(self, what: str, total: float | None) -> None:
        """Begin a stage of the work on a line of its own."""
        if self._task is not None:
            self._progress.stop_task(self._task)
        self._task = self._progress.add_task(what, total=total, status="")

    def show(self, done: float, status: str = "") -> None:
        """Show the amount of work that is done, and a text."""
        self._progress.update(self._task, completed=done, status=status)

    def show_chain(self, chain: Chain, draws: int, status: str = "") -> None:
        """Show how much of a chain is read."""
        self.show(draws if chain.length else chain.fraction() or 0.0, status or f"{count(draws)} draws")


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
