"""CmdStan's csv files, plain or gzipped: draws and scores from the diagnostic file, variables from the output file.

The score is minus the gradient in the file (:mod:`steinstream.io.cmdstan`). Draws of the warm-up, where they were
saved, are left out and not counted: draw 0 is the first after it, as in cmdstanpy.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from steinstream.errors import InputError
from steinstream.io.base import DRAWS, SCORES, Chain, Floats, Ints, Request
from steinstream.io.cmdstan import FOOTER, Config, Fields, config, fields, is_header, output_of, shaped
from steinstream.io.csv import open_csv
from steinstream.io.csv_rows import Sheet, is_gzipped, look, opened, regroup
from steinstream.io.errors import listing, reading
from steinstream.result import Variable
from steinstream.validation import Block, consecutive_ids

_KIND = "a CmdStan csv file"


def matches(path: Path, head: bytes) -> bool:
    """Whether a file that begins like this is CmdStan's; ``head`` may be gzipped."""
    if head.startswith(b"\x1f\x8b"):
        try:
            head = zlib.decompressobj(31).decompress(head)
        except zlib.error:
            return False
    for line in head.splitlines():
        if line.startswith((b"# stan_version", b"# model = ")):
            return True
        if line.strip() and not line.startswith(b"#"):
            return is_header(line)
    return False


class StanChain(Chain):
    """One chain: its diagnostic file, and its output file if that is known."""

    def __init__(self, sheet: Sheet, columns: Fields, about: Config, output: Path | None) -> None:
        super().__init__(sheet.path, len(columns.names), columns.names, None, 1)
        self._sheet, self._columns, self._about, self._output = sheet, columns, about, output
        self._limit = None if output is None else _rows_of_a_torso(output, about.warmup)

    def fraction(self) -> float | None:
        """Part of the bytes read so far."""
        return self._sheet.fraction

    def _read(self, rows: int, skip: int) -> Iterator[Block]:
        columns = self._columns
        tables = self._sheet.rows([*columns.draws, *columns.gradients], skip + self._about.warmup)
        for table in regroup(tables, rows):
            if self._limit is not None:
                table = table[: max(self._limit - skip, 0)]
                if not len(table):
                    return
            yield Block(table[:, : self.dim].copy(), -table[:, self.dim :], consecutive_ids(0, skip, len(table)))
            skip += len(table)

    def variables(self, ids: Ints) -> dict[str, Variable]:
        """The constrained draws with these ids, from the output file; none if one is not of this chain."""
        if self._output is None or (ids[:, 0] != 0).any():
            return {}
        return constrained(self.path, self._output, ids[:, 1], self._about.warmup)

    def notes(self) -> list[tuple[str, str]]:
        """What kind of file it is, where its scores are, and where its constrained draws."""
        about, first = self._about, (self._sheet.header or [""])[self._columns.gradients[0]]
        made = "CmdStan" + (f" {about.version}" if about.version else "") + (f", {about.model}" if about.model else "")
        lines = [("from", f"{made}: unconstrained draws, and scores as minus the columns {first}, ...")]
        if about.samples and 0 < self._seen < about.samples:
            lines.append(("cut", f"{self.path.name} has {self._seen} of {about.samples} draws: it runs still, or died"))
        if self._output is None:
            lines.append(("variables", "unknown: no output file beside it; name it with --output-csv FILE"))
        else:
            with opened(self._output, _KIND) as (_, text):
                titles = _titles(self._output, text)
            found = shaped(titles, np.zeros((1, len(titles))))
            lines.append(("variables", f"{listing(map(_shown, found, found.values()))} in {self._output.name}"))
        return lines


def _shown(name: str, variable: Variable) -> str:
    """``w[3]``."""
    return name + "".join(f"[{size}]" for size in variable.values.shape[1:])


def open_stan(request: Request) -> Chain:
    """Open a diagnostic file. Columns listed by the user are read as in any other csv file."""
    if (request.draws_name, request.scores_name) != (DRAWS, SCORES) or request.scores is not None:
        return open_csv(request)
    path = request.path
    with reading(path, _KIND), opened(path, _KIND) as (_, text):
        about = config(_comments(text))
    sheet = look(path)
    if sheet.header is None:
        raise InputError(f"{path} has no line of names.", "Copy or write it again, as CmdStan made it.")
    sheet.header[:] = [title.strip() for title in sheet.header]
    columns = fields(sheet.header, path)
    _require_whole(path)
    output = request.output or output_of(path, about.output)
    if output is not None:
        constrained(path, output, np.zeros(1, dtype=np.int64), 0)  # are they of one run?
    return StanChain(sheet, columns, about, output)


def constrained(
    diagnostic: Path, output: Path, draws: Ints, warmup: int, partial: bool = False
) -> dict[str, Variable]:  # fmt: skip
    """These draws of the output file, in the order given. Their densities must be those in the diagnostic file.

    A draw that the output file does not have, or not yet, is an error; with ``partial`` its values are nan.
    """
    rows, places = np.unique(draws + warmup, return_inverse=True)
    here, there = _picked(diagnostic, rows, partial), _picked(output, rows, partial)
    if "lp__" in here.titles and "lp__" in there.titles:
        both = min(here.found, there.found)
        one, other = here.column("lp__")[:both], there.column("lp__")[:both]
        differ = np.flatnonzero(~((one == other) | (np.isnan(one) & np.isnan(other))))
        if differ.size:
            at = int(differ[0])
            raise InputError(
                f"{output} is not of the same run as {diagnostic}: row {rows[at] + 1} has lp__ {other[at]:g}, "
                f"there it is {one[at]:g}.",
                "Name the output file of this run with --output-csv FILE.",
            )
    return shaped(there.titles, there.table[places.ravel()])


class Picked(NamedTuple):
    """Some rows of a file, with the names of its columns."""

    titles: list[str]
    table: Floats
    found: int
    """Rows that there are; the others are nan."""

    def column(self, title: str) -> Floats:
        """One column."""
        return self.table[:, self.titles.index(title)]


class MissingRowsError(InputError):
    """A file is shorter than the one it goes with, or not yet as long."""


def _picked(path: Path, rows: Ints, partial: bool) -> Picked:
    """Read these rows, sorted, and no other: lines are passed over without a look at their numbers."""
    wanted, lines = rows.tolist(), []
    with opened(path, _KIND) as (_, text):
        titles = _titles(path, text)
        with reading(path, _KIND):
            data = filter(_is_row, text)
            position = 0
            for row in wanted:
                for line in data:
                    position += 1
                    if position > row:
                        lines.append(line)
                        break
    if len(lines) < len(wanted) and not partial:
        raise MissingRowsError(
            f"{path} ends after {position} rows, and row {wanted[len(lines)] + 1} is wanted.",
            "Diagnostic and output file go together row by row: check that both are whole and of one run.",
        )
    table = np.full((len(wanted), len(titles)), np.nan)
    table[: len(lines)] = as_table(path, titles, lines)
    return Picked(titles, table, len(lines))


def _is_row(line: bytes) -> bool:
    """Neither comment nor blank, nor a line without its end."""
    return not line.startswith((b"#", b"\n", b"\r")) and line.endswith(b"\n")


def as_table(path: Path, titles: list[str], lines: list[bytes]) -> Floats:
    """Whole lines as numbers."""
    table = np.empty((len(lines), len(titles)))
    for row, line in enumerate(lines):
        parts = line.rstrip(b"\r\n").split(b",")
        try:
            if len(parts) != len(titles):
                raise ValueError
            table[row] = [float(part) for part in parts]
        except ValueError:
            shown = line[:60].decode("utf-8", "replace").rstrip()
            raise InputError(
                f"{path}: the line that begins {shown!r} is not {len(titles)} numbers.", "Copy or write the file again."
            ) from None
    return table


def _comments(text: IO[bytes]) -> Iterator[bytes]:
    """The comments before the names, which are consumed too."""
    for line in text:
        if not line.startswith(b"#"):
            return
        yield line


def _titles(path: Path, text: IO[bytes]) -> list[str]:
    """The line of names, after which the rows begin."""
    with reading(path, _KIND):
        for line in text:
            if line.strip() and not line.startswith(b"#"):
                return [title.strip() for title in line.decode("utf-8", "replace").split(",")]
    raise MissingRowsError(f"{path} has no line of names.", "Copy or write it again, as CmdStan made it.")


def _rows_of_a_torso(path: Path, warmup: int) -> int | None:
    """How many draws the output file of a run that died has; None if it was finished.

    Each of the two files is written in pieces of its own, so that one of them has a few draws more.
    """
    with reading(path, _KIND), path.open("rb") as file:
        if is_gzipped(path, file):
            return None
        file.seek(-min(512, path.stat().st_size), 2)
        if FOOTER in file.read():
            return None
        file.seek(0)
        _titles(path, file)
        return max(sum(map(_is_row, file)) - warmup, 0)


def _require_whole(path: Path) -> None:
    """A line that was cut off may still read as numbers, and be wrong in the last of them."""
    with path.open("rb") as file:
        if is_gzipped(path, file):
            return
        file.seek(-1, 2)
        if file.read(1) != b"\n":
            raise InputError(
                f"{path} ends in the middle of a line.",
                "The sampler runs still, or was cut off: steinstream follow --until-idle 5 takes the whole lines.",
            )
