"""What further passes over a chain gain: ``python experiments/passes/run.py --data FOLDER``.

FOLDER holds posteriordb/*.npz (draws and scores of ten chains of 1000 draws) and goodwin/goodwin_rw_stride100.npz.
Kernel IMQ, coordinates estimated from the chain (auto) and its own (identity). Writes results.csv and results.png
beside this file and prints the README's tables; without --data from the results.csv that is there. About three minutes.
Times are processor time, the best of three, one thread, everything compiled; of the package stein-thinning, where it is
installed, one run.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import steinstream as ss
from steinstream.baselines import selector
from steinstream.baselines.methods import problem_from_arrays
from steinstream.report import plots

HERE = Path(__file__).parent
SIZES = (20, 100, 500)
COORDINATES = ("auto", "identity")
PASSES = (1, 2, 3, 4, 5)

Array = NDArray[np.float64]


class Row(NamedTuple):
    """One measurement; ``method`` is a number of passes, start (a sample, one pass), auto, or Stein thinning."""

    chain: str
    preconditioner: str
    size: int
    seed: int
    method: str
    ksd: float
    seconds: float
    passes: int  # made


def main() -> None:
    """Measure, or read what was measured, and show it."""
    parser = argparse.ArgumentParser(description="What further passes over a chain gain.")
    parser.add_argument("--data", type=Path, help="folder with posteriordb/ and goodwin/")
    data = parser.parse_args().data
    rows = [*made_up(), *measured(long()), *measured(chains(data))] if data else read()
    if data:
        write(rows)
    print(synthetic_table(rows))
    for preconditioner in COORDINATES:
        print(real_table(rows, preconditioner))
    picture(rows)


def targets(seed: int, draws: int = 20_000) -> Iterator[tuple[str, Array, Array]]:
    """Independent draws: four Gaussians in the plane, standard normals in 4 and in 38 dimensions."""
    mixture = ss.targets.Mixture([[i, i] for i in range(4)], covariances=0.25).sample(draws, seed=seed)
    yield "mixture, d = 2", *mixture
    for dim in (4, 38):
        x = np.random.default_rng(seed).normal(size=(draws, dim))
        yield f"normal, d = {dim}", x, -x


def made_up() -> Iterator[Row]:
    """One to five passes, and auto, at a cap of 500."""
    for seed in range(5):
        for name, x, s in targets(seed):
            for preconditioner in COORDINATES:
                within = problem_from_arrays(x, s, 500, preconditioner=preconditioner).preconditioner
                thinner, began = ss.Thinner(x.shape[1], size=500, preconditioner=within), time.process_time()
                for number in PASSES:
                    if number > 1:
                        thinner.start_pass()
                    thinner.extend(x, s)
                    spent = time.process_time() - began
                    yield Row(name, preconditioner, 500, seed, str(number), thinner.ksd, spent, number)
                kept, spent = timed(lambda: ss.thin(x, s, size=500, preconditioner=within, passes="auto"), 1)  # noqa: B023
                yield Row(name, preconditioner, 500, seed, "auto", kept.ksd, spent, kept.settings["passes"])


def chains(data: Path) -> Iterator[tuple[str, Array, Array]]:
    """Name, draws and scores of each."""
    for path in sorted((data / "posteriordb").glob("*.npz")):
        with np.load(path) as file:
            yield path.stem.partition("-")[2], file["draws"], file["scores"]
    with np.load(data / "goodwin" / "goodwin_rw_stride100.npz") as file:
        yield "goodwin", file["theta"], file["score"]


def long() -> Iterator[tuple[str, Array, Array]]:
    """200 000 independent draws."""
    for dim in (4, 10, 26):
        x = np.random.default_rng(0).normal(size=(200_000, dim))
        yield f"200 000 normal draws ({dim})", x, -x


def measured(chains: Iterable[tuple[str, Array, Array]]) -> Iterator[Row]:
    """One pass, five, auto and Stein thinning, in the same coordinates."""
    for name, x, s in chains:
        short = len(x) <= 20_000
        for preconditioner in COORDINATES if short else COORDINATES[:1]:
            for size in SIZES if short else SIZES[1:]:
                work = problem_from_arrays(x, s, size, preconditioner=preconditioner)
                options = {"size": size, "preconditioner": work.preconditioner}
                ways = {"1": {}, "5": {"passes": 5}, "start": {"start": "sample"}, "auto": {"passes": "auto"}}
                for method, way in ways.items():
                    kept, spent = timed(lambda: ss.thin(x, s, **options, **way), 3 if short else 2)  # noqa: B023
                    yield Row(name, preconditioner, size, 0, method, kept.ksd, spent, kept.settings["passes"])
                chosen, spent = timed(lambda: selector("stein_thinning")(work), 3 if short else 2)  # noqa: B023
                greedy = ss.ksd(chosen.draws, chosen.scores, preconditioner=work.preconditioner)
                yield Row(name, preconditioner, size, 0, "stein_thinning", greedy, spent, 1)
                if preconditioner == "identity" and find_spec("stein_thinning"):
                    from stein_thinning.thinning import thin

                    flat = [part.reshape(-1, part.shape[-1]) for part in (x, s)]
                    places, spent = timed(lambda: thin(*flat, size, standardize=False, preconditioner="id"), 1)  # noqa: B023
                    ksd = ss.ksd(*(part[places] for part in flat))
                    yield Row(name, preconditioner, size, 0, "stein-thinning", ksd, spent, 1)


def timed(work: Callable[[], Any], times: int = 3) -> tuple[Any, float]:
    """The result and the least of some times."""
    best = np.inf
    for _ in range(times):
        began = time.process_time()
        result = work()
        best = min(best, time.process_time() - began)
    return result, best


def write(rows: list[Row]) -> None:
    """Into results.csv."""
    with (HERE / "results.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Row._fields)
        for row in rows:
            writer.writerow(row._replace(ksd=f"{row.ksd:.6g}", seconds=f"{row.seconds:.3g}"))


def read() -> list[Row]:
    """From results.csv."""
    with (HERE / "results.csv").open(newline="") as file:
        return [
            Row(
                row["chain"], row["coordinates"], int(row["size"]), int(row["seed"]), row["method"],
                float(row["ksd"]), float(row["seconds"]), int(row["passes"]),
            )
            for row in csv.DictReader(file)
        ]  # fmt: skip


def synthetic_table(rows: list[Row]) -> str:
    """KSD after each pass, averaged over the seeds."""
    methods = [*map(str, PASSES), "auto"]
    lines = [["target", "coordinates", *methods], ["---"] * (2 + len(methods))]
    for chain in dict.fromkeys(row.chain for row in rows if "d = " in row.chain):
        for preconditioner in COORDINATES:
            some = [row for row in rows if (row.chain, row.preconditioner) == (chain, preconditioner)]
            values = [[row.ksd for row in some if row.method == method] for method in methods]
            spread = [np.std(value, ddof=1) / np.sqrt(len(value)) for value in values]
            cells = [f"{np.mean(value):.4g} ± {error:.1g}" for value, error in zip(values, spread, strict=True)]
            lines.append([chain, preconditioner, *cells])
    return as_table(lines)


def real_table(rows: list[Row], preconditioner: str) -> str:
    """KSD over that of Stein thinning, and times."""
    methods = ("1", "5", "start", "auto")
    head = ["chain", "size", "Stein thinning", *methods, "ms: Stein thinning", *methods]
    found = {(row.chain, row.size, row.method): row for row in rows if row.preconditioner == preconditioner}
    package = any(method == "stein-thinning" for _, _, method in found)
    lines = [head + ["the package"] * package, ["---"] * (len(head) + package)]
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
    """What is not below 1 stands out."""
    return f"{ratio:.3f}" if ratio < 1 else f"**{ratio:.3f}**"


def as_table(lines: list[list[str]]) -> str:
    """In markdown."""
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def picture(rows: list[Row]) -> None:
    """KSD over that of Stein thinning, for one pass and for auto."""
    plt = plots.pyplot()
    figure, both = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True, layout="constrained")
    for axes, preconditioner in zip(both, COORDINATES, strict=True):
        found = {(row.chain, row.size, row.method): row.ksd for row in rows if row.preconditioner == preconditioner}
        names = list(dict.fromkeys(chain for chain, _, _ in found if " " not in chain))[::-1]
        for number, (method, label) in enumerate((("1", "one pass"), ("auto", "auto"))):
            for place, size in enumerate(SIZES):
                values = [found[name, size, method] / found[name, size, "stein_thinning"] for name in names]
                style = {"color": plots.METHOD_COLOURS[number], "marker": plots.MARKERS[number], "ms": 4}
                axes.semilogx(
                    values,
                    np.arange(len(names)) + 0.2 * (1 - place),
                    ls="",
                    label=label if not place else None,
                    **style,
                )
        axes.axvline(1.0, color="0.8", lw=1, zorder=0)
        axes.set(title=f"{preconditioner} coordinates", xlabel="KSD / KSD of Stein thinning")
        axes.set_xticks([0.1, 0.2, 0.5, 1, 2], ["0.1", "0.2", "0.5", "1", "2"])
        axes.minorticks_off()
        axes.set_yticks(range(len(names)), names)
        axes.spines[["top", "right"]].set_visible(False)
    both[0].legend(frameon=False, fontsize="small", loc="lower left")
    figure.savefig(HERE / "results.png", dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    main()
