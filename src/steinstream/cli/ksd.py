"""``steinstream ksd``: how good is a set of draws?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steinstream.cli.options import as_coordinates, as_kernel, chain_options, kernel_options, open_the_chain
from steinstream.cli.progress import bar, count, number

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@click.command(short_help="Measure KSD of a chain or a kept set.")
@chain_options
@kernel_options
@click.option("--cumulative", type=click.Path(path_type=Path), help="Write KSD of the first 1, 2, ... draws as csv.")
def ksd(chain: Path, cumulative: Path | None, **options: Any) -> None:
    """Measure the kernelized Stein discrepancy of CHAIN: lower is better.

    A set kept by steinstream (npz) is measured in the coordinates it was thinned in; to compare another file with it,
    measure that in the same ones: --scale kept.npz.

    \b
    Example: steinstream ksd kept.npz
    """
    import numpy as np

    from steinstream import door
    from steinstream.discrepancy import cumulative_ksd
    from steinstream.discrepancy import ksd as weighted_ksd
    from steinstream.sketch import Sketch
    from steinstream.thinning import fitting

    source = open_the_chain(
        chain, options["scores_file"], options["draws_name"], options["scores_name"], options["negate_scores"]
    )
    block = door.no_draws(source.dim)
    blocks = list(source.blocks())
    if blocks:
        block = door.Block(*(np.concatenate(parts) for parts in zip(*blocks, strict=True)))
    door.usable(block, "raise")
    sketch = Sketch(source.dim)
    sketch.add(block)
    scale = options["scale"]
    if scale == "auto" and chain.suffix == ".npz" and _is_kept(chain):
        scale = str(chain)
    kernel = as_kernel(options["kernel"])
    coordinates = fitting(as_coordinates(scale), sketch, not options["trust_scores"], kernel)
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
    weights = _weights(chain, len(curve))
    if weights is not None:
        value = weighted_ksd(block.draws, block.scores, kernel=kernel, coordinates=coordinates, weights=weights)
        click.echo(f"with its weights  ·  KSD {value:.6g}")
    if cumulative is not None:
        from steinstream.io import replacing

        with replacing(cumulative) as file:
            file.write(b"draws,ksd\n" + b"".join(b"%d,%.17g\n" % row for row in enumerate(curve.tolist(), start=1)))
        click.echo(f"wrote {cumulative}")


def _is_kept(path: Path) -> bool:
    """Whether the file remembers the coordinates it was thinned in."""
    import numpy as np

    with np.load(path, allow_pickle=False) as arrays:
        return "coordinates" in arrays.files


def _weights(path: Path, draws: int) -> NDArray[np.float64] | None:
    """The weights in the file of a kept set, if it has any."""
    import numpy as np

    if path.suffix != ".npz" or not _is_kept(path):
        return None
    with np.load(path, allow_pickle=False) as arrays:
        weights = arrays["weights"] if "weights" in arrays.files else None
    return weights if weights is not None and weights.shape == (draws,) else None
