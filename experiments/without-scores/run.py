"""Three ways for draws without scores, by what users compute: ``python experiments/without-scores/run.py``.

Targets and metrics are those of benchmarks/quality. 100 draws of each work chain are kept: by the stream term alone; by
the gradient-free KSD with a Gaussian as proxy, alone and with the stream term; by scores. Also in two stages: 1000
draws by the stream term, whose scores are then computed, and 100 of these by KSD and the stream term. Writes
results.csv; --show prints its table. Ten minutes.

--warning measures by which number of the gradient-free KSD it is known that its kept draws are worse than evenly spaced
draws: the fraction of clipped ratios, or the distance to the chain relative to that of evenly spaced draws. Writes
warning.csv and prints rank correlations.
"""

from __future__ import annotations

import argparse
import csv
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import steinstream as ss
from benchmarks.quality import chain, evaluate

FILE = Path(__file__).with_name("results.csv")
WARNING = FILE.with_name("warning.csv")
TARGETS = (
    "banana",
    "mixture-2",
    "log-gamma",
    "logistic",
    "schools-centred",
    "t-20",
    "burn-in-gauss",
    "bad-mixing-gauss",
)
SEEDS, SIZE, FIRST = (0, 1, 2), 100, 1000
WARNING_FIELDS = ("target", "seed", "stream_weight", "clipped", "mmd_ratio", "composite")
FIELDS = ("target", "seed", "method", "clipped", "composite", "means", "sds")


def runs(work: Any) -> Iterator[tuple[str, ss.Kept]]:
    """Yield the kept set of each way."""
    draws, scores, log_density = work.draws, work.scores, work.log_densities
    yield "stream term alone", ss.thin(draws, size=SIZE)
    yield "gradient-free KSD alone", ss.thin(draws, size=SIZE, log_density=log_density, stream_weight=0.0)
    yield "gradient-free KSD and stream term", ss.thin(draws, size=SIZE, log_density=log_density)
    first = ss.thin(draws, size=FIRST)
    there = scores[first.ids[:, 0], first.ids[:, 1]]
    second = ss.merge([first.with_scores(there)], size=SIZE)
    yield f"scores of {FIRST} draws", second
    yield "scores of all draws", ss.thin(draws, scores, size=SIZE)


def measure() -> Iterator[dict[str, Any]]:
    """Yield one line per run."""
    for target in TARGETS:
        for seed in SEEDS:
            work = chain(target, seed)
            for method, kept in runs(work):
                rows = kept.ids[:, 0] * work.draws.shape[1] + kept.ids[:, 1]
                found = evaluate(target, seed, {SIZE: rows})[SIZE]
                values = (found["composite"], found["ratios"]["means"], found["ratios"]["sds"])
                clipped = kept.settings.get("clipped", "")
                yield dict(zip(FIELDS, (target, seed, method, clipped, *values), strict=True))


def measure_warning() -> Iterator[dict[str, Any]]:
    """Yield one line per run of the gradient-free KSD."""
    for target, seed in product(TARGETS, SEEDS[:2]):
        work = chain(target, seed)
        for stream_weight in (0.0, 1.0):
            kept = ss.thin(work.draws, size=SIZE, log_density=work.log_densities, stream_weight=stream_weight)
            rows = kept.ids[:, 0] * work.draws.shape[1] + kept.ids[:, 1]
            composite = evaluate(target, seed, {SIZE: rows})[SIZE]["composite"]
            values = (target, seed, stream_weight, kept.settings["clipped"], kept.settings["mmd_ratio"], composite)
            yield dict(zip(WARNING_FIELDS, values, strict=True))


def show_warning(lines: list[dict[str, Any]]) -> None:
    """Print how often each warning is given and right, and rank correlations with the composite."""
    for stream_weight in (0.0, 1.0):
        some = [one for one in lines if float(one["stream_weight"]) == stream_weight]
        composite = np.array([float(one["composite"]) for one in some])
        print(f"stream_weight {stream_weight:g}: {np.sum(composite > 1)} of {len(some)} worse than evenly spaced draws")
        for name, limit in (("clipped", 0.1), ("mmd_ratio", 1.0)):
            values = np.array([float(one[name]) for one in some])
            both, ranks = values[composite > 1] > limit, [np.argsort(np.argsort(x)) for x in (values, composite)]
            rho = np.corrcoef(*ranks)[0, 1]
            print(f"  {name} > {limit:g}: {np.sum(values > limit)} times, {both.sum()} right; Spearman {rho:.2f}")


def show(lines: list[dict[str, Any]]) -> None:
    """Print the table of the README."""
    methods = list(dict.fromkeys(one["method"] for one in lines))
    print("\n| target | clipped | " + " | ".join(methods) + " |\n|" + "---|" * (len(methods) + 2))
    for target in dict.fromkeys(one["target"] for one in lines):
        some = [one for one in lines if one["target"] == target]
        clipped = np.mean([float(one["clipped"]) for one in some if one["clipped"]])
        by_method = [[float(one["composite"]) for one in some if one["method"] == name] for name in methods]
        cells = [float(np.exp(np.mean(np.log(values)))) for values in by_method]
        print(f"| {target} | {clipped:.0%} | " + " | ".join(f"{cell:.2f}" for cell in cells) + " |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--show", action="store_true", help="print the table of results.csv")
    parser.add_argument("--warning", action="store_true", help="measure when the proxy is worse than stride")
    given = parser.parse_args()
    path, fields = (WARNING, WARNING_FIELDS) if given.warning else (FILE, FIELDS)
    if not given.show:
        warnings.simplefilter("ignore")  # proxies that are far from the target are measured on purpose
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, fields)
            writer.writeheader()
            for line in measure_warning() if given.warning else measure():
                writer.writerow(line)
                file.flush()
    with path.open() as file:
        (show_warning if given.warning else show)(list(csv.DictReader(file)))
