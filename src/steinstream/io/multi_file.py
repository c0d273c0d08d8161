"""Several files as one chain after another: chains 0, 1, 2, ... of one run."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from steinstream.errors import InputError
from steinstream.io.base import Chain, Ints
from steinstream.io.errors import listing
from steinstream.io.registry import open_chain
from steinstream.result import Variable
from steinstream.validation import Block


class Several(Chain):
    """Files laid end to end. The chains of each are numbered on from those of the file before."""

    def __init__(self, parts: Sequence[Chain]) -> None:
        first = parts[0]
        for part in parts[1:]:
            if part.names != first.names:
                raise InputError(
                    f"{part.path} has the parameters {listing(part.names)}, {first.path} has {listing(first.names)}.",
                    "Give chains of one model together.",
                )
        lengths, counts = [part.length for part in parts], [part.chains for part in parts]
        super().__init__(
            first.path,
            first.dim,
            first.names,
            None if None in lengths else sum(length or 0 for length in lengths),
            None if None in counts else sum(count or 0 for count in counts),
        )
        self._parts = parts
        self._counts = counts
        self._current = 0

    @property
    def title(self) -> str:
        """All their names."""
        return " ".join(part.path.name for part in self._parts)

    def fraction(self) -> float | None:
        """Part of all files' bytes, as far as each tells."""
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
                # Where only a pass can tell how long a file is, what is skipped is read and counted.
                known = part.length is not None
                for block in part.blocks(rows, skip if known else 0):
                    left = 0 if known else min(skip, len(block.ids))
                    skip -= left
                    if left < len(block.ids):
                        yield Block(block.draws[left:], block.scores[left:], _renumbered(block.ids[left:], offset))
                skip = 0 if known else skip
            offset += self._count(at)

    def _count(self, at: int) -> int:
        """How many chains a file has; one that names a chain with each draw is read through once, to know."""
        count = self._counts[at]
        if count is None:
            count = self._counts[at] = 1 + max(int(block.ids[:, 0].max()) for block in self._parts[at].blocks())
        return count

    def variables(self, ids: Ints) -> dict[str, Variable]:
        """What every file knows of its own draws; nothing if one is of no file."""
        found: list[tuple[Ints, dict[str, Variable]]] = []
        offset = 0
        for at, part in enumerate(self._parts):
            rows = np.flatnonzero((ids[:, 0] >= offset) & (ids[:, 0] < offset + self._count(at)))
            if rows.size:
                found.append((rows, part.variables(_renumbered(ids[rows], -offset))))
            offset += self._count(at)
        return joined(found, len(ids))

    def notes(self) -> list[tuple[str, str]]:
        """What is known of each, once where it is the same."""
        return list(dict.fromkeys(note for part in self._parts for note in part.notes()))


def _renumbered(ids: Ints, offset: int) -> Ints:
    return np.add(ids, np.array([offset, 0], dtype=np.int64), dtype=np.int64)


def joined(found: Sequence[tuple[Ints, dict[str, Variable]]], count: int) -> dict[str, Variable]:
    """Variables of some of ``count`` rows each, put together; none if a row is missing."""
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
    **how: Any,
) -> Chain:
    """Open one file, or several as the chains of one run; a pattern (``out-*.csv``) stands for the files it matches.

    ``outputs`` are the files of the constrained draws, one for each; all else as in :func:`open_chain`.
    """
    files = [file for path in paths for file in matching(path)]
    if not files:
        raise InputError("There is no file to open.", "Name at least one.")
    if outputs and len(outputs) != len(files):
        raise InputError(
            f"{len(files)} chains, but {len(outputs)} output files.", "Name one for each chain, in the same order."
        )
    if how.get("scores") is not None and len(files) > 1:
        raise InputError("A file of scores goes with one chain.", "Thin the chains one by one, or join their files.")
    given: Sequence[str | os.PathLike[str] | None] = outputs or [None] * len(files)
    parts = [open_chain(file, output=output, **how) for file, output in zip(files, given, strict=True)]
    chain = parts[0] if len(parts) == 1 else Several(parts)
    chain.negated = negate
    return chain


def matching(path: str | os.PathLike[str]) -> list[Path]:
    """The file itself, or those that match it as a pattern; a-2 comes before a-10."""
    if Path(path).exists() or not glob.has_magic(str(path)):
        return [Path(path)]
    found = sorted(glob.glob(str(path)), key=_as_people_count)  # noqa: PTH207 a pattern may be absolute
    if not found:
        raise InputError(f"{path}: no file matches this.", "Check the path.")
    return [Path(name) for name in found]


def _as_people_count(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
