"""Workers and one process, compared by what users compute: ``python experiments/distributed/quality.py``.

The work chain of a target of benchmarks/quality is cut into eight chains. They are thinned in one process, or each by a
worker with a merge of the kept sets, to the same size. The table has the ratio of the two: of the composite of the user
metrics (means, sds, correlations, quantiles, functions, sliced, energy), and of KSD in coordinates of the reference.
Geometric means over two work chains and two sizes. Writes quality.csv; --show prints its table.
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
from benchmarks.quality import chain, evaluate

FILE = Path(__file__).with_name("quality.csv")
TARGETS = ("gauss-20", "t-20", "mixture-4", "log-gamma", "logistic", "schools-centred")
SEEDS, SIZES, CHAINS = (0, 1), (50, 200), 8
SPARES = (1.0, 1.5, 2.0, 3.0, 4.0)
FIELDS = ("target", "scores", "seed", "size", "method", "composite", "ksd")


def runs(draws: Any, scores: Any, size: int) -> Iterator[tuple[str, ss.Kept]]:
    """Yield the kept set of one process and those of workers."""
    yield "one process", ss.thin(draws, scores, size=size)
    for spare in SPARES if scores is not None else (1.0, 2.0, 4.0):
        given = draws if scores is None else (draws, scores)
        yield f"workers, spare {spare:g}", ss.parallel.thin(given, size=size, workers=0, spare=spare)


def measure() -> Iterator[dict[str, Any]]:
    """Yield one line per run."""
    for target in TARGETS:
        for seed in SEEDS:
            work = chain(target, seed)
            draws, scores = (
                values.reshape(-1, values.shape[-1]).reshape(CHAINS, -1, values.shape[-1])
                for values in (work.draws, work.scores)
            )
            for given in (scores, None):
                for size in SIZES:
                    for method, kept in runs(draws, given, size):
                        rows = kept.ids[:, 0] * draws.shape[1] + kept.ids[:, 1]
                        found = evaluate(target, seed, {size: rows})[size]
                        values = (found["composite"], found["ratios"]["ksd"])
                        what = "no" if given is None else "yes"
                        yield dict(zip(FIELDS, (target, what, seed, size, method, *values), strict=True))


def show(lines: list[dict[str, Any]]) -> None:
    """Print the table of the README."""
    cells: dict[tuple[str, str, str], list[tuple[float, float]]] = defaultdict(list)
    for one in lines:
        cells[one["target"], one["scores"], one["method"]].append((float(one["composite"]), float(one["ksd"])))
    for scores in ("yes", "no"):
        methods = [name for (_, given, name) in dict.fromkeys(cells) if given == scores and name != "one process"]
        methods = list(dict.fromkeys(methods))
        print(f"\n| {'with' if scores == 'yes' else 'without'} scores | " + " | ".join(methods) + " |")
        print("|" + "---|" * (len(methods) + 1))
        every: dict[str, list[Any]] = defaultdict(list)
        for target in dict.fromkeys(one["target"] for one in lines):
            row = []
            for method in methods:
                log = np.log(np.array(cells[target, scores, method]) / np.array(cells[target, scores, "one process"]))
                every[method].append(log.mean(0))
                row.append(log.mean(0))
            print(f"| {target} | " + " | ".join(_cell(one, scores) for one in row) + " |")
        print("| mean | " + " | ".join(_cell(np.mean(every[method], axis=0), scores) for method in methods) + " |")


def _cell(logarithms: Any, scores: str) -> str:
    composite, ksd = np.exp(logarithms)
    return f"{composite:.2f}, KSD {ksd:.2f}" if scores == "yes" else f"{composite:.2f}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--show", action="store_true", help="print the table of quality.csv")
    if not parser.parse_args().show:
        with FILE.open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS)
            writer.writeheader()
            for line in measure():
                writer.writerow(line)
                file.flush()
    with FILE.open() as file:
        show(list(csv.DictReader(file)))
