"""``steinstream ksd``: how good is a set of draws?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steinstream.cli.files import check_apart, check_place, read_by
from steinstream.cli.options import as_coordinates, as_kernel, chain_options, kernel_options, open_the_chain, typed
from steinstream.cli.progress import bar, count, number

if TYPE_CHECKING:
    from steinstream.coordinates import Coordinates
    from steinstream.door import Array, Block
    from steinstream.io import Chain
    from steinstream.kept import Kept
    from steinstream.kernels import Kernel


@click.command(short_help="Measure KSD of a chain or a kept set.")
@chain_options
@kernel_options
@click.option("--cumulative", type=click.Path(path_type=Path), help="Write KSD of the first 1, 2, ... draws as csv.")
def ksd(chain: Path, cumulative: Path | None, **options: Any) -> None:
    """Measure the kernelized Stein discrepancy of CHAIN: lower is better.

    A set kept by steinstream (npz, nc, zarr) is measured by the kernel and in the coordinates it was thinned with; to
    compare another file with it, measure that alike: --scale kept.npz, and the same --kernel.

    \b
    Example: steinstream ksd kept.npz
    """
    from steinstream.discrepancy import cumulative_ksd
    from steinstream.discrepancy import ksd as weighted_ksd
    from steinstream.gradient_free import refuse_ratios

    if cumulative is not None:
        check_place("--cumulative", cumulative)
        check_apart({"--cumulative": cumulative}, read_by([chain], options))
    source = open_the_chain(chain, options)
    kept = _kept(chain)
    if kept is not None:
        refuse_ratios(kept, "This measure")
    block = _whole(source)
    kernel, coordinates = _measure(block, kept, options)
    with bar("measuring", 1.0) as progress:
        curve = cumulative_ksd(
            block.draws, block.scores, kernel=kernel, coordinates=coordinates,
            progress=lambda share: progress.show(share, f"{share:.0%}"),
        )  # fmt: skip
    value = float(curve[-1])
    click.echo(
        f"{count(len(curve))} draws  ·  KSD {value:.6g}  ·  normalised {number(value * len(curve) ** 0.5)}  ·  "
        f"coordinates: {coordinates}  ·  kernel: {kernel}"
    )
    weights = None if kept is None else kept.weights
    if weights is not None and len(weights) == len(curve):
        value = weighted_ksd(block.draws, block.scores, kernel=kernel, coordinates=coordinates, weights=weights)
        click.echo(f"with its weights  ·  KSD {value:.6g}")
    if cumulative is not None:
        _write(curve, cumulative)


def _kept(path: Path) -> Kept | None:
    """The file as a kept set, with kernel and coordinates; None if it is something else."""
    from steinstream.errors import InputError
    from steinstream.io import read_kept

    try:
        return read_kept(path)
    except InputError:
        return None


def _whole(source: Chain) -> Block:
    """All draws, fit to be measured."""
    import numpy as np

    from steinstream import door

    blocks = list(source.blocks())
    block = door.no_draws(source.dim)
    if blocks:
        block = door.Block(*(np.concatenate(parts) for parts in zip(*blocks, strict=True)))
    door.usable(block, "raise")
    return block


def _measure(block: Block, kept: Kept | None, options: dict[str, Any]) -> tuple[Kernel, Coordinates]:
    """Kernel and coordinates: those asked for, else those of the kept set, else what suits the draws."""
    from steinstream.sketch import Sketch
    from steinstream.thinning import fitting

    kernel, scale = as_kernel(options["kernel"]), as_coordinates(options["scale"])
    if kept is not None and kept.kernel is not None and not typed("kernel"):
        kernel = kept.kernel
    if kept is not None and kept.coordinates is not None and options["scale"] == "auto":
        scale = kept.coordinates
    sketch = Sketch(block.draws.shape[1])
    sketch.add(block)
    return kernel, fitting(scale, sketch, not options["trust_scores"], kernel)


def _write(curve: Array, path: Path) -> None:
    from steinstream.io import replacing

    with replacing(path) as file:
        file.write(b"draws,ksd\n" + b"".join(b"%d,%.17g\n" % row for row in enumerate(curve.tolist(), start=1)))
    click.echo(f"wrote {path}")
