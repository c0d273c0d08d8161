"""One thread or several? Whichever was faster of late.

Waking threads for every step pays on an idle machine (1.4 to 1.9 times as fast on two cores) and costs dearly on a busy
one, where each step waits for a thread that has no core. Results are the same bits either way, so the choice may follow
the clock. The loop for several threads is compiled separately, which takes some seconds once per machine: it is
not tried before a run has taken longer than that.
"""

from __future__ import annotations

from collections.abc import Callable

PATIENCE = 20.0  # seconds of work that could be shared before sharing is tried
PIECE = 0.2  # seconds that one piece of work should take, so that a bad choice costs little
_AGAIN = 40  # pieces after which the slower choice gets another chance


class Pace:
    """Chooses the number of workers for the next piece of work, and learns from how long it took."""

    def __init__(self, workers: Callable[[], int | None]) -> None:
        self._workers = workers  # asked anew each time: a forked child has fewer
        self._seconds = 0.0
        self._pieces = 0
        self._met: set[int | None] = set()
        self._cost: dict[int | None, float] = {}

    def choose(self) -> int | None:
        """A number of workers, or None for one thread."""
        workers = self._workers()
        if workers is None or self._seconds < PATIENCE:
            return None
        for untried in (None, workers):
            if untried not in self._cost:
                return untried
        faster, slower = sorted((None, workers), key=self._cost.__getitem__)
        return slower if self._pieces % _AGAIN == 0 else faster

    def learn(self, workers: int | None, work: float, seconds: float) -> None:
        """So much work took so long with so many workers."""
        self._seconds += seconds
        self._pieces += 1
        if workers in self._met:
            self._cost[workers] = seconds / max(work, 1.0)
        self._met.add(workers)  # the first piece may have been spent compiling

    def portion(self, work_per_step: float) -> int:
        """How many steps make a piece."""
        if not self._cost:
            return 64
        return max(1, int(PIECE / (min(self._cost.values()) * work_per_step + 1e-12)))
