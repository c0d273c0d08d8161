"""What a tool has beside each draw, held for the kept draws alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

from steinstream.thinner import Thinner
from steinstream.thinner.step import StepInfo

T = TypeVar("T")
Id = tuple[int, int]


class Beside(Generic[T]):
    """One thing for each draw that is kept, or that waits in the thinner to be."""

    def __init__(self) -> None:
        self._held: dict[Id, T] = {}
        self._kept: set[Id] = set()
        self._waiting: set[Id] = set()

    def __len__(self) -> int:
        return len(self._held)

    def update(self, thinner: Thinner, step: StepInfo, new: Iterable[tuple[Id, T]]) -> None:
        """Take over from the draws of one step what is still of use, and let go of what was dropped."""
        came = dict(new)
        self._held |= came
        self._kept |= set(step.added)
        self._kept -= set(step.dropped)
        # Draws wait for the end of a warm-up, or for more candidates, and may be kept after all.
        before, self._waiting = self._waiting, {(chain, draw) for chain, draw in thinner._waiting.ids[:, :2].tolist()}
        for id in before | came.keys() | set(step.dropped):
            if id not in self._kept and id not in self._waiting:
                self._held.pop(id, None)

    def of(self, ids: Sequence[Sequence[int]]) -> list[T]:
        """The things of these draws."""
        return [self._held[chain, draw] for chain, draw in ids]
