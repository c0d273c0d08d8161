"""A pair of .npy files, draws and scores, mapped into memory: a block costs only the pages it touches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy_format

from steinstream.errors import InputError
from steinstream.io.base import WITHOUT, Chain, Request
from steinstream.io.errors import reading, truncated
from steinstream.io.npy_header import Header, Layout, as_floats, layout, read_header
from steinstream.validation import Block


class NpyChain(Chain):
    """Draws and scores in two .npy files of the same shape."""

    def __init__(self, path: Path, scores: Path, shape: Layout) -> None:
        super().__init__(path, shape.dim, None, shape.chains * shape.draws, shape.chains)
        self.draws_from, self.scores_from = path.name, scores.name
        self._scores = scores
        self._shape = shape

    def _read(self, rows: int, skip: int) -> Iterator[Block]:
        draws, scores = self._map(self.path), self._map(self._scores)
        total = self._shape.chains * self._shape.draws
        for start in range(skip, total, rows):
            ids = self._shape.ids(start, min(start + rows, total))
            # Indexing by ids, not by slices, serves every storage order without a copy of the whole.
            chain, draw = ids.T
            yield Block(as_floats(draws[chain, draw]), as_floats(scores[chain, draw]), ids)

    def _map(self, path: Path) -> np.ndarray[Any, Any]:
        with reading(path, "npy"):
            # Without a subclass's bookkeeping; the map lives as long as this view.
            whole = np.asarray(npy_format.open_memmap(path, mode="r"))
        return whole if whole.ndim == 3 else whole[None]


def open_npy(request: Request) -> NpyChain:
    """Open draws.npy with the scores file that goes with it."""
    path, scores = request.path, request.scores
    if scores is None:
        raise InputError(
            f"{path} holds one array and no scores.", f"Pass the file of scores with --scores FILE. {WITHOUT}"
        )
    if scores.suffix.lower() != ".npy":
        raise InputError(f"the scores of a .npy file must be a .npy file, not {scores}.", "Save both alike.")
    shape = layout(_header(path), _header(scores), str(path), str(scores))
    return NpyChain(path, scores, shape)


def _header(path: Path) -> Header:
    with reading(path, "npy"), path.open("rb") as file:
        header = read_header(file, str(path))
        if path.stat().st_size - file.tell() < header.nbytes:
            raise truncated(path, "its array")
    return header
