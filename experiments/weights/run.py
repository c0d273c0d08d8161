"""Weights and order for 100 kept draws: ``python experiments/weights/run.py --data FOLDER``.

FOLDER holds posteriordb/*.npz (draws and scores of ten chains of 1000 draws). Ten runs a target: ten seeds of the
Gaussian and of the mixture, ten orders in which a posterior's chains are read. Writes moments.csv, modes.csv and
order.csv beside this file and prints the README's tables; without --data from the csv files that are there. --time
measures the solver as well. About three minutes.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, get_type_hints

import numpy as np
from numpy.typing import NDArray

import steinstream as ss
from steinstream.postprocess._simplex_qp import minimise_on_simplex
from steinstream.postprocess.weighting import LINEAR, objective_matrix, with_weights
from steinstream.result import Kept
from steinstream.targets import Mixture

HERE = Path(__file__).parent
RUNS = 10
SIZE = 100
PLACES = (10, 25, 50, 75)
GAUSSIAN = "gaussian (d = 10)"

Array = NDArray[np.float64]


def equal(kept: Kept, draws: Array) -> Kept:
    """As kept."""
    return kept


def plain(kept: Kept, draws: Array) -> Kept:
    """Least KSD."""
    return kept.weighted(linear=0.0)


def linear(kept: Kept, draws: Array) -> Kept:
    """With the linear term: the default."""
    return kept.weighted()


def quadratic(kept: Kept, draws: Array) -> Kept:
    """With the linear term and the Stein kernel of 10 (1 + <x, y>)^2 besides, to see what it would add."""
    x, s = kept.preconditioner.apply(kept.draws, kept.scores)
    x = x - x.mean(axis=0)
    inner, along, dim = x @ x.T, np.sum(s * x, axis=1), x.shape[1]
    base = 1.0 + inner
    more = base**2 * (s @ s.T) + 2.0 * base * (along[:, None] + along + dim) + 2.0 * inner
    solution = minimise_on_simplex(objective_matrix(kept, kept.draws, kept.scores, LINEAR, None) + 10.0 * more)
    return with_weights(kept, solution.weights, {"gap": solution.gap})


def like(kept: Kept, draws: Array) -> Kept:
    """The chain's means and variances."""
    return kept.weighted(like=draws)


WEIGHTS: dict[str, Callable[[Kept, Array], Kept]] = {
    "equal": equal,
    "least KSD": plain,
    "linear term": linear,
    "+ quadratic": quadratic,
    "like the chain": like,
}
CHOSEN = "kept so, too"  # by a kernel with a linear term, then weighted like the chain


class Moments(NamedTuple):
    """Errors against the whole chain, in its standard deviations, and what the weights cost.

    For the Gaussian once more against the truth.
    """

    target: str
    run: int
    weights: str
    mean: float  # the worst coordinate's
    second: float  # relative error of E (x - m)^2, mean over the coordinates
    worst: float  # the worst coordinate's
    correlation: float  # the worst error of E (x - m)(y - m)
    cosines: float  # root mean square error of E cos(<a, x> + b) for 200 random a of length about 1
    effective: float
    nonzero: int
    ksd: float  # over that of equal weights
    gap: float


class Modes(NamedTuple):
    """The weight of the mode that has 0.2 of the mass."""

    run: int
    weights: str
    share: float
    ksd: float


class Order(NamedTuple):
    """KSD of the first k, over that of the whole set."""

    target: str
    run: int
    first: int
    ordered: float
    random: float  # mean of ten
    id: float


def main() -> None:
    """Measure, or read what was measured, and show it."""
    parser = argparse.ArgumentParser(description="Weights and order for 100 kept draws.")
    parser.add_argument("--data", type=Path, help="folder with posteriordb/")
    parser.add_argument("--time", action="store_true", help="time the solver")
    given = parser.parse_args()
    if given.data:
        measure(given.data)
    moments = read("moments.csv", Moments)
    print(moment_table(moments, "second"), moment_table(moments, "worst"), moment_table(moments, "mean"), sep="\n\n")
    print("\n" + moment_table(moments, "correlation"), moment_table(moments, "cosines"), sep="\n\n")
    print("\n" + moment_table(moments, "effective", "{:.0f}"), moment_table(moments, "ksd", "{:.2f}"), sep="\n\n")
    print("\nlargest gap", max(row.gap for row in moments))
    print("\n" + counts(moments))
    print("\n" + mode_table(read("modes.csv", Modes)))
    print("\n" + order_table(read("order.csv", Order)))
    if given.time:
        print("\n" + timing())


def targets(data: Path) -> Iterator[tuple[str, int, Array, Array]]:
    """Name, run, draws and scores."""
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
    """Everything, into the csv files."""
    moments, order = [], []
    for name, run, draws, scores in targets(data):
        kept, chosen = (ss.thin(draws, scores, size=SIZE, kernel=ss.IMQ(linear=linear)) for linear in (0.0, 1.0))
        chain = of_chain(draws)
        ways = {weights: (kept, weigh(kept, draws)) for weights, weigh in WEIGHTS.items()}
        ways[CHOSEN] = chosen, like(chosen, draws)
        for weights, (before, weighted) in ways.items():
            moments.append(moments_of(name, run, weights, before, weighted, chain))
            if name == GAUSSIAN:
                moments.append(moments_of("the same, truth", run, weights, before, weighted, of_gaussian(10)))
        order += prefixes(name, run, kept)
        print(name, run, flush=True)
    write("moments.csv", moments)
    write("order.csv", order)
    write("modes.csv", modes())


class Reference(NamedTuple):
    """What the weighted draws are compared with: means, widths, then of x in these units E x x^T and E cos(...)."""

    mean: Array
    spread: Array
    products: Array
    cosines: Array


def waves(dim: int) -> tuple[Array, Array]:
    """200 directions and phases."""
    random = np.random.default_rng(0)
    return random.normal(size=(dim, 200)) / np.sqrt(dim), random.uniform(0.0, 2.0 * np.pi, size=200)


def of_chain(draws: Array) -> Reference:
    """The whole chain."""
    chain = draws.reshape(-1, draws.shape[-1])
    mean, spread = chain.mean(axis=0), chain.std(axis=0)
    z = (chain - mean) / spread
    directions, phases = waves(z.shape[1])
    return Reference(mean, spread, z.T @ z / len(z), np.cos(z @ directions + phases).mean(axis=0))


def of_gaussian(dim: int) -> Reference:
    """The standard normal itself."""
    directions, phases = waves(dim)
    cosines = np.exp(-0.5 * np.sum(directions**2, axis=0)) * np.cos(phases)
    return Reference(np.zeros(dim), np.ones(dim), np.eye(dim), cosines)


def moments_of(name: str, run: int, weights: str, kept: Kept, weighted: Kept, truth: Reference) -> Moments:
    """One row."""
    w = np.full(len(kept), 1.0 / len(kept)) if weighted.weights is None else weighted.weights
    z = (kept.draws - truth.mean) / truth.spread
    directions, phases = waves(z.shape[1])
    cosines = w @ np.cos(z @ directions + phases) - truth.cosines
    second = np.abs(w @ z**2 - 1.0)
    products = (z.T * w) @ z - truth.products
    about = weighted.settings.get("weights", {"gap": 0.0})
    return Moments(
        name, run, weights, float(np.abs(w @ z).max()), float(second.mean()), float(second.max()),
        float(np.abs(products).max()), float(np.sqrt(np.mean(cosines**2))), weighted.effective_size,
        int((w > 0).sum()), weighted.ksd / kept.ksd, about["gap"],
    )  # fmt: skip


def modes() -> list[Modes]:
    """A perfect stream of a mixture, 0.2 and 0.8 at a distance of 6."""
    target, rows = Mixture([[0.0, 0.0], [6.0, 0.0]], covariances=1.0, weights=[0.2, 0.8]), []
    for run in range(RUNS):
        draws, scores = target.sample(10_000, seed=run)
        kept = ss.thin(draws, scores, size=SIZE)
        for name, weigh in WEIGHTS.items():
            weighted = weigh(kept, draws)
            w = np.full(len(kept), 1.0 / len(kept)) if weighted.weights is None else weighted.weights
            rows.append(Modes(run, name, float(w[kept.draws[:, 0] < 3.0].sum()), weighted.ksd))
    return rows


def prefixes(name: str, run: int, kept: Kept) -> list[Order]:
    """KSD of the first draws in three orders."""
    random = np.random.default_rng(run)
    shuffled = np.mean([curve(kept, random.permutation(len(kept))) for _ in range(10)], axis=0)
    best, by_id = kept.ordered().prefix_ksd / kept.ksd, curve(kept, np.arange(len(kept)))
    return [Order(name, run, k, best[k - 1], shuffled[k - 1], by_id[k - 1]) for k in PLACES]


def curve(kept: Kept, order: NDArray[np.int64]) -> Array:
    """KSD of the first 1, 2, ... in this order, over that of all."""
    points, scores = kept.draws[order], kept.scores[order]
    return ss.cumulative_ksd(points, scores, kernel=kept.kernel, preconditioner=kept.preconditioner) / kept.ksd


def timing() -> str:
    """Processor seconds and rounds of the solver."""
    lines = ["| draws | d = 4 | d = 10 |", "|---|---|---|"]
    for size in (100, 1000, 3000):
        cells = []
        for dim in (4, 10):
            draws = np.random.default_rng(0).normal(size=(10 * size, dim))
            kept = ss.thin(draws, -draws, size=size)
            matrix = objective_matrix(kept, kept.draws, kept.scores, LINEAR, None)
            minimise_on_simplex(matrix[:50, :50])
            began = time.process_time()
            solution = minimise_on_simplex(matrix)
            spent = time.process_time() - began
            cells.append(f"{spent:.2g} s, {solution.iterations} iterations, gap {solution.gap:.0e}")
        lines.append(f"| {size} | {' | '.join(cells)} |")
    return "\n".join(lines)


def write(name: str, rows: Iterable[NamedTuple]) -> None:
    """As csv, five digits."""
    rows = list(rows)
    with (HERE / name).open("w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(rows[0]._fields)
        out.writerows([f"{value:.5g}" if isinstance(value, float) else value for value in row] for row in rows)


def read(name: str, kind: type) -> list:
    """What :func:`write` wrote."""
    kinds = list(get_type_hints(kind).values())
    with (HERE / name).open() as file:
        lines = csv.reader(file)
        next(lines)
        return [kind(*(convert(value) for convert, value in zip(kinds, line, strict=True))) for line in lines]


def interval(values: list[float], form: str) -> str:
    """The mean, and in brackets the least and the greatest."""
    return f"{form.format(np.mean(values))} ({form.format(min(values))} to {form.format(max(values))})"


def moment_table(rows: list[Moments], field: str, form: str = "{:.4f}") -> str:
    """Targets down, weights across."""
    lines = [f"| {field} | {' | '.join(WEIGHTS)} |", "|---" * (1 + len(WEIGHTS)) + "|"]
    for target in dict.fromkeys(row.target for row in rows):
        cells = []
        for name in WEIGHTS:
            values = [getattr(row, field) for row in rows if (row.target, row.weights) == (target, name)]
            cells.append(interval(values, form))
        lines.append(f"| {target} | {' | '.join(cells)} |")
    return "\n".join(lines)


def counts(rows: list[Moments]) -> str:
    """In how many runs every second moment is within 2 % and every mean within 0.02 of the chain's."""
    ways = [*WEIGHTS, CHOSEN]
    lines = [f"| runs within 2 % | {' | '.join(ways)} |", "|---" * (1 + len(ways)) + "|"]
    for target in dict.fromkeys(row.target for row in rows):
        cells = []
        for name in ways:
            mine = [row for row in rows if (row.target, row.weights) == (target, name)]
            cells.append(str(sum(row.worst <= 0.02 and row.mean <= 0.02 for row in mine)))
        lines.append(f"| {target} | {' | '.join(cells)} |")
    return "\n".join(lines)


def mode_table(rows: list[Modes]) -> str:
    """Weights down."""
    lines = ["| weights | weight of the small mode | KSD |", "|---|---|---|"]
    for name in WEIGHTS:
        mine = [row for row in rows if row.weights == name]
        shares, values = [row.share for row in mine], [row.ksd for row in mine]
        lines.append(f"| {name} | {interval(shares, '{:.3f}')} | {interval(values, '{:.4f}')} |")
    return "\n".join(lines)


def order_table(rows: list[Order]) -> str:
    """KSD of the first k over that of a random order, and of the order of the ids over the same."""
    lines = [f"| KSD of the first | {' | '.join(map(str, PLACES))} |", "|---" * (1 + len(PLACES)) + "|"]
    for target in dict.fromkeys(row.target for row in rows):
        for name in ("ordered", "id"):
            cells = []
            for first in PLACES:
                mine = [row for row in rows if (row.target, row.first) == (target, first)]
                cells.append(interval([getattr(row, name) / row.random for row in mine], "{:.2f}"))
            lines.append(f"| {target}, {'in order' if name == 'ordered' else 'by id'} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
