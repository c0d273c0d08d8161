"""Columns of a table of draws: which are draws, scores, ids and variables.

Column ``score_NAME`` is the score of column ``NAME``; ``chain`` and ``draw`` are the id; other columns, such as a log
density, are ignored. Alternatively the user lists the columns by name, separated by commas.

A table of kept draws has the columns chain, draw, NAME..., score_NAME..., then ``weight`` and ``order`` if the kept set
has them, then the variables of the user's model. A variable that is an array has one column per element, named as in
CmdStan: ``w.1``, ``w.2``. A name that is already used in the table (by a parameter, ``weight``, ``score_mu``) gets the
prefix ``variable_``. A table holds real numbers only: other variables, and the names of dimensions, are left out.
"""

from __future__ import annotations

import csv
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from steinstream._formatting import listing, nearest
from steinstream._typing import AnyArray, Array, Integers
from steinstream.errors import InputError
from steinstream.io.base import ALL_PARAMETERS, DRAWS, NAMES_HINT, NO_SCORES_HINT, SCORES, default_names
from steinstream.result import Kept, Variable

CHAIN, DRAW, PREFIX = "chain", "draw", "score_"
WEIGHT, ORDER = "weight", "order"
VARIABLE_PREFIX = "variable_"

_LIST_THEM = f"List the columns with {NAMES_HINT}, separated by commas."
_ELEMENT = re.compile(r"(.*?)((?:\.\d+)+)")


class TableColumns(NamedTuple):
    """Parameter names, and positions of the columns that are read."""

    names: list[str]
    draws: list[int]
    scores: list[int]
    chain: int | None = None
    draw: int | None = None
    variables: Sequence[int] = ()  # of kept draws

    @property
    def ids(self) -> list[int]:
        """Positions of the id columns that exist."""
        return [column for column in (self.chain, self.draw) if column is not None]

    @property
    def can_skip(self) -> bool:
        """Whether the id of a draw is known without counting the draws before it."""
        return self.chain is None or self.draw is not None


# -- finding the columns -----------------------------------------------------------------------------------------------


def find_columns(header: Sequence[str], draws_name: str, scores_name: str, path: Path) -> TableColumns:
    """Find draws and scores in a table that contains both."""
    own = _columns_of_kept(header)
    if (draws_name, scores_name) == (DRAWS, SCORES) and own:
        return own  # its parameters may have any name, even "chain"
    known = [name.strip() for name in header]
    if draws_name == ALL_PARAMETERS:
        return _all_parameters(known, path)
    scores_listed = is_listed(known, scores_name, SCORES)
    if is_listed(known, draws_name, DRAWS):
        names = split_names(draws_name)
    elif scores_listed:
        raise InputError(f"{path} has no column {draws_name}; it has {listing(known)}.", _LIST_THEM)
    else:
        names = _names_with_scores(known, path)
    score_names = split_names(scores_name) if scores_listed else [PREFIX + name for name in names]
    if len(names) != len(score_names):
        raise InputError(
            f"{path}: {len(names)} columns of draws ({listing(names)}) but {len(score_names)} of scores "
            f"({listing(score_names)}).",
            "List the same number of columns for draws and scores, in the same order.",
        )
    draws, scores = find_positions(known, names, path), find_positions(known, score_names, path)
    return TableColumns(names, draws, scores, *find_ids(known, {*draws, *scores}))


def _columns_of_kept(header: Sequence[str]) -> TableColumns | None:
    """Find the columns of a table of kept draws; None if the header is not that of such a table.

    No variable begins with ``score_``, so the largest number of parameters that matches is the right one, even if a
    parameter is called ``score_a``.
    """
    for dim in range((len(header) - 2) // 2, 0, -1):
        end, names = 2 + 2 * dim, list(header[2 : 2 + dim])
        if header[2 + dim] == PREFIX + names[0] and kept_header(names) == list(header[:end]):
            if any(title.startswith(PREFIX) for title in header[end:]):
                return None
            variables = [at for at in range(end, len(header)) if header[at] not in (WEIGHT, ORDER)]
            return TableColumns(names, [*range(2, 2 + dim)], [*range(2 + dim, end)], 0, 1, variables)
    return None


def _all_parameters(known: Sequence[str], path: Path) -> TableColumns:
    """Select every column except ids, scores, and the sampler's own columns in Stan, whose names end in ``__``."""
    ignored = {at for at, name in enumerate(known) if name.startswith(PREFIX) or name.endswith("__")}
    chosen = [at for at, name in enumerate(known) if name not in (CHAIN, DRAW) and at not in ignored]
    if not chosen:
        raise InputError(f"{path} has no column of draws among {listing(known)}.", _LIST_THEM)
    return TableColumns([known[at] for at in chosen], chosen, chosen, *find_ids(known, set(chosen)))


def _names_with_scores(known: Sequence[str], path: Path) -> list[str]:
    """Return the names NAME for which there is a column score_NAME."""
    present = set(known)
    names = [name for name in known if PREFIX + name in present]
    if not names:
        raise InputError(
            f"{path} has no scores: no pair of columns NAME and {PREFIX}NAME among {listing(known)}.",
            f"{_LIST_THEM} If the scores are in a separate file, pass it as scores (--scores FILE). {NO_SCORES_HINT}",
        )
    unmatched = [name for name in known if name.startswith(PREFIX) and name.removeprefix(PREFIX) not in present]
    if unmatched:
        missing = unmatched[0].removeprefix(PREFIX)
        raise InputError(
            f"{path}: column {unmatched[0]} is the score of a column {missing}, which does not exist.",
            nearest(missing, known) + _LIST_THEM,
        )
    return names


def is_listed(known: Sequence[str], name: str, default: str) -> bool:
    """Return whether ``name`` lists columns: it was given by the user, or a column has the default name."""
    return name != default or default in known


def split_names(text: str) -> list[str]:
    """Split a list of names at its commas; a name that contains a comma is quoted."""
    return next(csv.reader([text], skipinitialspace=True), [])


def find_positions(known: Sequence[str], names: Sequence[str], path: Path) -> list[int]:
    """Return the position of each of ``names`` in ``known``."""
    for name in names:
        if name not in known:
            raise InputError(
                f"{path} has no column {name or repr(name)}; it has {listing(known)}.",
                nearest(name, known) + _LIST_THEM,
            )
        if known.count(name) > 1:
            raise InputError(f"{path} has {known.count(name)} columns named {name}.", "Give each column its own name.")
    return [known.index(name) for name in names]


def find_ids(known: Sequence[str], taken: set[int]) -> tuple[int | None, int | None]:
    """Return the positions of ``chain`` and ``draw``, if they exist and are not parameters."""
    chain, draw = (known.index(name) if name in known else None for name in (CHAIN, DRAW))
    return (None if chain in taken else chain), (None if draw in taken else draw)


# -- ids of the rows ---------------------------------------------------------------------------------------------------


class RowIds:
    """Assigns ids to the rows of a table, from its id columns or by counting.

    ``start`` rows have been skipped. Without a chain column all of them belong to chain 0.
    """

    def __init__(self, path: Path, start: int) -> None:
        self._path = path
        self._row = start
        self._counts = Counter({0: start})

    def next(self, rows: int, chain: AnyArray | None, draw: AnyArray | None) -> Integers:
        """Return the (chain, draw) of the next ``rows`` rows, given the values of their id columns."""
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

    def next_of_table(self, columns: TableColumns, values: Array) -> Integers:
        """Return the ids of the next rows, given the values of ``columns.ids``, (rows, 0 to 2)."""
        parts = iter(values.T)
        chain = None if columns.chain is None else next(parts)
        draw = None if columns.draw is None else next(parts)
        return self.next(len(values), chain, draw)

    def _whole(self, values: AnyArray, name: str) -> AnyArray:
        if values.dtype.kind in "iu":
            return values
        numbers: Array = values.astype(np.float64)
        wrong = np.flatnonzero(~(np.isfinite(numbers) & (numbers == np.rint(numbers))))
        if wrong.size:
            row = self._row + int(wrong[0]) + 1
            raise InputError(
                f"{self._path}, row {row}, column {name}: {numbers[wrong[0]]:g} is not a whole number.",
                f"The column {name} identifies the draws. Rename it if it has another meaning.",
            )
        return numbers


def find_rows(wanted: Integers, blocks: Iterable[Integers]) -> Integers | None:
    """Return the row of each wanted id in a table whose ids are ``blocks``; None if one is missing."""
    at: dict[tuple[int, ...], int] = {}
    row = 0
    for ids in blocks:
        near = np.flatnonzero(np.isin(ids[:, 1], wanted[:, 1]))
        for pair, place in zip(ids[near].tolist(), near.tolist(), strict=True):
            at.setdefault(tuple(pair), row + place)
        row += len(ids)
    found = [at.get(tuple(pair)) for pair in wanted.tolist()]
    return None if None in found else np.array(found, dtype=np.int64)


# -- tables of kept draws ----------------------------------------------------------------------------------------------


def kept_header(names: Sequence[str]) -> list[str]:
    """Return the first columns of a table of kept draws: chain, draw, NAME..., score_NAME..."""
    return [CHAIN, DRAW, *names, *(PREFIX + name for name in names)]


def kept_columns(kept: Kept) -> tuple[list[str], list[AnyArray]]:
    """Return titles and values of all columns of a table of kept draws."""
    names = kept.names if kept.names is not None else default_names(kept.draws.shape[1])
    extra: dict[str, AnyArray] = {}
    if kept.weights is not None:
        extra[WEIGHT] = kept.weights
    if kept.order is not None:
        extra[ORDER] = kept.order
    extra |= _variable_columns(kept, names)
    return [*kept_header(names), *extra], [*kept.ids.T, *kept.draws.T, *kept.scores.T, *extra.values()]


def _variable_columns(kept: Kept, names: Sequence[str]) -> dict[str, AnyArray]:
    """Return the columns of the variables by title."""
    taken = {CHAIN, DRAW, WEIGHT, ORDER, *names}
    columns: dict[str, AnyArray] = {}
    for name, (values, _, _) in kept.variables.items():
        if values.dtype.kind not in "biuf":
            warnings.warn(
                f"The variable {name} has dtype {values.dtype}. A table holds numbers only, so it is left out; "
                "write npz to keep it.",
                stacklevel=2,
            )
            continue
        titles = [name + "".join(f".{at + 1}" for at in place) for place in np.ndindex(*values.shape[1:])]
        reserved = name.startswith((PREFIX, VARIABLE_PREFIX))
        if reserved or not taken.isdisjoint(titles) or not columns.keys().isdisjoint(titles):
            titles = [VARIABLE_PREFIX + title for title in titles]
        columns |= dict(zip(titles, values.reshape(len(values), len(titles)).T, strict=True))
    return columns


def variables_of_kept(titles: Sequence[str], table: Array) -> dict[str, Variable]:
    """Convert the variable columns of a table of kept draws back to variables."""
    return combine_elements([title.removeprefix(VARIABLE_PREFIX) for title in titles], table)


def combine_elements(titles: Sequence[str], table: Array) -> dict[str, Variable]:
    """Combine the columns ``a.1``, ``a.2``, ... to an array ``a``, unless some elements are missing."""
    groups: dict[str, dict[tuple[int, ...], int]] = {}
    for column, title in enumerate(titles):
        name, place = split_element(title)
        groups.setdefault(name, {})[place] = column
    found = {}
    for name, members in groups.items():
        shape = tuple(map(max, zip(*members, strict=False)))
        if sorted(members) == [tuple(at + 1 for at in place) for place in np.ndindex(*shape)]:
            columns = [members[place] for place in sorted(members)]
            dims = tuple(f"{name}_dim_{axis}" for axis in range(len(shape)))
            found[name] = Variable(table[:, columns].reshape(len(table), *shape), dims)
        else:
            found |= {titles[column]: Variable(table[:, column].copy()) for column in members.values()}
    return found


def split_element(title: str) -> tuple[str, tuple[int, ...]]:
    """Split the title of a column into the name of the variable and the index of the element, counted from 1."""
    match = _ELEMENT.fullmatch(title)
    if not match:
        return title, ()
    return match[1], tuple(int(place) for place in match[2].split(".")[1:])
