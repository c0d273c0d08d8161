"""Record of size, KSD and MMD at chosen steps: by default about 20 per factor of ten, for any length of the stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from steinstream._typing import Integers
from steinstream.result import History

if TYPE_CHECKING:
    from steinstream.thinner.dictionary import StepRecords

_PER_DECADE = 20
_ROUNDED_UP = np.ceil(10.0 ** (np.arange(18 * _PER_DECADE) / _PER_DECADE)).astype(np.int64)
_LOGARITHMIC = _ROUNDED_UP[np.diff(_ROUNDED_UP, prepend=0) > 0]  # np.unique would import numpy.ma


class HistoryRecorder:
    """Recorder of step, size, KSD and MMD: of about 20 steps per factor of ten, all, every k-th, or none."""

    def __init__(self, steps: str | int | None) -> None:
        self._steps = steps
        self._parts: list[History] = []

    def add(self, steps: Integers, records: StepRecords) -> None:
        rows = self._recorded(steps)
        if len(rows):
            ksd, mmd = np.sqrt(records.squared_ksds[rows]), np.sqrt(records.squared_mmds[rows])
            self._parts.append(History(steps[rows], records.sizes[rows], ksd, mmd))

    def _recorded(self, steps: Integers) -> Integers:
        """Return the positions in ``steps`` that are recorded."""
        if self._steps is None or len(steps) == 0:
            return np.zeros(0, dtype=np.int64)
        if self._steps == "all":
            return np.arange(len(steps))
        if isinstance(self._steps, int):
            return np.flatnonzero(steps % self._steps == 0)
        first, last = np.searchsorted(_LOGARITHMIC, [steps[0], steps[-1] + 1])
        return np.asarray(_LOGARITHMIC[first:last] - steps[0])

    def history(self) -> History:
        """Return the recorded steps."""
        if len(self._parts) != 1:
            empty = History(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
            self._parts = [History(*(np.concatenate(part) for part in zip(empty, *self._parts, strict=True)))]
        return self._parts[0]

    def restore(self, history: History) -> None:
        """Continue from a recorded history."""
        self._parts = [history]
