"""Columns of a table of draws: which are draws, scores, ids and variables.

Column ``score_NAME`` is the score of column ``NAME``. Without such columns, the draws have no scores, and every
column of numbers is a parameter unless its name has another meaning: ids, numbers of rows, log densities, weights,
columns of a sampler. Alternatively the user lists the columns by name, separated by commas.

Ids are the columns ``chain`` (R: ``.chain``) and ``draw`` (R: ``.iteration``, the index within a chain, or ``.draw``).
Those of R, whose names begin with a dot, count from 1.

A table of kept draws has the columns chain, draw, NAME..., score_NAME..., then ``weight`` and ``order`` if the kept set
has them, then the variables of the user's model. A variable that is an array has one column per element, named as in
CmdStan: ``w.1``, ``w.2``. A name that is already used in the table (by a parameter, ``weight``, ``score_mu``) gets the
prefix ``variable_``. Without scores, all variables get this prefix, and a parameter whose name has another meaning gets
the prefix ``parameter_``. A table holds real numbers only: other variables, and the names of dimensions, are left out.

In the layout of R, for its package posterior, a table of kept draws has the columns ``.chain``, ``.iteration``,
``.draw``, ``.log_weight`` if there are weights, and then the variables, or the parameters if there are none. Elements
are called ``w[1]``. It has no scores, because posterior would take them for variables.
"""

from __future__ import annotations

import csv
import math
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from steinstream._formatting import listing, nearest
from steinstream._typing import AnyArray, Array, Integers
from steinstream.errors import InputError
from steinstream.io.base import (
    DRAWS,
    NAMES_HINT,
    NOT_CHOSEN,
    SCORES,
    Request,
    array_name,
    as_id_column,
    default_names,
    find_parameters,
)
from steinstream.result import Kept, Variable

CHAIN, DRAW, PREFIX = "chain", "draw", "score_"
WEIGHT, ORDER = "weight", "order"
VARIABLE_PREFIX, PARAMETER_PREFIX = "variable_", "parameter_"

#: Titles of the id columns, in order of preference. R's ``.draw`` counts over all chains.
CHAIN_TITLES = (".chain", CHAIN)
DRAW_TITLES = (".iteration", "iteration", ".draw", DRAW)

_ID, _ROW_NUMBER, _LOG_DENSITY, _OF_SAMPLER = "id", "row number", "log density", "column of the sampler"
_WEIGHT, _SCORE, _NOT_NUMBERS, _OWN = "weight, not used", "score", "not numbers", "order of a kept set"
_NO_SCORE = "has no score"
_UNNAMED = re.compile(r"|index|Unnamed: \d+(_level_\d+)?")
_WEIGHTS = re.compile(r"(importance|log)?weights?")
_LOG_DENSITIES = re.compile(
    r"lp|(minus|un)?(log|ln)(p|prob|probability|pdf|density|target|post|posterior|prior|lik|like|likelihood)|lprior"
)

_LIST_THEM = f"List the columns with {NAMES_HINT}, separated by commas."
_ELEMENT = re.compile(r"(.*?)((?:\.\d+)+)")


class TableColumns(NamedTuple):
    """Parameter names, and positions of the columns that are read."""

    names: list[str]
    draws: list[int]
    scores: list[int]  # empty if the draws have no scores
    chain: int | None = None
    draw: int | None = None
    variables: Sequence[int] = ()  # of kept draws
    left_out: Mapping[str, str] = {}  # title -> reason
    id_start: tuple[int, int] = (0, 0)  # numbers of the first chain and of its first draw

    @property
    def ids(self) -> list[int]:
        """Positions of the id columns that exist."""
        return [column for column in (self.chain, self.draw) if column is not None]

    @property
    def can_skip(self) -> bool:
        """Whether the id of a draw is known without counting the draws before it."""
        return self.chain is None or self.draw is not None


# -- finding the columns -----------------------------------------------------------------------------------------------


def not_a_parameter(title: str) -> str | None:
    """Return why a column with this title is not a parameter; None if it may be one.

    Returns
    -------
    str or None
        The reason; None if the column may be a parameter.

    Examples
    --------
    >>> not_a_parameter("lp__"), not_a_parameter(".chain"), not_a_parameter("log_lik[3]"), not_a_parameter("mu")
    ('log density', 'id', 'log density', None)
    """
    plain = re.sub(r"[^a-z0-9]", "", array_name(title).lower())
    if title in (*CHAIN_TITLES, *DRAW_TITLES):
        return _ID
    if _UNNAMED.fullmatch(title):
        return _ROW_NUMBER
    if title == "lp__" or _LOG_DENSITIES.fullmatch(plain):
        return _LOG_DENSITY
    if title.endswith("__"):
        return _OF_SAMPLER
    return _WEIGHT if _WEIGHTS.fullmatch(plain) else None


def find_columns(header: Sequence[str], request: Request, numeric: Sequence[bool] | None = None) -> TableColumns:
    """Find draws, scores and ids in a table; ``numeric`` says whether each column contains numbers (default: all do).

    Returns
    -------
    TableColumns
        The columns; without scores if the table has none.

    Raises
    ------
    InputError
        If a column that the user named is missing, or if only some of the parameters have scores.
    """
    named = (request.draws_name, request.scores_name) != (DRAWS, SCORES) or request.parameters is not None
    own = None if named else _columns_of_kept(header)
    if own:
        return own  # its parameters may have any name, even "chain"
    path, known = request.path, [name.strip() for name in header]
    draws_listed = is_listed(known, request.draws_name, DRAWS)
    if request.scores_name != SCORES or (SCORES in known and draws_listed):
        return _listed_pairs(known, request)
    if request.parameters is not None or draws_listed:
        return _listed_draws(known, request)
    pairs = _names_with_scores(known, path)
    if not pairs:
        return _all_parameters(header, numeric or [True] * len(known), path)
    draws, scores = (find_positions(known, titles, path) for titles in (pairs, [PREFIX + name for name in pairs]))
    return _with_ids(known, TableColumns(pairs, draws, scores))


def _listed_pairs(known: Sequence[str], request: Request) -> TableColumns:
    """Find the scores that the user listed, and their draws."""
    path, score_names = request.path, split_names(request.scores_name)
    scores = find_positions(known, score_names, path)
    if is_listed(known, request.draws_name, DRAWS):
        names = split_names(request.draws_name)
    elif all(name.startswith(PREFIX) for name in score_names):
        names = [name.removeprefix(PREFIX) for name in score_names]
    else:
        raise InputError(f"{path} has no column {request.draws_name}; it has {listing(known)}.", _LIST_THEM)
    if len(names) != len(score_names):
        raise InputError(
            f"{path}: {len(names)} columns of draws ({listing(names)}) but {len(score_names)} of scores "
            f"({listing(score_names)}).",
            "List the same number of columns for draws and scores, in the same order.",
        )
    draws = find_positions(known, names, path)
    if request.parameters is not None:
        chosen = find_parameters(names, request.parameters, path)
        names, draws = [names[at] for at in chosen], [draws[at] for at in chosen]
        scores = [scores[at] for at in chosen]
    return _with_ids(known, TableColumns(names, draws, scores))


def _listed_draws(known: Sequence[str], request: Request) -> TableColumns:
    """Find the draws that the user listed, with their scores if there are columns score_NAME."""
    path = request.path
    if is_listed(known, request.draws_name, DRAWS):
        draws = find_positions(known, split_names(request.draws_name), path)
    else:
        draws = [*range(len(known))]
    if request.parameters is not None:
        draws = [draws[place] for place in find_parameters([known[at] for at in draws], request.parameters, path)]
    names, positions = [known[at] for at in draws], {name: at for at, name in enumerate(known)}
    scores = [positions[PREFIX + name] for name in names if PREFIX + name in positions]
    if 0 < len(scores) < len(names):
        without = next(name for name in names if PREFIX + name not in positions)
        raise InputError(
            f"{path}: {known[scores[0]]} is the score of a column, but {without} has no column {PREFIX}{without}.",
            "Choose columns that all have scores, or none.",
        )
    return _with_ids(known, TableColumns(names, draws, scores))


def _columns_of_kept(header: Sequence[str]) -> TableColumns | None:
    """Find the columns of a table of kept draws with scores; None if the header is not that of such a table.

    No variable begins with ``score_``, so the last such column is the score of the last parameter, even if a parameter
    is called ``score_a``.
    """
    end = 1 + max((at for at, title in enumerate(header) if title.startswith(PREFIX)), default=0)
    dim = (end - 2) // 2
    names = list(header[2 : 2 + dim])
    if dim < 1 or kept_header(names) != list(header[:end]):
        return None
    variables = [at for at in range(end, len(header)) if header[at] not in (WEIGHT, ORDER)]
    return TableColumns(names, [*range(2, 2 + dim)], [*range(2 + dim, end)], 0, 1, variables)


def _all_parameters(header: Sequence[str], numeric: Sequence[bool], path: Path) -> TableColumns:
    """Select every column of numbers that may be a parameter, for a table without scores."""
    known = [name.strip() for name in header]
    own = known[:2] == [CHAIN, DRAW]  # as in a table of kept draws
    names, draws, variables = [], [], []
    left_out: dict[str, str] = {}
    for at, title in enumerate(known):
        if own and title.startswith(VARIABLE_PREFIX):
            variables.append(at)
            continue
        name = _parameter_of_title(header[at]) if own else title
        reason = _OWN if own and title == ORDER else not_a_parameter(title) if name == title else None
        if reason or not numeric[at]:
            left_out[title] = reason or _NOT_NUMBERS
            continue
        names.append(name)
        draws.append(at)
    chain, draw, id_start = find_ids(known, set(draws))
    if not draws and len(known) == 1 and ";" in known[0]:
        raise InputError(
            f"{path} has one column, {known[0]}: its fields are separated by semicolons.",
            "Write a csv file with commas between the fields and points in the numbers.",
        )
    if not draws:
        raise InputError(
            f"{path} has no column of draws among {listing(known)}.",
            "Name the columns with parameters (--parameters a,b,c).",
        )
    used = {known[at] for at in (chain, draw) if at is not None}
    left_out = {name: why for name, why in left_out.items() if name not in used}
    return TableColumns(
        names=names,
        draws=draws,
        scores=[],
        chain=chain,
        draw=draw,
        variables=variables,
        left_out=left_out,
        id_start=id_start,
    )


def _with_ids(known: Sequence[str], columns: TableColumns) -> TableColumns:
    """Add the id columns, and what is left out."""
    taken = {*columns.draws, *columns.scores}
    chain, draw, id_start = find_ids(known, taken)
    taken |= {at for at in (chain, draw) if at is not None}
    unmarked = _NO_SCORE if columns.scores else NOT_CHOSEN
    left_out = {
        name: not_a_parameter(name) or (_SCORE if name.startswith(PREFIX) else unmarked)
        for at, name in enumerate(known)
        if at not in taken
    }
    return columns._replace(chain=chain, draw=draw, left_out=left_out, id_start=id_start)


def _names_with_scores(known: Sequence[str], path: Path) -> list[str]:
    """Return the names NAME for which there is a column score_NAME; none if the table has no scores."""
    present = set(known)
    names = [name for name in known if PREFIX + name in present]
    unmatched = [name for name in known if name.startswith(PREFIX) and name.removeprefix(PREFIX) not in present]
    if unmatched:
        missing = unmatched[0].removeprefix(PREFIX)
        raise InputError(
            f"{path}: column {unmatched[0]} is the score of a column {missing}, which does not exist.",
            f"{nearest(missing, known)}{_LIST_THEM} If {unmatched[0]} is a parameter, choose the parameters with "
            "parameters (--parameters a,b,c).",
        )
    return names


def is_listed(known: Sequence[str], name: str, default: str) -> bool:
    """Return whether ``name`` lists columns: it was given by the user, or a column has the default name."""
    return name != default or default in known


def split_names(text: str) -> list[str]:
    """Split a list of names at its commas; a name that contains a comma is quoted."""
    return next(csv.reader([text], skipinitialspace=True), []) or [text]


def find_positions(known: Sequence[str], names: Sequence[str], path: Path) -> list[int]:
    """Return the position of each of ``names`` in ``known``."""
    counts = Counter(known)
    positions = {name: at for at, name in enumerate(known)}
    for name in names:
        if name not in counts:
            raise InputError(
                f"{path} has no column {name or repr(name)}; it has {listing(known)}.",
                nearest(name, known) + _LIST_THEM,
            )
        if counts[name] > 1:
            raise InputError(f"{path} has {counts[name]} columns named {name}.", "Give each column its own name.")
    return [positions[name] for name in names]


def find_ids(known: Sequence[str], taken: set[int]) -> tuple[int | None, int | None, tuple[int, int]]:
    """Return the positions of the columns of chain and index, if they exist and are not parameters, and their start."""
    positions = {name: at for at, name in reversed([*enumerate(known)]) if at not in taken}
    chain, draw = (
        next((positions[title] for title in titles if title in positions), None)
        for titles in (CHAIN_TITLES, DRAW_TITLES)
    )
    start_of_chain, start_of_draw = (int(at is not None and known[at].startswith(".")) for at in (chain, draw))
    return chain, draw, (start_of_chain, start_of_draw)


# -- ids of the rows ---------------------------------------------------------------------------------------------------


class RowIds:
    """Assigns ids to the rows of a table, from its id columns or by counting.

    ``start`` rows have been skipped. Without a chain column all of them belong to chain 0.
    """

    def __init__(self, path: Path, start: int) -> None:
        self._path = path
        self._row = start
        self._counts = Counter({0: start})

    def next(self, columns: TableColumns, rows: int, chain: AnyArray | None, draw: AnyArray | None) -> Integers:
        """Return the (chain, draw) of the next ``rows`` rows, given the values of their id columns."""
        ids = np.zeros((rows, 2), dtype=np.int64)
        if chain is not None:
            ids[:, 0] = as_id_column(chain, self._path, f"column {CHAIN}", self._row) - columns.id_start[0]
        if draw is not None:
            ids[:, 1] = as_id_column(draw, self._path, f"column {DRAW}", self._row) - columns.id_start[1]
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
        return self.next(columns, len(values), chain, draw)


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


def kept_header(names: Sequence[str], has_scores: bool = True) -> list[str]:
    """Return the first columns of a table of kept draws: chain, draw, NAME..., score_NAME..."""
    if has_scores:
        return [CHAIN, DRAW, *names, *(PREFIX + name for name in names)]
    return [CHAIN, DRAW, *map(_title_of_parameter, names)]


def _title_of_parameter(name: str) -> str:
    """Return the title of a parameter in a table without scores, where the title must not have another meaning."""
    return PARAMETER_PREFIX + name if _needs_prefix(name) else name


def _parameter_of_title(title: str) -> str:
    """Return the name of a parameter in a table without scores."""
    name = title.removeprefix(PARAMETER_PREFIX)
    return name if name != title and _needs_prefix(name) else title.strip()


def _needs_prefix(name: str) -> bool:
    if name.startswith((PREFIX, VARIABLE_PREFIX)) or name in (DRAWS, SCORES, ORDER) or name != name.strip():
        return True
    rest = name.removeprefix(PARAMETER_PREFIX)
    return not_a_parameter(name) is not None or (rest != name and _needs_prefix(rest))


def kept_columns(kept: Kept) -> tuple[list[str], list[AnyArray]]:
    """Return titles and values of all columns of a table of kept draws."""
    names = kept.names if kept.names is not None else default_names(kept.draws.shape[1])
    extra: dict[str, AnyArray] = {}
    if kept.weights is not None:
        extra[WEIGHT] = kept.weights
    if kept.order is not None:
        extra[ORDER] = kept.order
    extra |= _variable_columns(kept, names)
    scores = () if kept.scores is None else kept.scores.T
    titles = kept_header(names, kept.scores is not None)
    return [*titles, *extra], [*kept.ids.T, *kept.draws.T, *scores, *extra.values()]


def _variable_columns(kept: Kept, names: Sequence[str]) -> dict[str, AnyArray]:
    """Return the columns of the variables by title."""
    taken = {CHAIN, DRAW, WEIGHT, ORDER, *names}
    columns: dict[str, AnyArray] = {}
    for name, values in _numeric_variables(kept):
        if _is_parameter(name, values, kept.draws, names):
            continue
        titles = [name + "".join(f".{at + 1}" for at in place) for place in np.ndindex(*values.shape[1:])]
        reserved = name.startswith((PREFIX, VARIABLE_PREFIX)) or kept.scores is None
        if reserved or not taken.isdisjoint(titles) or not columns.keys().isdisjoint(titles):
            titles = [VARIABLE_PREFIX + title for title in titles]
        columns |= dict(zip(titles, values.reshape(len(values), len(titles)).T, strict=True))
    return columns


def _numeric_variables(kept: Kept) -> Iterator[tuple[str, AnyArray]]:
    """Iterate over the variables that are numbers, and warn of the others."""
    for name, (values, _, _) in kept.variables.items():
        if values.dtype.kind in "biuf":
            yield name, values
        else:
            warnings.warn(
                f"The variable {name} has dtype {values.dtype}. A table holds numbers only, so it is left out; "
                "write npz to keep it.",
                stacklevel=3,
            )


def kept_columns_of_r(kept: Kept) -> tuple[list[str], list[AnyArray]]:
    """Return titles and columns of a table of kept draws in the layout of R."""
    columns: dict[str, AnyArray] = dict(zip((".chain", ".iteration"), kept.ids.T + 1, strict=True))
    columns[".draw"] = np.arange(1, len(kept) + 1)
    if kept.weights is not None:
        with np.errstate(divide="ignore"):
            columns[".log_weight"] = np.log(kept.weights)
    for name, values in _numeric_variables(kept):
        places = [",".join(str(at + 1) for at in place) for place in np.ndindex(*values.shape[1:])]
        titles = [f"{name}[{place}]" if place else name for place in places]
        columns |= dict(zip(titles, values.reshape(len(values), len(titles)).T, strict=True))
    if not kept.variables:
        names = kept.names if kept.names is not None else default_names(kept.draws.shape[1])
        columns |= dict(zip(_names_of_r(names), kept.draws.T, strict=True))
    return [*columns], [*columns.values()]


def _names_of_r(names: Sequence[str]) -> list[str]:
    """Return names with elements as in R: ``w[1]`` for ``w.1``, and for ``w[0]`` if the elements of w count from 0."""
    found = [re.fullmatch(r"(.*?)(?:\.(\d+(?:\.\d+)*)|\[(\d+(?:, ?\d+)*)\])", name) for name in names]
    parts = [
        (m[1], [int(at) for at in re.split(r"\D+", m[2] or m[3])]) if m else (name, [])
        for name, m in zip(names, found, strict=True)
    ]
    from_zero = {name for name, place in parts if 0 in place}
    titles = [
        f"{name}[{','.join(str(at + (name in from_zero)) for at in place)}]" if place else name for name, place in parts
    ]
    return titles if len(set(titles)) == len(names) else list(names)


def _is_parameter(name: str, values: AnyArray, draws: Array, names: Sequence[str]) -> bool:
    """Return whether a variable has a column already, because its elements are parameters with the same values."""
    places = [at for at, parameter in enumerate(names) if parameter == name or array_name(parameter) == name]
    flat = values.reshape(len(values), -1)
    return flat.shape[1] == len(places) > 0 and np.array_equal(flat, draws[:, places])


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
        if math.prod(shape) == len(members) and sorted(members) == [
            tuple(at + 1 for at in place) for place in np.ndindex(*shape)
        ]:
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
