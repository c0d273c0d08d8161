"""``steinstream reproduce``: the paper's experiments, one command a figure."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from experiments.paper import NAMES, SCALES, Options, about, experiment

from steinstream.cli.options import refuse_idle
from steinstream.cli.progress import bar, stoppable

if TYPE_CHECKING:
    import numpy as np
    from experiments.paper.laboratory import Laboratory
    from numpy.typing import NDArray

    from steinstream.io import Chain

CHAINS = ("goodwin-rwm", "goodwin-mala", "calcium")
NETWORKS = ("cifar10", "imdb")


def _list(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        for name in NAMES:
            click.echo(f"{name:<14}{about(name)}")
        context.exit()


@click.command(short_help="Run an experiment of the paper.")
@click.argument("name", type=click.Choice(NAMES))
@click.option("--list", is_flag=True, is_eager=True, expose_value=False, callback=_list, help="Name the experiments.")
@click.option("--quick", "scale", flag_value="quick", help="A minute's worth.")
@click.option("--full", "scale", flag_value="full", help="The paper's scale: minutes to hours.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Folder of the results.  [default: NAME-SCALE]")
@click.option("--jobs", type=click.IntRange(min=1), help="Runs side by side.  [default: one a core]")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of everything random.")
@click.option("--moves", type=click.IntRange(min=100), help="Goodwin, calcium, networks: length of a chain.")
@click.option("--scale", "preconditioner", type=click.Choice(["identity", "auto"]), default="identity", show_default=True,
              help="Goodwin, calcium: the paper's coordinates, or fitted ones.")  # fmt: skip
@click.option("--observations", type=click.Path(path_type=Path, exists=True, dir_okay=False),
              help="Goodwin, calcium: observations (npy, or npz with y) instead of simulated ones.")  # fmt: skip
@click.option("--chain", type=click.Path(path_type=Path), help="Goodwin, calcium: a chain of yours instead of ours.")
@click.option("--scores", "scores_file", type=click.Path(path_type=Path), help="File of its scores, if apart.")
@click.option("--draws-name", default="draws", show_default=True, help="Array of the draws, or columns: a,b,c.")
@click.option("--scores-name", default="scores", show_default=True, help="The same for the scores.")
@click.option("--negate-scores", is_flag=True, help="The file holds minus the score.")
@click.option(
    "--data", type=click.Path(path_type=Path, exists=True), help="cifar10, imdb: the official archive or its folder."
)
@click.option("--glove", type=click.Path(path_type=Path, exists=True), help="imdb: word vectors (npz, txt, txt.gz).")
@click.option("--device", help="cifar10, imdb: cpu or cuda.  [default: a GPU if there is one]")
def reproduce(
    name: str, scale: str | None, output: Path | None, jobs: int | None, seed: int, moves: int | None,
    preconditioner: str, device: str | None, **files: Any,
) -> None:  # fmt: skip
    """Run the experiment NAME of the paper, write its numbers as parquet and its figures as png.

    It can be stopped with Ctrl-C at any time; the same command goes on. A finished one is only drawn again.

    \b
    Example: steinstream reproduce goodwin-rwm --quick
             steinstream reproduce calcium --chain theta.csv --scores gradient.csv -o cardiac
    """
    from experiments.paper.laboratory import Laboratory

    from steinstream.report.plots import pyplot

    pyplot()  # a missing package should not cost an hour
    scale = scale or SCALES[1]
    _check(name, moves, device, files)
    observations = files["observations"]
    options = Options(
        scale, seed, moves, None if observations is None else _observations(observations), _chain(files),
        preconditioner, files["data"], files["glove"], device, jobs,
    )  # fmt: skip
    settings = {"experiment": name, "scale": scale, "seed": seed, "moves": moves, "preconditioner": preconditioner}
    settings |= {what: path.name for what, path in files.items() if isinstance(path, Path)}
    folder = output or Path(f"{name}-{scale}")
    began = time.perf_counter()
    laboratory = Laboratory(experiment(name, options), folder, settings)
    _run(laboratory, name, jobs or os.cpu_count() or 1)
    written = laboratory.finish()
    click.echo((folder / "summary.md").read_text())
    click.echo(f"{time.perf_counter() - began:.0f} s  ·  wrote {', '.join(map(str, written))}")


def _check(name: str, moves: int | None, device: str | None, files: dict[str, Any]) -> None:
    """Raise what means nothing to this experiment."""
    from steinstream.errors import InputError

    if files["chain"] is None:
        refuse_idle(["scores_file", "draws_name", "scores_name", "negate_scores"], "without --chain")
    if name not in CHAINS:
        refuse_idle(["preconditioner"], f"to {name}")
    if ((files["chain"] or files["observations"]) and name not in CHAINS) or (
        moves and name not in (*CHAINS, *NETWORKS)
    ):
        raise InputError(f"{name} makes its own draws.", "Leave --chain, --observations and --moves out.")
    if (files["data"] or files["glove"] or device) and name not in NETWORKS:
        raise InputError(f"{name} takes no data.", f"--data, --glove and --device are for {' and '.join(NETWORKS)}.")


def _chain(files: dict[str, Any]) -> Chain | None:
    """The user's chain, if there is one."""
    from steinstream.io import open_chain

    if files["chain"] is None:
        return None
    return open_chain(
        files["chain"], scores=files["scores_file"], draws_name=files["draws_name"], scores_name=files["scores_name"],
        negate=files["negate_scores"],
    )  # fmt: skip


def _run(laboratory: Laboratory, name: str, jobs: int) -> None:
    """Do what is not done yet, until Ctrl-C."""
    from experiments.paper import Stopped

    with stoppable() as stop:
        try:
            with bar(name, 1.0) as progress:
                laboratory.run(jobs, progress.show, lambda: bool(stop.signal))
        except Stopped:
            click.echo("stopped; the same command goes on", err=True)
            sys.exit(stop.code)


def _observations(path: Path) -> NDArray[np.float64]:
    import numpy as np

    from steinstream.errors import InputError
    from steinstream.io.errors import DAMAGE

    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            arrays = {"y": loaded} if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded.files}
    except DAMAGE:
        raise InputError(f"{path} is not a readable npy or npz file.", "Save the observations as one.") from None
    name = next((name for name in ("y", "y_uM") if name in arrays), None)
    if name is None:
        raise InputError(f"{path} has no array y, only {', '.join(arrays)}.", "Save the observations as y.")
    return np.asarray(arrays[name], dtype=np.float64)
