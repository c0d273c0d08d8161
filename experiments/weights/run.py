"""Weights and order of 100 kept draws: ``python experiments/weights/run.py --data FOLDER``.

FOLDER contains posteriordb/*.npz (draws and scores of ten chains of 1000 draws). There are ten runs per target: ten
seeds of the Gaussian and of the mixture, ten orders of the chains of a posterior. Writes moments.csv, modes.csv and
order.csv to the folder of this file and prints the tables of the README; without --data it uses the existing csv files.
With --time, the solver is timed as well. About three minutes.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, get_type_hints

import numpy as np

import steinstream as ss
from steinstream._typing import Array, Integers
from steinstream.postprocess._simplex_qp import minimise_on_simplex
from steinstream.postprocess.weighting import LINEAR, objective_matrix, with_weights
from steinstream.targets import Mixture

HERE = Path(__file__).parent
RUNS = 10
SIZE = 100
PREFIXES = (10, 25, 50, 75)
GAUSSIAN = "gaussian (d = 10)"


def equal(kept: ss.Kept, draws: Array) -> ss.Kept:
    """Return equal weights."""
    return kept


def plain(kept: ss.Kept, draws: Array) -> ss.Kept:
    """Return the weights that minimise KSD."""
    return kept.weighted(linear=0.0)


def linear(kept: ss.Kept, draws: Array) -> ss.Kept:
    """Return the default weights, with the linear term."""
    return kept.weighted()


def quadratic(kept: ss.Kept, draws: Array) -> ss.Kept:
    """Return weights with the linear term and, in addition, the Stein kernel of 10 (1 + <x, y>)^2."""
    x, s = kept.preconditioner.apply(kept.draws, kept.scores)
    x = x - x.mean(axis=0)
    inner, along, dim = x @ x.T, np.sum(s * x, axis=1), x.shape[1]
    base = 1.0 + inner
    more = base**2 * (s @ s.T) + 2.0 * base * (along[:, None] + along + dim) + 2.0 * inner
    solution = minimise_on_simplex(objective_matrix(kept, kept.draws, kept.scores, LINEAR, None) + 10.0 * more)
    return with_weights(kept, solution.weights, {"gap": solution.gap})


def like(kept: ss.Kept, draws: Array) -> ss.Kept:
    """Return weights that match the means and variances of the chain."""
    return kept.weighted(like=draws)


WEIGHTS: dict[str, Callable[[ss.Kept, Array], ss.Kept]] = {
    "equal": equal,
    "least KSD": plain,
    "linear term": linear,
    "+ quadratic": quadratic,
    "like the chain": like,
}
CHOSEN = "kept so, too"  # thinned with a linear term in the kernel, then weighted like the chain


class MomentErrors(NamedTuple):
    """Errors relative to the whole chain, in its standard deviations, and the effective number of draws.

    For the Gaussian also relative to the exact moments.
    """

    target: str
    run: int
    weights: str
    mean: float  # of the worst coordinate
    second: float  # relative error of E (x - m)^2, mean over the coordinates
    worst: float  # relative error of the worst coordinate
    correlation: float  # largest error of E (x - m)(y - m)
    cosines: float  # root mean square error of E cos(<a, x> + b) for 200 random a of length about 1
    effective: float
    nonzero: int
    ksd: float  # relative to equal weights
    gap: float


class ModeWeight(NamedTuple):
    """Total weight of the mode that has 0.2 of the mass."""

    run: int
    weights: str
    share: float
    ksd: float


class PrefixResult(NamedTuple):
    """KSD of the first k draws relative to the whole set."""

    target: str
    run: int
    first: int
    ordered: float
    random: float  # mean of ten
    id: float


def main() -> None:
    """Measure or read the csv files, then print the tables."""
    parser = argparse.ArgumentParser(description="Weights and order of 100 kept draws.")
    parser.add_argument("--data", type=Path, help="folder with posteriordb/")
    parser.add_argument("--time", action="store_true", help="time the solver")
    given = parser.parse_args()
    if given.data:
        measure(given.data)
    moments = read("moments.csv", MomentErrors)
    print(moment_table(moments, "second"), moment_table(moments, "worst"), moment_table(moments, "mean"), sep="\n\n")
    print("\n" + moment_table(moments, "correlation"), moment_table(moments, "cosines"), sep="\n\n")
    print("\n" + moment_table(moments, "effective", "{:.0f}"), moment_table(moments, "ksd", "{:.2f}"), sep="\n\n")
    print("\nlargest gap", max(row.gap for row in moments))
    print("\n" + counts(moments))
    print("\n" + mode_table(read("modes.csv", ModeWeight)))
    print("\n" + order_table(read("order.csv", PrefixResult)))
    if given.time:
        print("\n" + timing())


def targets(data: Path) -> Iterator[tuple[str, int, Array, Array]]:
    """Yield name, run, draws and scores."""
    for run in range(RUNS):
        draws = np.random.default_rng(run).normal(size=(10_000, 10))
        yield GAUSSIAN, run, draws, -draws
    for path in sorted((data / "posteriordb").glob("*.npz")):
        with np.load(path) as file:
            draws, scores = file["draws"], file["scores"]
        name = f"{path.stem.partition('-')[2]} ({draws.shape[2]})"
        for run in range(RUNS):
            chains = np.random.default_rng(run).permutation(len(draws)) if run else np.arange(len(draws))
            yield name, run, draws[chains], scores[chains]


def measure(data: Path) -> None:
    """Measure everything and write the csv files."""
    moments, order = [], []
    for name, run, draws, scores in targets(data):
        kept, chosen = (ss.thin(draws, scores, size=SIZE, kernel=ss.IMQ(linear=linear)) for linear in (0.0, 1.0))
        reference = reference_of_chain(draws)
        weighted_sets = {weights: (kept, weigh(kept, draws)) for weights, weigh in WEIGHTS.items()}
        weighted_sets[CHOSEN] = chosen, like(chosen, draws)
        for weights, (unweighted, weighted) in weighted_sets.items():
            moments.append(moment_errors((name, run, weights), unweighted, weighted, reference))
            if name == GAUSSIAN:
                exact = "the same, truth", run, weights
                moments.append(moment_errors(exact, unweighted, weighted, reference_of_gaussian(10)))
        order += prefixes(name, run, kept)
        print(name, run, flush=True)
    write("moments.csv", moments)
    write("order.csv", order)
    write("modes.csv", modes())


class Reference(NamedTuple):
    """Means and standard deviations of a target, and E z z^T and E cos(<a, z> + b) of the standardised draws z."""

    mean: Array
    spread: Array
    products: Array
    cosines: Array


def random_cosines(dim: int) -> tuple[Array, Array]:
    """Return 200 random directions and phases."""
    random = np.random.default_rng(0)
    return random.normal(size=(dim, 200)) / np.sqrt(dim), random.uniform(0.0, 2.0 * np.pi, size=200)


def reference_of_chain(draws: Array) -> Reference:
    """Return the moments of the whole chain."""
    chain = draws.reshape(-1, draws.shape[-1])
    mean, spread = chain.mean(axis=0), chain.std(axis=0)
    z = (chain - mean) / spread
    directions, phases = random_cosines(z.shape[1])
    return Reference(mean, spread, z.T @ z / len(z), np.cos(z @ directions + phases).mean(axis=0))


def reference_of_gaussian(dim: int) -> Reference:
    """Return the exact moments of the standard normal."""
    directions, phases = random_cosines(dim)
    cosines = np.exp(-0.5 * np.sum(directions**2, axis=0)) * np.cos(phases)
    return Reference(np.zeros(dim), np.ones(dim), np.eye(dim), cosines)


def moment_errors(key: tuple[str, int, str], kept: ss.Kept, weighted: ss.Kept, truth: Reference) -> MomentErrors:
    """Return the errors of a weighted set; ``key`` is target, run and weights."""
    w = np.full(len(kept), 1.0 / len(kept)) if weighted.weights is None else weighted.weights
    z = (kept.draws - truth.mean) / truth.spread
    directions, phases = random_cosines(z.shape[1])
    cosines = w @ np.cos(z @ directions + phases) - truth.cosines
    second = np.abs(w @ z**2 - 1.0)
    products = (z.T * w) @ z - truth.products
    return MomentErrors(
        *key,
        mean=float(np.abs(w @ z).max()),
        second=float(second.mean()),
        worst=float(second.max()),
        correlation=float(np.abs(products).max()),
        cosines=float(np.sqrt(np.mean(cosines**2))),
        effective=weighted.effective_size,
        nonzero=int((w > 0).sum()),
        ksd=weighted.ksd / kept.ksd,
        gap=weighted.settings.get("weights", {"gap": 0.0})["gap"],
    )


def modes() -> list[ModeWeight]:
    """Measure independent draws of a mixture with masses 0.2 and 0.8 at a distance of 6."""
    target, rows = Mixture([[0.0, 0.0], [6.0, 0.0]], covariances=1.0, weights=[0.2, 0.8]), []
    for run in range(RUNS):
        draws, scores = target.sample(10_000, seed=run)
        kept = ss.thin(draws, scores, size=SIZE)
        for name, weigh in WEIGHTS.items():
            weighted = weigh(kept, draws)
            w = np.full(len(kept), 1.0 / len(kept)) if weighted.weights is None else weighted.weights
            rows.append(ModeWeight(run, name, float(w[kept.draws[:, 0] < 3.0].sum()), weighted.ksd))
    return rows


def prefixes(name: str, run: int, kept: ss.Kept) -> list[PrefixResult]:
    """Return KSD of the first draws in three orders."""
    random = np.random.default_rng(run)
    shuffled = np.mean([curve(kept, random.permutation(len(kept))) for _ in range(10)], axis=0)
    best, by_id = kept.ordered().prefix_ksd / kept.ksd, curve(kept, np.arange(len(kept)))
    return [PrefixResult(name, run, k, best[k - 1], shuffled[k - 1], by_id[k - 1]) for k in PREFIXES]


def curve(kept: ss.Kept, order: Integers) -> Array:
    """Return KSD of the first 1, 2, ... draws in this order, relative to all."""
    draws, scores = kept.draws[order], kept.scores[order]
    return ss.cumulative_ksd(draws, scores, kernel=kept.kernel, preconditioner=kept.preconditioner) / kept.ksd


def timing() -> str:
    """Return processor seconds and iterations of the solver as Markdown."""
    lines = ["| draws | d = 4 | d = 10 |", "|---|---|---|"]
    for size in (100, 1000, 3000):
        cells = []
        for dim in (4, 10):
            draws = np.random.default_rng(0).normal(size=(10 * size, dim))
            kept = ss.thin(draws, -draws, size=size)
            matrix = objective_matrix(kept, kept.draws, kept.scores, LINEAR, None)
            minimise_on_simplex(matrix[:50, :50])
            start = time.process_time()
            solution = minimise_on_simplex(matrix)
            seconds = time.process_time() - start
            cells.append(f"{seconds:.2g} s, {solution.iterations} iterations, gap {solution.gap:.0e}")
        lines.append(f"| {size} | {' | '.join(cells)} |")
    return "\n".join(lines)


def write(name: str, rows: Iterable[NamedTuple]) -> None:
    """Write rows as csv with five digits."""
    rows = list(rows)
    with (HERE / name).open("w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(rows[0]._fields)
        out.writerows([f"{value:.5g}" if isinstance(value, float) else value for value in row] for row in rows)


def read(name: str, kind: type) -> list:
    """Read rows that `write` has written."""
    kinds = list(get_type_hints(kind).values())
    with (HERE / name).open() as file:
        lines = csv.reader(file)
        next(lines)
        return [kind(*(convert(value) for convert, value in zip(kinds, line, strict=True))) for line in lines]


def interval(values: list[float], form: str) -> str:
    """Format the mean, the minimum and the maximum."""
    return f"{form.format(np.mean(values))} ({form.format(min(values))} to {form.format(max(values))})"


def moment_table(rows: list[MomentErrors], field: str, form: str = "{:.4f}") -> str:
    """Return a table with a row per target and a column per kind of weights."""
    lines = [f"| {field} | {' | '.join(WEIGHTS)} |", "|---" * (1 + len(WEIGHTS)) + "|"]
    for target in dict.fromkeys(row.target for row in rows):
        cells = []
        for name in WEIGHTS:
            values = [getattr(row, field) for row in rows if (row.target, row.weights) == (target, name)]
            cells.append(interval(values, form))
        lines.append(f"| {target} | {' | '.join(cells)} |")
    return "\n".join(lines)


def counts(rows: list[MomentErrors]) -> str:
    """Count the runs in which all second moments are within 2 % and all means within 0.02 of the chain."""
    names = [*WEIGHTS, CHOSEN]
    lines = [f"| runs within 2 % | {' | '.join(names)} |", "|---" * (1 + len(names)) + "|"]
    for target in dict.fromkeys(row.target for row in rows):
        cells = []
        for name in names:
            some = [row for row in rows if (row.target, row.weights) == (target, name)]
            cells.append(str(sum(row.worst <= 0.02 and row.mean <= 0.02 for row in some)))
        lines.append(f"| {target} | {' | '.join(cells)} |")
    return "\n".join(lines)


def mode_table(rows: list[ModeWeight]) -> str:
    """Return a table with a row per kind of weights."""
    lines = ["| weights | weight of the small mode | KSD |", "|---|---|---|"]
    for name in WEIGHTS:
        some = [row for row in rows if row.weights == name]
        shares, values = [row.share for row in some], [row.ksd for row in some]
        lines.append(f"| {name} | {interval(shares, '{:.3f}')} | {interval(values, '{:.4f}')} |")
    return "\n".join(lines)


def order_table(rows: list[PrefixResult]) -> str:
    """Return KSD of the first k draws, ordered and in the order of the ids, relative to a random order."""
    lines = [f"| KSD of the first | {' | '.join(map(str, PREFIXES))} |", "|---" * (1 + len(PREFIXES)) + "|"]
    for target in dict.fromkeys(row.target for row in rows):
        for name in ("ordered", "id"):
            cells = []
            for first in PREFIXES:
                some = [row for row in rows if (row.target, row.first) == (target, first)]
                cells.append(interval([getattr(row, name) / row.random for row in some], "{:.2f}"))
            lines.append(f"| {target}, {'in order' if name == 'ordered' else 'by id'} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
