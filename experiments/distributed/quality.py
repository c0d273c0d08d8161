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
from collections.abc import Callable, Iterable, Iterator, Sequence
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


def read() -> list[dict[str, Any]]:
    """Read quality.csv, one line per run."""
    with FILE.open(newline="") as file:
        return [*csv.DictReader(file)]


def log_ratios(lines: list[dict[str, Any]], target: str, scores: str, method: str = DEFAULT) -> Any:
    """Return the logarithms of the ratios of workers to one process, (runs, metrics), of the runs of a target."""
    logs = defaultdict(list)
    for one in lines:
        if one["target"] == target and one["scores"] == scores and one["method"] in (method, "one process"):
            values = np.array([float(one[metric] or "nan") for metric in METRICS])
            logs[one["method"]].append(np.log(np.maximum(values, 1e-12)))
    return np.subtract(logs[method], logs["one process"])


def ratios(lines: list[dict[str, Any]], target: str, scores: str, method: str = DEFAULT) -> dict[str, float]:
    """Return the ratios of workers to one process by metric, geometric means of the runs of a target."""
    means = np.exp(log_ratios(lines, target, scores, method).mean(0))
    return dict(zip(METRICS, means.tolist(), strict=True))


def scatter(lines: list[dict[str, Any]], metric: str) -> float:
    """Return the sd of the log ratio of one run about the mean of its target, with the default."""
    squares = [
        log_ratios(lines, target, scores)[:, METRICS.index(metric)].var(ddof=1)
        for target in CHOSEN_ON + CONFIRMED_ON
        for scores in ("yes", "no")
    ]
    return float(np.sqrt(np.mean(squares)))


def mean(values: Iterable[float]) -> float:
    """Return the geometric mean."""
    return float(np.exp(np.mean(np.log([*values]))))


def tables(lines: list[dict[str, Any]]) -> list[str]:
    """Return the tables of the README."""
    found = []
    for scores, spares in (("yes", SPARES), ("no", (1.0, 2.0, 4.0))):
        title = "with scores" if scores == "yes" else "without scores"
        names = [f"spare {spare:g}" for spare in spares]
        last = METRICS[-2:] if scores == "yes" else METRICS[-2:-1]
        chosen = {
            target: [[ratios(lines, target, scores, f"workers, {name}")[one] for one in last] for name in names]
            for target in CHOSEN_ON
        }
        found.append(_table(title, names, chosen))
        metrics = METRICS if scores == "yes" else METRICS[:-1]
        confirmed = {target: [[ratios(lines, target, scores)[metric]] for metric in metrics] for target in CONFIRMED_ON}
        found.append(_table(f"{title}, other targets", metrics, confirmed))
    return found


def _table(title: str, columns: Sequence[str], rows: dict[str, list[list[float]]]) -> str:
    """Return a table with a row of geometric means; a cell has one number, or the composite and KSD."""
    means = np.exp(np.mean(np.log([*rows.values()]), axis=0)).tolist()
    lines = [f"| {title} | {' | '.join(columns)} |", "|" + "---|" * (len(columns) + 1)]
    for name, row in {**rows, "mean": means}.items():
        lines.append(f"| {name} | {' | '.join(', KSD '.join(f'{value:.2f}' for value in cell) for cell in row)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--show", action="store_true", help="print the tables of quality.csv")
    known = read() if FILE.exists() else []
    if not parser.parse_args().show:
        with FILE.open("a", newline="") as file:
            writer = csv.DictWriter(file, KEY + METRICS)
            if not known:
                writer.writeheader()
            for line in measure({tuple(one[name] for name in KEY) for one in known}):
                writer.writerow(line)
                file.flush()
                known.append(line)
    print(*tables(known), sep="\n\n")
