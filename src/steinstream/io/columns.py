"""Which columns of a table are draws, scores and ids.

The convention: column ``score_NAME`` is the score of column ``NAME``; ``chain`` and ``draw`` are the id;
any other column (a log density, say) is left alone. Or the columns are listed by name, separated by commas, as
in a line of csv.

A file of kept draws is known by its shape: chain, draw, NAME..., score_NAME..., then their ``weight`` and place
in the ``order`` of use, if they have them, then the variables of the user's model (:mod:`steinstream.io.extra_columns`).
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steinstream.errors import InputError
from steinstream.io.base import DRAWS, EVERY, SCORES, WITHOUT, Floats, Ints
from steinstream.io.errors import listing, nearest
from steinstream.result import Kept

CHAIN, DRAW, PREFIX = "chain", "draw", "score_"
WEIGHT, ORDER = "weight", "order"
_NAME_THEM = "Name the columns with --draws-name and --scores-name, separated by commas."


class Columns(NamedTuple):
    """Positions of the columns that matter."""

    names: list[str]
    draws: list[int]
    scores: list[int]
    chain: int | None
    draw: int | None
    further: Sequence[int] = ()
    """Those of the variables that kept draws carry."""

    @property
    def ids(self) -> list[int]:
        """The id columns there are."""
        return [column for column in (self.chain, self.draw) if column is not None]

    @property
    def jumps(self) -> bool:
        """Whether a draw's id is known without having counted the draws before it."""
        return self.chain is None or self.draw is not None


def header_of(names: Sequence[str], extra: Sequence[str] = ()) -> list[str]:
    """The columns of a file of kept draws: chain, draw, NAME..., score_NAME..., and what else there is."""
    return [CHAIN, DRAW, *names, *(PREFIX + name for name in names), *extra]


def extra_columns(kept: Kept) -> dict[str, npt.NDArray[np.generic]]:
    """Weights and order, if the kept draws have them."""
    columns = {WEIGHT: kept.weights, ORDER: kept.order}
    return {name: column for name, column in columns.items() if column is not None}


def _own(header: Sequence[str]) -> Columns | None:
    """The columns of a file that is ours by its shape.

    No variable's title begins as a score's, so that of all numbers of parameters that fit the greatest is right, even
    where a parameter is called ``score_a``.
    """
    for dim in range((len(header) - 2) // 2, 0, -1):
        end, names = 2 + 2 * dim, list(header[2 : 2 + dim])
        if header[2 + dim] == PREFIX + names[0] and header_of(names) == list(header[:end]):
            if any(title.startswith(PREFIX) for title in header[end:]):
                return None
            further = [at for at in range(end, len(header)) if header[at] not in (WEIGHT, ORDER)]
            return Columns(names, [*range(2, 2 + dim)], [*range(2 + dim, end)], 0, 1, further)
    return None


def paired(header: Sequence[str], draws_name: str, scores_name: str, path: Path) -> Columns:
    """Find draws and scores in one table."""
    own = _own(header)
    if (draws_name, scores_name) == (DRAWS, SCORES) and own:
        return own  # where a parameter may bear any name, even "chain"
    known = [name.strip() for name in header]
    if draws_name == EVERY:
        return _parameters(known, path)
    if is_listed(known, draws_name, DRAWS):
        names = split_names(draws_name)
    elif is_listed(known, scores_name, SCORES):
        raise InputError(f"{path} has no column {draws_name}; it has {listing(known)}.", _NAME_THEM)
    else:
        names = _scored(known, path)
    listed = is_listed(known, scores_name, SCORES)
    score_names = split_names(scores_name) if listed else [PREFIX + name for name in names]
    if len(names) != len(score_names):
        raise InputError(
            f"{path}: {len(names)} columns of draws ({listing(names)}) but {len(score_names)} of scores "
            f"({listing(score_names)}).",
            "List as many columns with --scores-name as with --draws-name, in the same order.",
        )
    draws, scores = positions(known, names, path), positions(known, score_names, path)
    return Columns(names, draws, scores, *id_columns(known, {*draws, *scores}))


def _parameters(known: Sequence[str], path: Path) -> Columns:
    """All but the id, the scores, and what Stan notes about a draw, whose names end in two underscores."""
    chosen = [
        at for at, name in enumerate(known)
        if name not in (CHAIN, DRAW) and not name.startswith(PREFIX) and not name.endswith("__")
    ]  # fmt: skip
    if not chosen:
        raise InputError(f"{path} has no column of draws among {listing(known)}.", _NAME_THEM)
    return Columns([known[at] for at in chosen], chosen, chosen, *id_columns(known, set(chosen)))


def is_listed(known: Sequence[str], name: str, default: str) -> bool:
    """Whether ``name`` is a list of columns: the user's, or the default where a column bears that name."""
    return name != default or default in known


def split_names(text: str) -> list[str]:
    """Split a list of names at its commas; a name that has one is quoted.

    >>> split_names('mu, "beta[1,2]"')
    ['mu', 'beta[1,2]']
    """
    return next(csv.reader([text], skipinitialspace=True), [])


def positions(known: Sequence[str], names: Sequence[str], path: Path) -> list[int]:
    """Where each of ``names`` stands among ``known``."""
    for name in names:
        if name not in known:
            raise InputError(
                f"{path} has no column {name or repr(name)}; it has {listing(known)}.",
                nearest(name, known) + _NAME_THEM,
            )
        if known.count(name) > 1:
            raise InputError(f"{path} has {known.count(name)} columns named {name}.", "Give each its own name.")
    return [known.index(name) for name in names]


def id_columns(known: Sequence[str], taken: set[int]) -> tuple[int | None, int | None]:
    """Where ``chain`` and ``draw`` stand, if they are there and are not parameters."""
    chain, draw = (known.index(name) if name in known else None for name in (CHAIN, DRAW))
    return (None if chain in taken else chain), (None if draw in taken else draw)


def _scored(known: Sequence[str], path: Path) -> list[str]:
    present = set(known)
    names = [name for name in known if PREFIX + name in present]
    if not names:
        raise InputError(
            f"{path} has no scores: no column {PREFIX}NAME beside a column NAME among {listing(known)}.",
            f"{_NAME_THEM} If the scores are in a file of their own, pass it with --scores FILE. {WITHOUT}",
        )
    orphans = [name for name in known if name.startswith(PREFIX) and name.removeprefix(PREFIX) not in present]
    if orphans:
        missing = orphans[0].removeprefix(PREFIX)
        raise InputError(
            f"{path}: column {orphans[0]} should be the score of a column {missing}, which is not there.",
            nearest(missing, known) + _NAME_THEM,
        )
    return names


class Numbering:
    """Gives the rows of a table their ids: from its id columns, or by counting where it has none."""

    def __init__(self, path: Path, start: int) -> None:
        self._path = path
        self._row = start
        # Without a chain column all rows are chain 0, of which ``start`` have been jumped over.
        self._counts = Counter({0: start})

    def ids(self, rows: int, chain: npt.NDArray[np.generic] | None, draw: npt.NDArray[np.generic] | None) -> Ints:
        """The (chain, draw) of the next ``rows`` rows."""
        ids = np.zeros((rows, 2), dtype=np.int64)
        if chain is not None:
            ids[:, 0] = self._whole(chain, CHAIN)
        if draw is not None:
            ids[:, 1] = self._whole(draw, DRAW)
        else:
            for number in np.unique(ids[:, 0]).tolist():
                here = ids[:, 0] == number
                count = int(np.count_nonzero(here))
                ids[here, 1] = np.arange(self._counts[number], self._counts[number] + count)
                self._counts[number] += count
        self._row += rows
        return ids

    def _whole(self, values: npt.NDArray[np.generic], name: str) -> npt.NDArray[np.generic]:
        if values.dtype.kind in "iu":
            return values
        numbers: Floats = values.astype(np.float64)
        wrong = np.flatnonzero(~(np.isfinite(numbers) & (numbers == np.rint(numbers))))
        if wrong.size:
            row = self._row + int(wrong[0]) + 1
            raise InputError(
                f"{self._path}, row {row}, column {name}: {numbers[wrong[0]]:g} is not a whole number.",
                f"The column {name} numbers the draws; rename it if it means something else.",
            )
        return numbers
