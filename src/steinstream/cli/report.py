"""``steinstream report``: an HTML report of a kept set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from steinstream.cli.help import MOST_USED, Command, option
from steinstream.cli.messages import Messages, message_options
from steinstream.cli.options import PATH, InputOptions, content_options, reject_unused
from steinstream.cli.paths import check_distinct, input_files
from steinstream.cli.progress import bar, count

if TYPE_CHECKING:
    from steinstream.io import Chain
    from steinstream.result import Kept

#: Adds ``--report`` to a command that thins a chain.
report_option = option("--report", type=PATH, metavar="FILE", help="Write an HTML report, too.", section=MOST_USED)


@click.command(cls=Command, short_help="Write an HTML report of a kept set.")
@click.argument("kept", type=PATH)
@option("--chain", type=PATH, multiple=True, metavar="FILE", help="Chain to compare with; repeat it for several files.")
@option("-o", "--output", type=PATH, default=Path("report.html"), metavar="FILE", help="Output file.")
@content_options
@message_options
def report(*, kept: Path, chain: tuple[Path, ...], output: Path, files: InputOptions, messages: Messages) -> None:
    """Write an HTML report of KEPT, an npz, nc or zarr file that steinstream wrote: numbers, figures, checks, settings.

    The report is one file that opens offline. The chain is read once, in blocks.

    \b
    Example: steinstream report kept.npz --chain chain.npz -o report.html
    """
    from steinstream.io import read_kept
    from steinstream.report.page import check_report_path

    check_report_path(output)
    if not chain:
        reject_unused(InputOptions._fields, "without --chain")
    check_distinct({"-o": output}, [kept, *input_files(chain, files)])
    found = read_kept(kept)
    write_report(output, found, files.open(chain) if chain else None, kept, messages)
    messages.result({"paths": {"report": output}})


def write_report(output: Path, kept: Kept, chain: Chain | None, file: Path, messages: Messages) -> None:
    """Write the report of a kept set, which is stored in ``file``."""
    from steinstream.report.page import build_report

    with bar("reporting", 1.0) as progress:

        def show(source: Chain, seen: int) -> None:
            progress.show(source.fraction() or 0.0, f"{count(seen)} draws")

        page = build_report(kept, chain, file=file.name, progress=show)
        page.save(output)
    messages.say(f"wrote {output} ({len(page.html) / 1e6:.1f} MB)")
