"""Online KSD thinning over a block of the stream (Algorithms 1 and 2 of Hawkins, Koppel and Zhang).

At every step the best candidate is inserted. Then draws are removed one by one as the step rule permits
(:mod:`steinstream._engine.step_rule`), each time the one whose removal leaves the smallest objective. A new draw that
would be removed first is rejected without being inserted. A step costs (candidates + removed) kernel rows over the kept
draws; a repeated state costs none.

The objective is KSD^2, plus the stream term if there is one. Costs are not part of it: among the draws that may be
removed, the one with the largest sum of influence and cost term is. Pinned draws are never removed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from steinstream._engine.argmax import new_value
from steinstream._engine.by_reference import by_reference
from steinstream._engine.candidates import best_candidate, next_removal
from steinstream._engine.objective import objective, objective_with_new, squared_ksd
from steinstream._engine.penalties import logged_mmd, observe_stream
from steinstream._engine.state import NONE
from steinstream._engine.step_rule import allowed_objective, may_remove, removal_limit
from steinstream._engine.translation import translated
from steinstream._engine.updates import evaluate, insert, is_full, reject, remove
from steinstream._typing import Array, Flags, Integers


@by_reference
class Batch(NamedTuple):
    """Draws of some steps, in the coordinates of the kernel."""

    draws: Array  # (n, d)
    scores: Array  # (n, d)
    raw: Array  # (n, w): columns to be returned with each kept draw
    ids: Integers  # (n, 2)
    candidates: int  # draws per step
    start: int  # number of steps before
    influence: Array  # (candidates, 2): scratch
    base: Array | None = (
        None  # (n, q): base vectors, which the stream term compares; this and what follows with penalties
    )
    unscaled: Array | None = None  # (n, w): the same as given
    costs: Array | None = None  # (n,)
    pinned: Flags | None = None  # (n,)
    stream_sums: Array | None = None  # (n,): written: sum of phi over the stream

    def part(self, steps: slice) -> Batch:
        """Return the draws of some of the steps."""
        rows = slice(steps.start * self.candidates, steps.stop * self.candidates)
        if rows == slice(0, len(self.draws)):
            return self
        draws, scores, raw, ids = self.draws[rows], self.scores[rows], self.raw[rows], self.ids[rows]
        part = Batch(
            draws=draws,
            scores=scores,
            raw=raw,
            ids=ids,
            candidates=self.candidates,
            start=self.start + steps.start,
            influence=self.influence,
        )
        if self.base is None or self.unscaled is None or self.costs is None or self.pinned is None:
            return part
        return part._replace(
            base=self.base[rows],
            unscaled=self.unscaled[rows],
            costs=self.costs[rows],
            pinned=self.pinned[rows],
            stream_sums=None if self.stream_sums is None else self.stream_sums[rows],
        )


@by_reference
class StepLog(NamedTuple):
    """Results of some steps, written by :func:`thin_block`."""

    sizes: Integers  # (steps,): draws kept after each step
    squared_ksd: Array  # (steps,): KSD^2 after each step
    squared_mmd: Array  # (steps,): squared MMD to the stream after each step; NaN without a stream term
    dropped: Integers  # (n, 3): chain, draw and step of arrival of the removed draws, in order


@translated
def thin_block(state, kernel, penalties, batch, limits, log, workers) -> tuple[int, int]:
    """Run the steps of a batch until the state is full. Return the number of steps done and of draws removed.

    ``penalties`` is None without stream term, costs and pins; long rows are shared among ``workers`` threads.

    Reference: `reference.Reference.step`.
    """
    removed = 0
    for step in range(limits.floor.shape[0]):
        if is_full(state):
            return step, removed
        arrival, first = batch.start + step + 1, step * batch.candidates
        if penalties is not None:
            observe_stream(state, kernel, penalties, batch, first)
        new = first if batch.candidates == 1 else best_candidate(state, kernel, penalties, batch, first, workers)
        size = state.scalars.draws + 1
        skip_others = size <= limits.floor[step]
        evaluate(state, kernel, penalties, batch, new, skip_others, workers)

        before = objective(state, penalties) if limits.monotone else np.inf
        allowed = allowed_objective(before, objective_with_new(state, penalties), size, limits, step)
        limit = removal_limit(allowed, size, limits, step)
        is_first = new_value(state, penalties) > state.scalars.largest_other  # the new draw would be removed first
        if is_first and (limit == np.inf or may_remove(objective(state, penalties), limit)):
            reject(state, penalties, batch, new, arrival, log, removed)
            removed += 1
        else:
            insert(state, penalties, batch, new, arrival)
        while True:
            limit = removal_limit(allowed, state.scalars.draws, limits, step)
            slot = NONE if limit == -np.inf else next_removal(state, penalties, limit)
            if slot == NONE:
                break
            remove(state, kernel, penalties, slot, log, removed, workers)
            removed += 1
        log.sizes[step], log.squared_ksd[step] = state.scalars.draws, squared_ksd(state)
        log.squared_mmd[step] = logged_mmd(state, penalties)
    return limits.floor.shape[0], removed
