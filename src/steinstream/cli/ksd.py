"""``steinstream ksd``: measure the KSD of a set of draws."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from steinstream.cli._config import fitted_or_fixed, setting_options
from steinstream.cli.help import Command, option
from steinstream.cli.messages import Messages, message_options
from steinstream.cli.options import PATH, InputOptions, chain_options, require_scores, was_given
from steinstream.cli.paths import check_distinct, check_writable, input_files
from steinstream.cli.progress import bar, count, number
from steinstream.errors import NotKeptError

if TYPE_CHECKING:
    from steinstream._typing import Array
    from steinstream.result import Kept
    from steinstream.thinner import ThinConfig


@click.command(cls=Command, short_help="Measure KSD of a chain or a kept set.")
@chain_options
@setting_options(part="ksd")
@option("--cumulative", type=PATH, metavar="FILE", help="Write KSD of the first 1, 2, ... draws to this csv file, too.")
@message_options
def ksd(*, chain: Path, cumulative: Path | None, config: ThinConfig, files: InputOptions, messages: Messages) -> None:
    """Measure the kernelized Stein discrepancy of CHAIN: lower is better.

    A set kept by steinstream (npz, nc, zarr) is measured with the kernel and preconditioner it was thinned with. To
    compare another file with it, use the same: --preconditioner kept.npz and the same --kernel.

    \b
    Example: steinstream ksd kept.npz
    """
    from steinstream.api import ArraySource, MarkedBlock, fit_source
    from steinstream.discrepancy.ksd import cumulative_ksd
    from steinstream.discrepancy.ksd import ksd as weighted_ksd
    from steinstream.validation import concatenate, empty_block

    if cumulative is not None:
        check_writable("--cumulative", cumulative)
        check_distinct({"--cumulative": cumulative}, input_files([chain], files))
    source, kept = files.open(chain), _read_kept(chain, files.format)
    require_scores(source, "KSD")
    if kept is not None:
        kept.require_scores("ksd")
        config = _as_kept(config, kept)
    block = concatenate([empty_block(source.dim), *source.blocks()])
    config = config.replace(preconditioner=fitted_or_fixed(config))
    preconditioner = fit_source(ArraySource([MarkedBlock(block)], source.title), config).preconditioner
    with bar("measuring", 1.0) as progress:
        curve = cumulative_ksd(
            block.draws,
            block.scores,
            kernel=config.kernel,
            preconditioner=preconditioner,
            progress=lambda share: progress.show(share, f"{share:.0%}"),
        )
    value = float(curve[-1])
    messages.say(
        f"{count(len(curve))} draws  ·  KSD {value:.6g}  ·  normalised {number(value * len(curve) ** 0.5)}  ·  "
        f"preconditioner: {preconditioner}  ·  kernel: {config.kernel}"
    )
    weights, weighted = None if kept is None else kept.weights, None
    if weights is not None and len(weights) == len(curve):
        weighted = weighted_ksd(
            block.draws, block.scores, kernel=config.kernel, preconditioner=preconditioner, weights=weights
        )
        messages.say(f"with weights  ·  KSD {weighted:.6g}")
    if cumulative is not None:
        _write(curve, cumulative)
        messages.say(f"wrote {cumulative}")
    messages.result(
        {
            "draws": len(curve),
            "ksd": value,
            "normalised_ksd": value * len(curve) ** 0.5,
            "weighted_ksd": weighted,
            "preconditioner": preconditioner,
            "kernel": config.kernel,
            "paths": {} if cumulative is None else {"cumulative": cumulative},
        }
    )


def _read_kept(path: Path, format: str | None) -> Kept | None:
    """Read a kept set, with kernel and preconditioner; return None if the file is not one."""
    from steinstream.io import read_kept

    try:
        return read_kept(path, format)
    except NotKeptError:
        return None


def _as_kept(config: ThinConfig, kept: Kept) -> ThinConfig:
    """Use kernel and preconditioner of a kept set, unless they are given or unknown."""
    known = {"kernel": kept.kernel, "preconditioner": kept.preconditioner}
    return config.replace(**{name: value for name, value in known.items() if value is not None and not was_given(name)})


def _write(curve: Array, path: Path) -> None:
    from steinstream.io import replacing

    with replacing(path) as file:
        file.write(b"draws,ksd\n" + b"".join(b"%d,%.17g\n" % row for row in enumerate(curve.tolist(), start=1)))
