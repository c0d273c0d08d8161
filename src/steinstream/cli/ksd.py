"""``steinstream ksd``: how good is a set of draws?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steinstream.cli.options import as_coordinates, as_kernel, chain_options, kernel_options, open_the_chain
from steinstream.cli.progress import bar, count, number

if TYPE_CHECKING:
    from steinstream.kept import Kept


@click.command(short_help="Measure KSD of a chain or a kept set.")
@chain_options
@kernel_options
@click.option("--cumulative", type=click.Path(path_type=Path), help="Write KSD of the first 1, 2, ... draws as csv.")
def ksd(chain: Path, cumulative: Path | None, **options: Any) -> None:
    """Measure the kernelized Stein discrepancy of CHAIN: lower is better.

    A set kept by steinstream (npz, nc, zarr) is measured in the coordinates it was thinned in; to compare another file
    with it, measure that in the same ones: --scale kept.npz.

    \b
    Example: steinstream ksd kept.npz
    """
    import numpy as np

    from steinstream import door
    from steinstream.discrepancy import cumulative_ksd
    from steinstream.discrepancy import ksd as weighted_ksd
    from steinstream.gradient_free import refuse_ratios
    from steinstream.sketch import Sketch
    from steinstream.thinning import fitting

    source = open_the_chain(chain, options)
    kept = _kept(chain)
    if kept is not None:
        refuse_ratios(kept, "This measure")
    block = door.no_draws(source.dim)
    blocks = list(source.blocks())
    if blocks:
        block = door.Block(*(np.concatenate(parts) for parts in zip(*blocks, strict=True)))
    door.usable(block, "raise")
    sketch = Sketch(source.dim)
    sketch.add(block)
    scale = options["scale"]
    known = kept.coordinates if kept is not None and scale == "auto" else None
    kernel = as_kernel(options["kernel"])
    coordinates = fitting(known or as_coordinates(scale), sketch, not options["trust_scores"], kernel)
    with bar("measuring", 1.0) as progress:
        curve = cumulative_ksd(
            block.draws, block.scores, kernel=kernel, coordinates=coordinates,
            progress=lambda share: progress.show(share, f"{share:.0%}"),
        )  # fmt: skip
    value = float(curve[-1])
    click.echo(
        f"{count(len(curve))} draws  ·  KSD {value:.6g}  ·  normalised {number(value * len(curve) ** 0.5)}  ·  "
        f"coordinates: {coordinates}"
    )
    weights = None if kept is None else kept.weights
    if weights is not None and len(weights) == len(curve):
        value = weighted_ksd(block.draws, block.scores, kernel=kernel, coordinates=coordinates, weights=weights)
        click.echo(f"with its weights  ·  KSD {value:.6g}")
    if cumulative is not None:
        from steinstream.io import replacing

        with replacing(cumulative) as file:
            file.write(b"draws,ksd\n" + b"".join(b"%d,%.17g\n" % row for row in enumerate(curve.tolist(), start=1)))
        click.echo(f"wrote {cumulative}")


def _kept(path: Path) -> Kept | None:
    """The file as a kept set, with the coordinates it was thinned in; None if it is something else."""
    import numpy as np

    from steinstream.errors import InputError
    from steinstream.io import read_kept

    if path.suffix == ".npz":  # of a chain, which may be large, only the names are read
        with np.load(path, allow_pickle=False) as arrays:
            if "coordinates" not in arrays.files:
                return None
    try:
        return read_kept(path)
    except InputError:
        return None
