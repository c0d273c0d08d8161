"""Callbacks of `thin_source` for the command line: progress bars, checkpoints, stopping, the dashboard."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

from steinstream.api import RunHooks
from steinstream.cli.checkpoints import Checkpoint
from steinstream.cli.progress import Bar, Stop, bar, count
from steinstream.cli.summary import measure_of

if TYPE_CHECKING:
    from steinstream.io import Chain
    from steinstream.live import Dashboard
    from steinstream.thinner import Thinner
    from steinstream.watched_source import WatchedSource

_SAVE_INTERVAL = 30.0  # seconds between two checkpoints


class ThinHooks(RunHooks):
    """Show the progress of a run, save its state with a note, and stop it after a signal."""

    def __init__(
        self,
        source: Chain,
        checkpoint: Checkpoint,
        stop: Stop,
        dashboard: Dashboard | None,
        note: Callable[[], dict[str, Any]],
        watched: WatchedSource | None = None,
    ) -> None:
        self._source, self._checkpoint, self._stop = source, checkpoint, stop
        self._dashboard, self._note, self._watched = dashboard, note, watched
        self._stage = ""
        self._received = 0  # draws at the start of the stage
        self.save_interval = _SAVE_INTERVAL if checkpoint else None

    def __enter__(self) -> Self:
        self._exit = ExitStack()
        self._bar: Bar = self._exit.enter_context(bar("", None))
        return self

    def __exit__(self, *error: object) -> None:
        self._exit.close()

    def _begin(self, stage: str, received: int = 0) -> None:
        """Begin a line of the progress bar, unless it has begun."""
        if stage != self._stage:
            self._stage, self._received = stage, received
            self._bar.begin(f"{stage:<8}", self._source.length or 1.0)

    def on_subsample(self, draws: int) -> None:
        """Show how much of the file is read."""
        self._begin("reading")
        self._bar.show_chain(self._source, draws)

    def on_thinner(self, thinner: Thinner) -> None:
        """Connect the dashboard and prepare the note of the checkpoint."""
        self._begin(_stage(thinner), thinner.current_pass.received)
        if self._checkpoint and not thinner.note:
            thinner.note = self._note()
        if self._dashboard is not None:
            self._dashboard.show(thinner, self._source.names)

    def on_block(self, thinner: Thinner) -> None:
        """Show how many draws are processed and kept."""
        current = thinner.current_pass
        self._begin(_stage(thinner))
        rate = (current.received - self._received) / max(self._bar.seconds, 1e-3)
        self._bar.show_chain(
            self._source,
            current.received,
            f"{count(current.received)} draws  ·  {count(round(rate))} draws/s  ·  kept {count(len(thinner))}  ·  "
            f"{measure_of(thinner.ksd, thinner.mmd)}",
        )

    def save(self, thinner: Thinner) -> None:
        """Write a checkpoint, with the convergence of the draws that were read."""
        if self._watched is not None:
            thinner.note["convergence"] = self._watched.state()
        self._checkpoint.save(thinner)

    def stop(self) -> bool:
        return bool(self._stop.signal)


def _stage(thinner: Thinner) -> str:
    """Return the title of the current pass."""
    number = thinner.current_pass.number
    return "thinning" if number == 1 else f"pass {number}"
