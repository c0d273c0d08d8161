"""Effect of further passes over a chain: ``python experiments/passes/run.py --data FOLDER``.

FOLDER contains posteriordb/*.npz (draws and scores of ten chains of 1000 draws) and goodwin/goodwin_rw_stride100.npz.
The kernel is IMQ; the preconditioner is estimated from the chain (auto) or identity. Writes results.csv and results.png
to the folder of this file and prints the tables of the README; without --data it uses the existing results.csv. About
three minutes. Times are processor times after compilation, the best of three, one thread; the package stein-thinning,
if it is installed, runs once.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import steinstream as ss
from steinstream._typing import Array
from steinstream.report import plots

HERE = Path(__file__).parent
SIZES = (20, 100, 500)
PRECONDITIONERS = ("auto", "identity")
PASSES = (1, 2, 3, 4, 5)


class PassResult(NamedTuple):
    """Result of a method: a number of passes, start (from a subsample, one pass), auto, or Stein thinning."""

    chain: str
    preconditioner: str
    size: int
    seed: int
    method: str
    ksd: float
    seconds: float
    passes: int  # number of passes that were run


def main() -> None:
    """Measure or read results.csv, then print the tables and draw the figure."""
    parser = argparse.ArgumentParser(description="Effect of further passes over a chain.")
    parser.add_argument("--data", type=Path, help="folder with posteriordb/ and goodwin/")
    data = parser.parse_args().data
    rows = [*measure_synthetic(), *measure(long_chains()), *measure(chains(data))] if data else read()
    if data:
        write(rows)
    print(synthetic_table(rows))
    for preconditioner in PRECONDITIONERS:
        print(real_table(rows, preconditioner))
    picture(rows)


def targets(seed: int, draws: int = 20_000) -> Iterator[tuple[str, Array, Array]]:
    """Yield independent draws of a mixture of four Gaussians in the plane and of normals in 4 and 38 dimensions."""
    mixture = ss.targets.Mixture([[i, i] for i in range(4)], covariances=0.25).sample(draws, seed=seed)
    yield "mixture, d = 2", *mixture
    for dim in (4, 38):
        x = np.random.default_rng(seed).normal(size=(draws, dim))
        yield f"normal, d = {dim}", x, -x


def measure_synthetic() -> Iterator[PassResult]:
    """Run one to five passes, and auto, with size 500."""
    for seed in range(5):
        for name, x, s in targets(seed):
            for kind in PRECONDITIONERS:
                preconditioner = fit(x, s, 500, kind)
                settings = {"size": 500, "preconditioner": preconditioner, "stream_weight": 0.0}
                thinner, start = ss.Thinner(x.shape[1], **settings), time.process_time()
                key = name, kind, 500, seed
                for number in PASSES:
                    if number > 1:
                        thinner.start_pass()
                    thinner.extend(x, s)
                    seconds = time.process_time() - start
                    yield PassResult(*key, method=str(number), ksd=thinner.ksd, seconds=seconds, passes=number)
                kept, seconds = timed(partial(ss.thin, x, s, passes="auto", **settings), 1)
                passes = kept.settings["passes"]
                yield PassResult(*key, method="auto", ksd=kept.ksd, seconds=seconds, passes=passes)


def fit(x: Array, s: Array, size: int, kind: str) -> ss.Preconditioner:
    """Return the preconditioner that ``ss.thin`` uses."""
    return ss.thin(x, s, size=size, preconditioner=kind, stream_weight=0.0).preconditioner


def chains(data: Path) -> Iterator[tuple[str, Array, Array]]:
    """Yield name, draws and scores of each chain."""
    for path in sorted((data / "posteriordb").glob("*.npz")):
        with np.load(path) as file:
            yield path.stem.partition("-")[2], file["draws"], file["scores"]
    with np.load(data / "goodwin" / "goodwin_rw_stride100.npz") as file:
        yield "goodwin", file["theta"], file["score"]


def long_chains() -> Iterator[tuple[str, Array, Array]]:
    """Yield chains of 200 000 independent draws."""
    for dim in (4, 10, 26):
        x = np.random.default_rng(0).normal(size=(200_000, dim))
        yield f"200 000 normal draws ({dim})", x, -x


def measure(chains: Iterable[tuple[str, Array, Array]]) -> Iterator[PassResult]:
    """Run one pass, five passes, auto and Stein thinning with the same preconditioner."""
    for name, x, s in chains:
        short = len(x) <= 20_000
        repeats = 3 if short else 2
        for kind in PRECONDITIONERS if short else PRECONDITIONERS[:1]:
            for size in SIZES if short else SIZES[1:]:
                key = name, kind, size, 0
                preconditioner = fit(x, s, size, kind)
                settings = {"size": size, "preconditioner": preconditioner}
                by_ksd = {**settings, "stream_weight": 0.0}
                options = {"1": {}, "5": {"passes": 5}, "start": {"start": "sample"}, "auto": {"passes": "auto"}}
                for method, more in options.items():
                    kept, seconds = timed(partial(ss.thin, x, s, **by_ksd, **more), repeats)
                    passes = kept.settings["passes"]
                    yield PassResult(*key, method=method, ksd=kept.ksd, seconds=seconds, passes=passes)
                ids, seconds = timed(partial(ss.baselines.stein_thinning, x, s, **settings), repeats)
                chosen = [(part if part.ndim == 3 else part[None])[ids[:, 0], ids[:, 1]] for part in (x, s)]
                ksd = ss.ksd(*chosen, preconditioner=preconditioner)
                yield PassResult(*key, method="stein_thinning", ksd=ksd, seconds=seconds, passes=1)
                if kind == "identity" and find_spec("stein_thinning"):
                    from stein_thinning.thinning import thin

                    flat = [part.reshape(-1, part.shape[-1]) for part in (x, s)]
                    indices, seconds = timed(partial(thin, *flat, size, standardize=False, preconditioner="id"), 1)
                    ksd = ss.ksd(*(part[indices] for part in flat))
                    yield PassResult(*key, method="stein-thinning", ksd=ksd, seconds=seconds, passes=1)


def timed(work: Callable[[], Any], times: int = 3) -> tuple[Any, float]:
    """Return the result and the shortest of several times."""
    best = np.inf
    for _ in range(times):
        start = time.process_time()
        result = work()
        best = min(best, time.process_time() - start)
    return result, best


def write(rows: list[PassResult]) -> None:
    """Write results.csv."""
    with (HERE / "results.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(PassResult._fields)
        for row in rows:
            writer.writerow(row._replace(ksd=f"{row.ksd:.6g}", seconds=f"{row.seconds:.3g}"))


def read() -> list[PassResult]:
    """Read results.csv."""
    with (HERE / "results.csv").open(newline="") as file:
        return [
            PassResult(
                row["chain"],
                row["preconditioner"],
                int(row["size"]),
                int(row["seed"]),
                row["method"],
                ksd=float(row["ksd"]),
                seconds=float(row["seconds"]),
                passes=int(row["passes"]),
            )
            for row in csv.DictReader(file)
        ]


def synthetic_table(rows: list[PassResult]) -> str:
    """Return the mean KSD after each pass as Markdown."""
    methods = [*map(str, PASSES), "auto"]
    lines = [["target", "preconditioner", *methods], ["---"] * (2 + len(methods))]
    for chain in dict.fromkeys(row.chain for row in rows if "d = " in row.chain):
        for preconditioner in PRECONDITIONERS:
            some = [row for row in rows if (row.chain, row.preconditioner) == (chain, preconditioner)]
            values = [[row.ksd for row in some if row.method == method] for method in methods]
            spread = [np.std(value, ddof=1) / np.sqrt(len(value)) for value in values]
            cells = [f"{np.mean(value):.4g} ± {error:.1g}" for value, error in zip(values, spread, strict=True)]
            lines.append([chain, preconditioner, *cells])
    return as_table(lines)


def real_table(rows: list[PassResult], preconditioner: str) -> str:
    """Return KSD relative to Stein thinning, and times, as Markdown."""
    methods = ("1", "5", "start", "auto")
    head = ["chain", "size", "Stein thinning", *methods, "ms: Stein thinning", *methods]
    found = {(row.chain, row.size, row.method): row for row in rows if row.preconditioner == preconditioner}
    package = any(method == "stein-thinning" for _, _, method in found)
    lines = [head + ["stein-thinning package"] * package, ["---"] * (len(head) + package)]
    for chain, size in dict.fromkeys((chain, size) for chain, size, method in found if method == "stein_thinning"):
        greedy, ours = found[chain, size, "stein_thinning"], [found[chain, size, method] for method in methods]
        cells = [chain, str(size), f"{greedy.ksd:.4g}", *(bold(row.ksd / greedy.ksd) for row in ours)]
        cells[-1] += f" ({ours[-1].passes})"
        cells += [f"{1e3 * row.seconds:.0f}" for row in (greedy, *ours)]
        if package:
            cells.append(f"{1e3 * found[chain, size, 'stein-thinning'].seconds:.0f}")
        lines.append(cells)
    return f"\n{preconditioner}\n\n{as_table(lines)}"


def bold(ratio: float) -> str:
    """Format a ratio; values of at least 1 are bold."""
    return f"{ratio:.3f}" if ratio < 1 else f"**{ratio:.3f}**"


def as_table(lines: list[list[str]]) -> str:
    """Return a table in Markdown."""
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def picture(rows: list[PassResult]) -> None:
    """Draw KSD relative to Stein thinning for one pass and for auto; a shade for each size."""
    plt = plots.pyplot()
    figure, both = plt.subplots(1, 2, figsize=(11, 4.2), sharey=True, layout="constrained")
    figure.suptitle("KSD of several passes (IMQ), relative to Stein thinning: below 1, passes are better")
    for axes, preconditioner in zip(both, PRECONDITIONERS, strict=True):
        found = {(row.chain, row.size, row.method): row.ksd for row in rows if row.preconditioner == preconditioner}
        names = list(dict.fromkeys(chain for chain, _, _ in found if " " not in chain))[::-1]
        for number, (method, label) in enumerate((("1", "one pass"), ("auto", "several passes"))):
            for place, (size, alpha) in enumerate(zip(SIZES, (0.35, 0.65, 1.0), strict=True)):
                values = [found[name, size, method] / found[name, size, "stein_thinning"] for name in names]
                style = {"color": plots.METHOD_COLOURS[number], "marker": plots.MARKERS[number], "ms": 5}
                heights = np.arange(len(names)) + 0.26 * (1 - place) + 0.06 * (1 - 2 * number)
                label_of_size = f"{label}, {size} draws"
                axes.semilogx(values, heights, ls="", mew=0, alpha=alpha, label=label_of_size, **style)
        axes.axvline(1.0, color="0.6", lw=1, zorder=0)
        for border in range(1, len(names)):
            axes.axhline(border - 0.5, color="0.92", lw=0.8, zorder=0)
        axes.set(title=f"{preconditioner} preconditioner", xlabel="KSD / KSD of Stein thinning")
        axes.set_xticks([0.1, 0.2, 0.5, 1, 2], ["0.1", "0.2", "0.5", "1", "2"])
        axes.minorticks_off()
        axes.set_yticks(range(len(names)), names)
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = both[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", frameon=False, fontsize="small")
    figure.savefig(HERE / "results.png", dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    main()
