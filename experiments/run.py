"""Run the paper's experiments at full scale and keep what is worth keeping: figures, numbers, summary.

``python experiments/run.py [NAME ...] [--scale quick|medium|full] [--data FOLDER]``. Runs stay in experiments/runs and
go on where they were stopped. With ``--data`` the observations of the published Goodwin and calcium problems are used,
the published Goodwin chain is thinned as well, and networks are run, these at the scale of two cores: their full scale
is for a GPU and must be asked for by ``steinstream reproduce cifar10 --full``.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from experiments.paper import NAMES, SCALES

HERE = Path(__file__).parent
OBSERVATIONS = {
    "goodwin-rwm": "goodwin/goodwin_obs_effective.npz",
    "goodwin-mala": "goodwin/goodwin_obs_effective.npz",
    "calcium": "hinch2004/substitute_obs_and_sensitivity.npz",
}
FITTED = ("goodwin-rwm", "calcium")  # also in fitted coordinates
PUBLISHED = "goodwin/goodwin_rw_stride100.npz"
NETWORKS = {"cifar10": ["--data", "cifar10"], "imdb": ["--data", "imdb", "--glove", "glove"]}  # folders of the data
KEPT = ("*.png", "results.parquet", "summary.md")


def main() -> None:
    """What the command line asks for."""
    names = [*NAMES, *(f"{name}-fitted" for name in FITTED), "goodwin-published"]
    parser = argparse.ArgumentParser(description="The paper's experiments.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(names)}; all by default")
    parser.add_argument("--scale", choices=SCALES, default="full")
    parser.add_argument("--data", type=Path, help="folder with the published data")
    given = parser.parse_args()
    need_data = ("goodwin-published", *NETWORKS)
    for name in given.names or [name for name in names if given.data or name not in need_data]:
        scale = "medium" if name in NETWORKS and given.scale == "full" else given.scale
        options = [f"--{scale}"] if scale != "medium" else []
        experiment = name.removesuffix("-fitted")
        options += ["--scale", "auto"] if name != experiment else []
        if name == "goodwin-published":
            experiment = "goodwin-rwm"
            options += ["--chain", str(given.data / PUBLISHED), "--draws-name", "theta", "--scores-name", "score"]
        elif given.data and name in NETWORKS:
            options += [word if word.startswith("-") else str(given.data / word) for word in NETWORKS[name]]
        elif given.data and experiment in OBSERVATIONS:
            options += ["--observations", str(given.data / OBSERVATIONS[experiment])]
        run(name, experiment, options)


def run(name: str, experiment: str, options: list[str]) -> None:
    """One experiment, and what it leaves in its folder here."""
    folder = HERE / "runs" / name
    command = [sys.executable, "-m", "steinstream", "reproduce", experiment, "-o", str(folder), *options]
    subprocess.run(command, check=True)
    (HERE / name).mkdir(exist_ok=True)
    for pattern in KEPT:
        for path in folder.glob(pattern):
            shutil.copy(path, HERE / name / path.name)


if __name__ == "__main__":
    main()
