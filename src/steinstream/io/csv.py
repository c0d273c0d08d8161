"""csv and csv.gz: draws and optional scores in one file, distinguished by column names, or in a pair of files.

Published chains are often pairs without headers. The columns of such a pair correspond by position.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import IO, cast

import numpy as np

from steinstream._formatting import listing
from steinstream._typing import AnyArray, Array, Integers
from steinstream.errors import InputError
from steinstream.io._columns import (
    PREFIX,
    RowIds,
    TableColumns,
    find_columns,
    find_ids,
    find_positions,
    find_rows,
    is_listed,
    kept_columns,
    kept_columns_of_r,
    not_a_parameter,
    split_names,
    variables_of_kept,
)
from steinstream.io._csv_rows import LONGEST_LINE, CsvFile, open_text, parse_number, regroup
from steinstream.io.base import DRAWS, SCORES, Chain, Request, default_names, find_parameters, no_scores
from steinstream.io.errors import reading
from steinstream.result import Kept, Variable
from steinstream.validation import Block

_WIDE = 100  # least number of columns of a file that looks transposed, which has 10 times as many columns as lines


class CsvChain(Chain):
    """Draws, and scores if there are any, in the columns of one csv file or of two."""

    def __init__(self, draws: CsvFile, scores: CsvFile, columns: TableColumns) -> None:
        super().__init__(
            draws.path,
            len(columns.draws),
            columns.names,
            None,
            1 if columns.chain is None else None,
            has_scores=bool(columns.scores),
            ids=[draws.titles[at].strip() for at in columns.ids],
            left_out=columns.left_out,
        )
        self._draws, self._scores, self._columns = draws, scores, columns
        self.draws_from = _describe(draws, columns.draws)
        self.scores_from = _describe(scores, columns.scores) if columns.scores else ""
        self.scores_hint = f"add columns score_NAME, or a file of scores (--scores FILE); {self.scores_hint}"

    def fraction(self) -> float | None:
        return self._draws.fraction

    def _read(self, rows: int, skip: int) -> Iterator[Block]:
        columns = self._columns
        unparsed = skip if columns.can_skip else 0
        row_ids = RowIds(self.path, unparsed)
        skip -= unparsed
        for draws, scores in self._tables(rows, unparsed):
            ids = row_ids.next_of_table(columns, draws[:, self.dim :])
            if skip < len(draws):
                own, score = np.ascontiguousarray(draws[skip:, : self.dim]), np.ascontiguousarray(scores[skip:])
                yield Block(own, score, ids[skip:])
            skip = max(skip - len(draws), 0)

    def variables(self, ids: Integers) -> dict[str, Variable]:
        """Read the variables of a file of kept draws, if they are numbers; none if a draw is missing."""
        columns, file = self._columns, self._draws
        rows = find_rows(ids, self._all_ids()) if columns.variables else None
        if rows is None:
            return {}
        wanted, places = np.unique(rows, return_inverse=True)
        lines = file.fields(wanted.tolist())
        found = {at: [parse_number(line[at]) for line in lines] for at in columns.variables}
        numeric = [at for at, values in found.items() if None not in values]
        table = np.array([found[at] for at in numeric], dtype=np.float64).reshape(len(numeric), len(lines)).T
        return variables_of_kept([file.titles[at] for at in numeric], table[places.ravel()])

    def _all_ids(self) -> Iterator[Integers]:
        row_ids = RowIds(self.path, 0)
        for table in self._draws.rows(self._columns.ids):
            yield row_ids.next_of_table(self._columns, table)

    def _tables(self, rows: int, skip: int) -> Iterator[tuple[Array, Array]]:
        """Iterate over tables of draws, followed by the id columns, and of their scores."""
        columns = self._columns
        first = [*columns.draws, *columns.ids]
        if not columns.scores:
            for table in regroup(self._draws.rows(first, skip), rows):
                yield table, no_scores(len(table))
            return
        if self._draws is self._scores:
            for table in regroup(self._draws.rows([*first, *columns.scores], skip), rows):
                yield table[:, : len(first)], table[:, len(first) :]
            return
        draws = regroup(self._draws.rows(first, skip), rows)
        scores = regroup(self._scores.rows(columns.scores, skip), rows)
        count = skip
        for here, there in zip_longest(draws, scores):
            if here is None or there is None or len(here) != len(there):
                raise self._unequal_length(count, here, there)
            count += len(here)
            yield here, there

    def _unequal_length(self, count: int, here: Array | None, there: Array | None) -> InputError:
        sizes = [(0 if part is None else len(part)) for part in (here, there)]
        paths = [self._draws.path, self._scores.path]
        if sizes[0] < sizes[1]:
            paths.reverse()
        return InputError(
            f"{paths[1]} ends after {count + min(sizes)} rows, but {paths[0]} is longer.",
            "Draws and scores correspond row by row. Check that both files are complete and from the same run.",
        )


def _describe(file: CsvFile, chosen: Sequence[int]) -> str:
    titles = listing([file.titles[index] for index in chosen], 3)
    return f"{file.path.name}, {'column' if len(chosen) == 1 else 'columns'} {titles}"


def open_csv(request: Request) -> CsvChain:
    """Open a csv file with draws, and scores if there are any, or a pair of files."""
    file = _open(request.path)
    if request.scores is None:
        if file.header is None:
            return CsvChain(file, file, _without_header(file, request))
        return CsvChain(file, file, find_columns(file.header, request, file.numeric()))
    if request.scores.suffix.lower() in (".npy", ".npz", ".parquet", ".nc", ".zarr"):
        raise InputError(
            f"The scores of a csv file must be in a csv file, got {request.scores}.", "Use the same format for both."
        )
    other = _open(request.scores)
    return CsvChain(file, other, _find_pair(file, other, request))


def _without_header(file: CsvFile, request: Request) -> TableColumns:
    """Take every column of a file without titles as a parameter."""
    if (request.draws_name, request.scores_name) != (DRAWS, SCORES):
        raise InputError(
            f"{file.path} has no header, so its columns have no names.",
            "Add a header: NAME,...,score_NAME,... Or pass the file of scores as scores (--scores FILE).",
        )
    names, columns = default_names(file.width), [*range(file.width)]
    if request.parameters is not None:
        columns = find_parameters(names, request.parameters, file.path)
    return TableColumns([names[at] for at in columns], columns, [])


def _open(path: Path) -> CsvFile:
    _reject_transposed(path)
    return CsvFile.open(path)


def _reject_transposed(path: Path) -> None:
    """Raise if a file without titles has many more columns than lines: its lines are parameters, not draws.

    At most 64 MB are read. The number of lines of a longer file is estimated.
    """
    columns, lines, start = 1, 0, b""
    with reading(path, "csv"), open_text(path) as (file, text):
        for chunk in islice(iter(lambda: text.read(1 << 20), b""), LONGEST_LINE >> 20):
            start = start or chunk[:4096]
            if lines == 0:
                first, newline, chunk = chunk.partition(b"\n")
                columns += first.count(b",")
                if not newline:
                    continue
                lines = 1
            lines += chunk.count(b"\n")
            if 10 * lines >= columns:
                return
        lines = round(lines * path.stat().st_size / max(file.tell(), 1))  # a device has size and position 0
    fields = start.partition(b"\n")[0].split(b",")[:-1]  # the last one may be incomplete
    values = [parse_number(field) for field in fields[1:]]
    if columns < _WIDE or 10 * lines >= columns or not values or None in values:
        return
    numbered = values == [cast(float, values[0]) + i for i in range(len(values))]  # a header of pandas
    named = not fields[0].strip() if numbered else parse_number(fields[0]) is None
    read = [f'"{path}"', *([] if numbered else ["header=None"]), *(["index_col=0"] if named else [])]
    write = ['"transposed.csv"', "index=False", *([] if named else ["header=False"])]
    raise InputError(
        f"{path} has {columns} columns and {max(lines, 1)} lines: it seems to have one line per parameter instead of "
        "one line per draw.",
        f"Transpose it with pandas: pd.read_csv({', '.join(read)}).T.to_csv({', '.join(write)}). "
        "If it has one line per draw, add a header with the names of the parameters.",
    )


def _find_pair(file: CsvFile, other: CsvFile, request: Request) -> TableColumns:
    draws = _columns_of_one(file, request.draws_name, DRAWS)
    scores = _columns_of_one(other, request.scores_name, SCORES)
    if len(draws) != len(scores):
        raise InputError(
            f"{other.path} has {len(scores)} columns of scores, but {file.path} has {len(draws)} of draws.",
            "Every parameter needs its score. Check that both files are from the same run.",
        )
    if file.header is None:
        columns = TableColumns(list(default_names(len(draws))), draws, scores)
    else:
        known = [name.strip() for name in file.header]
        names = [known[i] for i in draws]
        if other.header is not None:
            scores = _match_by_name(names, [other.header[i].strip() for i in scores], scores)
        chain, draw, id_start = find_ids(known, set(draws))
        columns = TableColumns(names, draws, scores, chain, draw, id_start=id_start)
    if request.parameters is None:
        return columns
    chosen = find_parameters(columns.names, request.parameters, file.path)
    return columns._replace(
        names=[columns.names[at] for at in chosen],
        draws=[columns.draws[at] for at in chosen],
        scores=[columns.scores[at] for at in chosen],
    )


def _columns_of_one(file: CsvFile, name: str, default: str) -> list[int]:
    """Find the columns that one file of a pair contributes."""
    if file.header is None:
        if name != default:
            raise InputError(f"{file.path} has no header, so no column {name}.", "Add a header.")
        return list(range(file.width))
    known = [title.strip() for title in file.header]
    if is_listed(known, name, default):
        return find_positions(known, split_names(name), file.path)
    return [i for i, title in enumerate(known) if not_a_parameter(title) is None]


def _match_by_name(names: Sequence[str], titles: Sequence[str], scores: list[int]) -> list[int]:
    """Return the columns of the scores in the order of the draws, by name if the names agree, else by position."""
    for found in (list(titles), [title.removeprefix(PREFIX) for title in titles]):
        column = dict(zip(found, scores, strict=True))
        if sorted(found) == sorted(names) and len(column) == len(found):
            return [column[name] for name in names]
    return scores


def write_csv(kept: Kept, file: IO[bytes]) -> None:
    """Write kept draws, one line per draw."""
    _write_table(*kept_columns(kept), file)


def write_csv_for_r(kept: Kept, file: IO[bytes]) -> None:
    """Write kept draws in the layout of R."""
    _write_table(*kept_columns_of_r(kept), file)


def _write_table(titles: Sequence[str], columns: Sequence[AnyArray], file: IO[bytes]) -> None:
    """Write a table as csv; 17 digits represent every float64 exactly.

    Raises
    ------
    InputError
        If a title contains a zero byte, which the reader takes for a sign of damage.
    """
    wrong = next((title for title in titles if "\0" in title), None)
    if wrong is not None:
        raise InputError(f"csv cannot store the name {wrong!r}: it contains a zero byte.", "Rename the parameter.")
    file.write((",".join(map(_quoted, titles)) + "\n").encode())
    form = ",".join("%d" if column.dtype.kind in "biu" else "%.17g" for column in columns) + "\n"
    for row in zip(*(column.tolist() for column in columns), strict=True):
        file.write((form % row).encode())


def gzipped(write: Callable[[Kept, IO[bytes]], None]) -> Callable[[Kept, IO[bytes]], None]:
    """Return a function that writes gzipped text; without a timestamp, so the same set gives the same bytes."""

    def write_gzipped(kept: Kept, file: IO[bytes]) -> None:
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as text:
            write(kept, cast(IO[bytes], text))

    return write_gzipped


def _quoted(title: str) -> str:
    plain = title and not set(title) & set('",\r\n') and title == title.strip()
    return title if plain else '"' + title.replace('"', '""') + '"'
