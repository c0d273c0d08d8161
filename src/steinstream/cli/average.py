"""``steinstream average``: average the outputs of forward simulations of kept draws."""

from __future__ import annotations

from pathlib import Path

import click

from steinstream.cli.help import Command, option
from steinstream.cli.messages import Messages, message_options
from steinstream.cli.options import PATH
from steinstream.cli.paths import check_distinct, check_writable
from steinstream.errors import InputError


@click.command(cls=Command, short_help="Average the outputs of forward simulations.")
@click.argument("kept", type=PATH)
@click.argument("outputs", type=PATH)
@option("--columns", metavar="A,B,...", help="Columns that are outputs.  [default: all columns of numbers]")
@option("--quantiles", metavar="P,...", default="0.05,0.5,0.95", help="Probabilities of quantiles.")
@option("-o", "--output", type=PATH, metavar="FILE", help="Write the table to this csv file, too.")
@message_options
def average(
    *, kept: Path, outputs: Path, columns: str | None, quantiles: str, output: Path | None, messages: Messages
) -> None:
    """Average OUTPUTS, the results of the simulations that the command runs listed for KEPT.

    OUTPUTS is a table (csv, csv.gz, parquet) with a column run, or chain and draw, and one column per output; or, if
    KEPT has an order of use, an npy array with one row per run in this order. A run failed if it has no row, an output
    that is not a finite number, or a status that is neither 0 nor a word such as ok. Failed runs are left out, and the
    weights of the others are divided by their sum.

    \b
    Example: steinstream average kept.npz outputs.csv
    """
    from steinstream.io import read_kept

    if output is not None:
        check_writable("--output", output)
        check_distinct({"--output": output}, [kept, outputs])
    try:
        probabilities = [float(text) for text in quantiles.split(",")]
    except ValueError:
        raise InputError(
            f"--quantiles must be numbers between 0 and 1, got {quantiles}.", "For example 0.05,0.95."
        ) from None
    chosen = None if columns is None else [name.strip() for name in columns.split(",")]
    result = read_kept(kept).average(outputs, columns=chosen, quantiles=probabilities)
    messages.say(result.text)
    for text in result.failures:
        messages.warn(text)
    if output is not None:
        result.save(output)
        messages.say(f"wrote {output}")
    statistics = {name: dict(zip(result.names, values, strict=True)) for name, values in result.table().items()}
    messages.result(
        {
            "runs": len(result.runs.run),
            "failed": result.failed,
            "lost_weight": result.lost_weight,
            "not_run": result.not_run,
            "outputs": {name: {key: values[name] for key, values in statistics.items()} for name in result.names},
            "paths": {} if output is None else {"table": output},
        }
    )
