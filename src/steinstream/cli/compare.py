"""``steinstream compare``: all methods on one chain, at the same sizes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steinstream.baselines import METHODS
from steinstream.cli.options import as_kernel, as_preconditioner, chain_options, kernel_options, open_the_chain
from steinstream.cli.paths import check_apart, read_by
from steinstream.cli.progress import bar, count, number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steinstream.baselines.comparison import ComparisonRow

_TABLE, _PICTURE = "compare.csv", "compare.png"


@click.command(short_help="All methods on one chain, at the same sizes.")
@chain_options
@click.option("--sizes", default="50,200,500", show_default=True, help="Numbers of draws to keep.")
@click.option("--methods", default="all", show_default=True, help=f"Of {', '.join(METHODS)}.")
@kernel_options
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of methods that draw lots.")
@click.option("--on-bad", type=click.Choice(["raise", "skip"]), default="raise", show_default=True,
              help="What to do with a draw that is not finite.")  # fmt: skip
@click.option("-o", "--output", type=click.Path(path_type=Path),
              help=f"Folder for {_TABLE} and {_PICTURE}; nothing else in it is touched.")  # fmt: skip
def compare(chain: Path, sizes: str, methods: str, output: Path | None, seed: int, **options: Any) -> None:
    """Reduce CHAIN by every method to the same sizes, and measure KSD, time and memory.

    Kernel and coordinates are the same for all. Each method runs in a process of its own; time counts neither
    compilation nor reading the file, memory the chain only where a method holds it.

    \b
    Example: steinstream compare chain.npz --sizes 100,1000 -o comparison
    """
    from steinstream.baselines import comparison, method_name
    from steinstream.errors import InputError

    wanted = [method_name(name) for name in (METHODS if methods == "all" else methods.split(","))]
    numbers = _numbers(sizes)
    kernel, preconditioner = as_kernel(options["kernel"]), as_preconditioner(options["scale"])
    source = open_the_chain(chain, dict(options))
    if output is not None:
        from steinstream.io.atomic import make_folder

        for name in (_TABLE, _PICTURE):
            check_apart({"-o": output / name}, read_by([chain], options))
        make_folder(output)
    rows: list[ComparisonRow] = []
    with bar("comparing", float(len(set(wanted)) * len(set(numbers)))) as progress:

        def tell(row: ComparisonRow) -> None:
            rows.append(row)
            progress.show(len(rows), f"{row.method}, {count(row.size)} draws")

        comparison.compare(
            source, sizes=numbers, methods=wanted, kernel=kernel, preconditioner=preconditioner, seed=seed,
            on_bad=options["on_bad"], validate_scores=not options["trust_scores"], on_row=tell,
            on_read=lambda share: progress.show(0, f"looking at the chain, {share:.0%}"),
        )  # fmt: skip
    if all(row.problem for row in rows):
        raise InputError(f"no method could run: {' '.join(dict.fromkeys(row.problem for row in rows))}")
    _show(rows)
    if output is not None:
        _write(output, rows)


def _numbers(text: str) -> list[int]:
    from steinstream.errors import InputError

    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--sizes is {text!r}.", "Give whole numbers with commas between: 50,200,500.") from None


def _show(rows: Sequence[ComparisonRow]) -> None:
    """A table, size after size, the best first; then what went wrong."""
    from rich.console import Console
    from rich.table import Table

    table = Table("size", box=None, pad_edge=False, padding=(0, 1))
    table.add_column("method", no_wrap=True)
    for title in ("KSD", "normalised", "distinct", "time", "reading", "memory"):
        table.add_column(title, justify="right")
    good = [row for row in rows if not row.problem]
    for size in sorted({row.size for row in good}):
        for row in sorted((row for row in good if row.size == size), key=lambda row: row.ksd):
            table.add_row(
                count(size), row.method, number(row.ksd), number(row.normalised_ksd), count(row.distinct),
                _time(row.seconds), _time(row.reading), f"{row.megabytes:.1f} MB".replace("nan MB", "-"),
            )  # fmt: skip
        table.add_section()
    Console().print(table)
    for row in rows:
        if row.problem:
            click.echo(f"{row.method} at {count(row.size)}: {row.problem}")


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _write(folder: Path, rows: Sequence[ComparisonRow]) -> None:
    import csv
    import io
    from dataclasses import asdict

    from steinstream.errors import InputError
    from steinstream.io import replacing

    text = io.StringIO()
    writer = csv.DictWriter(text, list(asdict(rows[0])), lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    with replacing(folder / _TABLE) as file:
        file.write(text.getvalue().encode())
    written = [str(folder / _TABLE)]
    try:
        from steinstream.report import plots

        plots.comparison(folder / _PICTURE, rows)
        written.append(str(folder / _PICTURE))
    except InputError as missing:
        click.echo(f"no picture: {missing}")
    click.echo(f"wrote {', '.join(written)}")
