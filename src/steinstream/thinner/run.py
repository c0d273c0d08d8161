"""The loop of a thinner: the steps that the waiting draws make, in compiled calls of many steps each.

How many are taken at once changes nothing. Ctrl-C is heeded between two calls: what has not had its turn yet waits, and
comes first when the thinner goes on. A thinner that is served (:mod:`steinstream.live`) is looked at between two
calls, which are shorter then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from steinstream import validation
from steinstream.thinner import ingest
from steinstream.thinner._unbroken import Unbroken
from steinstream.validation import Integers

if TYPE_CHECKING:
    from steinstream.live import Watch
    from steinstream.thinner import Thinner
    from steinstream.thinner._follower import Follower

_BLOCK = 8192  # steps in one compiled call: bounds memory and the wait for Ctrl-C, changes nothing else


def run(thinner: Thinner, candidates: int) -> Integers:
    """Run the steps that the waiting draws make, record them, and return what was dropped."""
    thinner._running = True  # who begins to watch now, from another thread, must wait for the end
    try:
        watch = thinner._watch
        if watch is None:
            return _run(thinner, candidates, None)
        with watch.lock:
            dropped = _run(thinner, candidates, watch)
            watch.draws = thinner.current_pass.came
            return dropped
    finally:
        thinner._running = False


def _run(thinner: Thinner, candidates: int, watch: Watch | None) -> Integers:
    steps = len(thinner._waiting.draws) // candidates
    dropped = [np.zeros((0, 3), dtype=np.int64)]
    here = thinner.current_pass
    follower = thinner._follower if here.number == 1 else None
    many = steps > 1
    if watch is not None and many:  # a push should cost next to nothing more
        watch.start()
    try:
        while steps > 0:
            count = min(_BLOCK, steps, follower.room(candidates) if follower else _BLOCK)
            if watch is not None:
                count = min(count, watch.portion)
            with Unbroken():
                dropped.append(_take(thinner, candidates, count, follower))
            steps -= count
            if watch is not None and many:
                watch.learn(count)
            if watch is not None and watch.wanted:
                watch.draws = here.came - steps * candidates
                watch.take()
    finally:  # what is left must not hold on to the user's arrays
        rest = thinner._waiting
        thinner._waiting = rest.copy() if len(rest.draws) else validation.no_draws(thinner.dim)
    return np.concatenate(dropped)


def _take(thinner: Thinner, candidates: int, count: int, follower: Follower | None) -> Integers:
    """Run so many steps in one compiled call, record them, and return what was dropped."""
    here = thinner.current_pass
    now, later = slice(0, count * candidates), slice(count * candidates, None)
    block, marks = thinner._waiting.take(now), thinner._marks and thinner._marks.take(now)
    numbers = np.arange(thinner.steps + 1, thinner.steps + count + 1)
    plan = ingest.plan(thinner, numbers)
    run = thinner._kept_set.run(block, candidates, thinner.steps, plan, thinner._most, marks, here.number == 1)
    thinner.steps += count
    thinner._waiting = thinner._waiting.take(later)
    thinner._marks = thinner._marks.take(later) if thinner._marks and len(thinner._waiting.draws) else None
    changed = follower.take(block.draws, thinner.steps) if follower else None
    if changed is not None:
        thinner.preconditioner = changed
        thinner._kept_set.rebase(changed)
        run.squares[-1] = thinner._kept_set.square
    thinner._recorder.add(numbers, run.sizes, run.squares)
    return run.dropped
