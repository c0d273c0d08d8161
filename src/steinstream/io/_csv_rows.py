"""A csv file, plain or gzipped, as a stream of rows of numbers.

Blank lines and lines that begin with ``#`` are ignored. A line with another number of fields, or a field that is not a
number, raises an error that names the line. Every number is the float64 that Python's ``float`` returns, bit for bit:
the compiled parser (:mod:`steinstream._engine.csv_parser`) reads all common fields, and the few others (nan, inf,
blanks, extreme exponents, ties) are passed to ``float``.
"""

from __future__ import annotations

import csv
import gzip
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from steinstream._typing import Array
from steinstream.errors import InputError
from steinstream.io.base import empty_chain
from steinstream.io.errors import reading

_CHUNK = 1 << 19  # bytes: large enough to hide the overhead of a call, small enough for the cache
LONGEST_LINE = 1 << 26  # bytes; a draw and its score with 1.3 million dimensions
_ZIPPED_LINE, _LINE_RATIO = 1 << 20, 32  # bytes of a line of any file, and per byte of the file if that is more
_UNUSUAL = 4096  # fields left to ``float`` before the compiled parser continues
_INSPECTED = 100  # rows that show which columns are text
_MIN_TEXTS = 2  # least number of rows without a number in a column of text
_BOM = b"\xef\xbb\xbf"

# -- numbers -----------------------------------------------------------------------------------------------------------


def parse_number(field: bytes) -> float | None:
    """Convert a field to a number; None if it is not one."""
    try:
        return None if b"_" in field else float(field)
    except ValueError:
        return None


def parse_rows(text: bytes, width: int, chosen: Sequence[int]) -> Array | None:
    """Convert the ``chosen`` columns of lines with ``width`` fields to numbers; None if a line or field is invalid."""
    from steinstream._engine import csv_parser  # compiled code, loaded when a file is read

    parse_lines: Any = csv_parser.parse_lines
    padded = text if text.endswith(b"\n") else text + b"\n"
    stop = len(padded)
    data = np.frombuffer(padded + bytes(csv_parser.PAD), np.uint8)
    slots = np.full(width, -1, np.int64)
    slots[list(chosen)[::-1]] = np.arange(len(chosen))[::-1]  # the first position of a column that is chosen twice
    table = np.empty((stop // width + 1, len(chosen)))  # a field takes at least its separator
    unusual = np.empty(max(width, _UNUSUAL), csv_parser.FIELD)
    lines, layout = csv_parser.Text(data, stop), csv_parser.Layout(width, slots)
    at, rows = 0, 0
    while at < stop:
        at, rows, count = parse_lines(lines, at, layout, table, rows, unusual)
        if rows < 0:
            return None
        for row, slot, first, last in unusual[:count].tolist():
            value = parse_number(padded[first:last])
            if value is None:
                return None
            table[row, slot] = value
    for place, column in enumerate(chosen):
        if slots[column] != place:
            table[:rows, place] = table[:rows, slots[column]]
    return table[:rows]


def invalid_line(
    path: Path, text: bytes, first: int, header: Sequence[str] | None, width: int, chosen: Sequence[int]
) -> InputError:
    """Find the line that `parse_rows` rejected, and return the error for it; ``first`` is the number of line 1."""
    for at, row in enumerate(text.split(b"\n"), first):
        fields = row.removesuffix(b"\r").split(b",")
        if fields == [b""] or row.startswith(b"#"):
            continue
        if len(fields) != width:
            return InputError(
                f"{path}, line {at}: {len(fields)} fields, expected {width}.",
                "Correct the line, or delete it if the sampler was stopped while it wrote it.",
            )
        for column in chosen:
            if parse_number(fields[column]) is None:
                shown = fields[column].decode("utf-8", "replace")[:40]
                title = header[column] if header else str(column + 1)
                return InputError(
                    f"{path}, line {at}, column {title}: {shown!r} is not a number.",
                    "Correct the field. Write nan for a missing value.",
                )
    return InputError(f"{path}: line {first} or a later one cannot be read.", "Write the file again.")


# -- files -------------------------------------------------------------------------------------------------------------


@dataclass
class CsvFile:
    """The rows of a csv file."""

    path: Path
    header: list[str] | None
    width: int  # number of columns
    start: int  # position of the first row, in bytes
    line: int  # its line number, counted from 1
    fraction: float = 0.0  # part of the bytes that the current pass has read

    @classmethod
    def open(cls, path: Path) -> CsvFile:
        """Read the first line of a file, which is a header or the first draw."""
        with reading(path, "csv"), open_text(path) as (_, text):
            if text.read(len(_BOM)) != _BOM:
                text.seek(0)

            def next_line() -> bytes:
                return read_line(path, text)

            line, start, first = 1, text.tell(), next_line()
            while _is_ignored(first):
                line, start, first = line + 1, text.tell(), next_line()
            lines = (part.decode("utf-8") for part in chain([first], iter(next_line, b"")))
            record = csv.reader(lines, strict=True)
            fields = next(record, [])
            if not fields:
                raise empty_chain(path)
            if not _is_header(fields):
                return cls(path, None, len(fields), start, line)
            if any("\0" in field for field in fields):
                raise InputError(
                    f"{path}, line {line}: a title of the header contains a zero byte.",
                    "The file is damaged, or not a csv file in UTF-8. Write it again.",
                )
            start = text.tell()
            if all(_is_ignored(row) for row in iter(next_line, b"")):
                raise empty_chain(path)
            return cls(path, fields, len(fields), start, line + record.line_num)

    @property
    def titles(self) -> list[str]:
        """Titles of the columns: those of the header, or their numbers counted from 1."""
        return self.header or [str(i + 1) for i in range(self.width)]

    def numeric(self) -> list[bool]:
        """Return whether each column may hold numbers: it is text if several of the first rows have no number in it.

        One number among them makes it a column of numbers, so that a single invalid field is an error when it is read.

        Returns
        -------
        list of bool
            One entry per column.
        """
        found, texts = [False] * self.width, [0] * self.width
        for fields in self._first_rows():
            if len(fields) == self.width:
                for at, field in enumerate(fields):
                    number = parse_number(field) is not None
                    found[at], texts[at] = found[at] or number, texts[at] + (not number)
                if all(found):
                    break
        if not any(found):
            return found
        return [number or count < _MIN_TEXTS for number, count in zip(found, texts, strict=True)]

    def _first_rows(self) -> Iterator[list[bytes]]:
        """Iterate over the fields of the first rows, which may be invalid."""
        for text in islice(self._chunks(), 1):
            rows = (row for row in text.split(b"\n") if row not in (b"", b"\r") and not row.startswith(b"#"))
            for row in islice(rows, _INSPECTED):
                yield row.removesuffix(b"\r").split(b",")

    def rows(self, chosen: Sequence[int], skip: int = 0) -> Iterator[Array]:
        """Iterate over the ``chosen`` columns in tables of some rows; the first ``skip`` rows are not parsed."""
        for index, text in enumerate(self._chunks()):
            if skip:
                count = _count_rows(text)
                if count <= skip:
                    skip -= count
                    continue
            table = parse_rows(text, self.width, chosen)
            if table is None:
                raise self._invalid_chunk(index, chosen)
            yield table[skip:]
            skip = 0

    def fields(self, wanted: Sequence[int]) -> list[list[bytes]]:
        """Return the fields of these rows, which must be sorted, as text."""
        found: list[list[bytes]] = []
        first = 0
        for text in self._chunks():
            count = _count_rows(text)
            here = wanted[len(found) : bisect_left(wanted, first + count)]
            if here:
                rows = [row for row in text.split(b"\n") if row not in (b"", b"\r") and not row.startswith(b"#")]
                found += [rows[row - first].removesuffix(b"\r").split(b",") for row in here]
            first += count
            if len(found) == len(wanted):
                break
        return found

    def _chunks(self) -> Iterator[bytes]:
        """Iterate over the text in chunks of whole lines."""
        # glibc returns large temporary arrays to the system when they are freed, and allocating them again costs more
        # than the arithmetic. After it has freed one block of this size, which is never touched, it keeps them.
        np.empty(32 * _CHUNK, np.uint8)
        size = max(self.path.stat().st_size, 1)
        with open_text(self.path) as (file, text):
            with reading(self.path, "csv"):
                text.seek(self.start)
            while True:
                with reading(self.path, "csv"):
                    chunk = text.read(_CHUNK)
                    if chunk and not chunk.endswith(b"\n"):
                        chunk += read_line(self.path, text)
                self.fraction = min(file.tell() / size, 1.0)
                if not chunk:
                    return
                yield chunk

    def _invalid_chunk(self, index: int, chosen: Sequence[int]) -> InputError:
        """Return the error for a chunk that cannot be parsed; the lines before it are counted again."""
        line, text = self.line, b""
        for chunk in islice(self._chunks(), index + 1):
            line, text = line + text.count(b"\n"), chunk
        return invalid_line(self.path, text, line, self.header, self.width, chosen)


def regroup(arrays: Iterator[Array], rows: int) -> Iterator[Array]:
    """Regroup arrays into new arrays of ``rows`` rows; the last may be shorter."""
    whole, filled = np.empty((0, 0)), 0
    for array in arrays:
        start = 0
        while start < len(array):
            if filled == 0:
                whole = np.empty((rows, array.shape[1]))
            count = min(rows - filled, len(array) - start)
            whole[filled : filled + count] = array[start : start + count]
            filled, start = filled + count, start + count
            if filled == rows:
                yield whole
                filled = 0
    if filled:
        yield whole[:filled]


def _is_header(fields: Sequence[str]) -> bool:
    filled = [field for field in fields if field.strip()]
    if any(parse_number(field.encode()) is None for field in filled):
        return True
    # pandas numbers unnamed columns from 0, after an empty title if it wrote its index.
    return len(filled) > 1 and filled == [str(i) for i in range(len(filled))] == list(fields[-len(filled) :])


def _is_ignored(row: bytes) -> bool:
    return row.startswith((b"\n", b"\r\n", b"#"))


def _count_rows(text: bytes) -> int:
    """Count the rows in a text, without comments and blank lines."""
    lines = text.count(b"\n") + (not text.endswith(b"\n"))
    if text.startswith((b"\n", b"\r\n", b"#")) or b"\n\n" in text or b"\n\r\n" in text or b"\n#" in text:
        return lines - sum(map(_is_ignored, text.splitlines(keepends=True)))
    return lines


def read_line(path: Path, text: IO[bytes]) -> bytes:
    """Read the rest of a line, or raise an `InputError` if it is too long to be a line of numbers."""
    longest = min(LONGEST_LINE, max(_ZIPPED_LINE, _LINE_RATIO * path.stat().st_size))
    line = text.readline(longest)
    if len(line) == longest and not line.endswith(b"\n"):
        raise InputError(
            f"{path}: a line is longer than {longest >> 20} MB.",
            "The file is not a csv file, or it has no line ends. Write one line per draw, or use npz or parquet.",
        )
    return line


def is_gzipped(path: Path, file: IO[bytes]) -> bool:
    """Return whether a file, open at its start, is gzipped, by its name or its first bytes."""
    start = file.read(2)
    file.seek(0)
    return start == b"\x1f\x8b" or path.name.lower().endswith(".gz")


@contextmanager
def open_text(path: Path, kind: str = "csv") -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Open a file, gzipped or not: the file itself, whose position shows the progress, and its text."""
    with reading(path, kind):
        file = path.open("rb")
    with file:
        if is_gzipped(path, file):
            with gzip.GzipFile(fileobj=file) as text:
                yield file, cast(IO[bytes], text)
        else:
            yield file, file
