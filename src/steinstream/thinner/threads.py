"""Choice between single- and multi-threaded kernel rows from recent timings.

Sharing a kernel row among threads is 1.4 to 1.9 times as fast on two idle cores, and much slower on a busy machine,
where each step waits for a thread without a core. Results are the same bit for bit, so the choice may depend on
timings. The multi-threaded loop is compiled separately, which takes some seconds once per machine; it is therefore
tried only in runs that take longer than that.
"""

from __future__ import annotations

from collections.abc import Callable

PATIENCE = 20.0  # seconds of shareable work before several threads are tried
_CALL = 0.2  # seconds that one compiled call should take, so that a bad choice costs little
_RETRY = 40  # calls after which the slower choice is tried again
_FIRST_STEPS = 64  # steps of a call before anything was timed


class ThreadChooser:
    """Chooses the number of threads of the next compiled call from the timings of earlier calls.

    ``threads`` returns the number of threads that may be used, or None for one. It is called at every choice, because a
    forked child may use only one.
    """

    def __init__(self, threads: Callable[[], int | None]) -> None:
        self._threads = threads
        self._seconds = 0.0
        self._calls = 0
        self._used: set[int | None] = set()
        self._cost: dict[int | None, float] = {}

    def choose(self) -> int | None:
        """Return the number of threads of the next call, or None for one thread."""
        threads = self._threads()
        if threads is None or self._seconds < PATIENCE:
            return None
        for untried in (None, threads):
            if untried not in self._cost:
                return untried
        faster, slower = sorted((None, threads), key=self._cost.__getitem__)
        return slower if self._calls % _RETRY == 0 else faster

    def record(self, threads: int | None, work: float, seconds: float) -> None:
        """Record that a call with this number of threads and this amount of work took this long."""
        self._seconds += seconds
        self._calls += 1
        if threads in self._used:
            self._cost[threads] = seconds / max(work, 1.0)
        self._used.add(threads)  # the time of the first call may include compilation

    def steps_per_call(self, work_per_step: float) -> int:
        """Return the number of steps of the next call."""
        if not self._cost:
            return _FIRST_STEPS
        return max(1, int(_CALL / (min(self._cost.values()) * work_per_step + 1e-12)))
