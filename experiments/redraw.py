"""Draw the figures of the committed results again: ``python -m experiments.redraw [NAME ...]``.

Nothing is computed and no data are needed: figures and summaries are made from ``results.parquet`` and, for chains,
``chain.json``, or, for networks, ``networks.json`` and ``plane.npz`` in the folder of each experiment. Without
``plane.npz`` the figure of the plane is left as it is. The figures of the further measurements are drawn by their
scripts, for example ``python experiments/compare/run.py``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from experiments.paper import NAMES, ExperimentOptions, create_experiment
from experiments.paper.chain_experiment import ChainDescription
from experiments.paper.networks.description import JSON, NetworkDescription
from experiments.results import read_table
from experiments.run_all import AUTHORS, FITTED, HERE, NETWORKS, REPEATED, SLOW
from experiments.runner import Presentation, write_figures, write_summary

CHAINS = (
    *("goodwin-rwm", "goodwin-mala", "calcium", "goodwin-published"),
    *(f"{name}-fitted" for name in FITTED),
    *(REPEATED, SLOW),
)

PLANES = (*NETWORKS, *(f"{name}{AUTHORS}" for name in NETWORKS))  # experiments with networks


def names() -> list[str]:
    """Return the experiments whose results are in the repository; networks need their description too."""
    every = [*NAMES, *(name for name in (*CHAINS, *PLANES) if name not in NAMES)]
    needed = {name: JSON if name in PLANES else "results.parquet" for name in every}
    return [name for name in every if (HERE / name / needed[name]).exists()]


def load(name: str, folder: Path) -> Presentation:
    """Return the experiment whose results are in a folder, ready to draw."""
    if name in PLANES:
        return NetworkDescription.load(folder)
    if name not in CHAINS:
        return create_experiment(name, ExperimentOptions("full"))
    return ChainDescription(**json.loads((folder / "chain.json").read_text()))


def redraw(name: str, folder: Path) -> list[Path]:
    """Write the figures and the summary of a folder again; return the files written."""
    experiment, results = load(name, folder), read_table(folder / "results.parquet")
    summary = folder / "summary.md"
    settings = summary.read_text().strip().splitlines()[-1].strip("()")  # of the run
    return [write_summary(summary, experiment, results, settings), *write_figures(folder, experiment, results)]


def main() -> None:
    """Parse the command line and draw."""
    parser = argparse.ArgumentParser(prog="python -m experiments.redraw", description="Draw committed results again.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(names())} (default: all)")
    chosen = parser.parse_args().names
    unknown = set(chosen) - set(names())
    if unknown:
        parser.error(f"no results of {', '.join(sorted(unknown))}; choose from {', '.join(names())}")
    for name in chosen or names():
        for path in redraw(name, HERE / name):
            print(path.relative_to(HERE.parent))


if __name__ == "__main__":
    main()
