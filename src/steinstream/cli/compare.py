"""``steinstream compare``: all methods on one chain, at the same sizes."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from steinstream.cli._config import fitted_or_fixed, setting_options
from steinstream.cli.help import Command, Option, generated, option
from steinstream.cli.messages import Messages, message_options
from steinstream.cli.options import PATH, InputOptions, chain_options, completions
from steinstream.cli.paths import check_distinct, input_files
from steinstream.cli.progress import bar, count, number
from steinstream.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steinstream.baselines.comparison import ComparisonRow
    from steinstream.thinner import ThinConfig

_TABLE, _PICTURE = "compare.csv", "compare.png"
_TABLE_WIDTH = 140  # at most, in characters


def _methods() -> list[Option]:
    from steinstream.baselines import METHODS

    return [
        Option(
            ["--methods"],
            default="all",
            shell_complete=completions(*METHODS),
            help=f"Methods, with commas between them: {', '.join(METHODS)}.",
        )
    ]


@click.command(cls=Command, short_help="Compare all methods on one chain, at the same sizes.")
@chain_options
@generated(_methods)
@setting_options(part="baselines")
@option("--sizes", default="50,200,500", help="Numbers of draws to keep.")
@option("--seed", type=click.IntRange(min=0), default=0, help="Random seed for randomised methods.")
@option(
    "-o",
    "--output",
    type=PATH,
    metavar="FOLDER",
    help=f"Folder for {_TABLE} and {_PICTURE}; other files in it are not changed.",
)
@message_options
def compare(
    *,
    chain: Path,
    sizes: str,
    methods: str,
    seed: int,
    output: Path | None,
    config: ThinConfig,
    files: InputOptions,
    messages: Messages,
) -> None:
    """Reduce CHAIN with every method to the same sizes, and measure errors, KSD, time and memory.

    The errors of the means, the sds and the 5 % and 95 % quantiles are measured against the whole chain, burn-in
    included, and divided by those of evenly spaced draws: below 1 is better than keeping every k-th draw.

    Kernel and preconditioner are the same for all. Each method runs in a process of its own. The time includes neither
    compilation nor reading the file; the memory includes the chain only if the method holds it.

    \b
    Example: steinstream compare chain.npz --sizes 100,1000 -o comparison
    """
    from steinstream.baselines import METHODS, comparison, method_name

    names = [method_name(name) for name in (METHODS if methods == "all" else methods.split(","))]
    numbers = _as_sizes(sizes)
    source = files.open(chain)
    if output is not None:
        from steinstream.io.atomic import make_folder

        for name in (_TABLE, _PICTURE):
            check_distinct({"-o": output / name}, input_files([chain], files))
        make_folder(output)
    rows: list[ComparisonRow] = []
    with bar("comparing", float(len(set(names)) * len(set(numbers)))) as progress:

        def show(row: ComparisonRow) -> None:
            rows.append(row)
            progress.show(len(rows), f"{row.method}, {count(row.size)} draws")

        comparison.compare(
            source,
            sizes=numbers,
            methods=names,
            seed=seed,
            config=config.replace(preconditioner=fitted_or_fixed(config)),
            on_row=show,
            on_read=lambda share: progress.show(0, f"reading the chain, {share:.0%}"),
        )
    if all(row.problem for row in rows):
        raise InputError(f"no method could run: {' '.join(dict.fromkeys(row.problem for row in rows))}")
    messages.say(_table(rows))
    written = {} if output is None else _write(output, rows, messages)
    messages.result({"rows": [asdict(row) for row in rows], "paths": written})


def _as_sizes(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            f"--sizes must be whole numbers with commas between them, got {text!r}.", "Example: --sizes 50,200,500"
        ) from None


def _table(rows: Sequence[ComparisonRow]) -> str:
    """Return a table by size, the smallest errors first, and then the failures."""
    from rich.console import Console
    from rich.table import Table

    table = Table("size", box=None, pad_edge=False, padding=(0, 1))
    table.add_column("method", no_wrap=True)
    for title in ("mean", "sd", "quantiles", "KSD", "distinct", "time", "reading", "memory"):
        table.add_column(title, justify="right")
    good = [row for row in rows if not row.problem]
    for size in sorted({row.size for row in good}):
        for row in sorted((row for row in good if row.size == size), key=lambda row: row.error):
            times = _time(row.seconds), _time(row.reading)
            memory = f"{row.megabytes:.1f} MB".replace("nan MB", "-")
            errors = (f"{value:.2f}" for value in (row.mean_error, row.sd_error, row.quantile_error))
            ksd = number(row.ksd).replace("nan", "-")
            table.add_row(count(size), row.method, *errors, ksd, count(row.distinct), *times, memory)
        table.add_section()
    console = Console(width=_TABLE_WIDTH)  # cells are never cut or wrapped, in a narrow window or a pipe
    with console.capture() as text:
        console.print(table)
    lines = [text.get(), "Errors of mean, sd and quantiles against the whole chain; 1: as keeping every k-th draw."]
    unscored = [row for row in rows if row.problem.startswith(f"The method {row.method} requires scores.")]
    without = [*dict.fromkeys(row.method for row in unscored)]
    if len(without) > 1:  # one sentence for all
        lines.append(f"The methods {', '.join(without)} require scores, and the chain has none.")
    for name in dict.fromkeys(row.method for row in rows if len(without) < 2 or row.method not in without):
        failed = [row for row in rows if row.method == name and row.problem]
        for problem in dict.fromkeys(row.problem for row in failed):
            sizes = " and ".join(count(row.size) for row in failed if row.problem == problem)
            lines.append(problem if name in problem else f"{name} at {sizes}: {problem}")
    return "\n".join([lines[0].rstrip("\n"), *lines[1:]])


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _write(folder: Path, rows: Sequence[ComparisonRow], messages: Messages) -> dict[str, Path]:
    """Write the table, and the picture if matplotlib is installed; return the files."""
    import csv
    import io

    from steinstream.io import replacing
    from steinstream.report import plots

    text = io.StringIO()
    writer = csv.DictWriter(text, list(asdict(rows[0])), lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    with replacing(folder / _TABLE) as file:
        file.write(text.getvalue().encode())
    written = {"table": folder / _TABLE}
    try:
        plots.comparison(folder / _PICTURE, rows)
        written["picture"] = folder / _PICTURE
    except InputError as missing:
        messages.say(f"no picture: {missing}")
    messages.say(f"wrote {', '.join(map(str, written.values()))}")
    return written
