"""Abstract base class of chain readers: iterate over a file of draws in blocks, in order, with bounded memory.

A format implements ``_read``. Everything else (splitting blocks at chains, the sign of the scores, progress) is here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from steinstream._typing import Integers
from steinstream.errors import InputError
from steinstream.result import Variable
from steinstream.validation import Block

#: Default names of draws and scores in a file.
DRAWS, SCORES = "draws", "scores"

#: Name that selects all columns or variables that look like parameters, for draws without scores.
ALL_PARAMETERS = "*"

NAMES_HINT = "draws_name and scores_name (--draws-name, --scores-name)"
NO_SCORES_HINT = (
    "If you have no scores, approximate them with a Gaussian: steinstream thin --proxy gaussian, or "
    'ss.thin(draws, proxy="gaussian").'
)

_MIN_DRAWS = 100  # consecutive draws without a finite score after which the scores are considered missing


class Request(NamedTuple):
    """Arguments of `open_chain`."""

    path: Path
    scores: Path | None = None  # a separate file
    draws_name: str = DRAWS
    scores_name: str = SCORES
    output: Path | None = None  # CmdStan's file of the constrained draws


def reject_scores_file(request: Request, what: str = "variables") -> None:
    """Raise an `InputError` if a separate file of scores was given; ``what`` can be named in the file of the draws."""
    if request.scores is not None:
        raise InputError(
            f"A file of scores was given ({request.scores}), but {request.path} contains draws and scores.",
            f"Leave out the file of scores, and name the {what} with {NAMES_HINT}.",
        )


class Chain(ABC):
    """Draws in a file, which can be read any number of times from the start.

    Attributes
    ----------
    path : Path
        The file.
    names : tuple of str
        Parameter names, in the order of the columns.
    length : int or None
        Number of draws in all chains; None if only a pass over the file shows it.
    chains : int or None
        Number of chains; None if the file stores a chain number with each draw.
    negated : bool
        Whether to change the sign of the scores, for tools that write minus the gradient.
    draws_from, scores_from : str
        Location of draws and scores in the file.

    """

    negated: bool = False
    draws_from: str = ""
    scores_from: str = ""

    def __init__(
        self, path: Path, dim: int, names: Sequence[str] | None, length: int | None, chains: int | None
    ) -> None:
        if length == 0:
            raise empty_chain(path)
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
        """Name that identifies the chain in a checkpoint."""
        return self.path.name

    def blocks(self, rows: int = 8192, skip: int = 0) -> Iterator[Block]:
        """Iterate over the draws, chain after chain.

        Parameters
        ----------
        rows : int, default 8192
            Largest number of draws in a block.
        skip : int, default 0
            Number of draws at the start that are left out.

        Yields
        ------
        Block
            Consecutive draws of one chain, in arrays that the caller may change.

        Raises
        ------
        InputError
            If the file is damaged, or if no gradient was stored.

        """
        if rows < 1:
            raise InputError(f"rows must be at least 1, got {rows}.")
        if skip < 0:
            raise InputError(f"skip must be at least 0, got {skip}.")
        self._seen = skip
        for block in self._read(rows, skip):
            if self._seen == 0:
                self._require_scores_in(block)
            if self.negated:
                np.negative(block.scores, out=block.scores)
            for piece in _split_by_chain(block):
                self._seen += len(piece.ids)
                yield piece

    def _require_scores_in(self, block: Block) -> None:
        """Raise if all scores of the first block are NaN and the block is large enough to tell."""
        if len(block.scores) >= min(_MIN_DRAWS, self.length or _MIN_DRAWS) and np.isnan(block.scores).all():
            raise scores_all_nan(self.path, self.scores_from or "every score")

    def fraction(self) -> float | None:
        """Return the part of the stream that the current iteration has delivered, 0 to 1; None if it is unknown."""
        return None if self.length is None else min(self._seen / self.length, 1.0)

    def variables(self, ids: Integers) -> dict[str, Variable]:
        """Read further quantities of some draws, such as the constrained parameters of the user's model.

        Parameters
        ----------
        ids : array
            Identifiers (chain, index) of the draws, (n, 2).

        Returns
        -------
        dict
            Variable by name; empty if the file has none.

        """
        return {}

    def notes(self) -> list[tuple[str, str]]:
        """Return further information about the file, as pairs of a label and a line of text."""
        return []

    @abstractmethod
    def _read(self, rows: int, skip: int) -> Iterator[Block]:
        """Yield blocks of at most ``rows`` draws in new, writable arrays; a block may contain several chains."""


def default_names(dim: int) -> tuple[str, ...]:
    """Return the names x0, x1, ..."""
    return tuple(f"x{i}" for i in range(dim))


def empty_chain(path: Path) -> InputError:
    """Return the error for a file without draws."""
    return InputError(f"{path}: the chain is empty.", "Check that the sampler wrote its draws to this file.")


def scores_all_nan(path: Path, where: str) -> InputError:
    """Return the error for an array of scores that was never filled."""
    return InputError(
        f"{path}: {where} is NaN throughout: no gradient was stored.",
        "Sample again and store the gradient: nutpie.sample(..., store_gradient=True), or in PyMC with nutpie "
        "nuts={'store_gradient': True}.",
    )


def _split_by_chain(block: Block) -> Iterator[Block]:
    chain = block.ids[:, 0]
    borders = (np.flatnonzero(chain[1:] != chain[:-1]) + 1).tolist()
    for start, stop in pairwise([0, *borders, len(chain)]):
        yield block.take(slice(start, stop))
