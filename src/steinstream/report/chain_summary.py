"""A chain as a report needs it: some evenly spaced draws and a survey, taken in one pass in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from steinstream import validation
from steinstream._formatting import count
from steinstream.errors import InputError
from steinstream.inspection import Survey
from steinstream.io import Chain, open_chains
from steinstream.result import Kept
from steinstream.thinner.subsample import Subsample
from steinstream.validation import Array, Block

_MOST = 32_768  # draws that densities, quantiles and pictures are made of
_FEWEST = 20  # with fewer there is nothing to compare with

ChainLike: TypeAlias = "Outline | Chain | str | PathLike[str] | Sequence[str | PathLike[str]] | ArrayLike | None"


class Outline:
    """What a report knows of a chain. Draws that are not finite are surveyed and then left out."""

    def __init__(self, kept: Kept, title: str = "", scored: bool = True) -> None:
        dim = kept.draws.shape[1]
        self.title = title
        self.survey: Survey | None = Survey(dim) if scored else None
        self.seen = 0
        self.found = 0
        """Kept draws that were met at their places."""
        self._some, self._few = Subsample(dim, most=_MOST), Subsample(dim, some=scored)
        self._kept = kept
        self._rows = {int(chain): np.flatnonzero(kept.ids[:, 0] == chain) for chain in np.unique(kept.ids[:, 0])}

    def add(self, block: Block) -> None:
        """Take in the next draws."""
        self.seen += len(block.draws)
        if self.survey is not None:
            self.survey.add(block)
        good = block.take(validation.finite_rows(block, "skip"))
        self._some.add(good)
        self._few.add(good)
        for chain in np.unique(good.ids[:, 0]):
            self._meet(good.take(good.ids[:, 0] == chain), int(chain))

    def _meet(self, block: Block, chain: int) -> None:
        """Count the kept draws that stand in this part of their chain, and are the same there."""
        rows, order = self._rows.get(chain, np.zeros(0, np.int64)), np.argsort(block.ids[:, 1], kind="stable")
        places = np.searchsorted(block.ids[order, 1], self._kept.ids[rows, 1])
        there = places < len(order)
        rows, at = rows[there], order[places[there]]
        same = block.ids[at, 1] == self._kept.ids[rows, 1]
        same[same] = np.isclose(block.draws[at[same]], self._kept.draws[rows[same]], rtol=1e-9, atol=0).all(axis=1)
        self.found += int(same.sum())

    @property
    def block(self) -> Block:
        """Evenly spaced draws, at most 32 768. Of an array of draws the scores are zero."""
        return self._some.block

    @property
    def stream(self) -> Block | None:
        """Those that a thinner would have held, to diagnose with; None where there are no scores."""
        return self._few.block if self.survey is not None else None


class Remembered(Outline):
    """What the kept set itself remembers of its stream."""

    def __init__(self, kept: Kept, stream: Block) -> None:
        super().__init__(
            kept, f"{count(len(stream.draws))} evenly spaced draws of the stream, held while it was thinned"
        )
        self.survey, self.seen, self._stream = None, kept.settings.get("seen", len(stream.draws)), stream

    @property
    def block(self) -> Block:
        """The draws that were held."""
        return self._stream

    @property
    def stream(self) -> Block:
        """The same."""
        return self._stream


def outline(kept: Kept, chain: ChainLike, tell: Callable[[Chain, int], None] | None = None) -> Outline | None:
    """The chain that the draws were kept from: a file, several, an open chain, an array of draws (n, d) or
    (chains, n, d); None for what the kept set remembers of it. None if that is too little.

    ``tell`` hears how many draws of a file have passed.
    """
    if chain is None:
        known = kept.stream is not None and len(kept.stream.draws) >= _FEWEST
        return Remembered(kept, kept.stream) if known and kept.stream is not None else None
    if isinstance(chain, Outline):
        return chain if len(chain.block.draws) >= _FEWEST else None
    if isinstance(chain, str | PathLike):
        chain = open_chains([chain])
    elif isinstance(chain, list | tuple) and chain and all(isinstance(part, str | PathLike) for part in chain):
        chain = open_chains([Path(part) for part in chain])
    result = _of_file(kept, chain, tell) if isinstance(chain, Chain) else _of_array(kept, np.asarray(chain))
    return result if len(result.block.draws) >= _FEWEST else None


def stream_of(kept: Kept, chain: ChainLike, scores: ArrayLike | None) -> Block:
    """Some draws of the chain with their scores, as a thinner would have held them, to diagnose with."""
    if scores is None:
        found = outline(kept, chain)
        stream = None if found is None else found.stream
    else:
        few = Subsample(kept.draws.shape[1])
        for block in validation.as_chains(chain, scores):  # type: ignore[arg-type]
            _require(kept, block.draws.shape[1], "the chain")
            few.add(block.take(validation.finite_rows(block, "skip")))
        stream = few.block
    if stream is None or len(stream.draws) < _FEWEST:
        raise InputError(
            "There is too little to diagnose with.", f"Give a file, or {_FEWEST} draws and more with their scores."
        )
    return stream


def _of_file(kept: Kept, chain: Chain, tell: Callable[[Chain, int], None] | None) -> Outline:
    _require(kept, chain.dim, chain.title)
    result = Outline(kept, chain.title)
    for block in chain.blocks():
        result.add(block)
        if tell is not None:
            tell(chain, result.seen)
    return result


def _of_array(kept: Kept, draws: Array) -> Outline:
    if draws.ndim not in (2, 3) or draws.dtype.kind not in "fiu":
        raise InputError(
            f"The chain has shape {draws.shape} and dtype {draws.dtype}.",
            "Give draws as numbers (n, d) or (chains, n, d), or the name of a file.",
        )
    _require(kept, draws.shape[-1], "the chain")
    result = Outline(kept, "draws given as an array", scored=False)
    chains = draws.reshape(-1, *draws.shape[-2:]).astype(np.float64)
    for number, mine in enumerate(chains):
        ids = np.column_stack([np.full(len(mine), number), np.arange(len(mine))])
        result.add(Block(mine, np.zeros_like(mine), ids))
    return result


def _require(kept: Kept, dim: int, title: str) -> None:
    if dim != kept.draws.shape[1]:
        raise InputError(
            f"{title} has {dim} dimensions, the kept draws have {kept.draws.shape[1]}.",
            "Give the chain that they were kept from.",
        )
