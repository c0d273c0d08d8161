"""A hard cap and its bound: ``python experiments/hard-cap/run.py``.

KSD^2 of ``size=N`` draws against the bound on its mean (steinstream/promise.py). Writes results.csv beside this file
and prints the README's table. A quarter of a minute.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

import steinstream as ss
from steinstream.targets import Gaussian, Mixture

HERE = Path(__file__).parent
SEEDS, DRAWS = 20, 20_000
TARGETS = {
    "normal, d = 2": Gaussian(np.zeros(2), 1.0),
    "normal, d = 10": Gaussian(np.zeros(10), 1.0),
    "normal, d = 38": Gaussian(np.zeros(38), 1.0),
    "four modes, d = 2": Mixture([[0, 0], [0, 4], [4, 0], [4, 4]], covariances=1.0),
}


class Row(NamedTuple):
    """One run: KSD^2 at the end, its bound, the bound's limit (kappa + D) / 2N, and whether N were always kept."""

    target: str
    size: int
    seed: int
    square: float
    bound: float
    limit: float
    exact: bool


def measure() -> Iterator[Row]:
    """Every target, size and seed."""
    for name, target in TARGETS.items():
        for seed in range(SEEDS):
            draws, scores = target.sample(DRAWS, seed=seed)
            for size in (10, 50, 250):
                thinner = ss.Thinner(
                    draws.shape[1], size=size, history="all", preconditioner=ss.Preconditioner.identity()
                )
                thinner.extend(draws, scores)
                kept = thinner.kept
                kappa, mean = (kept.kernel.diagonal(s).mean() for s in (scores, kept.scores))
                exact = bool((thinner.history.size == np.minimum(thinner.history.step, size)).all())
                yield Row(name, size, seed, kept.ksd**2, kept.bound**2, (kappa + mean) / (2 * size), exact)


def table(rows: list[Row]) -> str:
    """Means over the seeds."""
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
    """Measure, write and print."""
    rows = list(measure())
    with (HERE / "results.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(Row._fields)
        writer.writerows([*row[:3], *(f"{value:.6g}" for value in row[3:6]), row.exact] for row in rows)
    print(table(rows))


if __name__ == "__main__":
    main()
