"""Rule that decides at each step which removals are permitted.

After the insertion of a draw, n draws are kept. Further draws are removed one by one, each time the one whose removal
leaves the smallest objective:

- none if at most ``floor`` draws are kept;
- without a condition if more than ``cap`` draws are kept;
- otherwise if the objective without the draw is at most the objective right after the insertion plus the budget
  ``budget + share / n^2``. Under the monotone rule it must also be at most the objective before the insertion plus the
  budget, so that the objective never rises above the floor (up to the budget).

The comparison is ``<=``: a removal that leaves the objective unchanged is permitted with a budget of zero.

The functions work in Python and in compiled code.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from steinstream._engine.by_reference import by_reference
from steinstream._engine.jit import shared
from steinstream._typing import Array, Integers

#: Factor that absorbs rounding. The objectives before and after a removal are often equal in exact arithmetic (repeated
#: states, symmetric sets); rounding of the two divisions must not turn "equal" into "greater".
TIE = 1.0 + 2.0**-50

#: Cap of a run without a hard cap.
NO_CAP = np.iinfo(np.int64).max


@by_reference
class StepLimits(NamedTuple):
    """Limits of a run of steps; the arrays have one entry per step."""

    floor: Integers  # smallest number of draws to keep
    budget: Array  # permitted increase of the objective
    share: Array  # further part of the budget, divided by the squared number of draws
    monotone: bool = False  # whether the objective before the insertion limits removals too
    cap: int = NO_CAP  # largest number of draws to keep

    def part(self, steps: slice) -> StepLimits:
        """Return the limits of some of the steps."""
        if steps == slice(0, len(self.floor)):
            return self
        return self._replace(floor=self.floor[steps], budget=self.budget[steps], share=self.share[steps])


@shared
def allowed_objective(before: Any, after: Any, size: Any, limits: Any, step: Any) -> Any:
    """Return the largest objective that a removal within the budget may leave.

    ``before`` and ``after`` are the objectives before and after the insertion, ``size`` is the number of draws after
    it. ``before`` is read only under the monotone rule, and only if a draw was kept before.

    Reference: `reference.allowed_objective`.
    """
    highest = after
    if limits.monotone and size > 1:
        highest = min(after, before)
    return (highest + limits.budget[step] + limits.share[step] / float(size * size)) * TIE


@shared
def removal_limit(allowed: Any, size: Any, limits: Any, step: Any) -> Any:
    """Return the largest objective that a removal from ``size`` draws may leave.

    It is -inf if no removal is permitted and inf if one is required.

    Reference: `reference.removal_limit`.
    """
    if size <= limits.floor[step]:
        return -np.inf
    if size > limits.cap:
        return np.inf
    return allowed


@shared
def may_remove(objective: Any, limit: Any) -> Any:
    """Whether a removal that leaves this objective is permitted. Reference: `reference.Reference.step`."""
    return objective <= limit
