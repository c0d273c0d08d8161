"""csv files of CmdStan, plain or gzipped: draws and scores from the diagnostic file, variables from the output file.

A run writes two files. The *output* file contains the draws as the model declares them (``sigma``, ``w.1``, ``w.2``,
``w.3``). The *diagnostic* file contains them unconstrained, as the sampler moves them, with momenta ``p_NAME`` and
gradients ``g_NAME``. The gradient is that of the potential energy, which is **minus** the score. The columns of both
files have the same names, although ``sigma`` in the diagnostic file is log sigma; here the unconstrained parameters are
called ``sigma_unc`` and ``w_unc.1``.

An output file without its diagnostic file has draws, in the coordinates of the model, but no scores. CmdStan does not
mark which of its columns are parameters, transformed parameters or generated quantities: all are read, without log
densities (``lp__``, ``log_lik``) and the sampler's own columns, unless the user names the parameters.

Draws of the warm-up, if they were saved, are left out and not counted: draw 0 is the first one after the warm-up, as in
cmdstanpy.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from steinstream._formatting import listing
from steinstream._typing import Array, Flags, Integers
from steinstream.errors import InputError
from steinstream.io._columns import combine_elements, not_a_parameter, split_element
from steinstream.io._csv_rows import CsvFile, is_gzipped, open_text, read_line, regroup
from steinstream.io.base import DRAWS, SCORES, SCORES_GUIDE, Chain, Request, no_scores
from steinstream.io.csv import open_csv
from steinstream.io.errors import DAMAGE, reading
from steinstream.result import Variable
from steinstream.validation import Block, consecutive_ids

#: Column of the sampler that marks divergent transitions.
DIVERGENT = "divergent__"

#: Part of the last comment of a run that finished.
FOOTER = b"Elapsed Time"

_KIND = "a CmdStan csv file"
_FLAG_ROWS = 8192  # draws whose flags are read at a time
_HEAD = 1 << 16  # bytes at the start of a file that contain the comments
_SETTING = re.compile(r"#(\s+)(\w+) =\s*(.*?)\s*(?:\(Default\))?\s*$")
_SECTION = re.compile(r"# (\w+)\s*$")
_DIAGNOSTIC = re.compile(r"[-_.]?diagnostics?", re.IGNORECASE)

# -- comments and columns ----------------------------------------------------------------------------------------------


class CmdStanConfig(NamedTuple):
    """Settings in the comments before the header."""

    version: str | None = None  # of Stan
    model: str | None = None
    samples: int | None = None  # number of draws after the warm-up when the run is finished
    warmup: int = 0  # number of saved draws of the warm-up
    output: str | None = None  # name of the output file


def parse_config(comments: Iterable[bytes]) -> CmdStanConfig:
    """Parse the comments before the header."""
    found: dict[str, str] = {}
    section = ""
    for comment in comments:
        line = comment.decode("utf-8", "replace").rstrip()
        if head := _SECTION.match(line):
            section = head[1]
        elif setting := _SETTING.match(line):
            section = section if len(setting[1]) > 1 else ""
            found[f"{section}.{setting[2]}"] = found[setting[2]] = setting[3]
    thin = max(_whole(found.get("thin")) or 1, 1)
    samples, warmup = (_whole(found.get(key)) for key in ("num_samples", "num_warmup"))
    saved = found.get("save_warmup", "").lower() in ("1", "true")
    return CmdStanConfig(
        f"{found['stan_version_major']}.{found.get('stan_version_minor')}" if "stan_version_major" in found else None,
        found.get("model"),
        None if samples is None else math.ceil(samples / thin),
        math.ceil((warmup or 0) / thin) if saved else 0,
        Path(found["output.file"]).name if found.get("output.file") else None,
    )


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


def is_stan_comment(line: bytes) -> bool:
    """Return whether a comment is one that only CmdStan writes."""
    return line.startswith((b"# stan_version", b"# model = "))


def is_stan_header(line: bytes) -> bool:
    """Return whether this is the header of a CmdStan file, for files without their comments."""
    return line.startswith(b"lp__,") and b"__," in line[5:]


def is_cmdstan(path: Path, head: bytes) -> bool:
    """Return whether a file that begins with ``head``, gzipped or not, was written by CmdStan."""
    if head.startswith(b"\x1f\x8b"):
        try:
            head = zlib.decompressobj(31).decompress(head, len(head))
        except zlib.error:
            return False
    for line in head.splitlines():
        if is_stan_comment(line):
            return True
        if line.strip() and not line.startswith(b"#"):
            return is_stan_header(line)
    return False


class StanColumns(NamedTuple):
    """Names of the parameters, and positions of draws and gradients; an output file has no gradients."""

    names: tuple[str, ...]
    draws: list[int]
    gradients: list[int]
    left_out: dict[str, str]  # title -> reason


def find_stan_columns(header: Sequence[str], path: Path) -> StanColumns:
    """Find the columns of a file of CmdStan.

    A diagnostic file has the columns of the sampler, then NAME..., p_NAME..., g_NAME... Every other file is an output
    file, with the columns of the sampler, then those of the model.

    Returns
    -------
    StanColumns
        The columns.
    """
    first = _first_parameter(header)
    dim = (len(header) - first) // 3
    names = list(header[first : first + dim])
    if names and header[first:] == [*names, *(f"p_{name}" for name in names), *(f"g_{name}" for name in names)]:
        last = first + 2 * dim
        gradients = [*range(last, last + dim)]
        return StanColumns(tuple(map(unconstrained_name, names)), [*range(first, first + dim)], gradients, {})
    reasons = [not_a_parameter(title) for title in header]
    draws = [at for at, reason in enumerate(reasons) if reason is None]
    if not draws:
        raise InputError(f"{path} has no parameters: it has {listing(header)}.", "Sample from a model with parameters.")
    left_out = {title: reason for title, reason in zip(header, reasons, strict=True) if reason is not None}
    return StanColumns(tuple(header[at] for at in draws), draws, [], left_out)


def _first_parameter(header: Sequence[str]) -> int:
    """Return the number of the sampler's own columns, whose names end in two underscores."""
    return next((at for at, title in enumerate(header) if not title.endswith("__")), len(header))


def unconstrained_name(name: str) -> str:
    """Return the name of an unconstrained parameter."""
    base, place = split_element(name)
    return f"{base}_unc" + "".join(f".{index}" for index in place)


def stan_variables(titles: Sequence[str], table: Array) -> dict[str, Variable]:
    """Convert the columns of an output file to the variables of the model, without those of the sampler."""
    first = _first_parameter(titles)
    return combine_elements(titles[first:], table[:, first:])


# -- names of files ----------------------------------------------------------------------------------------------------


def find_output(path: Path, name: str | None) -> Path | None:
    """Find the output file of a diagnostic file: with the same name without "diagnostic", or ``name``."""
    names = [_DIAGNOSTIC.sub("", path.name, count=1)] if _DIAGNOSTIC.search(path.name) else []
    return _first_existing(path, [*names, *([name] if name else [])])


def find_output_of(path: Path) -> Path | None:
    """Find the output file of a file that may be a diagnostic file; None if there is none or it cannot be read."""
    head = b""
    with suppress(*DAMAGE):
        if path.is_file():
            with open_text(path) as (_, text):
                head = text.read(_HEAD)
        comments = takewhile(lambda line: line.startswith(b"#"), head.splitlines())
        return find_output(path, parse_config(comments).output)
    return None


def find_diagnostic(path: Path) -> Path | None:
    """Find the diagnostic file of an output file."""
    stem = path.name.removesuffix(".gz").removesuffix(".csv")
    names = [f"{stem}{separator}diagnostic.csv" for separator in "-_"]
    if numbered := re.fullmatch(r"(.+)([-_]\d+)", stem):
        names = [f"{numbered[1]}{separator}diagnostic{numbered[2]}.csv" for separator in "-_"] + names
    return _first_existing(path, names)


def _first_existing(path: Path, names: Iterable[str]) -> Path | None:
    """Return the first of these files that exists in the same folder, gzipped or not."""
    for name in names:
        plain = name.removesuffix(".gz")
        for each in (name, plain, f"{plain}.gz"):
            other = path.with_name(each)
            if each != path.name and other.is_file():
                return other
    return None


# -- chains ------------------------------------------------------------------------------------------------------------


class CmdStanChain(Chain):
    """One chain: its diagnostic file, and its output file if that is known; or its output file alone."""

    def __init__(self, file: CsvFile, columns: StanColumns, config: CmdStanConfig, output: Path | None) -> None:
        super().__init__(
            file.path,
            len(columns.names),
            columns.names,
            None,
            1,
            has_scores=bool(columns.gradients),
            left_out=columns.left_out,
        )
        self._file, self._columns, self._config, self._output = file, columns, config, output
        self._limit = None if output in (None, file.path) else _draws_of_unfinished_run(output, config.warmup)
        diagnostic = find_diagnostic(file.path)
        self.scores_hint = (
            f"its diagnostic file, which seems to be {diagnostic}, has them"
            if diagnostic
            else "sample with output diagnostic_file=FILE (cmdstanpy: save_latent_dynamics=True) and use that file; "
            + SCORES_GUIDE
        )

    def fraction(self) -> float | None:
        return self._file.fraction

    def _read(self, rows: int, skip: int) -> Iterator[Block]:
        columns = self._columns
        for ids, table in self._tables([*columns.draws, *columns.gradients], rows, skip):
            draws, gradients = table[:, : self._width].copy(), table[:, self._width :]
            yield Block(draws, -gradients if columns.gradients else no_scores(len(table)), ids)

    def _tables(self, columns: Sequence[int], rows: int, skip: int) -> Iterator[tuple[Integers, Array]]:
        """Iterate over ids and some columns of the draws after the warm-up."""
        for table in regroup(self._file.rows(columns, skip + self._config.warmup), rows):
            if self._limit is not None:
                table = table[: max(self._limit - skip, 0)]
                if not len(table):
                    return
            yield consecutive_ids(0, skip, len(table)), table
            skip += len(table)

    def diverging(self) -> Iterator[tuple[Integers, Flags]] | None:
        if DIVERGENT not in self._file.titles:
            return None
        tables = self._tables([self._file.titles.index(DIVERGENT)], _FLAG_ROWS, 0)
        return ((ids, table[:, 0] > 0) for ids, table in tables)

    def variables(self, ids: Integers) -> dict[str, Variable]:
        """Read the constrained draws from the output file; none if a draw is not from this chain."""
        if self._output is None or (ids[:, 0] != 0).any():
            return {}
        return read_constrained(self.path, self._output, ids[:, 1], self._config.warmup)

    def notes(self) -> list[tuple[str, str]]:
        """Return the program that wrote the file, and the location of scores and constrained draws."""
        config, gradients = self._config, self._columns.gradients
        program = f"CmdStan {config.version or ''}".rstrip() + (f", {config.model}" if config.model else "")
        what = "draws of the model's variables"
        if gradients:
            first = self._file.titles[gradients[0]]
            what = f"unconstrained draws; scores are minus the columns {first}, ..."
        lines = [("from", f"{program}: {what}"), *super().notes()]
        if config.samples and 0 < self._seen < config.samples:
            counts = f"{self._seen} of {config.samples} draws"
            lines.append(("incomplete", f"{self.path.name} has {counts}: the run has not finished, or was stopped"))
        if self._output is None:
            lines.append(("variables", "unknown: no output file found; name it with output (--output-csv FILE)"))
        elif self.has_scores:
            with open_text(self._output, _KIND) as (_, text):
                titles = _read_titles(self._output, text)
            found = stan_variables(titles, np.zeros((1, len(titles))))
            shapes = {name: "".join(f"[{size}]" for size in one.values.shape[1:]) for name, one in found.items()}
            described = listing(name + shape for name, shape in shapes.items())
            lines.append(("variables", f"{described} in {self._output.name}"))
        return lines


def open_cmdstan(request: Request) -> Chain:
    """Open a diagnostic or an output file. If the user lists columns, it is read as any other csv file."""
    if (request.draws_name, request.scores_name) != (DRAWS, SCORES) or request.scores is not None:
        return open_csv(request)
    path = request.path
    with reading(path, _KIND), open_text(path, _KIND) as (_, text):
        lines = iter(lambda: read_line(path, text), b"")
        config = parse_config(takewhile(lambda line: line.startswith(b"#"), lines))
    file = CsvFile.open(path)
    if file.header is None:
        raise _no_header(path)
    file.header[:] = [title.strip() for title in file.header]
    columns = find_stan_columns(file.header, path)
    _require_complete_line(path)
    output: Path | None = path
    if columns.gradients:
        output = request.output or find_output(path, config.output)
    elif request.output is not None:
        raise InputError(
            f"{path} is an output file of CmdStan, so it has no other output file such as {request.output}.",
            "Give the diagnostic file of the run, or leave out output.",
        )
    if output is not None:
        read_constrained(path, output, np.zeros(1, dtype=np.int64), 0)  # checks that both files are from one run
    chain = CmdStanChain(file, columns, config, output)
    if request.parameters is not None:
        chain.select(request.parameters)
    return chain


# -- the output file ---------------------------------------------------------------------------------------------------


class MissingRowsError(InputError):
    """A file is shorter than the one that belongs to it, or not written that far yet."""


class _Rows(NamedTuple):
    """Selected rows of a file."""

    titles: list[str]
    table: Array  # rows that do not exist are nan
    found: int  # number of rows that exist

    def column(self, title: str) -> Array:
        return self.table[: self.found, self.titles.index(title)]


def read_constrained(
    diagnostic: Path, output: Path, draws: Integers, warmup: int, partial: bool = False
) -> dict[str, Variable]:
    """Read draws from the output file, and check that their log densities agree with the diagnostic file.

    The indices of the draws are in any order, and counted after the ``warmup`` saved draws. If ``partial``, the
    variables are nan at draws that the output file does not contain yet.

    Returns
    -------
    dict
        Variable by name.

    Raises
    ------
    MissingRowsError
        If the output file does not contain a draw, unless ``partial``.
    InputError
        If the files are from different runs.
    """
    rows, places = np.unique(draws + warmup, return_inverse=True)
    here, there = _read_rows(diagnostic, rows, partial), _read_rows(output, rows, partial)
    if "lp__" in here.titles and "lp__" in there.titles:
        both = min(here.found, there.found)
        one, other = here.column("lp__")[:both], there.column("lp__")[:both]
        differ = np.flatnonzero(~((one == other) | (np.isnan(one) & np.isnan(other))))
        if differ.size:
            at = int(differ[0])
            raise InputError(
                f"{output} is not from the same run as {diagnostic}: in row {rows[at] + 1} lp__ is {other[at]:g} "
                f"and {one[at]:g}.",
                "Name the output file of this run with output (--output-csv FILE).",
            )
    return stan_variables(there.titles, there.table[places.ravel()])


def _read_rows(path: Path, rows: Integers, partial: bool) -> _Rows:
    """Read these rows, which must be sorted; the other lines are not parsed."""
    wanted, lines = rows.tolist(), []
    with open_text(path, _KIND) as (_, text):
        titles = _read_titles(path, text)
        with reading(path, _KIND):
            data = filter(_is_row, iter(lambda: read_line(path, text), b""))
            position = 0
            for row in wanted:
                for line in data:
                    position += 1
                    if position > row:
                        lines.append(line)
                        break
    if len(lines) < len(wanted) and not partial:
        raise MissingRowsError(
            f"{path} ends after {position} rows, but row {wanted[len(lines)] + 1} is required.",
            "Diagnostic and output file correspond row by row. Check that both are complete and from one run.",
        )
    table = np.full((len(wanted), len(titles)), np.nan)
    table[: len(lines)] = parse_table(path, titles, lines)
    return _Rows(titles, table, len(lines))


def _is_row(line: bytes) -> bool:
    """Return whether a line is a complete row: neither a comment nor blank, with its end."""
    return not line.startswith((b"#", b"\n", b"\r")) and line.endswith(b"\n")


def parse_table(path: Path, titles: Sequence[str], lines: Sequence[bytes]) -> Array:
    """Convert complete lines to numbers, (lines, columns)."""
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
                f"{path}: the line that begins with {shown!r} does not contain {len(titles)} numbers.",
                "Copy or write the file again.",
            ) from None
    return table


def _read_titles(path: Path, text: IO[bytes]) -> list[str]:
    """Read up to the header, and return its titles."""
    with reading(path, _KIND):
        for line in iter(lambda: read_line(path, text), b""):
            if line.strip() and not line.startswith(b"#"):
                return [title.strip() for title in line.decode("utf-8", "replace").split(",")]
    raise _no_header(path)


def _no_header(path: Path) -> MissingRowsError:
    return MissingRowsError(f"{path} has no header.", "Copy the file again as CmdStan wrote it.")


def _draws_of_unfinished_run(path: Path, warmup: int) -> int | None:
    """Return the number of draws in the output file of a run that was stopped; None if it finished.

    CmdStan buffers the two files separately, so one of them may contain some more draws than the other.
    """
    with reading(path, _KIND), path.open("rb") as file:
        if is_gzipped(path, file):
            return None
        file.seek(-min(512, path.stat().st_size), 2)
        if FOOTER in file.read():
            return None
        file.seek(0)
        _read_titles(path, file)
        return max(sum(map(_is_row, iter(lambda: read_line(path, file), b""))) - warmup, 0)


def _require_complete_line(path: Path) -> None:
    """Raise if the file ends in an incomplete line, which might be read as numbers with a wrong last one."""
    with path.open("rb") as file:
        if is_gzipped(path, file):
            return
        file.seek(-1, 2)
        if file.read(1) != b"\n":
            raise InputError(
                f"{path} ends in the middle of a line.",
                "The sampler is still running, or was stopped. Use steinstream follow --until-idle 5, which reads the "
                "complete lines.",
            )
