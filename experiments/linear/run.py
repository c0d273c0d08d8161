"""Effect of a linear term in the kernel: ``python experiments/linear/run.py``.

Thins 10 000 independent draws of a standard normal with IMQ(linear=b) and measures the error of the second moment (mean
of x^2 minus 1) and the increase of KSD with the plain kernel. Writes means over the seeds and twice their standard
errors to results.csv and prints the tables of the README. About two minutes.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np

import steinstream as ss

HERE = Path(__file__).parent
TERMS = (0.0, 0.01, 0.1, 1.0, 10.0)
SEEDS = 5


def main() -> None:
    """Measure, write results.csv and print the tables."""
    parser = argparse.ArgumentParser(description="Effect of a linear term in the kernel.")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"number of seeds, at least 2 (default: {SEEDS})")
    seeds = parser.parse_args().seeds
    head = " | ".join(f"b = {b:g}" for b in TERMS)
    lines, shown = [], [f"| d | preconditioner | size | {head} |", "|---" * 8 + "|"]
    for dim in (2, 10, 30):
        for preconditioner in ("auto", "identity"):
            for size in (50, 200):
                cells = []
                for linear in TERMS:
                    found = np.array([measure(dim, preconditioner, size, linear, seed) for seed in range(seeds)])
                    mean, error = found.mean(axis=0), 2.0 * found.std(axis=0, ddof=1) / np.sqrt(seeds)
                    cells.append(f"{100 * mean[0]:+.1f} % (x {mean[1]:.2f})")
                    numbers = (f"{value:.4g}" for pair in zip(mean, error, strict=True) for value in pair)
                    lines.append([dim, preconditioner, size, linear, *numbers])
                shown.append(f"| {dim} | {preconditioner} | {size} | " + " | ".join(cells) + " |")
                print(shown[-1], flush=True)
    with (HERE / "results.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["d", "preconditioner", "size", "b", "second moment - 1", "+-", "ksd ratio", "+-"])
        writer.writerows(lines)
    print("\n".join(shown))


def measure(dim: int, preconditioner: str, size: int, linear: float, seed: int) -> tuple[float, float]:
    """Return the error of the second moment, and KSD relative to a set thinned with the plain kernel."""
    draws = np.random.default_rng(seed).normal(size=(10_000, dim))
    settings = {"size": size, "preconditioner": preconditioner, "stream_weight": 0.0}
    plain, kept = (ss.thin(draws, -draws, kernel=ss.IMQ(linear=b), **settings) for b in (0, linear))
    ratio = ss.ksd(kept.draws, kept.scores, preconditioner=kept.preconditioner) / plain.ksd
    return float((kept.draws**2).mean() - 1.0), ratio


if __name__ == "__main__":
    main()
