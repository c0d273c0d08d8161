"""Fair timing on a noisy machine: contenders take turns, many short runs each, and the fastest run of each one counts.

Whatever slows the machine for a while slows all contenders, and a short run has a chance to meet a quiet moment: so the
ratio of two minima from one race means something where two timings made apart would not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

# Called before each of its runs, a contender gets ready and returns what is to be timed.
Contender = Callable[[], Callable[[], object]]


def race(contenders: Mapping[str, Contender], seconds: float, rounds: int = 3) -> dict[str, float]:
    """Return the shortest time of each contender, from at least ``rounds`` rounds and ``seconds`` seconds."""
    best = dict.fromkeys(contenders, float("inf"))
    end = time.perf_counter() + seconds
    while rounds > 0 or time.perf_counter() < end:
        for name, contender in contenders.items():
            run = contender()
            best[name] = min(best[name], elapsed(run))
        rounds -= 1
    return best


def elapsed(run: Callable[[], object]) -> float:
    """Seconds that one call takes."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def repeating(run: Callable[[int], object], times: int) -> Contender:
    """Make a contender that runs something many times in compiled code, with its data in the cache.

    The warm-up is as long as the timed part, because a single run does not replace all data of the contender before.

    Returns
    -------
    callable
        The contender.
    """

    def ready() -> Callable[[], object]:
        run(times)
        return lambda: run(times)

    return ready
