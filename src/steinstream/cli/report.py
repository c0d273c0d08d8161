"""``steinstream report``: one HTML file that shows what was kept and how good it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steinstream.cli.options import content_options, open_the_chain, refuse_idle
from steinstream.cli.paths import check_apart, read_by
from steinstream.cli.progress import bar, count

if TYPE_CHECKING:
    from steinstream.io import Chain
    from steinstream.report.chain_summary import ChainLike
    from steinstream.result import Kept


@click.command(short_help="Show what was kept, as one HTML file.")
@click.argument("kept", type=click.Path(path_type=Path))
@click.option("--chain", type=click.Path(path_type=Path), multiple=True,
              help="The chain it is from, to compare with; again for each further file.")  # fmt: skip
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("report.html"), show_default=True,
              help="Where the report goes.")  # fmt: skip
@content_options
def report(kept: Path, chain: tuple[Path, ...], output: Path, **options: Any) -> None:
    """Show what is in KEPT, an npz, nc or zarr that steinstream wrote: numbers, figures, warnings, settings.

    The report is one HTML file that opens offline and asks for nothing. The chain is read once, in blocks.

    \b
    Example: steinstream report kept.npz --chain chain.npz -o report.html
    """
    from steinstream.io import read_kept
    from steinstream.report.page import check_output

    check_output(output)
    if not chain:
        refuse_idle(options, "without --chain")
    check_apart({"-o": output}, [kept, *read_by(chain, options)])
    found = read_kept(kept)
    write_report(output, found, open_the_chain(chain, options) if chain else None, kept)


def write_report(output: Path, kept: Kept, chain: ChainLike, file: Path) -> None:
    """Write it, and say so. ``file`` is where the kept set is."""
    from steinstream.report.page import build_report

    with bar("reporting", 1.0) as progress:

        def tell(source: Chain, seen: int) -> None:
            progress.show(source.fraction() or 0.0, f"{count(seen)} draws")

        page = build_report(kept, chain, file=file.name, progress=tell)
        page.save(output)
    click.echo(f"wrote {output} ({len(page.html) / 1e6:.1f} MB)")


def report_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """A report right away."""
    return click.option("--report", type=click.Path(path_type=Path), help="Write a report as well: one HTML file.")(
        command
    )
