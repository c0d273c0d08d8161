"""Run the experiments of the paper at full scale and update their result folders.

``python -m experiments.run_all [NAME ...] [--scale quick|medium|full] [--data FOLDER]``. The runs are stored in
``experiments/runs`` and can be interrupted and resumed. Figures, numbers and summaries are copied to
``experiments/NAME``.

With ``--data``, the observations of the published Goodwin and calcium problems are used, the published Goodwin chain is
thinned as well, and the networks and the scripts ``published/run.py`` and ``goodwin-mala/steps.py`` are run. This takes
about two hours on two cores without the networks, and ten to thirty minutes of processor time for each of
these. They are run at medium scale, because their full scale needs a GPU: ``python -m experiments cifar10 --full``.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from experiments.paper import NAMES, SCALES

HERE = Path(__file__).resolve().parent
OBSERVATIONS = {
    "goodwin-rwm": "goodwin/goodwin_obs_effective.npz",
    "goodwin-mala": "goodwin/goodwin_obs_effective.npz",
    "calcium": "hinch2004/substitute_obs_and_sensitivity.npz",
}
FITTED = ("goodwin-rwm",)  # also run with an estimated preconditioner
REPEATED = "goodwin-rwm-chains"  # five independent chains of a quarter of the length
REPEATED_OPTIONS = ["--chains", "5"]
SLOW = "goodwin-mala-slow"  # MALA with a step that makes the burn-in long
SLOW_OPTIONS = ["--step", "0.00012"]
PUBLISHED = "goodwin/goodwin_rw_stride100.npz"
PUBLISHED_OPTIONS = [
    *("--draws-name", "theta", "--scores-name", "score"),
    *("--chain-name", "published chain", "--chain-stride", "100"),
]
NETWORKS = {"cifar10": {"--data": "cifar10"}, "imdb": {"--data": "imdb", "--glove": "glove"}}
#: Scripts that write their results themselves. They need --data and have one scale, the full one.
SCRIPTS = {"published": "published/run.py", "goodwin-mala-steps": "goodwin-mala/steps.py"}
AUTHORS = "-authors"  # suffix of the networks with the posterior of the authors' code
COPIED = ("*.png", "results.parquet", "summary.md", "chain.json", "networks.json", "plane.npz")


def main() -> None:
    """Parse the command line and run the experiments."""
    authors = [f"{name}{AUTHORS}" for name in NETWORKS]
    names = [*NAMES, *(f"{name}-fitted" for name in FITTED), REPEATED, SLOW, "goodwin-published", *authors, *SCRIPTS]
    parser = argparse.ArgumentParser(prog="python -m experiments.run_all", description="Run the paper's experiments.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(names)} (default: all)")
    parser.add_argument("--scale", choices=SCALES, default="full", help="scale of the runs (default: full)")
    parser.add_argument("--data", type=lambda path: Path(path).resolve(), help="folder with the published data")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(names)
    if unknown:
        parser.error(f"unknown experiment {', '.join(sorted(unknown))}; choose from {', '.join(names)}")
    missing = [name for name in arguments.names if name in ("goodwin-published", *authors, *SCRIPTS)]
    if arguments.data is None and missing:
        parser.error(f"{missing[0]} requires --data")
    left_out = set() if arguments.data else {"goodwin-published", *NETWORKS, *authors, *SCRIPTS}
    left_out |= set() if arguments.scale == "full" else {*SCRIPTS}
    for name in arguments.names or [name for name in names if name not in left_out]:
        if name in SCRIPTS:
            run_script(SCRIPTS[name], arguments.data)
        else:
            run(name, *command_line(name, arguments.scale, arguments.data))


def command_line(name: str, scale: str, data: Path | None) -> tuple[str, list[str]]:
    """Return the name of the experiment and its options."""
    if name.removesuffix(AUTHORS) in NETWORKS and scale == "full":
        scale = "medium"
    if name == REPEATED and scale == "full":
        scale = "medium"
    options = [f"--{scale}"] if scale != "medium" else []
    if name == REPEATED:
        name, options = "goodwin-rwm", options + REPEATED_OPTIONS
    if name == SLOW:
        name, options = "goodwin-mala", options + SLOW_OPTIONS
    experiment = name.removesuffix("-fitted").removesuffix(AUTHORS)
    if name.endswith("-fitted"):
        options += ["--preconditioner", "auto"]
    if name.endswith(AUTHORS):
        options += ["--posterior", "authors"]
    if name == "goodwin-published" and data:
        options += ["--chain", str(data / PUBLISHED), *PUBLISHED_OPTIONS]
        return "goodwin-rwm", options
    if data and experiment in NETWORKS:
        for option, folder in NETWORKS[experiment].items():
            options += [option, str(data / folder)]
    elif data and experiment in OBSERVATIONS:
        options += ["--observations", str(data / OBSERVATIONS[experiment])]
    return experiment, options


def run(name: str, experiment: str, options: list[str]) -> None:
    """Run one experiment and copy its results to the folder ``name``."""
    folder = HERE / "runs" / name
    command = [sys.executable, "-m", "experiments", experiment, "-o", str(folder), *options]
    subprocess.run(command, check=True, cwd=HERE.parent)
    (HERE / name).mkdir(exist_ok=True)
    for pattern in COPIED:
        for path in folder.glob(pattern):
            shutil.copy(path, HERE / name / path.name)


def run_script(path: str, data: Path) -> None:
    """Run a script, which writes its results to its own folder."""
    subprocess.run([sys.executable, str(HERE / path), "--data", str(data)], check=True, cwd=HERE.parent)


if __name__ == "__main__":
    main()
