"""A csv file with one line for each parameter and one column for each draw, as some published chains are stored.

Draw n has its numbers in as many places of the file as there are parameters. One pass over the file finds where its
lines begin; then all lines are read side by side, some kilobytes of each at a time. So memory does not grow with the
number of draws. A gzipped file has to be unzipped once for each parameter, up to where its line ends.

A line may begin with the parameter's name, and a line of column numbers may stand above.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import numpy as np

from steinstream.errors import InputError
from steinstream.io.base import Floats, empty
from steinstream.io.csv_numbers import number, parse
from steinstream.io.csv_rows import Sheet, opened
from steinstream.io.errors import reading

_CHUNK = 1 << 16  # bytes of a line that are read at a time
_ALL = 16 << 20  # bytes of all lines that are read at a time, at most
_SURE = 100  # columns, and 10 times as many as lines: then it is transposed, unless somebody says otherwise


class Transposed(Sheet):
    """A sheet whose columns are the lines of its file."""

    def __init__(self, path: Path, names: list[str] | None, starts: list[int], lines: list[int]) -> None:
        super().__init__(path, names, len(starts), starts[0], lines[0])
        self._starts, self._lines = starts, lines

    def rows(self, chosen: Sequence[int], skip: int = 0) -> Iterator[Floats]:
        """The ``chosen`` lines, some draws at a time, without the first ``skip`` draws."""
        size = max(512, min(_CHUNK, _ALL // len(chosen)))
        with ExitStack() as stack:
            cursors = [self._cursor(line, size, stack) for line in chosen]
            total = max(self.path.stat().st_size, 1)
            while True:
                parts = [cursor.more() for cursor in cursors]
                count = min(len(part) for part in parts)
                if count == 0:
                    for cursor, part in zip(cursors, parts, strict=True):
                        if len(part):
                            raise self._uneven(cursors, cursor)
                    self.fraction = 1.0
                    return
                table = np.column_stack([cursor.take(count) for cursor in cursors])
                self.fraction = min(sum(cursor.read for cursor in cursors) / total, 1.0)
                if skip < count:
                    yield table[skip:]
                skip = max(skip - count, 0)

    def _cursor(self, line: int, size: int, stack: ExitStack) -> Cursor:
        with reading(self.path, "csv"):
            _, text = stack.enter_context(opened(self.path))
            text.seek(self._starts[line])
        return Cursor(self.path, self._lines[line], text, size)

    def _uneven(self, cursors: Sequence[Cursor], longer: Cursor) -> InputError:
        short = next(cursor for cursor in cursors if not len(cursor.more()))
        return InputError(
            f"{self.path}, line {short.line}: {short.count} numbers, but line {longer.line} has more.",
            "Every parameter has a number for every draw: write the file again.",
        )


class Cursor:
    """One line, read from left to right."""

    def __init__(self, path: Path, line: int, text: IO[bytes], size: int) -> None:
        self._path, self.line, self._text, self._size = path, line, text, size
        self._rest = b""
        self._ended = False
        self._numbers: Floats = np.empty(0)
        self.count = 0
        """Numbers taken so far."""
        self.read = 0
        """Bytes read so far."""

    def more(self) -> Floats:
        """Numbers that are at hand; none if the line is at its end."""
        while not len(self._numbers) and not self._ended:
            with reading(self._path, "csv"):
                chunk = self._text.read(self._size)
            self.read += len(chunk)
            end = chunk.find(b"\n")
            self._ended = end >= 0 or not chunk
            text = self._rest + (chunk if end < 0 else chunk[:end])
            if self._ended:
                text, self._rest = text.rstrip(b"\r\n"), b""
            else:
                text, comma, self._rest = text.rpartition(b",")
                if not comma:
                    continue
            self._numbers = self._parsed(text)
        return self._numbers

    def take(self, count: int) -> Floats:
        """The next ``count`` of them."""
        taken, self._numbers = self._numbers[:count], self._numbers[count:]
        self.count += count
        return taken

    def _parsed(self, text: bytes) -> Floats:
        fields = text.count(b",") + 1
        table = parse(text.replace(b",", b"\n"), 1, [0])
        if table is None or len(table) != fields:
            for place, field in enumerate(text.split(b","), self.count + 1):
                if number(field) is None:
                    shown = field.decode("utf-8", "replace")[:40]
                    raise InputError(
                        f"{self._path}, line {self.line}, number {place}: {shown!r} is not a number.",
                        "Repair the field; a value that is missing is written nan.",
                    )
            raise InputError(f"{self._path}, line {self.line}: it cannot be read.", "Write the file again.")
        return table[:, 0]


def looks_transposed(path: Path) -> bool:
    """Whether a file has no names above and many more columns than lines."""
    fields, start = 0, b""
    lines = 0
    with reading(path, "csv"), opened(path) as (_, text):
        for chunk in iter(lambda: text.read(1 << 20), b""):
            start = start or chunk[:4096]
            if lines == 0:
                head, newline, chunk = chunk.partition(b"\n")
                fields += head.count(b",")
                if not newline:
                    continue
                lines = 1
            lines += chunk.count(b"\n")
            if 10 * lines >= fields:
                return False
    first = start.partition(b"\n")[0].split(b",")[:-1]
    named = any(number(field) is None for field in first[1:] if field.strip())
    return fields + 1 >= _SURE and not named


def look_at_lines(path: Path) -> Transposed:
    """Find the lines of a transposed file, and their names if they have any."""
    starts: list[int] = []
    lines: list[int] = []
    names: list[str] = []
    with reading(path, "csv"), opened(path) as (_, text):
        at, line = 0, 1
        while True:
            head = text.readline(4096)
            if not head:
                break
            fresh = at
            at += len(head)
            piece = head
            while piece and not piece.endswith(b"\n"):
                piece = text.readline(1 << 20)
                at += len(piece)
            if head.strip() and not head.startswith(b"#"):
                fields = [field.strip(' "') for field in head.decode("utf-8", "replace").strip().split(",")]
                if starts or not _is_numbering(fields):
                    named = number(fields[0].encode()) is None
                    names.append(fields[0] if named else "")
                    starts.append(fresh + (head.index(b",") + 1 if named and b"," in head else 0))
                    lines.append(line)
            line += 1
    if not starts:
        raise empty(path)
    return Transposed(path, names if all(names) else None, starts, lines)


def _is_numbering(fields: Sequence[str]) -> bool:
    """Whether the fields number the columns, as pandas (0, 1, 2, ...) and R (V1, V2, ...) write them.

    >>> _is_numbering(["", "0", "1", "2", "3"]), _is_numbering(["V1", "V2", "V3"]), _is_numbering(["0.5", "1", "2"])
    (True, True, False)
    """
    found = [field.removeprefix("V") for field in fields[1:50]][: max(len(fields) - 2, 2)]  # the last may be cut
    first = int(found[0]) if found and found[0].isdigit() else -1
    rest = len(found) > 1 and found == [str(first + i) for i in range(len(found))]
    return rest and (fields[0], first) in (("", 0), ("", 1), ("0", 1), ("V1", 2))
