"""A chain without the draws at the start of each chain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from steinstream._typing import Flags, Integers
from steinstream.errors import InputError
from steinstream.io.base import Chain, without_first
from steinstream.validation import Block

if TYPE_CHECKING:
    from steinstream.result import Variable


def without_burn_in(chain: Chain, burn_in: int | float) -> Chain:
    """Leave out a number, or a share, of the draws at the start of each chain; the others keep their ids.

    For a share, the file is read once to count the draws.

    Returns
    -------
    Chain
        The chain without these draws; the others keep their ids.

    Raises
    ------
    InputError
        If no draw is left.
    """
    lengths = Counter[int]()
    if isinstance(burn_in, float):
        for block in chain.blocks():
            lengths[int(block.ids[0, 0])] += len(block.ids)
    left_out = {number: int(burn_in * length) for number, length in lengths.items()}
    return SettledChain(chain, left_out, default=0 if isinstance(burn_in, float) else burn_in)


class SettledChain(Chain):
    """The draws of a chain after its burn-in: ``left_out`` by chain, ``default`` of the other chains."""

    def __init__(self, chain: Chain, left_out: Mapping[int, int], default: int) -> None:
        super().__init__(chain.path, chain.dim, chain.names, None, chain.chains)
        self.draws_from, self.scores_from, self.has_scores = chain.draws_from, chain.scores_from, chain.has_scores
        self._chain, self._counts, self._default = chain, left_out, default

    @property
    def title(self) -> str:
        return self._chain.title

    def axes_error(self, size: int | None = None) -> InputError | None:
        return self._chain.axes_error(size)

    @property
    def is_separable(self) -> bool:
        return self._chain.is_separable

    def _read(self, rows: int, skip: int) -> Iterator[Block]:
        return without_first(self._settled(self._chain.blocks(rows)), skip)

    def _read_in_turns(self, rows: int, skip: int) -> Iterator[Block]:
        return without_first(self._settled(self._chain.blocks(rows, interleaved=True)), skip)

    def _settled(self, blocks: Iterator[Block]) -> Iterator[Block]:
        """Leave out the burn-in; raise an `InputError` at the end if no draw is left."""
        seen, empty = Counter[int](), True
        for block in blocks:
            settled = self._is_settled(block.ids, seen)
            if settled.any():
                empty = False
                yield block if settled.all() else block.take(settled)
        if empty:
            raise InputError(
                f"The burn-in leaves no draws: the longest chain of {self.title} has {max(seen.values(), default=0)}.",
                "Use a smaller burn_in (--burn-in).",
            )

    def _is_settled(self, ids: Integers, seen: Counter[int]) -> Flags:
        """Return which of the next draws are after the burn-in; ``seen`` counts the draws of each chain."""
        settled = np.ones(len(ids), dtype=np.bool_)
        for number in np.unique(ids[:, 0]).tolist():
            rows = np.flatnonzero(ids[:, 0] == number)
            settled[rows[: max(self._counts.get(number, self._default) - seen[number], 0)]] = False
            seen[number] += len(rows)
        return settled

    def diverging(self) -> Iterator[tuple[Integers, Flags]] | None:
        """Read which draws after the burn-in ended a divergent transition."""
        found, seen = self._chain.diverging(), Counter[int]()
        if found is None:
            return None
        settled = ((ids, flags, self._is_settled(ids, seen)) for ids, flags in found)
        return ((ids[rows], flags[rows]) for ids, flags, rows in settled)

    def fraction(self) -> float | None:
        return self._chain.fraction()

    def variables(self, ids: Integers) -> dict[str, Variable]:
        return self._chain.variables(ids)

    def groups(self, ids: Integers) -> dict[str, dict[str, Variable]]:
        return self._chain.groups(ids)

    def notes(self) -> list[tuple[str, str]]:
        return self._chain.notes()
