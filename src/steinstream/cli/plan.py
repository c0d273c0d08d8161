"""``steinstream plan``: number of draws and budget for a target KSD."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steinstream.cli._config import fitted_or_fixed, given_settings, setting_options
from steinstream.cli.help import Command, option
from steinstream.cli.messages import Messages, message_options
from steinstream.cli.options import PATH, InputOptions, as_typed, chain_options, completions, require_scores
from steinstream.cli.paths import check_distinct, check_writable, input_files
from steinstream.cli.progress import count
from steinstream.errors import InputError

if TYPE_CHECKING:
    from steinstream.io import Chain
    from steinstream.planning import Plan
    from steinstream.preconditioning import Preconditioner
    from steinstream.thinner import ThinConfig
    from steinstream.validation import Block


@click.command(cls=Command, short_help="Plan the number of draws for a target KSD.")
@chain_options
@option("--radius", type=float, required=True, help="The target KSD.")
@setting_options(part="plan")
@option(
    "--growth",
    default="power:1.5",
    shell_complete=completions("power:", "linear", "sqrt"),
    help="Growth of the kept set: power:A with A between 1 and 2, that is sqrt(t^A log t) / 2; linear; or sqrt.",
)
@option(
    "--budget",
    default="constant",
    shell_complete=completions("constant", "share", "share:"),
    help="Kind of budget: constant, share, share:ETA.",
)
@option(
    "--bound-for",
    type=click.Choice(["planned", "any"]),
    default="planned",
    help="Sizes of the kept set for which the bound holds; any requires many times more draws.",
)
@option("-o", "--output", type=PATH, metavar="FILE", help="Write the preconditioner to this npz file, for thin.")
@message_options
def plan(
    *,
    chain: Path,
    radius: float,
    growth: str,
    budget: str,
    bound_for: str,
    output: Path | None,
    config: ThinConfig,
    files: InputOptions,
    messages: Messages,
) -> None:
    """Plan a run for a target KSD, from a warm-up: for example the first draws of CHAIN.

    Prints the number of draws to sample, the number that will be kept, the budget, and the command to run.

    \b
    Example: steinstream plan warmup.npz --radius 0.1 -o preconditioner.npz
    """
    from steinstream.planning import plan_from_blocks

    if output is not None and output.suffix != ".npz":
        raise InputError(f"{output} is not an npz file.", "Give a name that ends in .npz.")
    if output is not None:
        check_writable("-o", output)
        check_distinct({"-o": output}, input_files([chain], files))
    source = files.open(chain)
    require_scores(source, "A plan for KSD")
    chains = _read_chains(source)
    planned = plan_from_blocks(
        chains,
        radius,
        config.replace(preconditioner=fitted_or_fixed(config)),
        growth=growth,
        budget=budget,
        bound_for=bound_for,
    )
    messages.say(str(planned))
    if output is not None:
        _write(planned.preconditioner, output)
    command = _command(chain, files, planned, output)
    messages.say(f"{'next':<10}{command}")
    here = sum(len(block.draws) for block in chains)
    if here < planned.draws:
        messages.say(f"          with {count(planned.draws)} draws in {as_typed(chain)}, which has {count(here)} now")
    if output is None and isinstance(config.preconditioner, str) and config.preconditioner != "identity":
        messages.say("          estimates the preconditioner again; -o FILE.npz stores the one of this plan")
    paths = {} if output is None else {"preconditioner": output}
    settings = planned.config.to_dict(arrays=False)
    messages.result({**vars(planned), "config": settings, "next": command, "paths": paths})


def _read_chains(source: Chain) -> list[Block]:
    """Read the whole warm-up, one block per chain."""
    import numpy as np

    from steinstream.validation import concatenate

    blocks = list(source.blocks())
    if not blocks:
        raise InputError(f"{source.title} has no draws.")
    whole = concatenate(blocks)
    return [whole.take(whole.ids[:, 0] == chain) for chain in np.unique(whole.ids[:, 0])]


def _write(preconditioner: Preconditioner, path: Path) -> None:
    import numpy as np

    from steinstream.io import replacing

    arrays: dict[str, Any] = {"preconditioner": preconditioner.factor, "centre": preconditioner.centre}
    with replacing(path) as file:
        np.savez(file, **{name: array for name, array in arrays.items() if array is not None})


def _command(chain: Path, files: InputOptions, planned: Plan, output: Path | None) -> str:
    words = ["steinstream", "thin", as_typed(chain), "-o", "kept.npz"]
    words += ["--growth", planned.growth, "--budget", str(planned.budget), "--stream-weight", "0"]
    words += given_settings("plan", **({} if output is None else {"preconditioner": output}))
    return shlex.join(words + files.command_line())
