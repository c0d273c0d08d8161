"""csv and csv.gz: draws and scores in one file, told apart by column names, or in a pair of files.

Public chains are often such pairs, without headers; then the columns go together in the order they stand in.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import IO, cast

import numpy as np

from steinstream.errors import InputError
from steinstream.io.base import DRAWS, SCORES, Chain, Floats, Ints, Request, default_names
from steinstream.io.columns import (
    PREFIX,
    Columns,
    Numbering,
    extra_columns,
    header_of,
    id_columns,
    is_listed,
    paired,
    positions,
    split_names,
)
from steinstream.io.csv_numbers import number
from steinstream.io.csv_rows import Sheet, look, regroup
from steinstream.io.errors import listing
from steinstream.io.extra_columns import as_variables, rows_of, variable_columns
from steinstream.io.transposed import Transposed, look_at_lines, looks_transposed
from steinstream.result import Kept, Variable
from steinstream.validation import Block


class CsvChain(Chain):
    """Draws and scores in the columns of one sheet, or of two."""

    def __init__(self, draws: Sheet, scores: Sheet, columns: Columns) -> None:
        super().__init__(draws.path, len(columns.draws), columns.names, None, 1 if columns.chain is None else None)
        self._draws, self._scores, self._columns = draws, scores, columns
        self.draws_from, self.scores_from = (
            f"{sheet.path.name}, one line a parameter" if isinstance(sheet, Transposed) else _described(sheet, chosen)
            for sheet, chosen in ((draws, columns.draws), (scores, columns.scores))
        )

    def fraction(self) -> float | None:
        """Part of the bytes read so far."""
        return self._draws.fraction

    def _read(self, rows: int, skip: int) -> Iterator[Block]:
        columns = self._columns
        jump = skip if columns.jumps else 0
        numbering = Numbering(self.path, jump)
        skip -= jump
        for draws, scores in self._tables(rows, jump):
            numbers = iter(draws[:, self.dim :].T)
            chain = None if columns.chain is None else next(numbers)
            draw = None if columns.draw is None else next(numbers)
            ids = numbering.ids(len(draws), chain, draw)
            if skip < len(draws):
                own, score = np.ascontiguousarray(draws[skip:, : self.dim]), np.ascontiguousarray(scores[skip:])
                yield Block(own, score, ids[skip:])
            skip = max(skip - len(draws), 0)

    def variables(self, ids: Ints) -> dict[str, Variable]:
        """The further columns of a file of kept draws, as far as they are numbers; none if it lacks one of them."""
        columns, sheet = self._columns, self._draws
        rows = rows_of(ids, self._all_ids()) if columns.further else None
        if rows is None:
            return {}
        wanted, places = np.unique(rows, return_inverse=True)
        lines = sheet.fields(wanted.tolist())
        found = {at: [number(line[at]) for line in lines] for at in columns.further}
        good = [at for at, values in found.items() if None not in values]
        table = np.array([found[at] for at in good], dtype=np.float64).reshape(len(good), len(lines)).T
        return as_variables([sheet.column(at) for at in good], table[places.ravel()])

    def _all_ids(self) -> Iterator[Ints]:
        numbering = Numbering(self.path, 0)
        for table in self._draws.rows(self._columns.ids):
            yield numbering.ids(len(table), *table.T)

    def _tables(self, rows: int, jump: int) -> Iterator[tuple[Floats, Floats]]:
        """Draws with the id columns behind them, and the scores of the same rows."""
        columns = self._columns
        first = [*columns.draws, *columns.ids]
        if self._draws is self._scores:
            for table in regroup(self._draws.rows([*first, *columns.scores], jump), rows):
                yield table[:, : len(first)], table[:, len(first) :]
            return
        draws = regroup(self._draws.rows(first, jump), rows)
        scores = regroup(self._scores.rows(columns.scores, jump), rows)
        count = jump
        for here, there in zip_longest(draws, scores):
            if here is None or there is None or len(here) != len(there):
                raise self._uneven(count, here, there)
            count += len(here)
            yield here, there

    def _uneven(self, count: int, here: Floats | None, there: Floats | None) -> InputError:
        sizes = [(0 if part is None else len(part)) for part in (here, there)]
        paths = [self._draws.path, self._scores.path]
        if sizes[0] < sizes[1]:
            paths.reverse()
        return InputError(
            f"{paths[1]} ends after {count + min(sizes)} rows, but {paths[0]} goes on.",
            "Draws and scores go together row by row: check that both files are whole and of one run.",
        )


def _described(sheet: Sheet, chosen: Sequence[int]) -> str:
    titles = listing([sheet.column(index) for index in chosen], 3)
    return f"{sheet.path.name}, {'column' if len(chosen) == 1 else 'columns'} {titles}"


def open_csv(request: Request) -> CsvChain:
    """Open one csv file with both, or the pair."""
    sheet = _sheet(request.path, request.transposed if request.transposed is not None or request.scores else False)
    if request.scores is None:
        if sheet.header is None:
            raise InputError(
                f"{request.path} has no header to tell draws from scores.",
                "Pass the file of scores with --scores FILE, or give the columns names: NAME and score_NAME.",
            )
        columns = paired(sheet.header, request.draws_name, request.scores_name, request.path)
        return CsvChain(sheet, sheet, columns)
    if request.scores.suffix.lower() in (".npy", ".npz", ".parquet", ".nc", ".zarr"):
        raise InputError(f"the scores of a csv file must be csv too, not {request.scores}.", "Save both alike.")
    other = _sheet(request.scores, request.transposed)
    return CsvChain(sheet, other, _pair(sheet, other, request))


def _sheet(path: Path, transposed: bool | None) -> Sheet:
    return look_at_lines(path) if transposed or (transposed is None and looks_transposed(path)) else look(path)


def _pair(sheet: Sheet, other: Sheet, request: Request) -> Columns:
    draws = _side(sheet, request.draws_name, DRAWS)
    scores = _side(other, request.scores_name, SCORES)
    if len(draws) != len(scores):
        raise InputError(
            f"{other.path} has {len(scores)} columns of scores, but {sheet.path} has {len(draws)} of draws.",
            "Each parameter needs its score: check that both files are of the same run.",
        )
    if sheet.header is None:
        return Columns(list(default_names(len(draws))), draws, scores, None, None)
    names = [sheet.header[i].strip() for i in draws]
    if other.header is not None:
        scores = _in_order_of(names, [other.header[i].strip() for i in scores], scores)
    known = [name.strip() for name in sheet.header]
    return Columns(names, draws, scores, *id_columns(known, set(draws)))


def _side(sheet: Sheet, name: str, default: str) -> list[int]:
    """The columns one file of a pair contributes."""
    if sheet.header is None:
        if name != default:
            raise InputError(f"{sheet.path} has no header, so no column {name}.", "Give its columns names.")
        return list(range(sheet.width))
    known = [title.strip() for title in sheet.header]
    if is_listed(known, name, default):
        return positions(known, split_names(name), sheet.path)
    # A column without a name holds row numbers, as R and pandas write them.
    ids = id_columns(known, set())
    return [i for i, title in enumerate(known) if title and i not in ids]


def _in_order_of(names: Sequence[str], titles: Sequence[str], scores: list[int]) -> list[int]:
    """Match the columns of scores to those of draws by name where the names allow it, else by position."""
    bare = [title.removeprefix(PREFIX) for title in titles]
    for found in (list(titles), bare):
        if sorted(found) == sorted(names) and len(set(found)) == len(found):
            return [scores[found.index(name)] for name in names]
    return scores


def write_csv(kept: Kept, file: IO[bytes]) -> None:
    """One line a draw; 17 digits give every float64 back exactly."""
    dim = kept.draws.shape[1]
    names = kept.names if kept.names is not None else default_names(dim)
    extra = {**extra_columns(kept), **variable_columns(kept, names)}
    file.write((",".join(_quoted(title) for title in header_of(names, list(extra))) + "\n").encode())
    columns = [*kept.ids.T, *kept.draws.T, *kept.scores.T, *extra.values()]
    form = ",".join("%d" if column.dtype.kind in "biu" else "%.17g" for column in columns) + "\n"
    for row in zip(*(column.tolist() for column in columns), strict=True):
        file.write((form % row).encode())


def write_csv_gz(kept: Kept, file: IO[bytes]) -> None:
    """The same, gzipped; without a time in it, so that the same set gives the same bytes."""
    with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as text:
        write_csv(kept, cast(IO[bytes], text))


def _quoted(title: str) -> str:
    plain = title and not set(title) & set('",\r\n') and title == title.strip()
    return title if plain else '"' + title.replace('"', '""') + '"'
