"""Weights of kept draws by what users compute from them: ``python experiments/weights/run.py``.

Targets and metrics are those of benchmarks/quality, with 50 and 200 kept draws of two work chains. The table has errors
with weights relative to errors with equal weights: geometric means over targets, chains and sizes, for each kind of
metric, and the number of pairs (target, metric) in which weights are worse by more than 2 %. The settings were chosen
on the first half of the targets; the second half confirms them. Writes results.csv; --show prints its tables.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import steinstream as ss
from benchmarks.quality import TARGETS, Selection, chain, evaluate
from steinstream._typing import Array
from steinstream.postprocess._simplex_qp import minimise_on_simplex

FILE = Path(__file__).with_name("results.csv")
METRICS = ("means", "sds", "correlations", "quantiles", "functions", "sliced", "energy")
FIELDS = ("half", "target", "scores", "seed", "size", "weights", "effective", *METRICS)
SEEDS, SIZES = (0, 1), (50, 200)


def stein_matrix(kept: ss.Kept) -> tuple[Array, Array, Array]:
    """Return the matrix of KSD^2, and draws and scores in the coordinates of the kernel."""
    x, s = kept.preconditioner.apply(kept.draws, kept.scores)
    return kept.kernel.matrix(x, s, x, s), x, s


def linear_term(kept: ss.Kept) -> Array:
    """Return weights that minimise KSD^2 plus 30 times the Stein kernel of 1 + <x, y>."""
    matrix, x, s = stein_matrix(kept)
    x = x - x.mean(axis=0)
    products = np.sum(s * x, axis=1)
    linear = (s @ s.T) * (1.0 + x @ x.T) + products[:, None] + products + x.shape[1]
    return minimise_on_simplex(matrix + 30.0 * linear).weights


def moments_of_the_chain(kept: ss.Kept, draws: Array) -> Array:
    """Return weights that match the means and variances of the chain, and then minimise KSD^2."""
    matrix, _, _ = stein_matrix(kept)
    flat = draws.reshape(-1, draws.shape[-1])
    z = (kept.draws - flat.mean(axis=0)) / flat.std(axis=0)
    deviations = np.hstack([z, z**2 - 1.0])
    return minimise_on_simplex(matrix + 1e4 * matrix.mean() * (deviations @ deviations.T)).weights


def variants(kept: ss.Kept, draws: Array) -> Iterator[tuple[str, Array | None]]:
    """Yield the weights that are compared."""
    yield "equal", None
    yield "weighted()", kept.weighted().weights
    for share in (0.8, 0.0):
        yield f"effective_share={share:g}", kept.weighted(effective_share=share).weights
    if kept.scores is not None:
        yield "KSD alone", minimise_on_simplex(stein_matrix(kept)[0]).weights
        yield "linear term", linear_term(kept)
        yield "moments of the chain", moments_of_the_chain(kept, draws)


def measure() -> Iterator[dict[str, Any]]:
    """Yield one line per kept set and kind of weights."""
    for name, target in TARGETS.items():
        for seed in SEEDS:
            work = chain(name, seed)
            for scores in (work.scores, None):
                for size in SIZES:
                    kept = ss.thin(work.draws, scores, size=size)
                    rows = kept.ids[:, 0] * work.draws.shape[1] + kept.ids[:, 1]
                    for kind, weights in variants(kept, work.draws):
                        errors = evaluate(name, seed, {size: Selection(rows, weights)})[size]["errors"]
                        effective = 1.0 if weights is None else 1.0 / np.sum(weights**2) / size
                        key = (target.half, name, "no" if scores is None else "yes", seed, size, kind, effective)
                        yield dict(zip(FIELDS, (*key, *(errors[metric] for metric in METRICS)), strict=True))


def show(lines: list[dict[str, Any]]) -> None:
    """Print the tables of the README."""
    for half in ("choose", "confirm"):
        for scores in ("yes", "no"):
            some = [one for one in lines if (one["half"], one["scores"]) == (half, scores)]
            print(f"\n**Targets that {half}, {'with' if scores == 'yes' else 'without'} scores**\n")
            print("| weights | effective size | " + " | ".join(METRICS) + " | worse |\n|" + "---|" * (len(METRICS) + 3))
            equal = {key(one): errors_of(one) for one in some if one["weights"] == "equal"}
            for kind in dict.fromkeys(one["weights"] for one in some if one["weights"] != "equal"):
                mine = [one for one in some if one["weights"] == kind]
                logs: dict[str, list[Array]] = defaultdict(list)
                for one in mine:
                    logs[one["target"]].append(np.log(errors_of(one) / equal[key(one)]))
                by_target = np.exp([np.mean(each, axis=0) for each in logs.values()])
                every = np.exp(np.mean([log for each in logs.values() for log in each], axis=0))
                effective = np.mean([float(one["effective"]) for one in mine])
                cells = " | ".join(f"{value:.2f}" for value in every)
                print(f"| {kind} | {effective:.0%} | {cells} | {(by_target > 1.02).sum()} of {by_target.size} |")


def key(one: dict[str, Any]) -> tuple[str, str, str]:
    """Identify a kept set."""
    return one["target"], str(one["seed"]), str(one["size"])


def errors_of(one: dict[str, Any]) -> Array:
    """Return the errors of a line."""
    return np.array([float(one[metric]) for metric in METRICS])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--show", action="store_true", help="print the tables of results.csv")
    if not parser.parse_args().show:
        with FILE.open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS)
            writer.writeheader()
            for line in measure():
                writer.writerow(line)
                file.flush()
    with FILE.open() as file:
        show(list(csv.DictReader(file)))
