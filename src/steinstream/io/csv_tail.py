"""The end of a file that another process writes, or of a pipe: what has come since the last look, in whole lines.

A look opens the file anew, so that it does not matter whether the file is there yet, was replaced, or is on a network
drive. A few bytes before the place where the last look ended are compared, so that a file which was begun anew is
noticed even when it has become longer than it was.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from steinstream.errors import InputError
from steinstream.io.csv_follow import Growing, Lines, in_turns
from steinstream.io.errors import listing, reading
from steinstream.validation import Block

_CHUNK = 1 << 20
_MARK = 256
_HEAD = 1 << 16
_AHEAD = 1 << 14  # draws that one chain may be ahead of the others in memory


class BeganAnew(Exception):
    """A file is no longer the one that was read so far: the path."""


class Tail:
    """A place in a file."""

    closed = False
    """Whether nothing can come any more: a file may always grow."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at = 0
        self._mark = b""
        self.head = b""
        """How what was read begins, by which the file is known again."""

    def read(self) -> bytes:
        """Whole lines that are new, at most about a megabyte; nothing if there are none, or no file yet."""
        with reading(self.path, "csv"):
            try:
                file = self.path.open("rb")
            except FileNotFoundError:
                return b""
            with file:
                file.seek(self._at - len(self._mark))
                if file.read(len(self._mark)) != self._mark:
                    raise BeganAnew(self.path)
                text = file.read(_CHUNK)
                if len(text) == _CHUNK:
                    text += file.readline()
        text = text[: text.rfind(b"\n") + 1]
        self._at += len(text)
        self.head = (self.head + text)[:_HEAD] if len(self.head) < _HEAD else self.head
        self._mark = (self._mark + text[-_MARK:])[-_MARK:]
        return text


class Pipe:
    """A named pipe, through which every line comes once."""

    head = b""  # it is never known again

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines = Lines()
        self._file: int | None = None
        self._begun = self.closed = False

    def read(self) -> bytes:
        """Whole lines that have come; it is closed once its writer has gone."""
        with reading(self.path, "csv"):
            if self._file is None:
                self._file = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
            try:
                text = os.read(self._file, _CHUNK)
            except BlockingIOError:  # there is a writer, but nothing is written yet
                return b""
        self.closed = self._begun and not text
        self._begun = self._begun or bool(text)
        return self._lines.add(text)


class Followed:
    """Files that grow, the chains of one run, looked at again and again.

    A file without news for ``patience`` seconds is taken for finished, until there is news. ``starts`` are the draws of
    each that an earlier run has seen; ``how`` goes to :class:`Growing`.
    """

    def __init__(
        self, paths: Sequence[Path], *, starts: Sequence[int] | None = None, patience: float | None = None, **how: Any
    ) -> None:
        self._tails = [Pipe(path) if path.is_fifo() else Tail(path) for path in paths]
        counts = starts or [0] * len(paths)
        self.chains = [
            Growing(path, chain, start=start, alone=len(paths) == 1, **how)
            for chain, (path, start) in enumerate(zip(paths, counts, strict=True))
        ]
        self._patience = float("inf") if patience is None else patience
        self._news = [time.monotonic()] * len(paths)
        self._quiet = [0.0] * len(paths)  # seconds without news, at the last look

    @property
    def names(self) -> tuple[str, ...] | None:
        """The parameters, once every file has told them; all must agree."""
        first = self.chains[0]
        if any(chain.names is None for chain in self.chains):
            return None
        for chain in self.chains[1:]:
            if chain.names != first.names:
                raise InputError(
                    f"{chain.path} has the parameters {listing(chain.names or ())}, "
                    f"{first.path} has {listing(first.names or ())}.",
                    "Follow chains of one model together.",
                )
        return first.names

    @property
    def heads(self) -> list[bytes]:
        """How each file begins, as far as it was read."""
        return [tail.head for tail in self._tails]

    @property
    def ended(self) -> list[bool]:
        """Which chains have no more to come, or seem to."""
        quiet = [seconds > self._patience for seconds in self._quiet]
        several = zip(self.chains, self._tails, quiet, strict=True)
        return [chain.finished or tail.closed or still for chain, tail, still in several]

    @property
    def fraction(self) -> float:
        """How much of what the files announce has come; 0 where one announces nothing."""
        wanted = [chain.about.samples for chain in self.chains]
        if not all(wanted):
            return 0.0
        return min(1.0, sum(chain.came for chain in self.chains) / sum(count or 0 for count in wanted))

    def look(self) -> bool:
        """Read what is new. A file far ahead of the others waits: its draws are safe where they are."""
        grew = False
        for at, (tail, chain) in enumerate(zip(self._tails, self.chains, strict=True)):
            ahead = chain.ready > _AHEAD
            text = b"" if ahead else tail.read()
            if text:
                chain.feed(text)
            now = time.monotonic()
            if text or ahead:
                self._news[at] = now
            self._quiet[at] = now - self._news[at]
            grew = grew or bool(text)
        return grew

    def blocks(self, last: bool = False) -> Iterator[Block]:
        """The draws that have come, a draw of each chain in turns; at the ``last`` look no chain is waited for."""
        if self.names is None and not last:
            return iter(())
        chains = [chain for chain in self.chains if chain.names is not None]
        over = [last or end for chain, end in zip(self.chains, self.ended, strict=True) if chain.names is not None]
        return in_turns(chains, over)
