"""``steinstream refine``: weights and an order of use for kept draws; ``thin`` has the same options."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from steinstream.cli.help import MOST_USED, Command, option
from steinstream.cli.messages import Messages, message_options
from steinstream.cli.options import PATH, current_command_line, grouped, output_option
from steinstream.cli.paths import check_kept_output, save_kept
from steinstream.cli.progress import count, number
from steinstream.cli.summary import measure_of, print_result
from steinstream.errors import InputError

if TYPE_CHECKING:
    from steinstream.result import Kept


class Refinement(NamedTuple):
    """Further properties to compute for the kept draws."""

    weights: bool
    order: bool

    @property
    def requested(self) -> bool:
        """Whether there is anything to add."""
        return self.weights or self.order


#: Adds the options of weights and order, as ``refinement``.
refine_options = grouped(
    "refinement",
    Refinement,
    option(
        "--weights", is_flag=True, help="Add weights that minimise the objective of the kept draws.", section=MOST_USED
    ),
    option(
        "--order",
        is_flag=True,
        help="Order the draws such that the first k are a good set for every k.",
        section=MOST_USED,
    ),
)


@click.command(cls=Command, short_help="Add weights and an order of use to kept draws.")
@click.argument("kept", type=PATH)
@output_option
@refine_options
@message_options
def refine(*, kept: Path, output: Path, refinement: Refinement, messages: Messages) -> None:
    """Add weights or an order of use to the draws in KEPT, an npz, nc or zarr file that thin wrote.

    \b
    Example: steinstream refine kept.npz -o refined.csv --weights --order
    """
    from steinstream.io import read_kept

    check_kept_output(output, messages)
    if not refinement.requested:
        raise InputError("there is nothing to do.", "Add --weights or --order.")
    before = read_kept(kept)
    result = refined(before, refinement, messages)
    if "commands" in before.settings:
        commands = [*before.settings["commands"], current_command_line()]
        result = replace(result, settings={**result.settings, "commands": commands})
    save_kept(result, output)
    print_result(
        messages, f"{count(len(result))} draws  ·  {measure_of(result.ksd, result.mmd)}", result, {"kept": output}
    )


def refined(kept: Kept, refinement: Refinement, messages: Messages) -> Kept:
    """Add weights and order as requested, and print what changed."""
    if refinement.weights:
        before, kept = kept, kept.weighted()
        messages.say(
            f"weights: effective size {kept.effective_size:.1f} of {count(len(kept))}  ·  "
            f"{measure_of(before.ksd, before.mmd)} before, {measure_of(kept.ksd, kept.mmd)} with weights"
        )
    if refinement.order:
        kept = kept.ordered()
        name, curve = ("KSD", kept.prefix_ksd) if kept.prefix_ksd is not None else ("MMD", kept.prefix_mmd)
        if curve is not None:
            sizes = sorted({max(1, len(kept) // 4), max(1, len(kept) // 2), len(kept)})
            values = (f"{number(curve[size - 1])} of the first {count(size)}" for size in sizes)
            messages.say(f"order: {name} {', '.join(values)}")
    return kept
