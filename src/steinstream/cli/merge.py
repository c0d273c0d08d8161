"""``steinstream merge``: several kept sets in, one out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from steinstream.cli.options import OUTPUTS, as_anchor, refuse_idle
from steinstream.cli.paths import check_apart
from steinstream.cli.progress import count, number

if TYPE_CHECKING:
    from steinstream.result import Kept

_LINES = 20  # of parts that are listed


@click.command(short_help="Merge kept sets into one.")
@click.argument("kept", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help=OUTPUTS)
@click.option("--size", type=click.IntRange(min=1), help="Keep exactly so many of all draws.  [default: all]")
@click.option("--budget", help="Rise of KSD^2 allowed: EPS, or with --fan-in EPS,EPS,... for each level.")
@click.option(
    "--masses",
    default="lengths",
    show_default=True,
    help="What each set stands for: lengths of the streams, kept (every draw the same), or numbers A,B,...",
)
@click.option(
    "--fan-in", type=click.IntRange(min=2), help="Merge in a tree, so many at a time.  [default: all at once]"
)
@click.option(
    "--spare",
    type=click.FloatRange(min=1),
    default=2.0,
    show_default=True,
    help="With --fan-in and --size: nodes below the root keep so many times the size.",
)
@click.option(
    "--anchor", help="Keep the proportions of the union, which KSD does not see: auto, or how strongly (0.3)."
)
def merge(
    kept: tuple[Path, ...], output: Path, size: int | None, budget: str | None, masses: str, fan_in: int | None,
    spare: float, anchor: str | None,
) -> None:  # fmt: skip
    """Merge the sets in KEPT, files that thin wrote, and thin what they hold together.

    KSD of the union is exact. The bound is what the sets' own KSD, weighted by their masses, and the rises of all
    levels add up to.

    \b
    Example: steinstream merge run-1.npz run-2.npz run-3.npz -o kept.npz --size 200
    """
    from steinstream.io import check_output, read_kept
    from steinstream.postprocess.merging import chains_apart
    from steinstream.postprocess.merging import merge as merged

    check_output(output)
    check_apart({"-o": output}, kept)
    if fan_in is None or size is None:
        refuse_idle(["spare"], "without --fan-in and --size")
    levels = None if budget is None else _numbers(budget, "budget")
    share = masses if masses in ("lengths", "kept") else _numbers(masses, "masses")
    parts = chains_apart([read_kept(path) for path in kept])
    result = merged(parts, size=size, budget=levels, masses=share, fan_in=fan_in, spare=spare, anchor=as_anchor(anchor))
    result.save(output)
    click.echo(
        f"kept {count(len(result))} of {count(sum(map(len, parts)))} draws in {count(len(parts))} sets, "
        f"which stand for {count(result.settings['seen'])}  ·  {of_merged(result)}  ·  wrote {output}"
    )
    came_from(result, [str(path) for path in kept], parts)


def of_merged(kept: Kept) -> str:
    """KSD and what it is known to be at most."""
    ledger = kept.settings["merged"]
    promised = "" if ledger["promised"] is None else f", promised {number(ledger['promised'])}"
    return f"KSD {number(kept.ksd)} (at most {number(ledger['bound'])}{promised})"


def came_from(kept: Kept, titles: Sequence[str], parts: Sequence[Kept]) -> None:
    """A line for each part: what it brought, and what stayed of it."""
    import numpy as np

    weights = np.full(len(kept), 1.0 / len(kept)) if kept.weights is None else kept.weights
    width = max(map(len, titles[:_LINES]))
    for title, part in list(zip(titles, parts, strict=True))[:_LINES]:
        mine = np.isin(kept.ids[:, 0], np.unique(part.ids[:, 0]))
        click.echo(
            f"  {title:<{width}}  {count(int(mine.sum()))} of {count(len(part))} draws, "
            f"{100.0 * float(weights[mine].sum()):.1f} % of the weight  ·  KSD {number(part.ksd)}"
        )
    if len(titles) > _LINES:
        click.echo(f"  and {count(len(titles) - _LINES)} more")


def _numbers(text: str, what: str) -> list[float]:
    from steinstream.errors import InputError

    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"unknown {what} {text!r}.", f"Give --{what} as a number, or as several: 0.1,0.2.") from None
