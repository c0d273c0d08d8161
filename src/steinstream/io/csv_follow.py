"""Follow csv files while they are written, or named pipes: complete lines are read as they appear.

The file is opened again for each read, so it may not exist yet, may be replaced, or may be on a network drive. A few
bytes before the last position are compared, so that a file that was started again is detected even if it is longer than
before.

Several chains are interleaved, one draw of each in turn. The kept set then depends on the draws only, not on which
sampler was faster.
"""

from __future__ import annotations

import csv
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from steinstream._typing import Array, Integers
from steinstream.errors import InputError
from steinstream.io._columns import RowIds, TableColumns, find_columns
from steinstream.io._csv_rows import LONGEST_LINE, invalid_line, parse_number, parse_rows, read_line
from steinstream.io.base import DRAWS, SCORES, Request, find_parameters, no_scores, require_one_model
from steinstream.io.cmdstan import (
    FOOTER,
    CmdStanConfig,
    find_stan_columns,
    is_stan_comment,
    is_stan_header,
    parse_config,
)
from steinstream.io.errors import reading
from steinstream.io.interleaving import interleave
from steinstream.validation import Block

_CHUNK = 1 << 20  # bytes read at a time
_MARK = 256  # bytes before the last position that are compared
_HEAD = 1 << 16  # bytes at the start that identify a file in a checkpoint
_MAX_AHEAD = 1 << 14  # draws of one chain that may wait in memory for those of the others

# -- text to draws -----------------------------------------------------------------------------------------------------


class LineBuffer:
    """Collects text in pieces of any size and returns complete lines."""

    def __init__(self) -> None:
        self._rest = b""

    def add(self, text: bytes) -> bytes:
        """Add a piece, and return the lines that are complete now."""
        text = self._rest + text
        end = text.rfind(b"\n") + 1
        self._rest = text[end:]
        if len(self._rest) > LONGEST_LINE:
            raise InputError(f"A line is longer than {LONGEST_LINE >> 20} MB.", "Write one line per draw.")
        return text[:end]


class CsvPreamble:
    """Comments and header of a csv file; ``titles`` is None before the header was read."""

    def __init__(self) -> None:
        self.comments: list[bytes] = []
        self.titles: list[str] | None = None
        self.lines = 0

    def take(self, text: bytes) -> bytes:
        """Take the lines that belong to the preamble, and return the rest."""
        at = 0
        while self.titles is None and at < len(text):
            end = text.index(b"\n", at) + 1
            line, at = text[at:end], end
            self.lines += 1
            if line.startswith(b"#"):
                self.comments.append(line)
            elif line.strip():
                self.titles = [title.strip() for title in next(csv.reader([line.decode("utf-8", "replace")]))]
        return text[at:]

    @property
    def is_stan(self) -> bool:
        """Whether CmdStan wrote the file."""
        return any(map(is_stan_comment, self.comments)) or is_stan_header(",".join(self.titles or []).encode())


class GrowingCsv:
    """Draws of one chain whose text arrives in pieces.

    The first ``start`` draws are skipped, because an earlier run has processed them. If the chain is not ``alone``, its
    file must not contain id columns. The other options are those of `open_chain`.
    """

    def __init__(
        self,
        path: Path,
        chain: int = 0,
        *,
        start: int = 0,
        draws_name: str = DRAWS,
        scores_name: str = SCORES,
        negate: bool = False,
        parameters: Sequence[str] | None = None,
        alone: bool = True,
    ) -> None:
        self.path, self.chain = path, chain
        self.is_stan = False  # whether CmdStan writes the file
        self.config = CmdStanConfig()
        self.ready = 0  # draws that can be taken
        self.received = self.taken = start  # draws, including those skipped
        chosen = None if parameters is None else tuple(parameters)
        self._request, self._alone = Request(path, None, draws_name, scores_name, parameters=chosen), alone
        self._preamble = CsvPreamble()
        self._columns: TableColumns | None = None
        self._row_ids = RowIds(path, start)
        self._sign = -1.0 if negate else 1.0
        self._skip = self._start = start
        self._rows: list[Array] = []
        self._ids: list[Integers] = []
        self._line = 1
        self._footer = False

    @property
    def names(self) -> tuple[str, ...] | None:
        """Parameter names; None before the header was read."""
        return None if self._columns is None else tuple(self._columns.names)

    @property
    def has_scores(self) -> bool:
        """Whether the file contains scores; False before the header was read."""
        return self._columns is not None and bool(self._columns.scores)

    @property
    def finished(self) -> bool:
        """Whether the content shows that the file is complete."""
        return self._footer or (self.config.samples is not None and self.received >= self.config.samples)

    def feed(self, text: bytes) -> None:
        """Process complete lines."""
        if self._columns is None:
            with reading(self.path, "csv"):
                text = self._preamble.take(text)
            if self._preamble.titles is None:
                return
            self._line += self._preamble.lines
            self._columns = self._find_columns(self._preamble.titles)
        if text:
            self._add_rows(text, self._columns)

    def _find_columns(self, titles: list[str]) -> TableColumns:
        request = self._request
        if self._preamble.is_stan and (request.draws_name, request.scores_name) == (DRAWS, SCORES):
            found = find_stan_columns(titles, self.path)
            self.config, self.is_stan = parse_config(self._preamble.comments), True
            self._sign = -self._sign
            self._skip += self.config.warmup
            places = [*range(len(found.names))]
            if request.parameters is not None:
                places = find_parameters(found.names, request.parameters, self.path)
            names, draws = ([each[at] for at in places] for each in (found.names, found.draws))
            gradients = [found.gradients[at] for at in places] if found.gradients else []
            return TableColumns(names, draws, gradients, left_out=found.left_out)
        if all(parse_number(title.encode()) is not None for title in titles):
            raise InputError(
                f"{self.path} has no header.", "Name the columns in the first line: NAME, and score_NAME for scores."
            )
        columns = find_columns(titles, request)
        if columns.ids and not self._alone:
            raise InputError(f"{self.path} has a column chain or draw.", "Follow such a file alone.")
        if columns.ids and self._start:
            raise InputError(f"{self.path} has a column chain or draw.", "Such a file cannot be resumed.")
        return columns

    def _add_rows(self, text: bytes, columns: TableColumns) -> None:
        received, first = text, self._line
        self._line += text.count(b"\n")
        if b"#" in text or b"\n\n" in text or b"\r" in text or text.startswith(b"\n"):
            text = self._remove_comments(text)
        if self._skip:
            text = self._skip_rows(text)
        if not text:
            return
        titles = self._preamble.titles or []
        chosen = [*columns.draws, *columns.ids, *columns.scores]
        table = parse_rows(text, len(titles), chosen)
        if table is None:
            raise invalid_line(self.path, received, first, titles, len(titles), chosen)
        dim = len(columns.draws)
        ids = self._row_ids.next_of_table(columns, table[:, dim : dim + len(columns.ids)])
        ids[:, 0] += self.chain
        self._rows.append(table)
        self._ids.append(ids)
        self.ready += len(table)
        self.received += len(table)

    def _remove_comments(self, text: bytes) -> bytes:
        rows = []
        for line in text.replace(b"\r\n", b"\n").splitlines(keepends=True):
            if not line.startswith((b"#", b"\n")):
                rows.append(line)
            elif self.is_stan and FOOTER in line:
                self._footer = True
        return b"".join(rows)

    def _skip_rows(self, text: bytes) -> bytes:
        at = 0
        while self._skip and at < len(text):
            at = text.index(b"\n", at) + 1
            self._skip -= 1
        return text[at:]

    def take(self, count: int) -> Block:
        """Return the next ``count`` draws."""
        rows, ids = np.concatenate(self._rows), np.concatenate(self._ids)
        self._rows, self._ids = [rows[count:]], [ids[count:]]
        self.ready -= count
        self.taken += count
        dim = len(self.names or ())
        scores = self._sign * rows[:count, -dim:] if self.has_scores else no_scores(len(ids[:count]))
        return Block(rows[:count, :dim].copy(), scores, ids[:count])


class DrawQueue(Protocol):
    """A chain from which draws can be taken."""

    @property
    def ready(self) -> int:
        """Number of draws that can be taken."""

    def take(self, count: int) -> Block:
        """Return the next ``count`` draws."""


def interleave_ready(chains: Sequence[DrawQueue], ended: Sequence[bool]) -> Iterator[Block]:
    """Take one draw of each chain in turn, until a chain has none ready; chains that have ended are left out."""
    while True:
        active = [chain for chain, over in zip(chains, ended, strict=True) if chain.ready or not over]
        rounds = min((chain.ready for chain in active), default=0)
        if not rounds:
            return
        yield interleave([chain.take(rounds) for chain in active])


# -- files and pipes ---------------------------------------------------------------------------------------------------


class FileReplacedError(Exception):
    """A file is not the one that was read so far; the argument is its path."""


class FileTail:
    """Reads a file as it grows; ``head`` are its first bytes, which identify it in a checkpoint."""

    closed = False  # a file can always grow

    def __init__(self, path: Path) -> None:
        self.path = path
        self.head = b""
        self._at = 0
        self._mark = b""

    def read(self) -> bytes:
        """Return new complete lines, about a megabyte at most; nothing if there are none or no file yet."""
        with reading(self.path, "csv"):
            try:
                file = self.path.open("rb")
            except FileNotFoundError:
                return b""
            with file:
                file.seek(self._at - len(self._mark))
                if file.read(len(self._mark)) != self._mark:
                    raise FileReplacedError(self.path)
                text = file.read(_CHUNK)
                if len(text) == _CHUNK:
                    text += read_line(self.path, file)
        text = text[: text.rfind(b"\n") + 1]
        self._at += len(text)
        self.head = (self.head + text)[:_HEAD] if len(self.head) < _HEAD else self.head
        self._mark = (self._mark + text[-_MARK:])[-_MARK:]
        return text


class PipeTail:
    """Reads a named pipe, from which every line can be read only once; ``closed`` when its writer has closed it."""

    head = b""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines = LineBuffer()
        self._file: int | None = None
        self._begun = self.closed = False

    def read(self) -> bytes:
        """Return new complete lines."""
        with reading(self.path, "csv"):
            if self._file is None:
                self._file = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
            try:
                text = os.read(self._file, _CHUNK)
            except BlockingIOError:  # there is a writer, but no new text
                return b""
        self.closed = self._begun and not text
        self._begun = self._begun or bool(text)
        return self._lines.add(text)


class FollowedFiles:
    """Growing files or pipes that are the chains of one run.

    ``starts`` are the numbers of draws to skip. A file without new text for ``patience`` seconds counts as ended.
    ``options`` are those of `GrowingCsv`.
    """

    def __init__(
        self, paths: Sequence[Path], *, starts: Sequence[int] | None = None, patience: float = np.inf, **options: Any
    ) -> None:
        # Standard input ends, whether it is a pipe or a file; a file that is named can grow.
        pipes = [path.is_fifo() or path.parent == Path("/dev") for path in paths]
        self._tails = [PipeTail(path) if pipe else FileTail(path) for path, pipe in zip(paths, pipes, strict=True)]
        counts = starts or [0] * len(paths)
        self.chains = [
            GrowingCsv(path, chain, start=start, alone=len(paths) == 1, **options)
            for chain, (path, start) in enumerate(zip(paths, counts, strict=True))
        ]
        self._patience = patience
        self._last_text = [time.monotonic()] * len(paths)
        self._idle = [0.0] * len(paths)  # seconds without new text, at the last read

    @property
    def names(self) -> tuple[str, ...] | None:
        """Parameter names, which must agree; None before every header was read."""
        if any(chain.names is None for chain in self.chains):
            return None
        require_one_model((chain.path, chain.names or (), chain.has_scores) for chain in self.chains)
        return self.chains[0].names

    @property
    def heads(self) -> list[bytes]:
        """First bytes of each file."""
        return [tail.head for tail in self._tails]

    @property
    def ended(self) -> list[bool]:
        """Whether each chain is complete, or has been idle for longer than ``patience``."""
        idle = [seconds > self._patience for seconds in self._idle]
        states = zip(self.chains, self._tails, idle, strict=True)
        return [chain.finished or tail.closed or still for chain, tail, still in states]

    @property
    def fraction(self) -> float:
        """Part of the announced draws that was received; 0 if a file announces none."""
        announced = [chain.config.samples for chain in self.chains]
        if not all(announced):
            return 0.0
        return min(1.0, sum(chain.received for chain in self.chains) / sum(count or 0 for count in announced))

    def read(self) -> bool:
        """Read new text, and return whether there was any. A file far ahead of the others is not read."""
        grew = False
        for at, (tail, chain) in enumerate(zip(self._tails, self.chains, strict=True)):
            ahead = chain.ready > _MAX_AHEAD
            text = b"" if ahead else tail.read()
            if text:
                chain.feed(text)
            now = time.monotonic()
            if text or ahead:
                self._last_text[at] = now
            self._idle[at] = now - self._last_text[at]
            grew = grew or bool(text)
        return grew

    def blocks(self, last: bool = False) -> Iterator[Block]:
        """Iterate over the new draws, interleaved; with ``last`` no chain is waited for."""
        if self.names is None and not last:
            return iter(())
        chains = [chain for chain in self.chains if chain.names is not None]
        over = [last or end for chain, end in zip(self.chains, self.ended, strict=True) if chain.names is not None]
        return interleave_ready(chains, over)
