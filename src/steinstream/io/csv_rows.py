"""A csv file, plain or gzipped, as a stream of rows of numbers.

Lines that are blank or begin with ``#`` are passed over. A line with another number of fields, or a field
that is not a number, is an error that names the line.
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
from typing import IO, cast

import numpy as np

from steinstream.errors import InputError
from steinstream.io.base import Floats, empty
from steinstream.io.csv_numbers import number, parse
from steinstream.io.errors import reading

_CHUNK = 1 << 19  # bytes: large enough to hide the cost of a call, small enough for the cache
_BOM = b"\xef\xbb\xbf"


@dataclass
class Sheet:
    """Where a csv file's rows begin, and how wide they are."""

    path: Path
    header: list[str] | None
    width: int
    start: int
    """First byte of the first row."""
    line: int
    """Number of that line, from 1."""
    fraction: float = 0.0
    """Part of the file's bytes that the current pass has read."""

    def column(self, index: int) -> str:
        """What to call a column in an error."""
        return self.header[index] if self.header else str(index + 1)

    def rows(self, chosen: Sequence[int], skip: int = 0) -> Iterator[Floats]:
        """The ``chosen`` columns, some rows at a time; the first ``skip`` rows are passed over unparsed."""
        for index, text in enumerate(self._chunks()):
            if skip:
                count = _count(text)
                if count <= skip:
                    skip -= count
                    continue
            table = parse(text, self.width, chosen)
            if table is None:
                raise self._culprit(index, chosen)
            yield table[skip:]
            skip = 0

    def fields(self, wanted: Sequence[int]) -> list[list[bytes]]:
        """The fields of these rows, sorted, as they stand in the file."""
        found: list[list[bytes]] = []
        first = 0
        for text in self._chunks():
            count = _count(text)
            here = wanted[len(found) : bisect_left(wanted, first + count)]
            if here:
                rows = [row for row in text.split(b"\n") if row not in (b"", b"\r") and not row.startswith(b"#")]
                found += [rows[row - first].removesuffix(b"\r").split(b",") for row in here]
            first += count
        return found

    def _chunks(self) -> Iterator[bytes]:
        """Text in whole lines."""
        # glibc gives large temporaries back to the system as they are freed, and getting them anew costs more
        # than the arithmetic on them. Having freed one block this large, never touched, it keeps them.
        np.empty(32 * _CHUNK, np.uint8)
        size = max(self.path.stat().st_size, 1)
        with opened(self.path) as (file, text):
            with reading(self.path, "csv"):
                text.seek(self.start)
            while True:
                with reading(self.path, "csv"):
                    chunk = text.read(_CHUNK) + text.readline()
                self.fraction = min(file.tell() / size, 1.0)
                if not chunk:
                    return
                yield chunk

    def _culprit(self, index: int, chosen: Sequence[int]) -> InputError:
        """Go through the lines of a chunk that did not parse, one by one."""
        line, text = self.line, b""
        for chunk in islice(self._chunks(), index + 1):
            line, text = line + text.count(b"\n"), chunk
        for at, row in enumerate(text.split(b"\n"), line):
            fields = row.removesuffix(b"\r").split(b",")
            if fields == [b""] or row.startswith(b"#"):
                continue
            if len(fields) != self.width:
                return InputError(
                    f"{self.path}, line {at}: {len(fields)} fields, expected {self.width}.",
                    "Repair the line, or remove it if the sampler was cut off while writing it.",
                )
            for column in chosen:
                if number(fields[column]) is None:
                    shown = fields[column].decode("utf-8", "replace")[:40]
                    return InputError(
                        f"{self.path}, line {at}, column {self.column(column)}: {shown!r} is not a number.",
                        "Repair the field; a value that is missing is written nan.",
                    )
        return InputError(f"{self.path}: line {line} or a later one cannot be read.", "Write the file again.")


def regroup(arrays: Iterator[Floats], rows: int) -> Iterator[Floats]:
    """The same rows, ``rows`` at a time, in arrays of their own; the last may be shorter."""
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


def look(path: Path) -> Sheet:
    """Read a csv file's first line, be it a header or the first draw."""
    with reading(path, "csv"), opened(path) as (_, text):
        if text.read(len(_BOM)) != _BOM:
            text.seek(0)
        line, start, first = 1, text.tell(), text.readline()
        while _passed_over(first):
            line, start, first = line + 1, text.tell(), text.readline()
        lines = (part.decode("utf-8") for part in chain([first], iter(text.readline, b"")))
        record = csv.reader(lines, strict=True)
        fields = next(record, [])
        if not fields:
            raise empty(path)
        if not _is_header(fields):
            return Sheet(path, None, len(fields), start, line)
        start = text.tell()
        if all(_passed_over(row) for row in iter(text.readline, b"")):
            raise empty(path)
        return Sheet(path, fields, len(fields), start, line + record.line_num)


def _is_header(fields: Sequence[str]) -> bool:
    filled = [field for field in fields if field.strip()]
    if any(number(field.encode()) is None for field in filled):
        return True
    # pandas numbers columns that have no names, from 0, after a blank if it wrote its index.
    return len(filled) > 1 and filled == [str(i) for i in range(len(filled))] == list(fields[-len(filled) :])


def _passed_over(row: bytes) -> bool:
    return row.startswith((b"\n", b"\r\n", b"#"))


def _count(text: bytes) -> int:
    """Rows in the text, without comments and blank lines."""
    lines = text.count(b"\n") + (not text.endswith(b"\n"))
    if text.startswith((b"\n", b"\r\n", b"#")) or b"\n\n" in text or b"\n\r\n" in text or b"\n#" in text:
        return lines - sum(map(_passed_over, text.splitlines(keepends=True)))
    return lines


def is_gzipped(path: Path, file: IO[bytes]) -> bool:
    """Whether a file that is open at its start is gzipped, by its name or its first bytes."""
    start = file.read(2)
    file.seek(0)
    return start == b"\x1f\x8b" or path.name.lower().endswith(".gz")


@contextmanager
def opened(path: Path, kind: str = "csv") -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """The file itself, whose position tells progress, and its text."""
    with reading(path, kind):
        file = path.open("rb")
    with file:
        if is_gzipped(path, file):
            with gzip.GzipFile(fileobj=file) as text:
                yield file, cast(IO[bytes], text)
        else:
            yield file, file
