"""Which steps of a run are remembered. By default about twenty per factor of ten, so that a run of any length has a
curve and none has a long one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from steinstream.errors import InputError, positive
from steinstream.result import History

Integers = NDArray[np.int64]

_PER_DECADE = 20
_LOGARITHMIC = np.unique(np.ceil(10.0 ** (np.arange(18 * _PER_DECADE) / _PER_DECADE)).astype(np.int64))


class Recorder:
    """Collects (step, size, KSD) at chosen steps: ``"log"``, ``"all"``, every k-th, or ``None``."""

    def __init__(self, rule: str | int | None) -> None:
        if isinstance(rule, str) and rule not in ("log", "all"):
            raise InputError(f'history must be "log", "all", a positive number or None, got {rule!r}.')
        self.rule = rule if rule is None or isinstance(rule, str) else positive(rule, "history")
        self._parts: list[History] = []

    def add(self, steps: Integers, sizes: Integers, squares: NDArray[np.float64]) -> None:
        """Take in consecutive steps; keep those the rule wants."""
        wanted = self._wanted(steps)
        if len(wanted):
            self._parts.append(History(steps[wanted], sizes[wanted], np.sqrt(squares[wanted])))

    def _wanted(self, steps: Integers) -> Integers:
        """Places in ``steps``."""
        if self.rule is None or len(steps) == 0:
            return np.zeros(0, dtype=np.int64)
        if self.rule == "all":
            return np.arange(len(steps))
        if isinstance(self.rule, int):
            return np.flatnonzero(steps % self.rule == 0)
        first, last = np.searchsorted(_LOGARITHMIC, [steps[0], steps[-1] + 1])
        return np.asarray(_LOGARITHMIC[first:last] - steps[0])

    def history(self) -> History:
        """All that is remembered, in one piece."""
        if len(self._parts) != 1:
            empty = History(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
            self._parts = [History(*(np.concatenate(part) for part in zip(empty, *self._parts, strict=True)))]
        return self._parts[0]

    def restore(self, history: History) -> None:
        """Go on from what was remembered before."""
        self._parts = [history]
