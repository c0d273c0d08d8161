"""Parquet, through pyarrow: columns of lists, draws and scores, or columns of numbers as in csv. Scores are optional.

The memory is one or two pages of each column, about 2 MB, for any length of the chain.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import IO, Any

import numpy as np

from steinstream._formatting import listing, nearest
from steinstream._typing import AnyArray, Array, Integers
from steinstream.errors import InputError
from steinstream.io._columns import (
    RowIds,
    TableColumns,
    find_columns,
    find_ids,
    find_positions,
    find_rows,
    kept_columns,
    variables_of_kept,
)
from steinstream.io._limits import require_held, require_length
from steinstream.io.base import NAMES_HINT, SCORES, Chain, Request, empty_chain, no_scores, reject_scores_file
from steinstream.io.errors import reading
from steinstream.result import Kept, Variable
from steinstream.validation import Block

_METADATA = b"steinstream"
_BATCH = 8192  # rows


def pyarrow() -> Any:
    """Import pyarrow with the submodules that are used here."""
    try:
        import pyarrow as arrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError as error:
        raise InputError("Parquet files require pyarrow.", 'pip install "steinstream[parquet]"') from error
    return arrow


def _open_file(path: Path) -> Any:
    # By default pyarrow reads a whole row group before its first row, and a chain may be a single row group.
    return pyarrow().parquet.ParquetFile(path, pre_buffer=False, buffer_size=1 << 16)


class ParquetChain(Chain):
    """Draws, and scores if there are any, in the columns of a parquet file."""

    def __init__(self, request: Request) -> None:
        reject_scores_file(request, "columns")
        path = request.path
        arrow = pyarrow()
        with reading(path, "parquet"), _open_file(path) as file:
            schema = file.schema_arrow
            groups = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
            if not sum(groups):
                raise empty_chain(path)
            _require_bounded(path, file.metadata)
            titles, kinds = schema.names, schema.types
            named = titles.index(request.draws_name) if request.draws_name in titles else None
            self._lists = named is not None and _is_list(arrow, kinds[named])
            if self._lists:
                columns = _list_columns(arrow, schema, request)
                names, dim = None, _length_of_lists(file, request.draws_name, path)
            else:
                columns = find_columns(titles, request, [_is_numeric(arrow, kind) for kind in kinds])
                names, dim = columns.names, len(columns.draws)
                for i in (*columns.draws, *columns.scores):
                    _require_numbers(arrow, path, titles[i], kinds[i])
            for i in columns.ids:
                _require_numbers(arrow, path, titles[i], kinds[i])
        variables = [i for i in columns.variables if _is_numeric(arrow, kinds[i])]
        self._columns = columns._replace(variables=variables)
        self._titles, self._groups = titles, groups
        self._duplicates = len(set(titles)) < len(titles)
        super().__init__(
            path,
            dim,
            names,
            sum(groups),
            1 if columns.chain is None else None,
            has_scores=bool(columns.scores),
            ids=[titles[i].strip() for i in columns.ids],
            left_out=columns.left_out,
        )
        self.draws_from, self.scores_from = (
            f"columns {listing([titles[i] for i in chosen], 3)}" if chosen else ""
            for chosen in (columns.draws, columns.scores)
        )
        self.scores_hint = f"add columns score_NAME; {self.scores_hint}"
        if self._lists and request.parameters is not None:
            self.select(request.parameters)

    def _read(self, rows: int, skip: int) -> Iterator[Block]:
        columns = self._columns
        skipped, group = self._skip_groups(skip) if columns.can_skip else (0, 0)
        row_ids = RowIds(self.path, skipped)
        skip, row = skip - skipped, skipped
        for batch in self._batches([*columns.draws, *columns.scores, *columns.ids], rows, group):
            chain, draw = (self._values(batch, index) for index in (columns.chain, columns.draw))
            ids = row_ids.next(columns, batch.num_rows, chain, draw)
            draws = self._table(batch, columns.draws, row)
            scores = self._table(batch, columns.scores, row) if columns.scores else no_scores(batch.num_rows)
            row += batch.num_rows
            if skip < batch.num_rows:
                yield Block(draws[skip:], scores[skip:], ids[skip:])
            skip = max(skip - batch.num_rows, 0)

    def variables(self, ids: Integers) -> dict[str, Variable]:
        """Read the variables of a file of kept draws; none if a draw is missing."""
        chosen = self._columns.variables
        rows = find_rows(ids, self._all_ids()) if chosen else None
        if rows is None:
            return {}
        table, first = np.empty((len(rows), len(chosen))), 0
        for batch in self._batches(chosen, _BATCH):
            here = np.flatnonzero((rows >= first) & (rows < first + batch.num_rows))
            for place, index in enumerate(chosen):
                table[here, place] = np.asarray(self._values(batch, index), dtype=np.float64)[rows[here] - first]
            first += batch.num_rows
        return variables_of_kept([self._titles[i] for i in chosen], table)

    def _all_ids(self) -> Iterator[Integers]:
        row_ids, columns = RowIds(self.path, 0), self._columns
        for batch in self._batches(columns.ids, _BATCH):
            yield row_ids.next(
                columns, batch.num_rows, *(self._values(batch, index) for index in (columns.chain, columns.draw))
            )

    def _batches(self, chosen: Sequence[int], rows: int, group: int = 0) -> Iterator[Any]:
        """Iterate over these columns in batches of at most ``rows`` rows, from row group ``group`` on."""
        with reading(self.path, "parquet"):
            file = _open_file(self.path)
        with file:
            # pyarrow selects columns by name. If two have the same name, all are read and selected by position.
            names = None if self._duplicates else [self._titles[i] for i in chosen]
            batches = file.iter_batches(rows, range(group, len(self._groups)), names)
            while True:
                with reading(self.path, "parquet"):
                    batch = next(batches, None)
                if batch is None:
                    return
                yield batch

    def _skip_groups(self, skip: int) -> tuple[int, int]:
        """Return the number of rows in the row groups that are skipped whole, and the first group that is not."""
        before = [total for total in accumulate(self._groups) if total <= skip]
        return (before[-1] if before else 0), len(before)

    def _column(self, batch: Any, index: int) -> Any:
        return batch.column(index if self._duplicates else self._titles[index])

    def _values(self, batch: Any, index: int | None) -> AnyArray | None:
        return None if index is None else self._column(batch, index).to_numpy(zero_copy_only=False)

    def _table(self, batch: Any, columns: list[int], row: int) -> Array:
        if self._lists:
            return self._table_of_lists(batch, columns[0], row)
        table = np.empty((batch.num_rows, len(columns)))
        for j, index in enumerate(columns):
            table[:, j] = self._values(batch, index)
        return table

    def _table_of_lists(self, batch: Any, index: int, row: int) -> Array:
        lists = self._column(batch, index)
        lengths = pyarrow().compute.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
        wrong = np.flatnonzero(lengths != self._width)
        if wrong.size:
            raise InputError(
                f"{self.path}, row {row + int(wrong[0]) + 1}, column {self._titles[index]}: "
                f"{lengths[wrong[0]]} numbers, expected {self._width}.",
                "Every draw and every score needs one number for each parameter.",
            )
        values = lists.flatten().to_numpy(zero_copy_only=False)
        return np.array(values, dtype=np.float64).reshape(-1, self._width)


def _is_list(arrow: Any, kind: Any) -> bool:
    return any(test(kind) for test in (arrow.types.is_list, arrow.types.is_large_list, arrow.types.is_fixed_size_list))


def _is_numeric(arrow: Any, kind: Any) -> bool:
    return any(test(kind) for test in (arrow.types.is_floating, arrow.types.is_integer, arrow.types.is_boolean))


def _require_numbers(arrow: Any, path: Path, title: str, kind: Any) -> None:
    if not _is_numeric(arrow, kind):
        raise InputError(
            f"{path}: column {title} has type {kind}, expected numbers.",
            f"Choose other columns with {NAMES_HINT}, or write it as float64.",
        )


def _list_columns(arrow: Any, schema: Any, request: Request) -> TableColumns:
    """Find the columns of lists; each name is that of one column."""
    titles = [request.draws_name, request.scores_name]
    lists = [name for name, kind in zip(schema.names, schema.types, strict=True) if _is_list(arrow, kind)]
    if not request.names_scores and SCORES not in schema.names and not nearest(SCORES, lists):
        titles.pop()
    places = find_positions(schema.names, titles, request.path)
    for title, index in zip(titles, places, strict=True):
        kind = schema.types[index]
        _require_numbers(arrow, request.path, title, kind.value_type if _is_list(arrow, kind) else kind)
        if not _is_list(arrow, kind):
            raise InputError(
                f"{request.path}: {titles[0]} contains lists, but {title} contains single numbers.",
                f"Name two columns of lists, or columns of numbers, with {NAMES_HINT}.",
            )
    chain, draw, id_start = find_ids(schema.names, set(places))
    return TableColumns([], places[:1], places[1:], chain, draw, id_start=id_start)


def _require_bounded(path: Path, metadata: Any) -> None:
    """Raise an `InputError` if the columns are larger than a file of this size contains, by its own metadata."""
    for at in range(metadata.num_row_groups):
        group = metadata.row_group(at)
        for column in map(group.column, range(group.num_columns)):
            require_length(path, column.num_values, 1)
            each = column.total_uncompressed_size / max(group.num_rows, 1)
            require_held(path, f"a value of {column.path_in_schema}", math.ceil(each), "Write it without compression.")
    require_length(path, metadata.num_rows, metadata.num_columns)


def _length_of_lists(file: Any, title: str, path: Path) -> int:
    """Return the number of parameters, which is the length of the first list."""
    first = pyarrow().compute.list_value_length(next(file.iter_batches(1, columns=[title])).column(title))[0].as_py()
    if not first:
        raise InputError(f"{path}, row 1: {title} is empty.", "Every draw needs one number for each parameter.")
    require_length(path, file.metadata.num_rows, first)
    return int(first)


def write_parquet(kept: Kept, file: IO[bytes]) -> None:
    """Write kept draws as columns, as in csv, with KSD, MMD and settings as JSON in the metadata."""
    arrow = pyarrow()
    titles, columns = kept_columns(kept)
    measures = {name: None if math.isnan(value) else value for name, value in (("ksd", kept.ksd), ("mmd", kept.mmd))}
    about = json.dumps({**measures, "settings": dict(kept.settings)}).encode()
    table = arrow.Table.from_arrays([arrow.array(column) for column in columns], names=titles)
    arrow.parquet.write_table(table.replace_schema_metadata({_METADATA: about}), file)
