"""``steinstream runs``: list the forward simulations that kept draws require."""

from __future__ import annotations

from pathlib import Path

import click

from steinstream.cli.help import MOST_USED, Command, option
from steinstream.cli.messages import Messages, message_options
from steinstream.cli.options import PATH
from steinstream.cli.paths import check_distinct, check_writable
from steinstream.cli.progress import count


@click.command(cls=Command, short_help="List the forward simulations of kept draws.")
@click.argument("kept", type=PATH)
@option("-o", "--output", type=PATH, required=True, metavar="FILE", help="Output file, csv.", section=MOST_USED)
@message_options
def runs(*, kept: Path, output: Path, messages: Messages) -> None:
    """List the simulations for the draws in KEPT, an npz, nc or zarr file that thin wrote, as a csv file.

    Each distinct draw is one run. The file has its number, its weight, chain and draw, and the parameters by name.
    Runs are listed in order of use: stop at any time, and the finished ones are a good set. The command average then
    averages their outputs.

    \b
    Example: steinstream runs kept.npz -o runs.csv
    """
    from steinstream.io import read_kept

    check_writable("--output", output)
    check_distinct({"--output": output}, [kept])
    listed = read_kept(kept).to_runs(output)
    messages.say(f"wrote {output}: {count(len(listed.run))} runs in order of use")
    messages.result({"runs": len(listed.run), "paths": {"runs": output}})
