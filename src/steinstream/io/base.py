"""Abstract base class of chain readers: iterate over a file of draws in blocks, in order, with bounded memory.

A format implements ``_read``. Everything else (splitting blocks at chains, the sign of the scores, the choice of
parameters, progress) is here. Scores are optional: a file without scores yields blocks whose scores have no columns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from steinstream._formatting import listing, nearest
from steinstream._typing import AnyArray, Array, Flags, Integers
from steinstream.errors import InputError
from steinstream.io.interleaving import turns
from steinstream.result import Variable
from steinstream.validation import Block, concatenate, swapped_chains_question, transposed_question

#: Default names of draws and scores in a file.
DRAWS, SCORES = "draws", "scores"

NAMES_HINT = "draws_name and scores_name (--draws-name, --scores-name)"
PARAMETERS_HINT = "Choose the parameters with parameters (--parameters a,b,c)."

#: Page of the documentation about draws without scores.
SCORES_GUIDE = 'see "Draws without scores" in the documentation'

_LARGEST_ID = 2**53
_MOST_IN_TURNS = 64  # chains of a file that are read in turns: with more, each read is too short
_AXES_CHAINS, _AXES_DRAWS, _AXES_VALUES = 64, 8192, 4_000_000  # of a file that are read to check the order of its axes
BLOCK_BYTES = 1 << 27  # of draws and scores in a block: limits the number of rows of a wide file
_MIN_DRAWS = 100  # consecutive draws without a finite score after which the scores are considered missing


class Request(NamedTuple):
    """Arguments of `open_chain`."""

    path: Path
    scores: Path | None = None  # a separate file
    draws_name: str = DRAWS
    scores_name: str = SCORES
    output: Path | None = None  # CmdStan's file of the constrained draws
    parameters: tuple[str, ...] | None = None  # names of the parameters to read; None for all

    @property
    def names_scores(self) -> bool:
        """Whether the user said where the scores are, so that a file without them is an error."""
        return self.scores is not None or self.scores_name != SCORES


class Taken(NamedTuple):
    """Names of what is read from a file, and why every other column or variable is not a parameter.

    Examples
    --------
    >>> for label, text in Taken(("mu", "tau"), (".chain",), {"lp__": "log density"}).lines():
    ...     print(f"{label:<12}{text}")
    parameters  2: mu, tau
    ids         .chain
    left out    lp__ (log density)
    """

    parameters: tuple[str, ...]
    ids: tuple[str, ...] = ()
    left_out: Mapping[str, str] = {}

    def lines(self) -> list[tuple[str, str]]:
        """Return a table to print, as pairs of a label and a line of text."""
        lines = [("parameters", f"{len(self.parameters)}: {listing(self.parameters)}")]
        lines += [("ids", ", ".join(self.ids))] if self.ids else []
        by_reason: dict[str, list[str]] = {}
        for name, reason in self.left_out.items():
            by_reason.setdefault(reason, []).append(name or repr(name))
        parts = [f"{listing(names, 4)} ({reason})" for reason, names in by_reason.items()]
        return lines + ([("left out", listing(parts))] if parts else [])


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
    has_scores : bool
        Whether the file contains scores. Without them, the scores of a block have shape (n, 0).
    draws_from : str
        Location of the draws in the file.
    scores_from : str
        Location of the scores in the file.
    scores_hint : str
        How to get scores for this kind of file, in one line.
    taken : Taken
        What is read: parameters, id columns, and what is left out.

    Raises
    ------
    InputError
        If the chain has no draws.
    """

    negated: bool = False
    draws_from: str = ""
    scores_from: str = ""
    scores_hint: str = SCORES_GUIDE
    has_unnamed_axes: bool = False
    """Whether only the order of the axes of an array distinguishes chains, draws and parameters."""

    def __init__(
        self,
        path: Path,
        dim: int,
        names: Sequence[str] | None,
        length: int | None,
        chains: int | None,
        *,
        has_scores: bool = True,
        ids: Sequence[str] = (),
        left_out: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        if length == 0:
            raise empty_chain(path)
        self.path = path
        self.names = tuple(map(printable, names)) if names is not None else default_names(dim)
        self.length = length
        self.chains = chains
        self.has_scores = has_scores
        self._id_columns, self._left_out = tuple(ids), dict(left_out)
        self._width = dim  # parameters in the file
        self._selected: list[int] | None = None  # positions of the parameters that are read
        self._seen = 0
        self._runs: list[list[int]] | None = None  # number and length of each chain, after the file was read

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return len(self.names)

    @property
    def title(self) -> str:
        """Name that identifies the chain in a checkpoint."""
        return self.path.name

    @property
    def taken(self) -> Taken:
        """Names of what is read from the file, and of what is left out."""
        return Taken(self.names, self._id_columns, self._left_out)

    def select(self, parameters: Sequence[str]) -> None:
        """Read only some of the parameters, in this order; the name of an array stands for all its elements.

        Parameters
        ----------
        parameters : sequence of str
            Names of parameters, or names of arrays, which stand for all their elements.

        Raises
        ------
        InputError
            If a name is unknown or appears twice.
        """
        places = find_parameters(self.names, parameters, self.path)
        for place, name in enumerate(self.names):
            if place not in places:
                self._left_out[name] = NOT_CHOSEN
        before = range(self._width) if self._selected is None else self._selected
        self._selected = [before[place] for place in places]
        self.names = tuple(self.names[place] for place in places)

    def blocks(self, rows: int = 8192, skip: int = 0, *, interleaved: bool = False) -> Iterator[Block]:
        """Iterate over the draws.

        Parameters
        ----------
        rows : int, default 8192
            Largest number of draws in a block. It is lower for draws with more than 1024 parameters, so that a block
            has at most 128 MB.
        skip : int, default 0
            Number of draws at the start that are left out.
        interleaved : bool, default False
            Read the chains in turns, each in proportion to its length: see `steinstream.io.interleaving.turns`.
            Otherwise, and if the chains of a file cannot be read separately, they are read one after another.

        Yields
        ------
        Block
            Consecutive draws, in arrays that the caller may change; of one chain, if they are not interleaved.

        Raises
        ------
        InputError
            If the file is damaged, or if all scores are NaN.
        """
        if rows < 1:
            raise InputError(f"rows must be at least 1, got {rows}.")
        if skip < 0:
            raise InputError(f"skip must be at least 0, got {skip}.")
        rows = min(rows, max(BLOCK_BYTES // (16 * self._width), 1))
        in_turns = interleaved and self.is_separable  # may read the file to count the draws
        self._seen = skip
        runs: list[list[int]] = []  # number and length of each chain
        for block in self._read_in_turns(rows, skip) if in_turns else self._read(rows, skip):
            self._check_shapes(block)
            if self._seen == 0 and self.has_scores:
                self._require_scores_in(block)
            if self._selected is not None:
                scores = _columns(block.scores, self._selected) if self.has_scores else block.scores
                block = block._replace(draws=_columns(block.draws, self._selected), scores=scores)
            if self.negated:
                np.negative(block.scores, out=block.scores)
            for piece in [block] if in_turns else _split_by_chain(block):
                self._seen += len(piece.ids)
                _add_to_runs(runs, int(piece.ids[0, 0]), len(piece.ids))
                yield piece
        if skip == 0 and not in_turns:
            self._runs = runs

    @property
    def is_separable(self) -> bool:
        """Whether there are several chains that can be read in turns."""
        lengths = self._chain_lengths()
        return lengths is not None and 1 < len(lengths) <= _MOST_IN_TURNS

    @cached_property
    def chain_length(self) -> int | None:
        """Number of draws in each chain, if the chains 0, 1, ... of equal length follow each other; otherwise None."""
        if self.chains is None or self.chains < 2 or self.length is None or self.length % self.chains:
            return None
        each = self.length // self.chains
        ends = [(number, number * each + offset) for number in range(self.chains) for offset in (0, each - 1)]
        return each if all(next(self._read(1, row)).ids[0, 0] == number for number, row in ends) else None

    def _chain_lengths(self) -> list[int] | None:
        """Return the number of draws in each chain; None if the chains do not follow each other.

        A file with a chain number per draw is read once for this, unless it was read to the end before.
        """
        if self.chains is not None:
            return None if self.chain_length is None else [self.chain_length] * self.chains
        runs = self._counted_runs()
        return [length for _, length in runs] if len({number for number, _ in runs}) == len(runs) else None

    def count(self) -> int:
        """Return the number of draws. If it is unknown, the file is read once, unless it was read to the end before.

        Returns
        -------
        int
            Number of draws in all chains.
        """
        return sum(length for _, length in self._counted_runs()) if self.length is None else self.length

    def _counted_runs(self) -> list[list[int]]:
        """Return the number and length of each chain, in the order of the file."""
        if self._runs is None:
            for _ in self.blocks():
                pass
        return self._runs or []

    def _read_in_turns(self, rows: int, skip: int) -> Iterator[Block]:
        """Yield blocks of at most ``rows`` draws of the chains in turns; called if they are separable."""
        lengths = self._chain_lengths() or []
        streams = [
            lambda rows, skip, start=start: self._read(rows, start + skip)
            for start in np.cumsum([0, *lengths[:-1]]).tolist()
        ]
        return interleave_streams(self.path, streams, lengths, rows, skip)

    def _check_shapes(self, block: Block) -> None:
        """Raise if the arrays of a block do not fit together: a damaged file may state other shapes than it has."""
        count, width = len(block.ids), self._width
        if block.draws.shape != (count, width) or block.scores.shape != (count, width if self.has_scores else 0):
            raise InputError(
                f"{self.path}: draws {block.draws.shape} and scores {block.scores.shape} do not fit {count} ids and "
                f"{width} parameters.",
                "The file is damaged. Copy or write it again.",
            )

    def _require_scores_in(self, block: Block) -> None:
        """Raise if all scores of the first block are NaN and the block is large enough to tell."""
        if len(block.scores) >= min(_MIN_DRAWS, self.length or _MIN_DRAWS) and np.isnan(block.scores).all():
            raise scores_all_nan(self.path, self.scores_from or "every score")

    def axes_error(self, size: int | None = None) -> InputError | None:
        """Return an error with a question if the axes of the arrays are probably in another order; None otherwise.

        If ``size``, the number of draws to keep, is less than the number of draws, their order is taken as intended.

        Returns
        -------
        InputError or None
            The error.
        """
        if not self.has_unnamed_axes or self.length is None or self.chains is None:
            return None
        if self.chains == 1:
            return transposed_file(self.path, self.length, self._width, size)
        each = self.length // self.chains
        chains = min(max(_AXES_CHAINS, _AXES_DRAWS // max(each, 1)), self.chains)
        if chains * each * self._width > _AXES_VALUES:
            return None
        first = next(self._read(chains * each, 0)).draws
        question = swapped_chains_question(first.reshape(chains, each, self._width), self.chains)
        if not question:
            return None
        return _other_order(
            self.path,
            question,
            "Then save np.swapaxes(draws, 0, 1), and the scores likewise. If the order is right, save the draws as "
            "(n, d), with an array ids of pairs (chain, draw).",
        )

    def require_plausible_axes(self, size: int | None = None) -> None:
        """Raise the error of `axes_error`, if there is one."""
        if error := self.axes_error(size):
            raise error

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

    def diverging(self) -> Iterator[tuple[Integers, Flags]] | None:
        """Read which draws ended a divergent transition.

        Returns
        -------
        iterator of tuple or None
            Ids (n, 2) and flags (n,) of all draws, in blocks; None if the file does not contain it.
        """
        return None

    def divergences(self) -> int | None:
        """Count the draws that ended a divergent transition.

        Returns
        -------
        int or None
            Their number; None if the file does not contain it.
        """
        found = self.diverging()
        return None if found is None else sum(int(np.count_nonzero(flags)) for _, flags in found)

    def log_density(self) -> Array | None:
        """Read the log density of all draws, in the shape of the draws without their last axis.

        Returns
        -------
        array or None
            The log densities; None if the file has none.
        """
        return None

    def groups(self, ids: Integers) -> dict[str, dict[str, Variable]]:
        """Read the other groups of an ArviZ file, such as ``log_likelihood``, for some draws.

        Parameters
        ----------
        ids : array
            Identifiers (chain, index) of the draws, (n, 2).

        Returns
        -------
        dict
            Variables by group, for ``Kept.groups``; empty if the file has none.
        """
        return {}

    def notes(self) -> list[tuple[str, str]]:
        """Return further information about the file, as pairs of a label and a line of text.

        Returns
        -------
        list of tuple
            What is left out, and how to get scores if there are none, then what is known about the format.
        """
        lines = [line for line in self.taken.lines() if line[0] != "parameters"]
        return lines if self.has_scores else [*lines, ("scores", f"none: {self.scores_hint}")]

    @abstractmethod
    def _read(self, rows: int, skip: int) -> Iterator[Block]:
        """Yield blocks of at most ``rows`` draws in new, writable arrays; a block may contain several chains."""


def transposed_file(path: Path, rows: int, columns: int, size: int | None) -> InputError | None:
    """Return the error for a file of draws (rows, columns) that has its draws along the columns; None if not."""
    question = transposed_question(rows, columns, size)
    if not question:
        return None
    return _other_order(
        path,
        question,
        "Then save draws.T, and the scores likewise. If the order is right, set size (--size) below the number of "
        "draws.",
    )


def _other_order(path: Path, question: str, remedy: str) -> InputError:
    return InputError(f"{path}: {question[0].lower()}{question[1:]}", remedy)


def require_one_model(files: Iterable[tuple[Path, Sequence[str], bool]]) -> None:
    """Raise an `InputError` if files, given as (path, parameter names, whether there are scores), are not of one model.

    Columns are matched by position, so all files must have the same names.
    """
    (first, names, has_scores), *others = files
    for path, other_names, also in others:
        if tuple(other_names) != tuple(names):
            raise InputError(
                f"{path} has the parameters {listing(other_names)}, {first} has {listing(names)}.",
                "Use chains of one model together.",
            )
        if also != has_scores:
            with_scores, without = (first, path) if has_scores else (path, first)
            raise InputError(
                f"{with_scores} has scores, but {without} has none.", "Use files that all have scores, or none."
            )


def default_names(dim: int) -> tuple[str, ...]:
    """Return the names x0, x1, ..."""
    return tuple(f"x{i}" for i in range(dim))


def empty_chain(path: Path) -> InputError:
    """Return the error for a file without draws."""
    return InputError(f"{path}: the chain is empty.", "Check that the sampler wrote its draws to this file.")


NOT_CHOSEN = "not chosen"


def find_parameters(known: Sequence[str], wanted: Sequence[str], path: Path) -> list[int]:
    """Return the positions of parameters by name; the name of an array stands for all its elements."""
    by_name: dict[str, list[int]] = {}
    for place, name in enumerate(known):
        by_name.setdefault(name, []).append(place)
    arrays: dict[str, list[int]] = {}
    for place, name in enumerate(known):
        arrays.setdefault(array_name(name), []).append(place)
    places: list[int] = []
    for name in wanted:
        found = by_name.get(name) or arrays.get(name)
        if found is None:
            raise InputError(
                f"{path} has no parameter {name or repr(name)}; it has {listing(known)}.",
                nearest(name, dict.fromkeys([*known, *arrays])) + PARAMETERS_HINT,
            )
        places += found
    if len(set(places)) < len(places) or not places:
        raise InputError(f"The parameters {listing(wanted)} are not different names.", "Name each parameter once.")
    return places


def array_name(name: str) -> str:
    """Return the name of the array that an element such as ``w[0,1]`` or ``w.1.2`` belongs to."""
    if name.endswith("]") and "[" in name:
        return name[: name.index("[")]
    head, *places = name.split(".")
    return head if places and all(place.isdigit() for place in places) else name


def scores_all_nan(path: Path, where: str) -> InputError:
    """Return the error for an array of scores that was never filled."""
    return InputError(
        f"{path}: {where} is NaN throughout: no gradient was stored.",
        "Leave out these scores to thin the draws without scores, or sample again and store the gradient; with nutpie: "
        "nutpie.sample(..., store_gradient=True).",
    )


def no_scores(count: int) -> Array:
    """Return the scores of draws that have none, (count, 0)."""
    return np.empty((count, 0))


def printable(name: str) -> str:
    """Return a name that can be encoded as UTF-8; other characters of damaged names are replaced."""
    return name.encode("utf-8", "replace").decode("utf-8")


def as_id_column(values: AnyArray, path: Path, name: str, row: int = 0) -> Integers:
    """Convert the chains or indices of draws to int64, without rounding; ``row`` is the number of rows before."""
    if values.dtype.kind == "i":
        return values.astype(np.int64, copy=False)
    numbers = values if values.dtype.kind == "u" else values.astype(np.float64)
    # Larger floats are not exact.
    valid = numbers <= (np.iinfo(np.int64).max if values.dtype.kind == "u" else _LARGEST_ID)
    if values.dtype.kind != "u":
        valid &= (numbers >= -_LARGEST_ID) & (numbers == np.rint(numbers))
    if not valid.all():
        place = np.argwhere(~valid)[0]
        raise InputError(
            f"{path}, row {row + int(place[0]) + 1}, {name}: {numbers[tuple(place)]:g} is not a whole number, or it is "
            f"larger than {_LARGEST_ID}.",
            f"{name} identifies the draws. Rename it if it has another meaning.",
        )
    return numbers.astype(np.int64)


def _columns(values: Array, chosen: Sequence[int]) -> Array:
    return np.ascontiguousarray(values[:, chosen])


#: Function of ``rows`` and ``skip`` that reads one chain, without its first draws, in blocks of at most ``rows``.
ReadChain = Callable[[int, int], Iterator[Block]]


def interleave_streams(
    path: Path, chains: Sequence[ReadChain], lengths: Sequence[int], rows: int, skip: int
) -> Iterator[Block]:
    """Read several chains in turns, each in proportion to its length.

    What follows the first ``lengths[i]`` draws of a chain is not used. ``skip`` draws at the start of the interleaved
    order are left out.

    Yields
    ------
    Block
        Draws of all chains, in the order of `steinstream.io.interleaving.turns`.

    Raises
    ------
    InputError
        If a chain has fewer draws.
    """
    held: list[_HeldDraws] = []
    for parts, order in turns(lengths, rows, skip):
        held = held or [
            _HeldDraws(path, read(max(rows * length // sum(lengths), 1), part.start))
            for read, length, part in zip(chains, lengths, parts, strict=True)
        ]
        pairs = zip(held, parts, strict=True)
        taken = [block for chain, part in pairs for block in chain.take(part.stop - part.start)]
        yield concatenate(taken).take(order)


class _HeldDraws:
    """Draws of one chain that were read and not taken yet."""

    def __init__(self, path: Path, blocks: Iterator[Block]) -> None:
        self._path, self._blocks = path, blocks
        self._next: Block | None = None

    def take(self, count: int) -> list[Block]:
        """Return the next ``count`` draws, in blocks."""
        taken = []
        while count:
            block = next(self._blocks, None) if self._next is None else self._next
            if block is None:
                raise InputError(
                    f"{self._path}: a chain has fewer draws than when they were counted.",
                    "The file was replaced. Read it again when it is complete.",
                )
            taken.append(block.take(slice(0, count)))
            self._next = block.take(slice(count, None)) if count < len(block.ids) else None
            count -= len(taken[-1].ids)
        return taken


def without_first(blocks: Iterator[Block], skip: int) -> Iterator[Block]:
    """Leave out the first ``skip`` draws."""
    for block in blocks:
        count = len(block.ids)
        if skip < count:
            yield block.take(slice(skip, None)) if skip else block
        skip = max(skip - count, 0)


def _add_to_runs(runs: list[list[int]], chain: int, count: int) -> None:
    """Add consecutive draws of a chain to a list of chain numbers and lengths."""
    if runs and runs[-1][0] == chain:
        runs[-1][1] += count
    else:
        runs.append([chain, count])


def _split_by_chain(block: Block) -> Iterator[Block]:
    chain = block.ids[:, 0]
    borders = (np.flatnonzero(chain[1:] != chain[:-1]) + 1).tolist()
    for start, stop in pairwise([0, *borders, len(chain)]):
        yield block.take(slice(start, stop))
