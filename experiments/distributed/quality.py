"""Workers and one process, compared by what users compute: ``python experiments/distributed/quality.py``.

The work chain of a target of benchmarks/quality is cut into eight chains. They are thinned in one process, or each by a
worker with a merge of the kept sets, to the same size. The tables have the ratio of the two: of the errors of the
means, of the sds, of the quantiles, of the composite of all user metrics, and of KSD in coordinates of the reference.
Geometric means over two work chains and two sizes. The default of *spare* was chosen on the first targets; the others
confirm it. Runs that quality.csv has are not repeated; --show prints its tables.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import steinstream as ss
from benchmarks.quality import chain, evaluate

FILE = Path(__file__).with_name("quality.csv")
CHOSEN_ON = ("gauss-20", "t-20", "mixture-4", "log-gamma", "logistic", "schools-centred")
CONFIRMED_ON = ("gauss-2", "t-5", "banana", "funnel", "mixture-2", "poisson", "schools-noncentred")
SEEDS, SIZES, CHAINS = (0, 1), (50, 200), 8
DEFAULT, SPARES = "workers, spare 2", (1.0, 1.5, 2.0, 3.0, 4.0)
METRICS = ("means", "sds", "quantiles", "composite", "ksd")
KEY = ("target", "scores", "seed", "size", "method")


def runs(draws: Any, scores: Any, size: int, spares: Sequence[float]) -> Iterator[tuple[str, Callable[[], ss.Kept]]]:
    """Yield how to keep draws in one process and with workers."""
    yield "one process", lambda: ss.thin(draws, scores, size=size)
    for spare in spares:
        given = draws if scores is None else (draws, scores)
        yield f"workers, spare {spare:g}", partial(ss.parallel.thin, given, size=size, workers=0, spare=spare)


def measure(known: set[tuple[str, ...]]) -> Iterator[dict[str, Any]]:
    """Yield one line per run that is not known."""
    for target, seed in product(CHOSEN_ON + CONFIRMED_ON, SEEDS):
        work = chain(target, seed)
        draws, scores = (
            values.reshape(-1, values.shape[-1]).reshape(CHAINS, -1, values.shape[-1])
            for values in (work.draws, work.scores)
        )
        for given, size in product((scores, None), SIZES):
            spares = (2.0,) if target in CONFIRMED_ON else SPARES if given is not None else (1.0, 2.0, 4.0)
            for method, run in runs(draws, given, size, spares):
                key = (target, "no" if given is None else "yes", str(seed), str(size), method)
                if key in known:
                    continue
                kept = run()
                rows = kept.ids[:, 0] * draws.shape[1] + kept.ids[:, 1]
                found = evaluate(target, seed, {size: rows})[size]
                values = {**found["ratios"], "composite": found["composite"]}
                yield {**dict(zip(KEY, key, strict=True)), **{metric: values[metric] for metric in METRICS}}


def show(lines: list[dict[str, Any]]) -> None:
    """Print the tables of the README."""
    cells: dict[tuple[str, ...], list[list[float]]] = defaultdict(list)
    for one in lines:
        cells[one["target"], one["scores"], one["method"]].append([float(one[metric] or "nan") for metric in METRICS])

    def ratios(target: str, scores: str, method: str) -> Any:
        """Logarithms of the ratios of workers to one process, one per metric."""
        pair = (np.array(cells[target, scores, name]) for name in (method, "one process"))
        return np.subtract(*(np.log(np.maximum(one, 1e-12)) for one in pair)).mean(0)

    def table(title: str, columns: Sequence[str], rows: dict[str, list[Any]], cell: Callable[[Any], str]) -> None:
        print(f"\n| {title} | {' | '.join(columns)} |\n|" + "---|" * (len(columns) + 1))
        for name, row in {**rows, "mean": np.mean([*rows.values()], axis=0)}.items():
            print(f"| {name} | {' | '.join(map(cell, np.exp(row)))} |")

    for scores, spares in (("yes", SPARES), ("no", (1.0, 2.0, 4.0))):
        title, last = ("with scores", 2) if scores == "yes" else ("without scores", 1)
        names = [f"spare {spare:g}" for spare in spares]
        chosen = {t: [ratios(t, scores, f"workers, {name}")[-2:][:last] for name in names] for t in CHOSEN_ON}
        table(title, names, chosen, lambda pair: ", KSD ".join(f"{value:.2f}" for value in pair))
        confirmed = {t: ratios(t, scores, DEFAULT)[: last + 3] for t in CONFIRMED_ON}
        table(f"{title}, other targets", METRICS[: last + 3], confirmed, lambda value: f"{value:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--show", action="store_true", help="print the tables of quality.csv")
    known = [*csv.DictReader(FILE.open())] if FILE.exists() else []
    if not parser.parse_args().show:
        with FILE.open("a", newline="") as file:
            writer = csv.DictWriter(file, KEY + METRICS)
            if not known:
                writer.writeheader()
            for line in measure({tuple(one[name] for name in KEY) for one in known}):
                writer.writerow(line)
                file.flush()
                known.append(line)
    show(known)
