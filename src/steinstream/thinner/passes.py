"""Further passes over a chain that can be read again: every draw is offered once more, and the number kept stays.

A step of such a pass adds a draw and then removes the least influential of all, the new one included. To remove the new
one would give back the set as it was, with its KSD; the one that goes leaves the least KSD of all. So KSD never rises,
to the last bit, for the sums are exact and the number kept is the same. With an anchor, whose mean of the stream no
longer changes, or with costs, all this holds for :attr:`~steinstream.Thinner.objective` in place of KSD^2, up to the
rounding of single precision (1e-6). Pinned draws stay. A draw that is kept when a pass begins is not
offered in it, and a draw comes once in a pass, so that none is kept twice.

Swaps end, sooner or later, in a set that no single swap can improve, and which one depends on where they began.
``start="sample"``, which ``passes="auto"`` implies, therefore begins with a good set out of an evenly spaced sample of
the chain (:mod:`steinstream.thinner.local_search`), at a cost that does not grow with the chain. Measured in experiments/passes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from steinstream import schedules
from steinstream.errors import InputError
from steinstream.kernels import Kernel
from steinstream.preconditioning import Preconditioner
from steinstream.thinner.local_search import Selection
from steinstream.thinner.step import StepInfo
from steinstream.validation import Block, no_draws

if TYPE_CHECKING:
    from steinstream.thinner import Thinner

Integers = NDArray[np.int64]

AUTO = "auto"
STARTS = ("stream", "sample")
_MOST = 10  # passes that "auto" makes
_GAIN = 0.01  # of KSD, below which another pass is not worth its time
_ROOM = 2  # the sample of the chain must have so many times the draws wanted


def as_passes(passes: int | str) -> int | str:
    """A number of passes, or ``"auto"``.

    >>> as_passes("3"), as_passes("auto")
    (3, 'auto')
    """
    whole = isinstance(passes, int | np.integer) and not isinstance(passes, bool)
    if (whole or (isinstance(passes, str) and passes.isdigit())) and int(passes) >= 1:
        return int(passes)
    if isinstance(passes, str) and passes == AUTO:
        return passes
    raise InputError(f'passes must be a whole number of at least 1, or "auto", got {passes!r}.')


@dataclass
class Pass:
    """Where in which pass a thinner is."""

    number: int = 1
    came: int = 0  # draws of the chain that came in it
    held: int | None = None  # how many draws to keep throughout; None while the growth decides
    resting: Integers = field(default_factory=lambda: np.zeros((0, 2), dtype=np.int64))  # ids kept when it began
    before: float | None = None  # the root of the objective when it began: KSD, without anchor and costs
    ends: list[float] = field(default_factory=list)  # KSD after each pass before it
    bound: float | None = None  # of KSD, after the first pass
    promising: bool = True  # whether there is a bound, in the first pass

    def next(self, ids: Integers, ksd: float, bound: float | None, objective: float) -> Pass:
        """The pass after this one, which ends with these draws."""
        return Pass(self.number + 1, 0, len(ids), ids, math.sqrt(objective), [*self.ends, ksd], bound)

    def offered(self, ids: Integers, good: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which of these draws take part in this pass: the good ones that were not kept when it began."""
        if len(self.resting) == 0:
            return good
        part = good.copy()
        for chain in np.unique(ids[:, 0]):
            mine = ids[:, 0] == chain
            part[mine] &= ~np.isin(ids[mine, 1], self.resting[self.resting[:, 0] == chain, 1])
        return part


def again(thinner: Thinner) -> StepInfo:
    """Begin another pass: see :meth:`steinstream.Thinner.again`."""
    if np.isnan(thinner.ksd):
        raise InputError("Nothing is kept yet that another pass could improve.", "Push draws first.")
    step = StepInfo((), (), len(thinner), thinner.ksd)
    if thinner._dictionary is None:
        step = thinner._end_warmup(thinner._waiting)
    ids = thinner._kept_set.contents().ids[:, :2]
    thinner.current_pass = thinner.current_pass.next(ids, thinner.ksd, thinner.bound, thinner.objective)
    thinner._waiting, thinner._marks = no_draws(thinner.dim), None  # for more candidates: they come again
    thinner._numbered = {}
    return step


def go_on(thinner: Thinner, passes: int | str) -> bool:
    """Whether to make another pass, now that one has ended."""
    here = thinner.current_pass
    if np.isnan(thinner.ksd):  # nothing is kept
        return False
    if passes != AUTO:
        return here.number < int(passes)
    small = here.before is not None and not math.sqrt(thinner.objective) < (1.0 - _GAIN) * here.before
    return here.number < _MOST and not small


def begins_with_sample(start: str | None, passes: int | str, thinner: Thinner, pins: bool = False) -> bool:
    """Whether a good set out of a sample of the chain comes first; an error where it was asked for and cannot."""
    if start not in (None, *STARTS):
        raise InputError(f"start must be {' or '.join(map(repr, STARTS))}, got {start!r}.")
    size, fixed = thinner.size, isinstance(thinner.preconditioner, Preconditioner) and thinner._follower is None
    plain = not (len(thinner) or thinner.anchor or thinner.cost_weight or pins)
    possible = size is not None and thinner.growth == schedules.Constant(float(size)) and fixed and plain
    if start == "sample" and not possible:
        raise InputError(
            "A start with a sample needs a fixed size, no growth, no initial set, no anchor, costs or pins, and "
            "coordinates that stay.",
            "Give size (--size), or leave out start (--start).",
        )
    return possible and (start == "sample" or (start is None and passes == AUTO))


def begin_well(thinner: Thinner, sample: Block) -> None:
    """Begin with a good set out of a sample of the chain, if there are draws enough in it.

    Its draws are not offered in the first pass. As they were seen before, no bound is known.
    """
    if thinner.size is not None and isinstance(thinner.preconditioner, Preconditioner):
        first = good_set(sample, thinner.size, thinner.kernel, thinner.preconditioner)
        if first is not None:
            _begin(thinner, first)


def _begin(thinner: Thinner, first: Block) -> None:
    thinner._begin_with(first)
    thinner.current_pass = Pass(resting=first.ids, before=thinner.ksd, promising=False)


def good_set(sample: Block, size: int, kernel: Kernel, preconditioner: Preconditioner) -> Block | None:
    """A good set of so many draws out of a sample of the chain; None where the sample is too small for that."""
    if len(sample.draws) < _ROOM * size:
        return None
    greedy, even = (Selection(sample, size, kernel, preconditioner) for _ in range(2))
    better = min(greedy.greedy().swap(), even.even().swap(), key=lambda selection: selection.energy)
    return better.shake().block()
