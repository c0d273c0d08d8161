"""The loop of a thinner: the steps that the waiting draws make, in compiled calls of many steps each.

How many are taken at once changes nothing. A thinner that is served (:mod:`steinstream.live`) is looked at between two
calls, which are shorter then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from steinstream import admission, door
from steinstream.door import Integers

if TYPE_CHECKING:
    from steinstream.live import Watch
    from steinstream.thinner import Thinner

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
    steps, done = len(thinner._waiting.draws) // candidates, 0
    dropped = [np.zeros((0, 3), dtype=np.int64)]
    here = thinner.current_pass
    follower = thinner._follower if here.number == 1 else None
    if watch is not None and steps > 1:  # a push should cost next to nothing more
        watch.start()
    while done < steps:
        count = min(_BLOCK, steps - done, follower.room(candidates) if follower else _BLOCK)
        if watch is not None:
            count = min(count, watch.portion)
        rows = slice(done * candidates, (done + count) * candidates)
        block, marks = thinner._waiting.take(rows), thinner._marks and thinner._marks.take(rows)
        numbers = np.arange(thinner.steps + 1, thinner.steps + count + 1)
        plan = admission.plan(thinner, numbers)
        run = thinner._kept_set.run(block, candidates, thinner.steps, plan, thinner._most, marks, here.number == 1)
        thinner.steps += count
        done += count
        changed = follower.take(block.draws, thinner.steps) if follower else None
        if changed is not None:
            thinner.coordinates = changed
            thinner._kept_set.rebase(changed)
            run.squares[-1] = thinner._kept_set.square
        thinner._recorder.add(numbers, run.sizes, run.squares)
        dropped.append(run.dropped)
        if watch is not None and steps > 1:
            watch.learn(count)
        if watch is not None and watch.wanted:
            watch.draws = here.came - (steps - done) * candidates
            watch.take()
    left = slice(steps * candidates, None)
    rest = thinner._waiting.take(left)
    thinner._marks = thinner._marks.take(left) if thinner._marks and len(rest.draws) else None
    thinner._waiting = door.no_draws(thinner.dim) if len(rest.draws) == 0 else rest.copy()
    return np.concatenate(dropped)
