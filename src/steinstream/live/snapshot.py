"""Thread-safe snapshots of a running thinner for the dashboard.

Compiled code runs without the global interpreter lock, so no other thread may read the engine's arrays while steps are
taken. `ThinnerObserver` holds a lock during that time. A client requests a snapshot and never waits: if the thinner is
running, its own thread takes the snapshot between two compiled calls; otherwise the client's thread takes it, and a
draw that is added meanwhile waits for that one copy. A snapshot never changes. It contains only the coordinates that a
client displays.

Without clients nothing is copied. With clients a snapshot is taken at most four times per second and uses at most 1 %
of the time.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from steinstream._typing import Array, Integers
from steinstream.preconditioning import Preconditioner
from steinstream.result import History

if TYPE_CHECKING:
    from steinstream.live.page import Dashboard
    from steinstream.thinner import Thinner

PERIOD = 0.25  # seconds between two snapshots
ARRIVAL = -1  # in place of a coordinate: the step at which the draw was added
_CALL_SECONDS = 0.1  # duration of a compiled call
_MAX_STEPS = 8192  # steps in a compiled call
_TIME_SHARE = 0.01  # largest fraction of the time that snapshots take
_CURVE_POINTS = 400
_LAST_SNAPSHOT_WAIT = 1.0  # seconds that the last snapshot waits for a run in another thread


class Snapshot(NamedTuple):
    """State of a thinner between two steps."""

    time: float
    """Monotonic clock."""
    pass_number: int
    draws: int
    """Number of draws processed in this pass."""
    steps: int
    size: int
    ksd: float
    history: History
    changes: tuple[int, ...]
    """Steps after which the preconditioner changed."""
    arrived: Integers
    """Step at which each kept draw was added; all are different."""
    columns: dict[int, Array]
    """Values of some coordinates of the kept draws."""
    warmup_ended: bool


class ThinnerObserver:
    """Observer that takes snapshots of a thinner on request.

    Parameters
    ----------
    thinner : Thinner
        The thinner; its ``observer`` is set.
    dashboard : Dashboard
        The dashboard that shows it.

    """

    def __init__(self, thinner: Thinner, dashboard: Dashboard) -> None:
        self.thinner, self.dashboard = thinner, dashboard
        self.max_steps = _MAX_STEPS
        self.start_time, self.first_draw = time.monotonic(), thinner.current_pass.received
        self._lock = threading.Lock()
        self._draws = self.first_draw
        self._call_started = 0.0
        self._many = False
        self._requested = False
        self._columns: frozenset[int] = frozenset()
        self._latest: Snapshot | None = None
        self._next_snapshot = 0.0
        # A call that started in another thread before this observer was set does not hold the lock. The thinner sets
        # ``running`` before it reads ``observer``; this constructor sets ``observer`` before it reads ``running``. So
        # at least one of them sees the other.
        thinner.observer = self
        self._unguarded = thinner.running

    # -- in the thread of the thinner ----------------------------------------------------------------------------------

    def on_start(self, steps: int) -> None:
        """Acquire the lock before the first step."""
        self._lock.acquire()
        self._many = steps > 1
        if self._many:
            self._call_started = time.monotonic()

    def on_steps(self, steps: int, draws: int) -> None:
        """Adjust the length of the next compiled call, and take a snapshot if one was requested."""
        if self._many:
            now = time.monotonic()
            self.max_steps = max(1, min(_MAX_STEPS, int(steps * _CALL_SECONDS / max(now - self._call_started, 1e-6))))
            self._call_started = now
        if self._requested:
            self._draws = draws
            self._take()

    def on_end(self, draws: int) -> None:
        """Release the lock after the last step."""
        self._draws = draws
        self._lock.release()

    # -- in any thread -------------------------------------------------------------------------------------------------

    def snapshot(self, columns: frozenset[int]) -> Snapshot | None:
        """Return the latest snapshot, if there is one, and request a newer one if the thinner changed. Never waits."""
        self._columns = columns
        if self._is_outdated(columns) and time.monotonic() >= self._next_snapshot:
            self._requested = True
            if self._lock.acquire(blocking=False):
                self._take_and_release()
        return self._latest

    def take_last(self) -> None:
        """Take a snapshot of the final state, if the thinner is idle within a second."""
        if self._latest is not None and self._lock.acquire(timeout=_LAST_SNAPSHOT_WAIT):
            self._take_and_release()

    def _take_and_release(self) -> None:
        try:
            self._unguarded = self._unguarded and self.thinner.running
            if not self._unguarded:
                self._take()
        finally:
            self._lock.release()

    def _is_outdated(self, columns: frozenset[int]) -> bool:
        latest, thinner = self._latest, self.thinner
        if latest is None or not columns <= latest.columns.keys():
            return True
        return (latest.steps, latest.draws) != (thinner.steps, thinner.current_pass.received)

    def _take(self) -> None:
        """Take a snapshot; the caller holds the lock."""
        started = time.monotonic()
        thinner = self.thinner
        columns = sorted({min(column, thinner.dim - 1) for column in self._columns})
        arrived, values = thinner.peek([max(column, 0) for column in columns])
        current, ended = thinner.current_pass, isinstance(thinner.preconditioner, Preconditioner)
        by_column = zip(columns, values.T, strict=True)
        self._latest = Snapshot(
            time=started,
            pass_number=current.number,
            draws=min(self._draws, current.received) if ended else current.received,
            steps=thinner.steps,
            size=len(thinner),
            ksd=thinner.ksd if ended else float("nan"),
            history=_shortened(thinner.recorded_history),
            changes=thinner.preconditioner_changes,
            arrived=arrived,
            columns={column: arrived.astype(float) if column == ARRIVAL else value for column, value in by_column},
            warmup_ended=ended,
        )
        self._requested = False
        now = time.monotonic()
        self._call_started, self._next_snapshot = now, max(started + PERIOD, now + (now - started) / _TIME_SHARE)


def _shortened(history: History) -> History:
    """Return at most as many points as a curve on a logarithmic axis can show."""
    if len(history.step) <= _CURVE_POINTS:
        return history
    rows = np.unique(np.geomspace(1, len(history.step), _CURVE_POINTS).astype(np.int64)) - 1
    return History(history.step[rows], history.size[rows], history.ksd[rows])
