"""Several files as the chains 0, 1, 2, ... of one run."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from steinstream._typing import Flags, Integers
from steinstream.errors import InputError
from steinstream.io.base import Chain, interleave_streams, require_one_model, transposed_file
from steinstream.io.discard_burn_in import without_burn_in
from steinstream.io.registry import open_chain
from steinstream.result import MODEL_GROUPS, Variable
from steinstream.validation import Block


class MultiFileChain(Chain):
    """Files one after another. The chains of each file are numbered on from those of the file before."""

    def __init__(self, parts: Sequence[Chain]) -> None:
        first = parts[0]
        require_one_model((part.path, part.names, part.has_scores) for part in parts)
        lengths, counts = [part.length for part in parts], [part.chains for part in parts]
        super().__init__(
            first.path,
            first.dim,
            first.names,
            None if None in lengths else sum(length or 0 for length in lengths),
            None if None in counts else sum(count or 0 for count in counts),
            has_scores=first.has_scores,
            ids=first.taken.ids,
            left_out=first.taken.left_out,
        )
        self.draws_from, self.scores_from, self.scores_hint = first.draws_from, first.scores_from, first.scores_hint
        self._parts = parts
        self._counts = counts
        self._current = 0

    @property
    def title(self) -> str:
        return " ".join(part.path.name for part in self._parts)

    def fraction(self) -> float | None:
        sizes = [max(part.path.stat().st_size, 1) for part in self._parts]
        here = self._parts[self._current].fraction() or 0.0
        return (sum(sizes[: self._current]) + here * sizes[self._current]) / sum(sizes)

    def _read(self, rows: int, skip: int) -> Iterator[Block]:
        offset = 0
        for at, part in enumerate(self._parts):
            self._current = at
            if part.length is not None and skip >= part.length:
                skip -= part.length
            else:
                # If the length of a file is unknown, skipped rows have to be read and counted.
                known = part.length is not None
                for block in part.blocks(rows, skip if known else 0):
                    skipped = 0 if known else min(skip, len(block.ids))
                    skip -= skipped
                    if skipped < len(block.ids):
                        rest = block.take(slice(skipped, None))
                        yield rest._replace(ids=_shift_chains(rest.ids, offset))
                skip = 0 if known else skip
            offset += self._count(at)

    def axes_error(self, size: int | None = None) -> InputError | None:
        """Return the error of the first file of several chains that has one, or that of all files of one chain."""
        if self.length is not None and all(part.has_unnamed_axes and part.chains == 1 for part in self._parts):
            return transposed_file(self.path, self.length, self.dim, size)
        several = (part.axes_error(size) for part in self._parts if part.chains != 1)
        return next(filter(None, several), None)

    @property
    def is_separable(self) -> bool:
        return True

    def _read_in_turns(self, rows: int, skip: int) -> Iterator[Block]:
        chains = [partial(self._read_part, at) for at in range(len(self._parts))]
        return interleave_streams(self.path, chains, [part.count() for part in self._parts], rows, skip)

    def _read_part(self, at: int, rows: int, skip: int) -> Iterator[Block]:
        """Read one file, with the numbers of its chains in the whole run."""
        offset = sum(self._count(before) for before in range(at))
        for block in self._parts[at].blocks(rows, skip, interleaved=True):
            self._current = at
            yield block._replace(ids=_shift_chains(block.ids, offset))

    def _count(self, at: int) -> int:
        """Return the number of chains in a file; a file with a chain column is read once to count them."""
        count = self._counts[at]
        if count is None:
            count = self._counts[at] = 1 + max(int(block.ids[:, 0].max()) for block in self._parts[at].blocks())
        return count

    def variables(self, ids: Integers) -> dict[str, Variable]:
        """Read the variables that all files have; none if a draw is in no file."""
        return join_variables([(rows, part.variables(own)) for part, rows, own in self._by_part(ids)], len(ids))

    def groups(self, ids: Integers) -> dict[str, dict[str, Variable]]:
        """Read the groups that all files have; those of the model from the first file."""
        found = [(rows, part.groups(own)) for part, rows, own in self._by_part(ids)]
        return {
            name: group
            if name in MODEL_GROUPS
            else join_variables([(rows, groups[name]) for rows, groups in found], len(ids))
            for name, group in (found[0][1] if found else {}).items()
            if all(name in groups for _, groups in found)
        }

    def diverging(self) -> Iterator[tuple[Integers, Flags]] | None:
        found = [part.diverging() for part in self._parts]
        known = [part for part in found if part is not None]
        if len(known) < len(found):
            return None
        offsets = accumulate((self._count(at) for at in range(len(known) - 1)), initial=0)
        return (
            (_shift_chains(ids, offset), flags)
            for offset, part in zip(offsets, known, strict=True)
            for ids, flags in part
        )

    def _by_part(self, ids: Integers) -> Iterator[tuple[Chain, Integers, Integers]]:
        """Iterate over the files that contain some of the draws: the file, rows of ``ids``, and ids in this file."""
        offset = 0
        for at, part in enumerate(self._parts):
            rows = np.flatnonzero((ids[:, 0] >= offset) & (ids[:, 0] < offset + self._count(at)))
            if rows.size:
                yield part, rows, _shift_chains(ids[rows], -offset)
            offset += self._count(at)

    def notes(self) -> list[tuple[str, str]]:
        """Return the notes of all files without repetitions."""
        return list(dict.fromkeys(note for part in self._parts for note in part.notes()))


def _shift_chains(ids: Integers, offset: int) -> Integers:
    return np.add(ids, np.array([offset, 0], dtype=np.int64), dtype=np.int64)


def join_variables(found: Sequence[tuple[Integers, dict[str, Variable]]], count: int) -> dict[str, Variable]:
    """Join variables of disjoint sets of rows; none if one of the ``count`` rows is missing."""
    if not found or sum(len(rows) for rows, _ in found) < count:
        return {}
    order = np.argsort(np.concatenate([rows for rows, _ in found]))
    shared = [name for name in found[0][1] if all(name in more for _, more in found)]
    return {
        name: found[0][1][name]._replace(values=np.concatenate([more[name].values for _, more in found])[order])
        for name in shared
    }


def open_chains(
    paths: Sequence[str | os.PathLike[str]],
    *,
    outputs: Sequence[str | os.PathLike[str]] = (),
    negate: bool = False,
    burn_in: int | float = 0,
    **options: Any,
) -> Chain:
    """Open one file, or several files as the chains of one run.

    Parameters
    ----------
    paths : sequence of path
        Files, or patterns such as ``out-*.csv``.
    outputs : sequence of path, optional
        CmdStan's files of the constrained draws, one for each file.
    negate : bool, default False
        Change the sign of the scores.
    burn_in : int or float, default 0
        Number of draws to leave out at the start of each chain, or share of its draws.
    **options
        Options of `open_chain`.

    Returns
    -------
    Chain
        The chain.

    Raises
    ------
    InputError
        If no file is given, if the files have different parameters, or if one of them cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for i in range(3):
    ...         np.savez(Path(folder) / f"chain-{i}.npz", draws=np.zeros((5, 2)), scores=np.zeros((5, 2)))
    ...     chain = open_chains([Path(folder) / "chain-*.npz"])
    >>> chain.chains, chain.length, chain.dim
    (3, 15, 2)
    """
    files = [file for path in paths for file in matching_files(path)]
    if not files:
        raise InputError("No file was given.", "Name at least one file.")
    if outputs and len(outputs) != len(files):
        raise InputError(
            f"{len(files)} chains, but {len(outputs)} output files.",
            "Name one output file for each chain, in the same order.",
        )
    if options.get("scores") is not None and len(files) > 1:
        raise InputError(
            f"A file of scores goes with one chain, but {len(files)} chains were given.",
            "Thin the chains one by one, or join their files.",
        )
    given: Sequence[str | os.PathLike[str] | None] = outputs or [None] * len(files)
    parts = [open_chain(file, output=output, **options) for file, output in zip(files, given, strict=True)]
    chain = parts[0] if len(parts) == 1 else MultiFileChain(parts)
    chain.negated = negate
    return without_burn_in(chain, burn_in) if burn_in else chain


def matching_files(path: str | os.PathLike[str]) -> list[Path]:
    """Return the file itself, or the files that match a pattern in natural order: a-2 before a-10."""
    if Path(path).exists() or not glob.has_magic(str(path)):
        return [Path(path)]
    found = sorted(glob.glob(str(path)), key=_natural_key)  # noqa: PTH207 a pattern may be absolute
    if not found:
        raise InputError(f"{path}: no file matches this pattern.", "Check the path.")
    return [Path(name) for name in found]


def _natural_key(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
