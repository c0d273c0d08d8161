"""``steinstream merge``: merge kept sets into one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from steinstream.cli.help import Command, NumberRange, option
from steinstream.cli.messages import Messages, message_options
from steinstream.cli.options import PATH, completions, output_option, reject_unused
from steinstream.cli.paths import check_distinct, check_kept_output, require_different, save_kept
from steinstream.cli.progress import count
from steinstream.cli.summary import measure_of, merged_measures_of, print_result
from steinstream.errors import InputError

if TYPE_CHECKING:
    from steinstream.result import Kept

_LISTED = 20  # parts that are listed


@click.command(cls=Command, short_help="Merge kept sets into one.")
@click.argument("kept", type=PATH, nargs=-1, required=True)
@output_option
@option("--size", type=click.IntRange(min=1), help="Keep exactly N of all draws.  [default: all]")
@option(
    "--merge-budget",
    metavar="EPS",
    help="Allowed increase of the objective; with --fan-in, one value per level: EPS,EPS,...",
)
@option(
    "--masses",
    default="lengths",
    shell_complete=completions("lengths", "kept"),
    help="Mass of each set: lengths (the length of its stream), kept (its number of draws), or numbers: A,B,...",
)
@option("--fan-in", type=click.IntRange(min=2), help="Merge in a tree, N sets at a time.  [default: all at once]")
@option(
    "--spare",
    type=NumberRange(min=1),
    default=2.0,
    help="With --fan-in and --size: sets below the root of the tree keep this many times --size draws.",
)
@option(
    "--stream-weight",
    type=float,
    help="Weight of the distance between the result and the union, next to KSD.  [default: that of the sets]",
)
@message_options
def merge(
    *,
    kept: tuple[Path, ...],
    output: Path,
    size: int | None,
    merge_budget: str | None,
    masses: str,
    fan_in: int | None,
    spare: float,
    stream_weight: float | None,
    messages: Messages,
) -> None:
    """Merge the sets in KEPT, files that thin wrote, and thin their union.

    KSD of the union is exact. Its bound is the mass-weighted mean KSD of the sets plus the increases at all levels.

    \b
    Example: steinstream merge run-1.npz run-2.npz run-3.npz -o kept.npz --size 200
    """
    from steinstream.io import read_kept
    from steinstream.postprocess.merging import merge as merge_sets
    from steinstream.postprocess.merging import with_distinct_chains

    check_kept_output(output, messages)
    check_distinct({"-o": output}, kept)
    require_different(kept)
    if fan_in is None or size is None:
        reject_unused(["spare"], "without --fan-in and --size")
    parts = with_distinct_chains([read_kept(path) for path in kept])
    result = merge_sets(
        parts,
        size=size,
        merge_budget=None if merge_budget is None else _numbers("--merge-budget", merge_budget),
        masses=masses if masses in ("lengths", "kept") else _numbers("--masses", masses),
        fan_in=fan_in,
        spare=spare,
        stream_weight=stream_weight,
    )
    save_kept(result, output)
    headline = (
        f"kept {count(len(result))} of {count(sum(map(len, parts)))} draws in {count(len(parts))} sets, which "
        f"represent {count(result.settings['seen'])} draws  ·  {merged_measures_of(result)}"
    )
    print_result(messages, headline, result, {"kept": output})
    for line in _parts(result, [str(path) for path in kept], parts):
        messages.say(line)


def _parts(kept: Kept, titles: Sequence[str], parts: Sequence[Kept]) -> Iterator[str]:
    """Describe how many draws of each part are kept."""
    import numpy as np

    weights = kept.shares()
    width = max(map(len, titles[:_LISTED]))
    for title, part in list(zip(titles, parts, strict=True))[:_LISTED]:
        mine = np.isin(kept.ids[:, 0], np.unique(part.ids[:, 0]))
        yield (
            f"  {title:<{width}}  {count(int(mine.sum()))} of {count(len(part))} draws, "
            f"{100.0 * float(weights[mine].sum()):.1f} % of the weight  ·  {measure_of(part.ksd, part.mmd)}"
        )
    if len(titles) > _LISTED:
        yield f"  and {count(len(titles) - _LISTED)} more"


def _numbers(option: str, text: str) -> list[float]:
    """Convert one or several numbers with commas between them."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{option} must be a number or several, got {text!r}.", f"Example: {option} 0.1,0.2") from None
