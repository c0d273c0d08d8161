"""KSD of a fixed number of kept draws against its bound: ``python experiments/hard-cap/run.py``.

Compares KSD^2 of ``size=N`` draws with the bound on its mean, `Kept.bound`. Writes results.csv to the folder of this
file and prints the table of the README. A quarter of a minute.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

import steinstream as ss
from steinstream.targets import Gaussian, Mixture

HERE = Path(__file__).parent
SEEDS, DRAWS = 20, 20_000
IDENTITY = ss.Preconditioner.identity()
TARGETS = {
    "normal, d = 2": Gaussian(np.zeros(2), 1.0),
    "normal, d = 10": Gaussian(np.zeros(10), 1.0),
    "normal, d = 38": Gaussian(np.zeros(38), 1.0),
    "four modes, d = 2": Mixture([[0, 0], [0, 4], [4, 0], [4, 4]], covariances=1.0),
}


class CapResult(NamedTuple):
    """Final KSD^2 of a run, its bound, the limit (kappa + D) / 2N of the bound, and if N draws were always kept."""

    target: str
    size: int
    seed: int
    square: float
    bound: float
    limit: float
    exact: bool


def measure() -> Iterator[CapResult]:
    """Run every target, size and seed."""
    for name, target in TARGETS.items():
        for seed in range(SEEDS):
            draws, scores = target.sample(DRAWS, seed=seed)
            for size in (10, 50, 250):
                thinner = ss.Thinner(
                    draws.shape[1], size=size, history="all", preconditioner=IDENTITY, stream_weight=0.0
                )
                thinner.extend(draws, scores)
                kept, history = thinner.kept, thinner.history
                kappa, diagonal = (kept.kernel.diagonal(s).mean() for s in (scores, kept.scores))
                exact = bool((history.size == np.minimum(history.step, size)).all())
                squares = kept.ksd**2, kept.bound**2, (kappa + diagonal) / (2 * size)
                yield CapResult(name, size, seed, *squares, exact=exact)


def table(rows: list[CapResult]) -> str:
    """Return the means over the seeds as Markdown."""
    lines = ["| target | N | mean KSD^2 | bound | (kappa + D) / 2N | always N |", "|---|---|---|---|---|---|"]
    for key in dict.fromkeys(row[:2] for row in rows):
        some = [row for row in rows if row[:2] == key]
        square, bound, limit = (np.array([row[i] for row in some]) for i in (3, 4, 5))
        error = square.std(ddof=1) / np.sqrt(len(some))
        held = "yes" if all(row.exact for row in some) else "no"
        values = f"{square.mean():.4g} ± {error:.1g} | {bound.mean():.4g} | {limit.mean():.4g}"
        lines.append(f"| {key[0]} | {key[1]} | {values} | {held} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, write results.csv and print the table."""
    argparse.ArgumentParser(description="KSD of a fixed number of kept draws against its bound.").parse_args()
    rows = list(measure())
    with (HERE / "results.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(CapResult._fields)
        writer.writerows([*row[:3], *(f"{value:.6g}" for value in row[3:6]), row.exact] for row in rows)
    print(table(rows))


if __name__ == "__main__":
    main()
