"""A csv file while it is being written: whole lines go in, as they come, and draws come out.

Where the text comes from, a file that grows or a pipe, is not known here. Several such chains are taken in turns, a
draw of each: what is kept then depends on the draws alone, not on which sampler was faster.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from steinstream.errors import InputError
from steinstream.io.base import DRAWS, SCORES, Floats, Ints
from steinstream.io.cmdstan import FOOTER, Config, config, fields, is_header
from steinstream.io.columns import Columns, Numbering, paired
from steinstream.io.csv_numbers import number, parse
from steinstream.validation import Block


class Lines:
    """Text in pieces of any size, as whole lines."""

    def __init__(self) -> None:
        self._rest = b""

    def add(self, text: bytes) -> bytes:
        """The lines that are whole now; an unfinished one waits for its end."""
        text = self._rest + text
        end = text.rfind(b"\n") + 1
        self._rest = text[end:]
        return text[:end]


class Preamble:
    """The comments and the line of names in front of the rows."""

    def __init__(self) -> None:
        self.comments: list[bytes] = []
        self.titles: list[str] | None = None
        self.lines = 0

    def take(self, text: bytes) -> bytes:
        """Take in what belongs to it; the rest is rows."""
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
        """Whether CmdStan wrote it."""
        return any(line.startswith((b"# stan_version", b"# model = ")) for line in self.comments) or (
            is_header(",".join(self.titles or []).encode())
        )


class Growing:
    """One chain: its rows, as far as they have come and were not taken yet.

    ``start`` draws are passed over, which an earlier run has seen. ``alone`` is False where several chains are taken
    together, and their files give them their numbers.
    """

    def __init__(
        self, path: Path, chain: int = 0, *, start: int = 0, draws_name: str = DRAWS, scores_name: str = SCORES,
        negate: bool = False, alone: bool = True,
    ) -> None:  # fmt: skip
        self.path, self.chain, self._alone = path, chain, alone
        self._named, self._negate = (draws_name, scores_name), negate
        self._preamble = Preamble()
        self._columns: Columns | None = None
        self._numbering = Numbering(path, start)
        self._sign = -1.0 if negate else 1.0
        self._pass_over = self._start = start
        self._rows: list[Floats] = []
        self._ids: list[Ints] = []
        self._line = 1
        self.about = Config(None, None, None, 0, None)
        self.is_stan = False
        self.ready = 0
        """Draws that can be taken."""
        self.came = start
        """Draws that have come, those passed over included."""
        self.taken = start
        self.footer = False

    @property
    def names(self) -> tuple[str, ...] | None:
        """The parameters, once they are known."""
        return None if self._columns is None else tuple(self._columns.names)

    @property
    def finished(self) -> bool:
        """Whether no more will come, as far as the file itself tells."""
        return self.footer or (self.about.samples is not None and self.came >= self.about.samples)

    def feed(self, text: bytes) -> None:
        """Take in whole lines."""
        if self._columns is None:
            text = self._preamble.take(text)
            if self._preamble.titles is None:
                return
            self._line += self._preamble.lines
            self._open(self._preamble.titles)
        self._take_rows(text)

    def _open(self, titles: list[str]) -> None:
        """Know the columns."""
        if self._preamble.is_stan and self._named == (DRAWS, SCORES):
            found = fields(titles, self.path)
            self.about, self.is_stan = config(self._preamble.comments), True
            self._columns = Columns(list(found.names), found.draws, found.gradients, None, None)
            self._sign = -self._sign
            self._pass_over += self.about.warmup
            return
        if all(number(title.encode()) is not None for title in titles):
            raise InputError(
                f"{self.path} has no header to tell draws from scores.", "Give the columns names: NAME and score_NAME."
            )
        self._columns = paired(titles, *self._named, self.path)
        if self._columns.ids and not self._alone:
            raise InputError(f"{self.path} has a column of chains or draws.", "Follow such a file alone.")
        if self._columns.ids and self._start:
            raise InputError(f"{self.path} has a column of chains or draws.", "Such a file cannot be resumed.")

    def _take_rows(self, text: bytes) -> None:
        if self._columns is None or not text:
            return
        lines, first = text.count(b"\n"), self._line
        whole, self._line = text, self._line + lines
        if b"#" in text or b"\n\n" in text or b"\r" in text or text.startswith(b"\n"):
            text = self._without_comments(text)
        if self._pass_over:
            text = self._skipped(text)
        if not text:
            return
        columns, width = self._columns, len(self._preamble.titles or [])
        chosen = [*columns.draws, *columns.ids, *columns.scores]
        table = parse(text, width, chosen)
        if table is None:
            raise self._culprit(whole, first, width, chosen)
        numbers = iter(table[:, len(columns.draws) : len(columns.draws) + len(columns.ids)].T)
        chain = None if columns.chain is None else next(numbers)
        draw = None if columns.draw is None else next(numbers)
        ids = self._numbering.ids(len(table), chain, draw)
        ids[:, 0] += self.chain
        self._rows.append(table)
        self._ids.append(ids)
        self.ready += len(table)
        self.came += len(table)

    def _without_comments(self, text: bytes) -> bytes:
        rows = []
        for line in text.replace(b"\r\n", b"\n").splitlines(keepends=True):
            if not line.startswith((b"#", b"\n")):
                rows.append(line)
            elif self.is_stan and FOOTER in line:
                self.footer = True
        return b"".join(rows)

    def _skipped(self, text: bytes) -> bytes:
        at = 0
        while self._pass_over and at < len(text):
            at = text.index(b"\n", at) + 1
            self._pass_over -= 1
        return text[at:]

    def _culprit(self, text: bytes, line: int, width: int, chosen: Sequence[int]) -> InputError:
        """Find the line that cannot be read."""
        for at, row in enumerate(text.splitlines(), line):
            found = row.split(b",")
            if not row or row.startswith(b"#"):
                continue
            if len(found) != width:
                return InputError(
                    f"{self.path}, line {at}: {len(found)} fields, expected {width}.",
                    "The sampler was cut off there, or two of them write to one file: start it again.",
                )
            for column in chosen:
                if number(found[column]) is None:
                    title = (self._preamble.titles or [])[column]
                    shown = found[column].decode("utf-8", "replace")[:40]
                    return InputError(
                        f"{self.path}, line {at}, column {title}: {shown!r} is not a number.",
                        "A value that is missing is written nan.",
                    )
        return InputError(f"{self.path}: line {line} or a later one cannot be read.", "Start the sampler again.")

    def take(self, count: int) -> Block:
        """The next draws."""
        rows, ids = np.concatenate(self._rows), np.concatenate(self._ids)
        self._rows, self._ids = [rows[count:]], [ids[count:]]
        self.ready -= count
        self.taken += count
        dim = len(self.names or ())
        return Block(rows[:count, :dim].copy(), self._sign * rows[:count, -dim:], ids[:count])


class Ready(Protocol):
    """A chain of which so many draws can be taken."""

    @property
    def ready(self) -> int:
        """How many."""

    def take(self, count: int) -> Block:
        """The next of them."""


def in_turns(chains: Sequence[Ready], ended: Sequence[bool]) -> Iterator[Block]:
    """A draw of each chain, again and again, as far as none has to be waited for.

    A chain that has ended is left out once its draws are used up.
    """
    while True:
        going = [chain for chain, over in zip(chains, ended, strict=True) if chain.ready or not over]
        rounds = min((chain.ready for chain in going), default=0)
        if not rounds:
            return
        blocks = [chain.take(rounds) for chain in going]
        # (rounds, chains, d): a round after the other
        yield Block(*(np.stack(parts, axis=1).reshape(-1, parts[0].shape[1]) for parts in zip(*blocks, strict=True)))
