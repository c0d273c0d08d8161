"""Per-draw metadata, held for the kept draws only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

from steinstream._typing import Id
from steinstream.thinner import StepInfo, Thinner

T = TypeVar("T")


class DrawMetadata(Generic[T]):
    """One value for each draw that is kept, or that waits in the thinner for a decision."""

    def __init__(self) -> None:
        self._values: dict[Id, T] = {}
        self._kept: set[Id] = set()
        self._pending: set[Id] = set()

    def __len__(self) -> int:
        return len(self._values)

    def update(self, thinner: Thinner, step: StepInfo, new: Iterable[tuple[Id, T]]) -> None:
        """Add the values of the draws of one step, and delete those of draws that were not kept or removed."""
        added = dict(new)
        self._values |= added
        self._kept |= set(step.added)
        self._kept -= set(step.dropped)
        # Pending draws wait for the end of a warm-up or for more candidates, and may still be kept.
        before, self._pending = self._pending, set(thinner.pending_ids)
        for id in before | added.keys() | set(step.dropped):
            if id not in self._kept and id not in self._pending:
                self._values.pop(id, None)

    def select(self, ids: Sequence[Sequence[int]]) -> list[T]:
        """Return the values of these draws."""
        return [self._values[chain, draw] for chain, draw in ids]
