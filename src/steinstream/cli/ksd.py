"""``steinstream ksd``: how good is a set of draws?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steinstream.cli.options import as_kernel, as_preconditioner, chain_options, kernel_options, open_the_chain, typed
from steinstream.cli.paths import check_apart, check_place, read_by
from steinstream.cli.progress import bar, count, number

if TYPE_CHECKING:
    from steinstream.io import Chain
    from steinstream.kernels import Kernel
    from steinstream.preconditioning import Preconditioner
    from steinstream.result import Kept
    from steinstream.validation import Array, Block


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
    from steinstream.gradient_free import reject_ratios

    if cumulative is not None:
        check_place("--cumulative", cumulative)
        check_apart({"--cumulative": cumulative}, read_by([chain], options))
    source = open_the_chain(chain, options)
    kept = _kept(chain)
    if kept is not None:
        reject_ratios(kept, "This measure")
    block = _whole(source)
    kernel, preconditioner = _measure(block, kept, options)
    with bar("measuring", 1.0) as progress:
        curve = cumulative_ksd(
            block.draws, block.scores, kernel=kernel, preconditioner=preconditioner,
            progress=lambda share: progress.show(share, f"{share:.0%}"),
        )  # fmt: skip
    value = float(curve[-1])
    click.echo(
        f"{count(len(curve))} draws  ·  KSD {value:.6g}  ·  normalised {number(value * len(curve) ** 0.5)}  ·  "
        f"preconditioner: {preconditioner}  ·  kernel: {kernel}"
    )
    weights = None if kept is None else kept.weights
    if weights is not None and len(weights) == len(curve):
        value = weighted_ksd(block.draws, block.scores, kernel=kernel, preconditioner=preconditioner, weights=weights)
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

    from steinstream import validation

    blocks = list(source.blocks())
    block = validation.empty_block(source.dim)
    if blocks:
        block = validation.Block(*(np.concatenate(parts) for parts in zip(*blocks, strict=True)))
    validation.finite_rows(block, "raise")
    return block


def _measure(block: Block, kept: Kept | None, options: dict[str, Any]) -> tuple[Kernel, Preconditioner]:
    """Kernel and coordinates: those asked for, else those of the kept set, else what suits the draws."""
    from steinstream.api import fitting
    from steinstream.thinner.subsample import Subsample

    kernel, scale = as_kernel(options["kernel"]), as_preconditioner(options["scale"])
    if kept is not None and kept.kernel is not None and not typed("kernel"):
        kernel = kept.kernel
    if kept is not None and kept.preconditioner is not None and options["scale"] == "auto":
        scale = kept.preconditioner
    sketch = Subsample(block.draws.shape[1])
    sketch.add(block)
    return kernel, fitting(scale, sketch, not options["trust_scores"], kernel)


def _write(curve: Array, path: Path) -> None:
    from steinstream.io import replacing

    with replacing(path) as file:
        file.write(b"draws,ksd\n" + b"".join(b"%d,%.17g\n" % row for row in enumerate(curve.tolist(), start=1)))
    click.echo(f"wrote {path}")
