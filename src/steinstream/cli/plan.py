"""``steinstream plan``: how many draws, and which budget, for a wanted KSD."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steinstream.cli.options import as_kernel, as_preconditioner, chain_options, kernel_options, open_the_chain
from steinstream.cli.paths import check_apart, check_place, read_by
from steinstream.cli.progress import count
from steinstream.errors import InputError

if TYPE_CHECKING:
    from steinstream.io import Chain
    from steinstream.preconditioning import Preconditioner
    from steinstream.validation import Block


@click.command(short_help="How many draws for a wanted KSD?")
@chain_options
@click.option("--radius", type=float, required=True, help="The KSD to reach.")
@click.option("--exponent", type=float, help="Growth is sqrt(t^EXPONENT log t) / 2, between 1 and 2.  [default: 1.5]")
@click.option("--growth", help="The same as power:EXPONENT; or linear, or sqrt.")
@click.option("--budget", default="constant", show_default=True, help="Kind of budget: constant, share, share:ETA.")
@click.option(
    "--candidates", type=click.IntRange(min=1), default=1, show_default=True, help="Best of so many (SPMCMC)."
)
@click.option("--sizes", type=click.Choice(["planned", "any"]), default="planned", show_default=True,
              help="Sizes of the set that the bound allows for; any asks for many times more draws.")  # fmt: skip
@kernel_options
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the coordinates here, for thin --scale.")
def plan(chain: Path, radius: float, output: Path | None, **options: Any) -> None:
    """Plan a run for a wanted KSD, from a warm-up: the first draws of CHAIN, say.

    Prints how many draws to make, how many will be kept, the budget, and the command that carries it out.

    \b
    Example: steinstream plan warmup.npz --radius 0.1 -o coordinates.npz
    """
    from steinstream.planning import plan_from_blocks

    if output is not None and output.suffix != ".npz":
        raise InputError(f"{output} is no name for coordinates.", "Give a name that ends in .npz.")
    if output is not None:
        check_place("-o", output)
        check_apart({"-o": output}, read_by([chain], options))
    if options["growth"] and options["exponent"] is not None:
        raise InputError("--growth and --exponent say the same thing.", "Give one of them.")
    source = open_the_chain(chain, dict(options))
    chains = _chains(source)
    planned = plan_from_blocks(
        chains,
        radius,
        growth=options["growth"] or (1.5 if options["exponent"] is None else options["exponent"]),
        budget=options["budget"],
        candidates=options["candidates"],
        kernel=as_kernel(options["kernel"]),
        preconditioner=as_preconditioner(options["scale"]),
        sizes=options["sizes"],
        validate_scores=not options["trust_scores"],
    )
    click.echo(planned)
    if output is not None:
        _write(planned.preconditioner, output)
        options["scale"] = str(output)
    click.echo(f"{'next':<10}{_command(chain, options, planned.growth, planned.budget)}")
    here = sum(len(block.draws) for block in chains)
    if here < planned.draws:
        click.echo(f"          with {count(planned.draws)} draws in {chain}, where {count(here)} are now")
    if output is None and options["scale"] in ("auto", "scale", "scales", "covariance"):
        click.echo("          coordinates are then estimated anew; -o coordinates.npz keeps those of the plan")


def _chains(source: Chain) -> list[Block]:
    """The whole warm-up, one block for each chain."""
    import numpy as np

    from steinstream.validation import Block

    blocks = list(source.blocks())
    if not blocks:
        raise InputError(f"{source.path} has no draws.")
    whole = Block(*(np.concatenate(parts) for parts in zip(*blocks, strict=True)))
    return [whole.take(whole.ids[:, 0] == chain) for chain in np.unique(whole.ids[:, 0])]


def _write(preconditioner: Preconditioner, path: Path) -> None:
    import numpy as np

    from steinstream.io import replacing

    arrays: dict[str, Any] = {"preconditioner": preconditioner.factor, "centre": preconditioner.centre}
    with replacing(path) as file:
        np.savez(file, **{name: array for name, array in arrays.items() if array is not None})


def _command(chain: Path, options: dict[str, Any], growth: str, budget: float | str) -> str:
    """The command that does what was planned."""
    words = ["steinstream", "thin", str(chain), "-o", "kept.npz", "--growth", growth, "--budget", str(budget)]
    for name, value, usual in (
        ("--candidates", options["candidates"], 1),
        ("--kernel", options["kernel"], "imq"),
        ("--scale", options["scale"], "auto"),
        ("--scores", options["scores_file"], None),
        ("--draws-name", options["draws_name"], "draws"),
        ("--scores-name", options["scores_name"], "scores"),
        ("--format", options["format"], None),
    ):
        words += [] if value == usual else [name, str(value)]
    if options["transposed"] is not None:
        words.append("--transposed" if options["transposed"] else "--not-transposed")
    words += [flag for flag in ("--negate-scores", "--no-validate-scores") if options[flag[2:].replace("-", "_")]]
    return shlex.join(words)
