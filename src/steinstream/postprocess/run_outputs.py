"""Outputs of forward simulations: tables, arrays and functions, matched with the list of runs."""

from __future__ import annotations

import csv
import gzip
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from steinstream._formatting import listing
from steinstream._typing import AnyArray, Array
from steinstream.errors import InputError
from steinstream.io._limits import require_held, require_length
from steinstream.io.errors import need, reading
from steinstream.result.expectation import NO_OUTPUT, evaluate_function, rows_of_array

#: What `Kept.average` accepts: a file, a table, an array, or the simulation itself.
Outputs = str | PathLike[str] | ArrayLike | Mapping[str, Sequence[Any]] | Callable[[Array], ArrayLike]

#: Columns with a meaning, in the table of runs and in tables of outputs.
RUN, CHAIN, DRAW, WEIGHT, MULTIPLICITY, STATUS = "run", "chain", "draw", "weight", "multiplicity", "status"
KEPT_SET = "set"  # identifies the kept set
RESERVED = (RUN, CHAIN, DRAW, WEIGHT, MULTIPLICITY, STATUS, KEPT_SET)

#: Values of the column ``status`` that mean success, in lower case. A number is an exit code: 0 is success.
SUCCESSES = ("ok", "success", "successful", "succeeded", "complete", "completed", "done", "finished", "true")

_MISSING = ("", "nan", "na", "none", "null", "inf", "-inf")  # outputs of failed runs, in lower case
_ROW_NUMBERS = re.compile(r"|Unnamed: \d+|__index_level_\d+__")  # the index of a DataFrame, as pandas writes it
_OTHER_SET = "Use the kept set for which the table of runs was written."

#: The table of runs: columns by name, with one row per run in order of use.
RunTable = Mapping[str, AnyArray]


class RunOutputs(NamedTuple):
    """Outputs of all runs in order of use."""

    names: tuple[str, ...]
    values: Array
    """(k, m); the rows of failed runs have no meaning."""
    reasons: list[str]
    """Why each run failed; empty if it did not."""
    shape: tuple[int, ...]
    ignored: dict[str, str]


def find_outputs(
    table_of_runs: RunTable, draws: Array, outputs: Any, columns: Sequence[str] | None, *, ordered: bool, processes: int
) -> RunOutputs:
    """Return the outputs of runs with these parameters (k, d); an array requires that the kept set is ``ordered``."""
    title = "The table of outputs"
    if isinstance(outputs, str | PathLike):
        title = str(outputs)
        outputs = _read(Path(outputs))
    if isinstance(outputs, Mapping) or hasattr(outputs, "columns"):
        table = {str(name): _cells(outputs[name]) for name in getattr(outputs, "columns", outputs)}
        index = getattr(outputs, "index", None)
        if RUN not in table and getattr(index, "name", None) == RUN:
            table[RUN] = _cells(index)
        return _from_table(table_of_runs, table, columns, title)
    if columns is not None:
        raise InputError("columns requires a table of outputs.", "Leave out columns, or pass a file or a DataFrame.")
    if callable(outputs):
        values, reasons, shape = evaluate_function(outputs, draws, processes)
    else:
        if not ordered:  # a file may not contain what determines the order
            raise InputError(
                "An array of outputs requires kept draws with an order of use, which identifies its rows.",
                f"Pass a table with a column {RUN}, or order the set before its runs are listed: ordered(), --order.",
            )
        values, reasons, shape = rows_of_array(outputs, len(draws), "run")
    places = ["".join(f"[{at}]" for at in place) for place in np.ndindex(*shape)]
    return RunOutputs(tuple(f"output{place}" for place in places), values, reasons, shape, {})


def _read(path: Path) -> Any:
    """Read a table (csv, csv.gz, parquet) or an array (npy)."""
    if not path.exists():
        raise InputError(f"{path}: there is no such file.", "Check the path.")
    with reading(path, "a table of outputs"):
        if path.suffix == ".npy":
            return np.load(path, mmap_mode="r", allow_pickle=False)  # no memory is reserved for a forged shape
        if path.suffix == ".parquet":
            parquet = need("pyarrow.parquet", "parquet")
            sizes = parquet.read_metadata(path)
            require_length(path, sizes.num_rows, sizes.num_columns)
            return parquet.read_table(path).to_pydict()
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", newline="", encoding="utf-8-sig") as file:  # spreadsheets write a byte order mark
            lines = [line for line in csv.reader(_limited(path, file)) if line]
    if not lines:
        raise InputError(f"{path} is empty.", f"Write a table with the columns {RUN} and one per output.")
    header = [title.strip() for title in lines[0]]
    if len(header) == 1 and any(other in header[0] for other in ";\t"):
        raise InputError(
            f"{path} has no commas between its columns: {header[0]!r}.", "Write it with commas and points."
        )
    repeated = [title for title, times in Counter(header).items() if times > 1]
    if repeated:
        raise InputError(f"{path} has several columns {repeated[0]!r}.", "Give each column its own name.")
    short = next((number for number, line in enumerate(lines, 1) if len(line) != len(header)), None)
    if short is not None:
        raise InputError(f"{path}: line {short} has {len(lines[short - 1])} cells, not {len(header)}.", "Complete it.")
    return {title: [line[at] for line in lines[1:]] for at, title in enumerate(header)}


def _limited(path: Path, file: Iterable[str]) -> Iterator[str]:
    """Iterate over the lines of a file, and raise an `InputError` if they are implausibly many for its size."""
    size = 0
    for line in file:
        size += len(line)
        require_held(path, "its text", size, "Write it without compression.")
        yield line


def _cells(column: Any) -> list[Any]:
    """Return the values of a column as Python objects."""
    return column.tolist() if hasattr(column, "tolist") else list(column)


def _from_table(
    table_of_runs: RunTable, table: dict[str, list[Any]], columns: Sequence[str] | None, title: str
) -> RunOutputs:
    """Match the rows of a table with the runs."""
    runs = table_of_runs[RUN]
    own = str(table_of_runs[KEPT_SET][0])
    other = next((str(value) for value in table.get(KEPT_SET, []) if str(value).strip() != own), None)
    if other is not None:
        raise InputError(f"{title} has outputs of the kept set {other}, and this one is {own}.", _OTHER_SET)
    place = _places(table_of_runs, table, title)
    names, ignored = _output_columns(table_of_runs, place, table, columns, title)
    status = [_failure(value) for value in table.get(STATUS, [0] * len(place))]
    numbers = np.array([[_number(value) for value in table[name]] for name in names]).T.reshape(len(place), len(names))
    values, reasons = np.full((len(runs), len(names)), np.nan), [NO_OUTPUT] * len(runs)
    for row, at in enumerate(place):
        bad = np.flatnonzero(~np.isfinite(numbers[row]))
        why = status[row] or (f"{names[bad[0]]} is {table[names[bad[0]]][row] or 'empty'}" if len(bad) else "")
        if not why and not reasons[at]:
            raise InputError(f"{title} has several outputs of run {runs[at]}.", "Keep one row per run.")
        if not why or reasons[at]:  # a failed attempt does not replace a successful one
            values[at], reasons[at] = numbers[row], why
    return RunOutputs(tuple(names), values, reasons, (len(names),), ignored)


def _places(table_of_runs: RunTable, table: dict[str, list[Any]], title: str) -> list[int]:
    """Return the position of the run of each row, by its number or by chain and draw."""
    found = []
    for keys in ((RUN,), (CHAIN, DRAW)):
        if not all(key in table for key in keys):
            continue
        rows = zip(*(table_of_runs[key].tolist() for key in keys), strict=True)
        known: dict[tuple[float, ...], int] = {row: at for at, row in enumerate(rows)}
        wanted = [tuple(map(_number, row)) for row in zip(*(table[key] for key in keys), strict=True)]
        unknown = next((one for one in wanted if one not in known), None)
        if unknown is not None:
            text = ", ".join(f"{key} {value:g}" for key, value in zip(keys, unknown, strict=True))
            raise InputError(f"{title} has a row for {text}, which is not a run of this kept set.", _OTHER_SET)
        found.append([known[one] for one in wanted])
    if not found:
        raise InputError(
            f"{title} has no column {RUN}; it has {listing(table)}.",
            f"Copy the column {RUN} from the table of runs, or {CHAIN} and {DRAW}.",
        )
    if len(found) == 2 and found[0] != found[1]:
        raise InputError(f"{title}: the columns {RUN} and {CHAIN}, {DRAW} contradict each other.", _OTHER_SET)
    return found[0]


def _output_columns(
    of_runs: RunTable,
    place: list[int],
    table: dict[str, list[Any]],
    columns: Sequence[str] | None,
    title: str,
) -> tuple[list[str], dict[str, str]]:
    """Return the columns that are outputs, and why others are not; columns of the list of runs may be copied."""
    if columns is not None:
        missing = next((name for name in columns if name not in table), None)
        if missing is not None:
            raise InputError(f"{title} has no column {missing}; it has {listing(table)}.", "Choose other columns.")
        return list(columns), {}
    copied = [name for name in table if name in of_runs and _same(table[name], of_runs[name][place])]
    others = [name for name in table if name not in (*RESERVED, *copied)]
    texts = {name: "row numbers" for name in others if _ROW_NUMBERS.fullmatch(name)}
    texts |= {name: "not numbers" for name in others if all(math.isnan(_number(value)) for value in table[name])}
    names = [name for name in others if name not in texts]
    if not names:  # of failed runs, all outputs are missing
        names = [name for name in texts if all(str(value).strip().lower() in _MISSING for value in table[name])]
        texts = {name: why for name, why in texts.items() if name not in names}
    if not names:
        raise InputError(f"{title} has no column of outputs; it has {listing(table)}.", "Add one column per output.")
    return names, texts


def _same(cells: list[Any], values: AnyArray) -> bool:
    """Return whether a column has these values, up to the digits with which it was written."""
    if values.dtype.kind not in "biuf":
        return [str(cell) for cell in cells] == [str(value) for value in values.tolist()]
    return np.allclose([_number(cell) for cell in cells], values.astype(np.float64), rtol=1e-4, equal_nan=True)


def _number(value: Any) -> float:
    """Return a cell as a number; NaN if it is not one."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def _failure(status: Any) -> str:
    """Return why a status is not a success; empty for a success."""
    if isinstance(status, bool):
        good = status
    else:
        code = _number(status)
        good = code == 0 if not math.isnan(code) else str(status).strip().lower() in SUCCESSES
    return "" if good else f"status {status}"
