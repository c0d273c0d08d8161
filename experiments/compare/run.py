"""KSD of all methods on real posteriors, at the same sizes: ``python experiments/compare/run.py --data FOLDER``.

FOLDER contains posteriordb/*.npz (draws and scores of ten chains of 1000 draws) and goodwin/goodwin_rw_stride100.npz.
The kernel is IMQ; the preconditioner is estimated from the chain (auto) or identity. Writes results.csv and results.png
to the folder of this file and prints the tables of the README; without --data it uses the existing results.csv. About
six minutes, five of them for kernel thinning, which is omitted if goodpoints is not installed.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

import steinstream as ss
from steinstream._typing import Array, Integers
from steinstream.report import plots

HERE = Path(__file__).parent
SIZES = (20, 100, 500)
PRECONDITIONERS = ("auto", "identity")
METHODS = [name for name in ss.baselines.METHODS if name != "default"]  # KSD alone is compared


class ComparisonCase(NamedTuple):
    """Chain, preconditioner, method and size of a measurement."""

    chain: str
    preconditioner: str
    method: str
    size: int


class ComparisonResult(NamedTuple):
    """Result of a measurement."""

    ksd: float
    distinct: int  # number of distinct draws
    score: float  # mean squared score of the selected draws relative to the median of the chain, preconditioned


Results = dict[ComparisonCase, ComparisonResult]


def main() -> None:
    """Measure or read results.csv, then print the tables and draw the figure."""
    parser = argparse.ArgumentParser(description="KSD of every method on real posteriors.")
    parser.add_argument("--data", type=Path, help="folder with posteriordb/ and goodwin/")
    parser.add_argument("--methods", nargs="+", metavar="NAME", help="measure these only; keep the other results")
    arguments = parser.parse_args()
    data, chosen = arguments.data, arguments.methods
    known = read() if chosen or not data else {}
    results = known | measure(data, chosen) if data else known
    if data:
        write(results)
    print(table(results))
    picture(results)
    if data and not chosen:
        print(diamonds(data))


def chains(data: Path) -> Iterator[tuple[str, Array, Array]]:
    """Yield name, draws and scores of each chain."""
    for path in sorted((data / "posteriordb").glob("*.npz")):
        with np.load(path) as file:
            yield path.stem.partition("-")[2], file["draws"], file["scores"]
    with np.load(data / "goodwin" / "goodwin_rw_stride100.npz") as file:
        yield "goodwin", file["theta"], file["score"]


def measure(data: Path, chosen: Sequence[str] | None = None) -> Results:
    """Run the chosen methods, by default all, on every chain."""
    possible = [name for name in METHODS if name != "kernel_thinning" or find_spec("goodpoints")]
    methods = [name for name in possible if chosen is None or name in chosen]
    results: Results = {}
    for chain, draws, scores in chains(data):
        for kind in PRECONDITIONERS:
            for size in SIZES:
                preconditioner = fit(draws, scores, size, kind)
                median = np.median(squared_scores(preconditioner, flat(draws), flat(scores)))
                for method in methods:
                    select = getattr(ss.baselines, method)
                    ids = select(draws, scores, size, kernel=ss.IMQ(), preconditioner=preconditioner)
                    x, s = rows(draws, ids), rows(scores, ids)
                    results[ComparisonCase(chain, kind, method, size)] = ComparisonResult(
                        ss.ksd(x, s, preconditioner=preconditioner),
                        len(np.unique(ids, axis=0)),
                        float(squared_scores(preconditioner, x, s).mean() / median),
                    )
    return results


def fit(draws: Array, scores: Array, size: int, kind: str | ss.Preconditioner) -> ss.Preconditioner:
    """Return the preconditioner that ``ss.thin`` uses."""
    return ss.thin(draws, scores, size=size, preconditioner=kind, stream_weight=0.0).preconditioner


def flat(values: Array) -> Array:
    """Concatenate chains (chains, n, d), or return one chain (n, d)."""
    return values.reshape(-1, values.shape[-1])


def rows(values: Array, ids: Integers) -> Array:
    """Return the rows with these ids of chains (chains, n, d) or of one chain (n, d)."""
    return (values if values.ndim == 3 else values[None])[ids[:, 0], ids[:, 1]]


def diamonds(data: Path) -> str:
    """Return further results on diamonds: with the plain covariance, after five passes, without repeated draws."""
    _, draws, scores = next(chain for chain in chains(data) if chain[0] == "diamonds")
    plain = ss.Preconditioner.covariance(2.0 * draws.shape[-1] * np.cov(flat(draws), rowvar=False))
    lines = []
    for name, kind in (("auto", "auto"), ("plain covariance", plain)):
        for size in SIZES:
            preconditioner = fit(draws, scores, size, kind)
            settings = {"kernel": ss.IMQ(), "preconditioner": preconditioner}
            median = float(np.median(squared_scores(preconditioner, flat(draws), flat(scores))))
            passes = ss.Thinner(draws.shape[-1], size=size, preconditioner=preconditioner, stream_weight=0.0)
            for number, chain in product(range(5), range(len(draws))):
                passes.extend(draws[chain], scores[chain], chain=number * len(draws) + chain)
            once, greedy, unique = (
                ss.ksd(rows(draws, ids), rows(scores, ids), preconditioner=preconditioner)
                for ids in (
                    ss.baselines.ksdt(draws, scores, size, **settings),
                    ss.baselines.stein_thinning(draws, scores, size, **settings),
                    ss.baselines.stein_thinning(draws, scores, size, unique=True, **settings),
                )
            )
            lines.append(
                f"diamonds, {name}, {size}: median squared score {median:.0f}; "
                f"KSD of ksdt relative to stein_thinning {once / greedy:.3f}, after five passes "
                f"{passes.ksd / greedy:.3f}, relative to stein_thinning without repeats {once / unique:.3f}"
            )
    return "\n".join(lines)


def squared_scores(preconditioner: ss.Preconditioner, draws: Array, scores: Array) -> Array:
    """Return the squared norms of the preconditioned scores."""
    return np.sum(preconditioner.apply(draws, scores)[1] ** 2, axis=1)


def write(results: Results) -> None:
    """Write results.csv."""
    with (HERE / "results.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*ComparisonCase._fields, *ComparisonResult._fields])
        for case in in_order(results):
            ksd, distinct, score = results[case]
            writer.writerow([*case, f"{ksd:.6g}", distinct, f"{score:.3g}"])


def in_order(results: Results) -> list[ComparisonCase]:
    """Return the cases by chain, preconditioner and size as they were measured, then by method."""
    blocks = list(dict.fromkeys((case.chain, case.preconditioner, case.size) for case in results))
    known = [ComparisonCase(chain, kind, method, size) for chain, kind, size in blocks for method in METHODS]
    return [case for case in known if case in results]


def read() -> Results:
    """Read results.csv."""
    with (HERE / "results.csv").open(newline="") as file:
        return {
            ComparisonCase(row["chain"], row["preconditioner"], row["method"], int(row["size"])): ComparisonResult(
                float(row["ksd"]), int(row["distinct"]), float(row["score"])
            )
            for row in csv.DictReader(file)
        }


def table(results: Results) -> str:
    """Return ratios of KSD of ksdt to other methods: per chain for Stein thinning, then ranges over the chains."""
    columns = [(preconditioner, size) for preconditioner in PRECONDITIONERS for size in SIZES]
    separator = ["---"] * (1 + len(columns))
    head = [f"{preconditioner}, {size}" for preconditioner, size in columns]
    names = list(dict.fromkeys(case.chain for case in results))
    lines = [["chain", *head], separator]
    for chain in names:
        lines.append([chain, *(f"{ratio(results, chain, 'stein_thinning', *column):.2f}" for column in columns)])
    lines += [[], ["method", *head], separator]
    for method in dict.fromkeys(case.method for case in results if case.method != "ksdt"):
        ranges = [sorted(ratio(results, chain, method, *column) for chain in names) for column in columns]
        lines.append([method, *(f"{one[0]:.2f} - {one[-1]:.2f}" for one in ranges)])
    below = sum(ratio(results, chain, "stein_thinning", *column) < 1 for chain in names for column in columns)
    lines += [[], [f"ksdt below stein_thinning: {below} of {len(names) * len(columns)}"]]
    return "\n".join(f"| {' | '.join(line)} |" if line else "" for line in lines)


def ratio(results: Results, chain: str, method: str, preconditioner: str, size: int) -> float:
    """Return KSD of ksdt relative to a method."""
    ours, theirs = (results[ComparisonCase(chain, preconditioner, name, size)].ksd for name in ("ksdt", method))
    return ours / theirs


def label(method: str) -> str:
    """Return the name of a method for the figure."""
    name = method.replace("_", " ").replace("stein", "Stein")
    return name.replace("minibatch", "mini-batch").replace("spmcmc", "SPMCMC")


def picture(results: Results, size: int = 100) -> None:
    """Draw KSD of each method relative to ksdt; the methods have rows of their own, so that no marker is hidden."""
    plt = plots.pyplot()
    names = list(dict.fromkeys(case.chain for case in results))[::-1]
    methods = [name for name in METHODS[1:] if any(case.method == name for case in results)]
    figure, both = plt.subplots(1, 2, figsize=(11, 0.8 * len(names) + 1), sharey=True, layout="constrained")
    figure.suptitle(f"KSD of {size} draws (IMQ), relative to KSDT: above 1, KSDT is better")
    height = 0.8 / len(methods)
    for axes, preconditioner in zip(both, PRECONDITIONERS, strict=True):
        for number, method in enumerate(methods):
            values = [1.0 / ratio(results, chain, method, preconditioner, size) for chain in names]
            places = np.arange(len(names)) + height * ((len(methods) - 1) / 2 - number)
            style = {"color": plots.METHOD_COLOURS[1:][number], "marker": plots.MARKERS[1:][number]}
            axes.semilogx(values, places, ls="", ms=4.5, label=label(method), **style)
        axes.axvline(1.0, color="0.6", lw=1, zorder=0)
        for border in range(1, len(names)):
            axes.axhline(border - 0.5, color="0.92", lw=0.8, zorder=0)
        axes.set(title=f"{preconditioner} preconditioner", xlabel="KSD / KSD of KSDT")
        low, high = axes.get_xlim()
        ticks = [tick for tick in (0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if low < tick < high]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(-0.5, len(names) - 0.5)
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = both[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", frameon=False, fontsize="small")
    figure.savefig(HERE / "results.png", dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    main()
