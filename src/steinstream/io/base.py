"""What a file of draws is to the rest of the house: a stream of blocks, in order, in bounded memory.

A format fills in ``_read``; all else (splitting at chains, the sign of the scores, progress) is here, once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from steinstream.errors import InputError
from steinstream.result import Variable
from steinstream.validation import Block

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]

#: The names by which draws and scores go in a file unless the user says otherwise.
DRAWS, SCORES = "draws", "scores"

#: In place of a name: all that looks like a parameter. For draws alone, whose scores somebody else has.
EVERY = "*"
WITHOUT = "If there are none, --proxy gaussian lends some, within limits."


_FEW = 100  # draws in a row without a single score are no accident


class Request(NamedTuple):
    """What ``open_chain`` was asked for."""

    path: Path
    scores: Path | None
    draws_name: str
    scores_name: str
    transposed: bool | None = None
    """Whether a table has a row for each parameter; None if it is to be guessed."""
    output: Path | None = None
    """File of the constrained draws, for a tool that has them in a file of their own."""


def alone(request: Request, what: str = "variables") -> None:
    """Refuse a second file; ``what`` are the things in the first that can be named."""
    if request.scores is not None:
        raise InputError(
            f"--scores {request.scores} was given, but {request.path} holds draws and scores both.",
            f"Leave out --scores, and name the {what} with --draws-name and --scores-name.",
        )


class Chain(ABC):
    """Draws in a file, read as often as wanted, each time from the start."""

    path: Path
    names: tuple[str, ...]
    """Names of the parameters, in the order of the columns."""
    length: int | None
    """Draws in all chains together; None where only a pass through the file could tell."""
    chains: int | None
    """Number of chains; None where the file names a chain with each draw and only a pass could tell."""
    negated: bool = False
    """Flip the sign of the scores, for tools that write minus the gradient."""
    draws_from: str = ""
    """Where in the file the draws are, in words a user knows."""
    scores_from: str = ""
    """Where the scores are."""

    def __init__(
        self, path: Path, dim: int, names: Sequence[str] | None, length: int | None, chains: int | None
    ) -> None:
        if length == 0:
            raise empty(path)
        self.path = path
        self.names = tuple(names) if names is not None else default_names(dim)
        self.length = length
        self.chains = chains
        self._seen = 0

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return len(self.names)

    @property
    def title(self) -> str:
        """By what name a checkpoint knows it."""
        return self.path.name

    def blocks(self, rows: int = 8192, skip: int = 0) -> Iterator[Block]:
        """Stream the draws chain after chain, at most ``rows`` a block, without the first ``skip``."""
        if rows < 1:
            raise InputError(f"rows is {rows}.", "A block holds at least one draw.")
        if skip < 0:
            raise InputError(f"skip is {skip}.", "Skip no draw, or some.")
        self._seen = skip
        for block in self._read(rows, skip):
            if self._seen == 0:
                self._require_scores_in(block)
            if self.negated:
                np.negative(block.scores, out=block.scores)
            for piece in _by_chain(block):
                self._seen += len(piece.ids)
                yield piece

    def _require_scores_in(self, block: Block) -> None:
        """Refuse scores that were never stored, of which the first block tells if it is large enough."""
        if len(block.scores) >= min(_FEW, self.length or _FEW) and np.isnan(block.scores).all():
            raise no_scores(self.path, self.scores_from or "every score")

    def fraction(self) -> float | None:
        """How much of the stream the current iteration has delivered, 0 to 1; None where nobody knows."""
        return None if self.length is None else min(self._seen / self.length, 1.0)

    def variables(self, ids: Ints) -> dict[str, Variable]:
        """What else the file has of the draws with these ids (n, 2), as the user's model names it."""
        return {}

    def notes(self) -> list[tuple[str, str]]:
        """What else a user may want to know of the file: a label and a line each."""
        return []

    @abstractmethod
    def _read(self, rows: int, skip: int) -> Iterator[Block]:
        """Blocks of at most ``rows`` fresh, writable arrays; a block may run across chains."""


def default_names(dim: int) -> tuple[str, ...]:
    """x0, x1, ..."""
    return tuple(f"x{i}" for i in range(dim))


def empty(path: Path) -> InputError:
    """The error for a file without a single draw."""
    return InputError(f"{path}: the chain is empty.", "Check that the sampler wrote its draws to this file.")


def no_scores(path: Path, where: str) -> InputError:
    """The error for an array of scores in which nothing was stored."""
    return InputError(
        f"{path}: {where} is NaN throughout: no gradient was stored.",
        "Sample again with the gradient stored; nutpie does that with nutpie.sample(..., store_gradient=True), "
        "and PyMC through it with nuts={'store_gradient': True}.",
    )


def _by_chain(block: Block) -> Iterator[Block]:
    chain = block.ids[:, 0]
    borders = (np.flatnonzero(chain[1:] != chain[:-1]) + 1).tolist()
    for start, stop in pairwise([0, *borders, len(chain)]):
        yield Block(block.draws[start:stop], block.scores[start:stop], block.ids[start:stop])
