"""``steinstream refine``: weights and an order of use for kept draws; ``thin`` has the same options."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from steinstream.cli.help import MOST_USED, WEIGHTS, Command, option
from steinstream.cli.options import (
    PATH,
    InputOptions,
    current_command_line,
    draws_name_option,
    grouped,
    output_option,
    reject_unused,
    scores_name_option,
    scores_option,
)
from steinstream.cli.paths import check_distinct, input_files
from steinstream.cli.progress import bar, count, number

if TYPE_CHECKING:
    from steinstream.io import Chain
    from steinstream.result import Kept
    from steinstream.running_moments import Moments


class Refinement(NamedTuple):
    """What to add to kept draws."""

    weights: str | None
    linear: float | None
    burn_in: int
    order: bool

    def check(self) -> None:
        """Raise an `InputError` if an option has no effect."""
        if self.weights is None:
            reject_unused(["linear"], "without --weights")
        if self.weights != "chain":
            reject_unused(["burn_in"], "without --weights chain")


#: Adds the options of weights and order, as ``refinement``.
refine_options = grouped(
    "refinement",
    Refinement,
    option(
        "--weights",
        type=click.Choice(["stein", "chain"]),
        help="stein: weights that minimise KSD plus a term for means and variances (--linear). chain: weights that "
        "also match means and variances of the chain.",
        section=MOST_USED,
    ),
    option(
        "--order",
        is_flag=True,
        help="Order the draws such that the first k are a good set for every k.",
        section=MOST_USED,
    ),
    option(
        "--linear",
        type=click.FloatRange(min=0),
        help="Factor of the term for means and variances.  [default: 30, or 1 with --weights chain]",
        section=WEIGHTS,
    ),
    option(
        "--burn-in",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        help="Number of draws at the start of each chain that --weights chain leaves out.",
        section=WEIGHTS,
    ),
)


@click.command(cls=Command, short_help="Add weights and an order of use to kept draws.")
@click.argument("kept", type=PATH)
@output_option
@refine_options
@option("--chain", type=PATH, metavar="FILE", help="Chain of the kept draws, for --weights chain.")
@grouped("files", InputOptions, scores_option, draws_name_option, scores_name_option)
def refine(kept: Path, output: Path, chain: Path | None, refinement: Refinement, files: InputOptions) -> None:
    """Add weights or an order of use to the draws in KEPT, an npz, nc or zarr file that thin wrote.

    \b
    Example: steinstream refine kept.npz -o refined.csv --weights chain --chain chain.npz --order
    """
    from steinstream.errors import InputError
    from steinstream.io import check_output, read_kept

    check_output(output)
    refinement.check()
    if refinement.weights is None and not refinement.order:
        raise InputError("there is nothing to do.", "Add --weights stein, --weights chain or --order.")
    if (chain is not None) != (refinement.weights == "chain"):
        raise InputError("--weights chain and --chain FILE require each other.", "Give both, or --weights stein.")
    if chain is None:
        reject_unused(["draws_name", "scores_name", "scores"], "without --chain")
    check_distinct({"-o": output}, input_files([] if chain is None else [chain], files))
    source = None if chain is None else files.open(chain)
    before = read_kept(kept)
    result = refined(before, refinement, source)
    if "commands" in before.settings:
        commands = [*before.settings["commands"], current_command_line()]
        result = replace(result, settings={**result.settings, "commands": commands})
    result.save(output)
    click.echo(f"{count(len(result))} draws  ·  KSD {number(result.ksd)}  ·  wrote {output}")


def refined(kept: Kept, refinement: Refinement, source: Chain | None, on_bad: str = "raise") -> Kept:
    """Add weights and order as requested, and print what changed.

    Parameters
    ----------
    kept : Kept
        The kept draws.
    refinement : Refinement
        What to add.
    source : Chain, optional
        Chain of the kept draws, for ``--weights chain``.
    on_bad : str, default "raise"
        What to do with a draw of the chain that is not finite.

    Returns
    -------
    Kept
        The draws with weights, or in their order.

    """
    if refinement.weights is not None:
        like = None
        if refinement.weights == "chain" and source is not None:
            like = _moments(source, refinement.burn_in, on_bad)
        kept = _weighted(kept, refinement.linear, like)
    if refinement.order:
        kept = kept.ordered()
        if kept.prefix_ksd is not None:
            sizes = sorted({max(1, len(kept) // 4), max(1, len(kept) // 2), len(kept)})
            ksds = (f"{number(kept.prefix_ksd[size - 1])} of the first {count(size)}" for size in sizes)
            click.echo(f"order: KSD {', '.join(ksds)}")
    return kept


def _weighted(kept: Kept, linear: float | None, like: Moments | None) -> Kept:
    before = kept.ksd
    kept = kept.weighted(linear=linear, like=like)
    positive = len(kept) if kept.weights is None else int((kept.weights > 0).sum())
    click.echo(
        f"weights: effective size {kept.effective_size:.1f} of {count(len(kept))}, {count(positive)} draws above 0"
        f"  ·  KSD {number(before)} before, {number(kept.ksd)} with weights  ·  "
        f"gap {kept.settings['weights']['gap']:.0e}"
    )
    if like is not None and kept.ksd > 2.0 * before:
        click.echo(
            "The means and variances of the chain do not fit the target: leave out the burn-in with --burn-in N, or "
            "use --weights stein.",
            err=True,
        )
    return kept


def _moments(source: Chain, burn_in: int, on_bad: str) -> Moments:
    """Read means and variances of a chain."""
    from steinstream import validation
    from steinstream.errors import InputError
    from steinstream.running_moments import Moments

    moments, seen = Moments(source.dim), 0
    with bar("moments ", source.length or 1.0) as progress:
        for block in source.blocks():
            seen += len(block.draws)
            block = block.take(validation.finite_rows(block, on_bad))
            moments.add(block.draws[block.ids[:, 1] >= burn_in])
            progress.show_chain(source, seen)
    if moments.count == 0:
        raise InputError(f"{source.title} has no draws after a burn-in of {burn_in}.", "Use a smaller --burn-in.")
    return moments
