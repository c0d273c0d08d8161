"""Widths of what is kept, in coordinates that nobody set: ``python experiments/coordinates/run.py``.

Standard deviations of the kept draws over those of the target, coordinate by coordinate. Writes results.csv beside this
file and prints the README's table. Half a minute.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import steinstream as ss
from steinstream.targets import Gaussian

Array = NDArray[np.float64]

HERE = Path(__file__).parent
SEEDS, DRAWS = 20, 10_000
COVARIANCES = {
    "diag(1, 1e-4)": np.diag([1.0, 1e-4]),
    "diag(1, 1e-4), turned by 45 degrees": np.array([[1.0001, 0.9999], [0.9999, 1.0001]]) / 2,
    "diag(1, 1e-1, ..., 1e-4)": np.diag(10.0 ** -np.arange(5.0)),
}


class Row(NamedTuple):
    """The least and the greatest ratio of one run, along the target's own axes."""

    target: str
    stream: str
    size: str
    way: str
    seed: int
    least: float
    greatest: float


def independent(target: Gaussian, seed: int) -> tuple[Array, Array]:
    """Draws as good as can be."""
    draws, scores = target.sample(DRAWS, seed=seed)
    return draws, scores


def correlated(target: Gaussian, seed: int) -> tuple[Array, Array]:
    """A chain that forgets slowly, with its burn-in: each draw 0.95 of the one before, the first ten widths away."""
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


def kept_by(way: str, draws: Array, scores: Array, size: int | None) -> ss.Kept:
    """What is kept: of a stored chain, of a live one, and by the paper."""
    if way == "ss.thin":
        return ss.thin(draws, scores, size=size)
    preconditioner = ss.Streaming() if way == "Streaming" else ss.Preconditioner.identity()
    thinner = ss.Thinner(draws.shape[1], size=size, preconditioner=preconditioner)
    thinner.extend(draws, scores)
    return thinner.kept


def measure() -> Iterator[Row]:
    """Every target, stream, size, way and seed."""
    for name, covariance in COVARIANCES.items():
        target = Gaussian(np.zeros(len(covariance)), covariance)
        variances, axes = np.linalg.eigh(covariance)
        for stream, make in STREAMS.items():
            for seed in range(SEEDS):
                draws, scores = make(target, seed)
                for size in (None, 100):
                    for way in ("ss.thin", "Streaming", "identity"):
                        ratios = (kept_by(way, draws, scores, size).draws @ axes).std(axis=0) / np.sqrt(variances)
                        yield Row(name, stream, str(size or "sqrt"), way, seed, ratios.min(), ratios.max())


def table(rows: list[Row]) -> str:
    """Range of all ratios over the seeds."""
    lines = ["| target | stream | kept | `ss.thin` | `Streaming` | identity |", "|---|---|---|---|---|---|"]
    for key in dict.fromkeys(row[:3] for row in rows):
        cells = []
        for way in ("ss.thin", "Streaming", "identity"):
            some = [row for row in rows if row[:4] == (*key, way)]
            cells.append(f"{min(row.least for row in some):.2f} to {max(row.greatest for row in some):.2f}")
        lines.append(f"| {' | '.join((*key, *cells))} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, write and print."""
    rows = list(measure())
    with (HERE / "results.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(Row._fields)
        writer.writerows([*row[:5], f"{row.least:.5f}", f"{row.greatest:.5f}"] for row in rows)
    print(table(rows))


if __name__ == "__main__":
    main()
