"""Widths of the kept sets with default preconditioners: ``python experiments/coordinates/run.py``.

Measures the standard deviations of the kept draws relative to those of the target, along its principal axes. The
objective is KSD alone (``stream_weight=0``). Writes results.csv to the folder of this file and prints the table of the
README. Half a minute.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

import steinstream as ss
from steinstream._typing import Array
from steinstream.targets import Gaussian

HERE = Path(__file__).parent
SEEDS, DRAWS = 20, 10_000
METHODS = ("ss.thin", "Streaming", "identity")
COVARIANCES = {
    "diag(1, 1e-4)": np.diag([1.0, 1e-4]),
    "diag(1, 1e-4), rotated by 45 degrees": np.array([[1.0001, 0.9999], [0.9999, 1.0001]]) / 2,
    "diag(1, 1e-1, ..., 1e-4)": np.diag(10.0 ** -np.arange(5.0)),
}


class WidthResult(NamedTuple):
    """Smallest and largest ratio of one run, along the principal axes of the target."""

    target: str
    stream: str
    size: str
    preconditioner: str
    seed: int
    smallest: float
    largest: float


def independent(target: Gaussian, seed: int) -> tuple[Array, Array]:
    """Return independent draws and their scores."""
    draws, scores = target.sample(DRAWS, seed=seed)
    return draws, scores


def correlated(target: Gaussian, seed: int) -> tuple[Array, Array]:
    """Return an autoregressive chain with correlation 0.95 that starts ten standard deviations from the mean."""
    steps = np.random.default_rng(seed).normal(size=(DRAWS, len(target.mean)))
    steps[0] = 10.0 / np.sqrt(1.0 - 0.95**2)
    white = np.zeros_like(steps)
    for t in range(DRAWS):
        white[t] = 0.95 * white[t - 1] + np.sqrt(1.0 - 0.95**2) * steps[t]
    draws = white @ np.linalg.cholesky(target.covariance).T
    return draws, target.scores(draws)


STREAMS = {
    "independent": independent,
    "correlated": correlated,
}


def thin(method: str, draws: Array, scores: Array, size: int | None) -> ss.Kept:
    """Thin a stored chain, a stream with an adaptive preconditioner, or as in the paper."""
    if method == "ss.thin":
        return ss.thin(draws, scores, size=size, stream_weight=0.0)
    preconditioner = ss.Streaming() if method == "Streaming" else ss.Preconditioner.identity()
    thinner = ss.Thinner(draws.shape[1], size=size, preconditioner=preconditioner, stream_weight=0.0)
    thinner.extend(draws, scores)
    return thinner.kept


def measure() -> Iterator[WidthResult]:
    """Run every target, stream, size, method and seed."""
    for name, covariance in COVARIANCES.items():
        target = Gaussian(np.zeros(len(covariance)), covariance)
        variances, axes = np.linalg.eigh(covariance)
        for stream, sample in STREAMS.items():
            for seed in range(SEEDS):
                draws, scores = sample(target, seed)
                for size in (None, 100):
                    for method in METHODS:
                        kept = thin(method, draws, scores, size)
                        ratios = (kept.draws @ axes).std(axis=0) / np.sqrt(variances)
                        key = name, stream, str(size or "sqrt"), method, seed
                        yield WidthResult(*key, smallest=ratios.min(), largest=ratios.max())


def table(rows: list[WidthResult]) -> str:
    """Return the range of the ratios over the seeds as Markdown."""
    lines = ["| target | stream | kept | `ss.thin` | `Streaming` | identity |", "|---|---|---|---|---|---|"]
    for key in dict.fromkeys(row[:3] for row in rows):
        cells = []
        for method in METHODS:
            some = [row for row in rows if row[:4] == (*key, method)]
            cells.append(f"{min(row.smallest for row in some):.2f} to {max(row.largest for row in some):.2f}")
        lines.append(f"| {' | '.join((*key, *cells))} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, write results.csv and print the table."""
    argparse.ArgumentParser(description="Widths of the kept sets with default preconditioners.").parse_args()
    rows = list(measure())
    with (HERE / "results.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(WidthResult._fields)
        writer.writerows([*row[:5], f"{row.smallest:.5f}", f"{row.largest:.5f}"] for row in rows)
    print(table(rows))


if __name__ == "__main__":
    main()
