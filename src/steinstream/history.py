"""Which steps of a run are remembered. By default about twenty per factor of ten, so that a run of any length has a
curve and none has a long one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from steinstream.errors import InputError
from steinstream.kept import History

Integers = NDArray[np.int64]

_PER_DECADE = 20
_EDGES = np.unique(np.ceil(10.0 ** (np.arange(18 * _PER_DECADE) / _PER_DECADE)).astype(np.int64))


class Recorder:
    """Collects (step, size, KSD) at chosen steps: ``"log"``, ``"all"``, every k-th, or ``None``."""

    def __init__(self, rule: str | int | None) -> None:
        if not (rule in ("log", "all", None) or (isinstance(rule, int) and rule > 0)):
            raise InputError(f'history must be "log", "all", a positive number or None, got {rule!r}.')
        self.rule = rule
        self._parts: list[History] = []

    def add(self, steps: Integers, sizes: Integers, squares: NDArray[np.float64]) -> None:
        """Take in consecutive steps; keep those the rule wants."""
        wanted = self._wanted(steps)
        if wanted.any():
            self._parts.append(History(steps[wanted], sizes[wanted], np.sqrt(squares[wanted])))

    def _wanted(self, steps: Integers) -> NDArray[np.bool_]:
        if self.rule is None:
            return np.zeros(len(steps), dtype=bool)
        if self.rule == "all":
            return np.ones(len(steps), dtype=bool)
        if isinstance(self.rule, int):
            return np.asarray(steps % self.rule == 0)
        return np.asarray(_cell(steps) != _cell(steps - 1))

    def history(self) -> History:
        """All that is remembered, in one piece."""
        if len(self._parts) != 1:
            empty = History(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
            self._parts = [History(*(np.concatenate(part) for part in zip(empty, *self._parts, strict=True)))]
        return self._parts[0]

    def restore(self, history: History) -> None:
        """Go on from what was remembered before."""
        self._parts = [history]


def _cell(steps: Integers) -> Integers:
    """The number of the logarithmic cell that a step falls in; the same for any block the step comes in."""
    return np.searchsorted(_EDGES, steps, side="right")
