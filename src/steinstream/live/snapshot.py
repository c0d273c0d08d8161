"""What a run hands over to those who watch it, and how the two threads keep out of each other's way.

Compiled code runs without Python's lock, so that nobody else may read the engine's arrays meanwhile. A lock of ours is
held by the run while it takes steps. A viewer asks for a snapshot and never waits: if the run is busy, its own thread
takes the snapshot between two compiled calls, and if it rests, the viewer's thread does; a draw that comes then waits
for that one copy. A snapshot never changes. Of each draw it has only the coordinates that somebody looks at.

Without viewers nothing is copied. With viewers it is at most four times a second, and at most a hundredth of the time.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from steinstream.preconditioning import Preconditioner
from steinstream.result import History

if TYPE_CHECKING:
    from steinstream.live.page import Page
    from steinstream.thinner import Thinner

PERIOD = 0.25  # seconds between two looks
ARRIVAL = -1  # in the place of a coordinate: when the draw came
_PIECE = 0.1  # seconds that a compiled call should take
_MOST = 8192  # steps in a compiled call
_SHARE = 0.01  # of the time may go into snapshots
_POINTS = 400  # of a curve
_PATIENCE = 1.0  # seconds that the last look waits for a run in another thread


class Snapshot(NamedTuple):
    """A thinner between two steps."""

    time: float  # by the monotonic clock
    number: int  # of the pass
    draws: int  # that came in it
    steps: int
    size: int
    ksd: float
    history: History
    changes: tuple[int, ...]  # steps after which the coordinates changed
    arrived: NDArray[np.int64]  # the step at which each kept draw came: no two came at the same
    columns: dict[int, NDArray[np.float64]]  # coordinate -> its value in each kept draw
    settled: bool  # the warm-up is over


class Watch:
    """A thinner that is being watched."""

    def __init__(self, thinner: Thinner, page: Page) -> None:
        self.thinner, self.page = thinner, page
        self.portion = _MOST  # steps in the next compiled call
        self.began, self.first = time.monotonic(), thinner.current_pass.came
        self.lock = threading.Lock()
        self.draws = self.first  # that came and went through, at the last look or rest
        self._since = 0.0
        self.wanted = False
        self._columns: frozenset[int] = frozenset()
        self._latest: Snapshot | None = None
        self._rested = 0.0  # when the next snapshot may be taken
        # A run that began before it was watched, in another thread, does not hold the lock. (First the run says that it
        # runs, then it looks for a watch; first there is a watch, then it looks for a run. So none misses the other.)
        thinner._watch = self
        self._unguarded = thinner._running

    # -- in the run's thread, which holds the lock -----------------------------------------------------------------

    def start(self) -> None:
        """Many steps are to be taken."""
        self._since = time.monotonic()

    def learn(self, steps: int) -> None:
        """So many were taken in one compiled call."""
        now = time.monotonic()
        self.portion = max(1, min(_MOST, int(steps * _PIECE / max(now - self._since, 1e-6))))
        self._since = now

    # -- in any thread ---------------------------------------------------------------------------------------------

    def look(self, columns: frozenset[int]) -> Snapshot | None:
        """The latest snapshot, if there is one; a newer one comes soon where there is news. Never waits."""
        self._columns = columns
        if self._is_old(columns) and time.monotonic() >= self._rested:
            self.wanted = True
            if self.lock.acquire(blocking=False):
                self._look_and_release()
        return self._latest

    def last_look(self) -> None:
        """Take a snapshot of how it ends, if the run comes to rest."""
        if self._latest is not None and self.lock.acquire(timeout=_PATIENCE):
            self._look_and_release()

    def _look_and_release(self) -> None:
        try:
            self._unguarded = self._unguarded and self.thinner._running
            if not self._unguarded:
                self.take()
        finally:
            self.lock.release()

    def _is_old(self, columns: frozenset[int]) -> bool:
        latest, thinner = self._latest, self.thinner
        if latest is None or not columns <= latest.columns.keys():
            return True
        return (latest.steps, latest.draws) != (thinner.steps, thinner.current_pass.came)

    def take(self) -> None:
        """A snapshot, by whoever holds the lock."""
        began = time.monotonic()
        thinner, dictionary = self.thinner, self.thinner._dictionary
        columns = sorted({min(column, thinner.dim - 1) for column in self._columns})
        arrived, values = np.zeros(0, dtype=np.int64), np.zeros((0, len(columns)))
        if dictionary is not None:
            arrived, values = dictionary.glance([max(column, 0) for column in columns])
        here, follower = thinner.current_pass, thinner._follower
        self._latest = Snapshot(
            time=began,
            number=here.number,
            draws=min(self.draws, here.came) if isinstance(thinner.preconditioner, Preconditioner) else here.came,
            steps=thinner.steps,
            size=len(thinner) if dictionary is None else dictionary.size,
            ksd=dictionary.ksd if dictionary is not None and dictionary.size else float("nan"),
            history=_thinned(thinner._recorder.history()),
            changes=tuple(follower.changes) if follower is not None else (),
            arrived=arrived,
            columns={c: arrived.astype(float) if c == ARRIVAL else v for c, v in zip(columns, values.T, strict=True)},
            settled=dictionary is not None,
        )
        self.wanted = False
        now = time.monotonic()
        self._since, self._rested = now, max(began + PERIOD, now + (now - began) / _SHARE)


def _thinned(history: History) -> History:
    """No more points than a curve on a logarithmic axis can show."""
    if len(history.step) <= _POINTS:
        return history
    rows = np.unique(np.geomspace(1, len(history.step), _POINTS).astype(np.int64)) - 1
    return History(history.step[rows], history.size[rows], history.ksd[rows])
