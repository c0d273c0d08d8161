"""KSD of every method on real posteriors, at the same sizes: ``python experiments/compare/run.py --data FOLDER``.

FOLDER holds posteriordb/*.npz (draws and scores of ten chains of 1000 draws) and goodwin/goodwin_rw_stride100.npz. The
kernel is IMQ; once in coordinates estimated from the chain (auto), once in the chain's own (identity). Writes
results.csv and results.png beside this file and prints the README's tables; without --data from the results.csv that is
there. About six minutes, five of them kernel thinning, which is left out where goodpoints is not installed.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import steinstream as ss
from steinstream.baselines import METHODS, selector
from steinstream.baselines.methods import problem_from_arrays
from steinstream.report import plots

HERE = Path(__file__).parent
SIZES = (20, 100, 500)
COORDINATES = ("auto", "identity")

Array = NDArray[np.float64]


class Case(NamedTuple):
    """What was measured."""

    chain: str
    preconditioner: str
    method: str
    size: int


class Result(NamedTuple):
    """What came out."""

    ksd: float
    distinct: int  # different draws among those taken
    score: float  # mean squared score of what was taken, in those coordinates, over the chain's median one


Results = dict[Case, Result]


def main() -> None:
    """Measure, or read what was measured, and show it."""
    parser = argparse.ArgumentParser(description="KSD of every method on real posteriors.")
    parser.add_argument("--data", type=Path, help="folder with posteriordb/ and goodwin/")
    data = parser.parse_args().data
    results = measure(data) if data else read()
    if data:
        write(results)
    print(table(results))
    picture(results)
    if data:
        print(aside(data))


def chains(data: Path) -> Iterator[tuple[str, Array, Array]]:
    """Name, draws and scores of each."""
    for path in sorted((data / "posteriordb").glob("*.npz")):
        with np.load(path) as file:
            yield path.stem.partition("-")[2], file["draws"], file["scores"]
    with np.load(data / "goodwin" / "goodwin_rw_stride100.npz") as file:
        yield "goodwin", file["theta"], file["score"]


def measure(data: Path) -> Results:
    """Every method on every chain."""
    methods = [name for name in METHODS if name != "kernel_thinning" or find_spec("goodpoints")]
    results: Results = {}
    for chain, draws, scores in chains(data):
        for preconditioner in COORDINATES:
            for size in SIZES:
                work = problem_from_arrays(draws, scores, size, preconditioner=preconditioner)
                every = squared(work.preconditioner, *work.whole()[:2])
                for method in methods:
                    x, s, ids = selector(method)(work)
                    results[Case(chain, preconditioner, method, size)] = Result(
                        ss.ksd(x, s, preconditioner=work.preconditioner),
                        len(np.unique(ids, axis=0)),
                        float(squared(work.preconditioner, x, s).mean() / np.median(every)),
                    )
    return results


def aside(data: Path) -> str:
    """Diamonds more closely: how far from white, with the plain covariance, after five passes, without repeats."""
    _, draws, scores = next(chain for chain in chains(data) if chain[0] == "diamonds")
    every = draws.reshape(-1, draws.shape[-1])
    plain = ss.Preconditioner.covariance(2.0 * every.shape[1] * np.cov(every, rowvar=False))
    lines = []
    for name, preconditioner in (("auto", "auto"), ("plain covariance", plain)):
        for size in SIZES:
            work = problem_from_arrays(draws, scores, size, preconditioner=preconditioner)
            white = float(np.median(squared(work.preconditioner, *work.whole()[:2])))
            again = ss.Thinner(work.dim, size=size, preconditioner=work.preconditioner)
            for turn in range(5):
                for block in work.blocks():
                    again.extend(block.draws, block.scores, ids=block.ids + np.array([turn * len(draws), 0]))
            chosen = (
                selector("ksdt")(work),
                selector("stein_thinning")(work),
                selector("stein_thinning")(work, unique=True),
            )
            once, greedy, unique = (ss.ksd(x, s, preconditioner=work.preconditioner) for x, s, _ in chosen)
            lines.append(
                f"diamonds, {name}, {size}: median squared score {white:.0f}; "
                f"ksdt over stein_thinning {once / greedy:.3f}, after five passes {again.ksd / greedy:.3f}, "
                f"over it without repeats {once / unique:.3f}"
            )
    return "\n".join(lines)


def squared(preconditioner: ss.Preconditioner, draws: Array, scores: Array) -> Array:
    """Squared scores in these coordinates."""
    return np.sum(preconditioner.apply(draws, scores)[1] ** 2, axis=1)


def write(results: Results) -> None:
    """Into results.csv."""
    with (HERE / "results.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*Case._fields, *Result._fields])
        for case, (ksd, distinct, score) in results.items():
            writer.writerow([*case, f"{ksd:.6g}", distinct, f"{score:.3g}"])


def read() -> Results:
    """From results.csv."""
    with (HERE / "results.csv").open(newline="") as file:
        return {
            Case(row["chain"], row["coordinates"], row["method"], int(row["size"])): Result(
                float(row["ksd"]), int(row["distinct"]), float(row["score"])
            )
            for row in csv.DictReader(file)
        }


def table(results: Results) -> str:
    """KSD of ksdt over that of each other method: chain by chain for Stein thinning, then the range of all chains."""
    columns = [(preconditioner, size) for preconditioner in COORDINATES for size in SIZES]
    rule = ["---"] * (1 + len(columns))
    head = [f"{preconditioner}, {size}" for preconditioner, size in columns]
    names = list(dict.fromkeys(case.chain for case in results))
    lines = [["chain", *head], rule]
    for chain in names:
        lines.append([chain, *(f"{ratio(results, chain, 'stein_thinning', *column):.2f}" for column in columns)])
    lines += [[], ["method", *head], rule]
    for method in dict.fromkeys(case.method for case in results if case.method != "ksdt"):
        ranges = [sorted(ratio(results, chain, method, *column) for chain in names) for column in columns]
        lines.append([method, *(f"{one[0]:.2f} - {one[-1]:.2f}" for one in ranges)])
    below = sum(ratio(results, chain, "stein_thinning", *column) < 1 for chain in names for column in columns)
    lines += [[], [f"ksdt below stein_thinning: {below} of {len(names) * len(columns)}"]]
    return "\n".join(f"| {' | '.join(line)} |" if line else "" for line in lines)


def ratio(results: Results, chain: str, method: str, preconditioner: str, size: int) -> float:
    """KSD of ksdt over that of the method."""
    ours, theirs = (results[Case(chain, preconditioner, name, size)].ksd for name in ("ksdt", method))
    return ours / theirs


def picture(results: Results, size: int = 100) -> None:
    """KSD of each method over that of ksdt."""
    plt = plots.pyplot()
    figure, both = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True, layout="constrained")
    names = list(dict.fromkeys(case.chain for case in results))[::-1]
    for axes, preconditioner in zip(both, COORDINATES, strict=True):
        for number, method in enumerate(dict.fromkeys(case.method for case in results)):
            values = [1.0 / ratio(results, chain, method, preconditioner, size) for chain in names]
            style = {"color": plots.METHOD_COLOURS[number], "marker": plots.MARKERS[number], "label": method}
            axes.semilogx(values, range(len(names)), ls="", ms=5, **style)
        axes.axvline(1.0, color="0.8", lw=1, zorder=0)
        axes.set(title=f"{preconditioner} coordinates", xlabel=f"KSD of {size} draws / KSD of ksdt")
        low, high = axes.get_xlim()
        ticks = [tick for tick in (0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if low < tick < high]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.set_yticks(range(len(names)), names)
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = both[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", frameon=False, fontsize="small")
    figure.savefig(HERE / "results.png", dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    main()
