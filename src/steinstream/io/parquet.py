"""Parquet, through pyarrow: two columns of lists, draws and scores, or flat columns as in csv.

Memory is a page or two of each column, some 2 MB, whatever the length of the chain.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import IO, Any

import numpy as np

from steinstream.errors import InputError
from steinstream.io.base import Chain, Floats, Ints, Request, alone, default_names, empty
from steinstream.io.columns import Columns, Numbering, extra_columns, header_of, id_columns, paired, positions
from steinstream.io.errors import listing, reading
from steinstream.io.extra_columns import as_variables, rows_of, variable_columns
from steinstream.result import Kept, Variable
from steinstream.validation import Block

METADATA = b"steinstream"
_ROWS = 8192  # of a batch


def pyarrow() -> Any:
    """The library, loaded when a parquet file is first met."""
    try:
        import pyarrow as arrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError as error:
        raise InputError("parquet files need pyarrow.", 'pip install "steinstream[parquet]"') from error
    return arrow


def _file(path: Path) -> Any:
    # Left to itself pyarrow reads a row group whole before its first row, and a chain may well be just one.
    return pyarrow().parquet.ParquetFile(path, pre_buffer=False, buffer_size=1 << 16)


class ParquetChain(Chain):
    """Draws and scores in the columns of one parquet file."""

    def __init__(self, request: Request) -> None:
        path = request.path
        arrow = pyarrow()
        with reading(path, "parquet"), _file(path) as file:
            schema = file.schema_arrow
            groups = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
            if not sum(groups):
                raise empty(path)
            titles, kinds = schema.names, schema.types
            named = titles.index(request.draws_name) if request.draws_name in titles else None
            self._lists = named is not None and _is_list(arrow, kinds[named])
            if self._lists:
                self._columns = _list_columns(arrow, schema, request)
                names, dim = None, _dim_of_lists(file, request.draws_name, path)
            else:
                self._columns = paired(titles, request.draws_name, request.scores_name, path)
                names, dim = self._columns.names, len(self._columns.draws)
                for i in (*self._columns.draws, *self._columns.scores):
                    _check_numbers(arrow, path, titles[i], kinds[i])
            for i in self._columns.ids:
                _check_numbers(arrow, path, titles[i], kinds[i])
        further = [i for i in self._columns.further if _holds_numbers(arrow, kinds[i])]
        self._columns = self._columns._replace(further=further)
        self._titles, self._groups = titles, groups
        self._twice = len(set(titles)) < len(titles)
        super().__init__(path, dim, names, sum(groups), 1 if self._columns.chain is None else None)
        self.draws_from, self.scores_from = (
            f"columns {listing([titles[i] for i in chosen], 3)}"
            for chosen in (self._columns.draws, self._columns.scores)
        )

    def _read(self, rows: int, skip: int) -> Iterator[Block]:
        columns = self._columns
        jump, group = self._jump(skip) if columns.jumps else (0, 0)
        numbering = Numbering(self.path, jump)
        skip, row = skip - jump, jump
        for batch in self._batches([*columns.draws, *columns.scores, *columns.ids], rows, group):
            chain, draw = (self._numbers(batch, index) for index in (columns.chain, columns.draw))
            ids = numbering.ids(batch.num_rows, chain, draw)
            draws = self._table(batch, columns.draws, row)
            scores = self._table(batch, columns.scores, row)
            row += batch.num_rows
            if skip < batch.num_rows:
                yield Block(draws[skip:], scores[skip:], ids[skip:])
            skip = max(skip - batch.num_rows, 0)

    def variables(self, ids: Ints) -> dict[str, Variable]:
        """The further columns of a file of kept draws; none if it lacks one of them."""
        chosen = self._columns.further
        rows = rows_of(ids, self._all_ids()) if chosen else None
        if rows is None:
            return {}
        table, first = np.empty((len(rows), len(chosen))), 0
        for batch in self._batches(chosen, _ROWS):
            here = np.flatnonzero((rows >= first) & (rows < first + batch.num_rows))
            for place, index in enumerate(chosen):
                table[here, place] = np.asarray(self._numbers(batch, index), dtype=np.float64)[rows[here] - first]
            first += batch.num_rows
        return as_variables([self._titles[i] for i in chosen], table)

    def _all_ids(self) -> Iterator[Ints]:
        numbering, columns = Numbering(self.path, 0), self._columns
        for batch in self._batches(columns.ids, _ROWS):
            yield numbering.ids(batch.num_rows, *(self._numbers(batch, index) for index in columns.ids))

    def _batches(self, chosen: Sequence[int], rows: int, group: int = 0) -> Iterator[Any]:
        """These columns, at most so many rows at a time, from a row group on."""
        with reading(self.path, "parquet"):
            file = _file(self.path)
        with file:
            # pyarrow selects by name: with two columns of one name all are read, and chosen by position.
            names = None if self._twice else [self._titles[i] for i in chosen]
            batches = file.iter_batches(rows, range(group, len(self._groups)), names)
            while True:
                with reading(self.path, "parquet"):
                    batch = next(batches, None)
                if batch is None:
                    return
                yield batch

    def _jump(self, skip: int) -> tuple[int, int]:
        """Rows in the row groups that can be passed over whole, and the first group that cannot."""
        behind = [total for total in accumulate(self._groups) if total <= skip]
        return (behind[-1] if behind else 0), len(behind)

    def _column(self, batch: Any, index: int) -> Any:
        return batch.column(index if self._twice else self._titles[index])

    def _numbers(self, batch: Any, index: int | None) -> np.ndarray[Any, Any] | None:
        return None if index is None else self._column(batch, index).to_numpy(zero_copy_only=False)

    def _table(self, batch: Any, columns: list[int], row: int) -> Floats:
        if self._lists:
            return self._lists_table(batch, columns[0], row)
        table = np.empty((batch.num_rows, self.dim))
        for j, index in enumerate(columns):
            table[:, j] = self._numbers(batch, index)
        return table

    def _lists_table(self, batch: Any, index: int, row: int) -> Floats:
        lists = self._column(batch, index)
        lengths = pyarrow().compute.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
        wrong = np.flatnonzero(lengths != self.dim)
        if wrong.size:
            raise InputError(
                f"{self.path}, row {row + int(wrong[0]) + 1}, column {self._titles[index]}: "
                f"{lengths[wrong[0]]} numbers, expected {self.dim}.",
                "Each draw and each score needs one number for each parameter.",
            )
        values = lists.flatten().to_numpy(zero_copy_only=False)
        return np.array(values, dtype=np.float64).reshape(-1, self.dim)


def _is_list(arrow: Any, kind: Any) -> bool:
    return any(test(kind) for test in (arrow.types.is_list, arrow.types.is_large_list, arrow.types.is_fixed_size_list))


def _holds_numbers(arrow: Any, kind: Any) -> bool:
    return any(test(kind) for test in (arrow.types.is_floating, arrow.types.is_integer, arrow.types.is_boolean))


def _check_numbers(arrow: Any, path: Path, title: str, kind: Any) -> None:
    if not (arrow.types.is_floating(kind) or arrow.types.is_integer(kind)):
        raise InputError(
            f"{path}: column {title} holds {kind}, not numbers.",
            "Choose other columns with --draws-name and --scores-name, or write it as float64.",
        )


def _list_columns(arrow: Any, schema: Any, request: Request) -> Columns:
    """Two columns of lists; their names stand alone, not in a list."""
    titles = [request.draws_name, request.scores_name]
    draws, scores = positions(schema.names, titles, request.path)
    for title, index in zip(titles, (draws, scores), strict=True):
        kind = schema.types[index]
        _check_numbers(arrow, request.path, title, kind.value_type if _is_list(arrow, kind) else kind)
        if not _is_list(arrow, kind):
            raise InputError(
                f"{request.path}: {titles[0]} holds lists but {title} single numbers.",
                "Name two columns of lists, or two of numbers, with --draws-name and --scores-name.",
            )
    return Columns([], [draws], [scores], *id_columns(schema.names, {draws, scores}))


def _dim_of_lists(file: Any, title: str, path: Path) -> int:
    """The first draw says how many parameters there are."""
    first = next(file.iter_batches(1, columns=[title])).column(title)[0].as_py()
    if not first:
        raise InputError(f"{path}, row 1: {title} is empty.", "Each draw needs one number for each parameter.")
    return len(first)


def open_parquet(request: Request) -> ParquetChain:
    """Open one file with both."""
    alone(request, "columns")
    return ParquetChain(request)


def write_parquet(kept: Kept, file: IO[bytes]) -> None:
    """Columns chain, draw, NAME, score_NAME, weight, order, variables; KSD and settings as JSON in the metadata."""
    arrow = pyarrow()
    names = kept.names if kept.names is not None else default_names(kept.draws.shape[1])
    about = json.dumps({"ksd": float(kept.ksd), "settings": dict(kept.settings)}).encode()
    extra = {**extra_columns(kept), **variable_columns(kept, names)}
    columns = [*kept.ids.T, *kept.draws.T, *kept.scores.T, *extra.values()]
    table = arrow.Table.from_arrays([arrow.array(column) for column in columns], names=header_of(names, list(extra)))
    arrow.parquet.write_table(table.replace_schema_metadata({METADATA: about}), file)
