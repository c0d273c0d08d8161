"""What a thinner lets in, and how many draws it then keeps at least: from what a user gives to blocks and plans."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steinstream import schedules, validation
from steinstream.debiased import as_check
from steinstream.errors import InputError
from steinstream.thinner.marks import as_marks, waiting
from steinstream.thinner.step import pairs

if TYPE_CHECKING:
    from steinstream.thinner import Thinner
    from steinstream.thinner.dictionary import Plan


def admit(
    thinner: Thinner, draws: ArrayLike, scores: ArrayLike, ids: ArrayLike | None, chain: int, check: ArrayLike | None,
    costs: ArrayLike | None, pinned: ArrayLike | None, group: int | None,
) -> validation.Block:  # fmt: skip
    """Through the door: shapes, ids, proper numbers, the scores' sign, marks. Nothing changes if it stays shut.

    Of every ``group`` draws one is taken; None if of all of them.
    """
    x, s = validation.as_block(draws, scores, thinner.dim)
    known = thinner.seen or thinner._initial or thinner._checks
    c = as_check(x, check, thinner._checks is not None if known else None)
    names = (
        validation.consecutive(chain, thinner.next_index(chain), len(x))
        if ids is None
        else validation.as_ids(ids, len(x))
    )
    block = validation.Block(x, s, names)
    marks = as_marks(costs, pinned, len(x), thinner.cost_weight > 0)
    if thinner.storage == "float32" and (marks is not None or c is not None):
        raise InputError(
            'Draws stored as float32 have neither pins nor check scores (storage="float32").',
            'Leave pinned and check out, or use storage="float64".',
        )
    linear = thinner.kernel.linear > 0
    good = validation.usable(block, thinner.on_bad, linear, thinner.storage)
    if c is not None:
        good &= validation.usable(validation.Block(x, c, names), thinner.on_bad, linear, thinner.storage)
    came = block if good.all() else block.take(good)
    part = thinner.current_pass.offered(names, good)
    if not part.all():
        if marks is not None:
            _require_offered(thinner, names[marks.pinned & good & ~part])
        block, marks = block.take(part), marks and marks.take(part)
    held = len(thinner._waiting.draws)
    marks = waiting(thinner._marks, held, marks, len(block.draws))
    if marks is not None:
        marks.require_room(len(thinner.pinned), thinner._most, group or max(1, len(block.draws)))
    if thinner.validate_scores and thinner._identity.count < validation.MOST:
        few = block.take(slice(0, validation.MOST))
        identity = thinner._identity.with_more(few.draws, few.scores)
        identity.require_plausible()
        thinner._identity = identity
    if ids is None:
        thinner._numbered[chain] = thinner.next_index(chain) + len(x)
    else:
        _count(thinner, names)
    thinner._marks = marks
    thinner.current_pass.came += len(x)
    first = thinner.current_pass.number == 1
    if first:
        thinner.seen += len(x)
        thinner.skipped += len(x) - len(came.draws)
        thinner._sketch.add(came)
    if c is None:
        return block
    return (thinner._checks or thinner._expect_checks()).beside(block, c[part], first)


def _count(thinner: Thinner, ids: NDArray[np.int64]) -> None:
    """Draws that come without an id go on behind these."""
    for chain in {int(ids[0, 0])} if len(ids) == 1 else np.unique(ids[:, 0]).tolist():
        last = int(ids[ids[:, 0] == chain, 1].max())
        thinner._numbered[chain] = max(thinner.next_index(chain), last + 1)


def _require_offered(thinner: Thinner, ids: NDArray[np.int64]) -> None:
    """Raise if one of these draws, which this pass does not offer, has still to be pinned."""
    for chain, draw in sorted(set(pairs(ids)) - set(thinner.pinned)):
        raise InputError(
            f"Draw {draw} of chain {chain} was kept when this pass began, and is not offered in it.",
            "Pin it by its id, if it is still kept: thinner.pin.",
        )


def plan(thinner: Thinner, steps: NDArray[np.int64]) -> Plan:
    """The least number to keep and the budget at each step: floor_t = max(1, ceil(min(f(t), t + |D_0|)))."""
    from steinstream.thinner.dictionary import Plan

    if thinner.current_pass.held is not None:  # in a later pass: as many as there are
        nothing = np.zeros(len(steps))
        return Plan(np.full(len(steps), thinner.current_pass.held), nothing, nothing)
    t = steps.astype(np.float64)
    growth = np.minimum(schedules.evaluate(thinner.growth, t), t + thinner._initial)
    if thinner.size is not None:
        growth = np.minimum(growth, thinner.size)
    floor = np.maximum(np.ceil(growth), 1.0).astype(np.int64)
    share = thinner.budget.eta if isinstance(thinner.budget, schedules.Share) else 0.0
    return Plan(floor, schedules.evaluate(thinner.budget, t), np.full(len(t), share), thinner.rule == "monotone")
