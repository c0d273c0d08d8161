"""Command line of the paper's experiments: ``python -m experiments NAME``."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from experiments.paper import NAMES, SCALES, ExperimentOptions, create_experiment, description
from steinstream.cli import main
from steinstream.cli.progress import bar, stoppable

if TYPE_CHECKING:
    from experiments.runner import Runner
    from steinstream._typing import Array
    from steinstream.io import Chain

GOODWIN = ("goodwin-rwm", "goodwin-mala")
CHAINS = (*GOODWIN, "calcium")
NETWORKS = ("cifar10", "imdb")
#: Options of the command line that are passed on as they are.
PASSED = (
    "seed",
    "moves",
    "chains",
    "step",
    "chain_name",
    "chain_stride",
    "preconditioner",
    "data",
    "glove",
    "device",
    "jobs",
    "posterior",
)


def _list(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        for name in NAMES:
            click.echo(f"{name:<14}{description(name)}")
        context.exit()


_FILE = click.Path(path_type=Path)
_EXISTING = click.Path(path_type=Path, exists=True)
_EXISTING_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("name", type=click.Choice(NAMES))
@click.option(
    "--list", is_flag=True, is_eager=True, expose_value=False, callback=_list, help="List the experiments and exit."
)
@click.option("--quick", "scale", flag_value="quick", help="Run at a small scale (about a minute).")
@click.option("--full", "scale", flag_value="full", help="Run at the scale of the paper (minutes to hours).")
@click.option("-o", "--output", type=_FILE, help="Folder of the results.  [default: NAME-SCALE]")
@click.option("--jobs", type=click.IntRange(min=1), help="Number of parallel runs.  [default: number of cores]")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Random seed.")
@click.option("--moves", type=click.IntRange(min=100), help="Length of a chain (Goodwin, calcium, networks).")
@click.option(
    "--chains",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of independent chains, with the seeds N, N + 1, ... (Goodwin, calcium).",
)
@click.option(
    "--step", type=click.FloatRange(min=0.0, min_open=True), help="Step of the sampler: sd of its noise (Goodwin)."
)
@click.option(
    "--preconditioner",
    type=click.Choice(["identity", "auto"]),
    default="identity",
    show_default=True,
    help="Preconditioner: identity, as in the paper, or estimated from the chain (Goodwin, calcium).",
)
@click.option(
    "--observations",
    type=_EXISTING_FILE,
    help="Observations (npy, or npz with the array y) instead of simulated ones (Goodwin, calcium).",
)
@click.option("--chain", type=_FILE, help="Chain to thin instead of sampling one (Goodwin, calcium).")
@click.option("--scores", "scores_file", type=_FILE, help="Separate file with the scores of --chain.")
@click.option("--draws-name", default="draws", show_default=True, help="Array of the draws, or columns: a,b,c.")
@click.option("--scores-name", default="scores", show_default=True, help="Array or columns of the scores.")
@click.option("--negate-scores", is_flag=True, help="The file contains minus the score.")
@click.option("--chain-name", default="given chain", show_default=True, help="Name of --chain in titles.")
@click.option(
    "--chain-stride",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="--chain has every Nth move; figures count moves.",
)
@click.option("--data", type=_EXISTING, help="Official archive or its folder (cifar10, imdb).")
@click.option("--glove", type=_EXISTING, help="Word vectors: npz, txt or txt.gz (imdb).")
@click.option(
    "--posterior",
    type=click.Choice(["tempered", "authors"]),
    default="tempered",
    show_default=True,
    help="Tempered posterior, or that of the public code of the authors (cifar10, imdb).",
)
@click.option("--device", help="cpu or cuda (cifar10, imdb).  [default: a GPU if there is one]")
def reproduce(name: str, scale: str | None, output: Path | None, **options: Any) -> None:
    """Run the experiment NAME of the paper and write its results as parquet, png and md files.

    Ctrl-C stops the run at any time; the same command resumes it. If the run is complete, only the figures and the
    summary are written again.

    \b
    Example: python -m experiments goodwin-rwm --quick
             python -m experiments calcium --chain theta.csv --scores gradient.csv -o cardiac
    """
    from experiments.runner import Runner
    from steinstream.report.plots import pyplot

    pyplot()  # fail before the computation if matplotlib is missing
    scale = scale or SCALES[1]
    _check_options(name, options)
    jobs, observations = options["jobs"], options["observations"]
    experiment_options = ExperimentOptions(
        scale=scale,
        observations=None if observations is None else _read_observations(observations),
        chain=_open_chain(options),
        **{key: options[key] for key in PASSED},
    )
    settings = {"experiment": name, "scale": scale}
    settings |= {key: options[key] for key in ("seed", "moves", "step", "preconditioner")}
    if options["chains"] > 1:
        settings["chains"] = options["chains"]
    if name in NETWORKS:
        settings["posterior"] = options["posterior"]
    settings |= {key: value.name for key, value in options.items() if isinstance(value, Path)}
    folder = output or Path(f"{name}-{scale}")
    start = time.perf_counter()
    runner = Runner(create_experiment(name, experiment_options), folder, settings)
    _run(runner, name, jobs or os.cpu_count() or 1)
    written = runner.finish()
    click.echo((folder / "summary.md").read_text())
    click.echo(f"{time.perf_counter() - start:.0f} s  ·  wrote {', '.join(map(str, written))}")


def _check_options(name: str, options: dict[str, Any]) -> None:
    """Raise `InputError` if an option has no effect on this experiment."""
    if options["chain"] is None:
        _refuse(
            ["scores_file", "draws_name", "scores_name", "negate_scores", "chain_name", "chain_stride"],
            "without --chain",
        )
    else:
        _refuse(["observations", "moves", "step", "chains"], "with --chain")
    if name not in GOODWIN:
        _refuse(["step"], f"for {name}")
    if name not in CHAINS:
        _refuse(["preconditioner", "chains"], f"for {name}")
        _refuse(["observations", "chain"], f"for {name}", "Leave it out: this experiment samples its own draws.")
    if name not in (*CHAINS, *NETWORKS):
        _refuse(["moves"], f"for {name}", "Leave it out: the length of its streams is fixed.")
    if name not in NETWORKS:
        _refuse(["data", "device", "posterior"], f"for {name}", f"Leave it out, or run {' or '.join(NETWORKS)}.")
    if name != "imdb":
        _refuse(["glove"], f"for {name}")


def _refuse(names: Iterable[str], where: str, remedy: str = "Leave it out.") -> None:
    """Raise `InputError` if one of these options was given."""
    from steinstream.errors import InputError

    context = click.get_current_context()
    options = {option.name: option.opts[-1] for option in context.command.params}
    for name in names:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise InputError(f"{options[name]} has no effect {where}.", remedy)


def _open_chain(options: dict[str, Any]) -> Chain | None:
    """Open the chain of the user, if there is one."""
    from steinstream.io import open_chain

    if options["chain"] is None:
        return None
    return open_chain(
        options["chain"],
        scores=options["scores_file"],
        draws_name=options["draws_name"],
        scores_name=options["scores_name"],
        negate=options["negate_scores"],
    )


def _run(runner: Runner, name: str, jobs: int) -> None:
    """Run the experiment until it is complete or interrupted."""
    from experiments.runner import Stopped

    with stoppable() as stop:
        try:
            with bar(name, 1.0) as progress:
                runner.run(jobs, progress.show, lambda: bool(stop.signal))
        except Stopped:
            click.echo("stopped; run the same command to resume", err=True)
            sys.exit(stop.code)


def _read_observations(path: Path) -> Array:
    """Read the observations from an npy file or from the array y of an npz file."""
    import numpy as np

    from steinstream.errors import InputError
    from steinstream.io.errors import DAMAGE

    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            arrays = {"y": loaded} if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded.files}
    except DAMAGE:
        raise InputError(f"{path} is not a readable npy or npz file.", "Save the observations with NumPy.") from None
    name = next((name for name in ("y", "y_uM") if name in arrays), None)
    if name is None:
        raise InputError(f"{path} has no array y, only {', '.join(arrays)}.", "Save the observations as y.")
    return np.asarray(arrays[name], dtype=np.float64)


if __name__ == "__main__":
    main(reproduce, "python -m experiments")
