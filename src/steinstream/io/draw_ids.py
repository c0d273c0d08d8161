"""How a tree's draws are laid out, and the id of each: (chain, draw), as the coordinates tell it, else by counting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from steinstream.errors import InputError
from steinstream.io.base import Ints
from steinstream.io.chunked import Slabs, spans
from steinstream.io.tree import Array

_HOLD = 8 << 20  # bytes of labels that are read once and kept
_ROWS = 1 << 16  # ids looked through at a time


class Sampling:
    """``chains`` x ``draws``, or all draws in a row."""

    def __init__(self, sizes: Mapping[str, int], coords: Mapping[str, Array], dims: tuple[str, ...]) -> None:
        self._dims = dims
        self.chains = sizes["chain"] if len(dims) == 2 else 1
        self.draws = sizes[dims[-1]]
        self._arrays = [_label(coords, name, dims) for name in ("chain", "draw")]
        mixed = "source_chain" in coords or (len(dims) == 1 and self._arrays[0] is not None)
        self.several = None if mixed else self.chains
        """Number of chains, if the layout tells."""

    def labels(self) -> Labels:
        """The ids, to be read from the beginning."""
        return Labels(self._arrays, self._dims)

    def ids(self) -> Iterator[tuple[int, int, Ints]]:
        """All ids, some at a time: number of the chain, number of the first draw, and the ids from there."""
        labels = self.labels()
        for chain in range(self.chains):
            for start, stop in spans(labels.slabs, 0, self.draws, _ROWS):
                yield chain, start, labels.ids(chain, start, stop)

    def places(self, ids: Ints, path: Path) -> tuple[Ints, Ints]:
        """Where the draws with these ids are: number of the chain, number of the draw."""
        different, back = np.unique(ids, axis=0, return_inverse=True)
        wanted = {tuple(pair): place for place, pair in enumerate(different.tolist())}
        found = np.full((len(different), 2), -1)
        draws = np.unique(ids[:, 1])
        for chain, start, here in self.ids():
            for row in np.flatnonzero(np.isin(here[:, 1], draws)).tolist():
                place = wanted.get((int(here[row, 0]), int(here[row, 1])))
                if place is not None:
                    found[place] = chain, start + row
        missing = np.flatnonzero(found[:, 0] < 0)
        if missing.size:
            chain, draw = different[missing[0]].tolist()
            raise InputError(f"{path} has no chain {chain}, draw {draw}.", "Give ids of its own draws.")
        return found[back.ravel(), 0], found[back.ravel(), 1]


class Labels:
    """The ids of draws, read along the draws where they differ along them."""

    def __init__(self, arrays: Sequence[Array | None], dims: tuple[str, ...]) -> None:
        self._of: list[Slabs | npt.NDArray[Any] | None] = [
            None if array is None else Slabs(array, dims, _HOLD) if dims[-1] in array.dims else array.values()
            for array in arrays
        ]
        self.slabs = [each for each in self._of if isinstance(each, Slabs)]

    def ids(self, chain: int, start: int, stop: int) -> Ints:
        """Those of some draws within a slab."""
        ids = np.empty((stop - start, 2), np.int64)
        ids[:, 0], ids[:, 1] = chain, np.arange(start, stop)
        for column, each in enumerate(self._of):
            if isinstance(each, Slabs):
                ids[:, column] = each.rows(chain, start, stop)
            elif each is not None:
                ids[:, column] = each[chain]
        return ids


def _label(coords: Mapping[str, Array], name: str, dims: tuple[str, ...]) -> Array | None:
    """The coordinate that tells chain or draw; None if none does."""
    found = coords.get(f"source_{name}", coords.get(name))
    if found is None or found.dtype.kind not in "iu" or not found.dims or not set(found.dims) <= set(dims):
        return None
    return found
