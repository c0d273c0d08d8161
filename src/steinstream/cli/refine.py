"""``steinstream refine``: weights and an order of use for draws that are kept; ``thin`` can add them as well."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from steinstream.cli.options import OUTPUTS, as_typed, open_the_chain, refuse_idle
from steinstream.cli.paths import check_apart, read_by
from steinstream.cli.progress import bar, count, number

if TYPE_CHECKING:
    from steinstream.io import Chain
    from steinstream.result import Kept
    from steinstream.running_moments import Moments

F = TypeVar("F", bound=Callable[..., Any])


class Refinement(NamedTuple):
    """What is to be added to kept draws."""

    weights: str | None
    linear: float | None
    burn_in: int
    order: bool


def refine_options(command: F) -> F:
    """Weights and order."""
    for option in (
        click.option("--order", is_flag=True, help="Put them in an order in which the first k are good for every k."),
        click.option("--burn-in", type=click.IntRange(min=0), default=0, show_default=True,
                     help="Draws at the start of each chain that do not count for --weights chain."),
        click.option("--linear", type=click.FloatRange(min=0),
                     help="How much means and variances count for the weights.  [default: 30, or 1 with chain]"),
        click.option("--weights", type=click.Choice(["stein", "chain"]),
                     help="Weights of least KSD, with a term for means and variances (--linear); or like the chain's."),
    ):  # fmt: skip
        command = option(command)
    return command


def taken_from(options: dict[str, Any]) -> Refinement:
    """What these options ask for; they are taken out."""
    if options["weights"] is None:
        refuse_idle(["linear"], "without --weights")
    if options["weights"] != "chain":
        refuse_idle(["burn_in"], "without --weights chain")
    return Refinement(**{name: options.pop(name) for name in Refinement._fields})


@click.command(short_help="Give kept draws weights and an order of use.")
@click.argument("kept", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help=OUTPUTS)
@click.option("--chain", type=click.Path(path_type=Path), help="The chain they are from, for --weights chain.")
@click.option("--draws-name", default="draws", show_default=True, help="Array of its draws, or columns: a,b,c.")
@click.option("--scores-name", default="scores", show_default=True, help="The same for its scores.")
@click.option("--scores", "scores_file", type=click.Path(path_type=Path), help="File of its scores, if apart.")
@refine_options
def refine(kept: Path, output: Path, chain: Path | None, **options: Any) -> None:
    """Give the draws of KEPT, an npz, nc or zarr that thin wrote, weights or an order of use.

    \b
    Example: steinstream refine kept.npz -o refined.csv --weights chain --chain chain.npz --order
    """
    from steinstream.errors import InputError
    from steinstream.io import check_output, read_kept

    check_output(output)
    wanted = taken_from(options)
    if wanted.weights is None and not wanted.order:
        raise InputError("there is nothing to do.", "Add --weights stein, --weights chain or --order.")
    if (chain is not None) != (wanted.weights == "chain"):
        raise InputError("--weights chain and --chain FILE go together.", "Give both, or --weights stein alone.")
    if chain is None:
        refuse_idle(["draws_name", "scores_name", "scores_file"], "without --chain")
    check_apart({"-o": output}, read_by([] if chain is None else [chain], options))
    source = None if chain is None else open_the_chain(chain, options)
    before = read_kept(kept)
    result = refined(before, wanted, source)
    if "commands" in before.settings:  # with those before them they make it again
        commands = [*before.settings["commands"], as_typed()]
        result = replace(result, settings={**result.settings, "commands": commands})
    result.save(output)
    click.echo(f"{count(len(result))} draws  ·  KSD {number(result.ksd)}  ·  wrote {output}")


def refined(kept: Kept, wanted: Refinement, source: Chain | None, on_bad: str = "raise") -> Kept:
    """Add what is wanted, and say what came of it."""
    if wanted.weights is not None:
        before = kept.ksd
        like = _moments(source, wanted.burn_in, on_bad) if wanted.weights == "chain" and source is not None else None
        kept = kept.weighted(linear=wanted.linear, like=like)
        gap = kept.settings["weights"]["gap"]
        click.echo(
            f"weights: effective size {kept.effective_size:.1f} of {count(len(kept))}, {_not_zero(kept)} draws above 0"
            f"  ·  KSD {number(before)} before, {number(kept.ksd)} with them  ·  gap {gap:.0e}"
        )
        if like is not None and kept.ksd > 2.0 * before:
            click.echo(
                "the chain's means and variances pull the draws away from the target: leave its burn-in out "
                "with --burn-in N, or use --weights stein",
                err=True,
            )
    if wanted.order:
        kept = kept.ordered()
        curve = kept.prefix_ksd
        if curve is not None:
            some = sorted({max(1, len(kept) // 4), max(1, len(kept) // 2), len(kept)})
            click.echo("order: KSD " + ", ".join(f"{number(curve[k - 1])} of the first {count(k)}" for k in some))
    return kept


def _not_zero(kept: Kept) -> int:
    return len(kept) if kept.weights is None else int((kept.weights > 0).sum())


def _moments(source: Chain, burn_in: int, on_bad: str) -> Moments:
    """Means and variances of the chain, in one pass."""
    from steinstream import validation
    from steinstream.errors import InputError
    from steinstream.running_moments import Moments

    moments = Moments(source.dim)
    with bar("moments ", source.length or 1.0) as progress:
        seen = 0
        for block in source.blocks():
            seen += len(block.draws)
            block = block.take(validation.finite_rows(block, on_bad))
            block = block.take(block.ids[:, 1] >= burn_in)
            moments.add(block.draws)
            progress.show(seen if source.length else source.fraction() or 0.0, f"{count(seen)} draws")
    if moments.count == 0:
        raise InputError(f"{source.path} has no draws after a burn-in of {burn_in}.", "Give a smaller --burn-in.")
    return moments
