"""The algorithm as published by its authors, next to the corrected one: ``python experiments/published/run.py``.

The authors' public code differs from the paper in three places:

- It stores for each kept draw the amount that its removal takes from the sum of the kernel matrix. When a draw is
  removed, its kernel row is subtracted once from these amounts, but it must be subtracted twice. The amounts decide
  which draw is removed next and whether KSD^2 stays below its value at the start of the step, which is exact.
- The best candidate minimises k0(y, y) + sum_i k0(y, x_i); KSD is minimised with k0(y, y) / 2.
- The RBF kernel is exp(-|x - y|^2 / d); the formula of the paper is exp(-|x - y|^2 / (2 d)).

This script implements both algorithms, from this description, and runs them on the problems of adaptivity and alpha
and, with ``--data FOLDER``, on the published Goodwin chain (FOLDER/goodwin/goodwin_rw_stride100.npz). The published
algorithm is also run on alpha with the settings of the authors' code: standard deviation 0.5, linear growth t / 4,
float32. KSD is always that of the kept draws with the kernel of the paper in float64, whatever selected them. Writes
results.parquet, summary.md and figure.png to the folder of this file. Without ``--data`` the Goodwin results are those
of the existing results.parquet. About ten minutes of processor time.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import numba
import numpy as np

from steinstream import schedules
from steinstream._typing import Array, Integers
from steinstream.report import plots
from steinstream.report.style import plain_ticks
from steinstream.schedules import Schedule
from steinstream.targets import Mixture

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from experiments.results import estimate, read_table, write_table  # noqa: E402

RESULTS = HERE / "results.parquet"
ALGORITHMS = ("published", "corrected")
KERNELS = ("imq", "rbf")
CANDIDATES, REPEATS, FLOOR = 5, 10, 10
MODES, MODE_STEPS = tuple(range(1, 11)), 20_000
ALPHAS, ALPHA_STEPS = (1.0, 1.2, 1.4, 1.6, 1.8, 2.0), 20_000
ALPHA_MODES = np.array([[0.0, 0.0], [1.0, 1.0]])
AUTHORS = "alpha-authors"  # alpha with the settings of the authors' code
AUTHORS_DEVIATION, AUTHORS_LINEAR = 0.5, 0.25  # of the target; factor of t in the linear growth
GROWTHS = {"KSDT-LINEAR": "linear", "KSDT-SQRT": "sqrt"}
GOODWIN_CANDIDATES = 10
GOODWIN_STRIDE = 100  # moves of the published chain per stored state
PAPER_SIZES = {4: 24, 10: 40}  # draws that the paper reports by number of modes


class Result(NamedTuple):
    """State of a run after a step; ``broken`` is the fraction of steps so far that increase KSD^2 by thinning."""

    problem: str
    kernel: str
    algorithm: str
    setting: str
    repeat: int
    step: int
    kept: int
    ksd: float
    broken: float


# -- the algorithm -----------------------------------------------------------------------------------------------------


# With IEEE division the loops over the kept draws are vectorised.
compiled = numba.njit(error_model="numpy")


@compiled
def stein_row(rbf: bool, h: float, x: Array, s: Array, kept: Array, scores: Array, n: int, row: Array) -> None:
    """Write the Stein kernel of x with score s and the first n kept draws to ``row``.

    The base kernel is IMQ or exp(-|x - y|^2 / (2 h)). Kept draws and scores are columns.
    """
    d = len(x)
    square, cross, product = np.zeros(n), np.zeros(n), np.zeros(n)
    for k in range(d):
        for i in range(n):
            difference = float(x[k]) - float(kept[k, i])
            square[i] += difference * difference
            product[i] += float(s[k]) * float(scores[k, i])
            cross[i] += (float(s[k]) - float(scores[k, i])) * difference
    if rbf:
        for i in range(n):
            phi = np.exp(-square[i] / (2.0 * h))
            row[i] = phi * (product[i] + (cross[i] + d - square[i] / h) / h)
    else:
        for i in range(n):
            base = 1.0 + square[i]
            row[i] = (product[i] + (cross[i] + d - 3.0 * square[i] / base) / base) / np.sqrt(base)


@compiled
def thin(
    rbf: bool,
    h: float,
    measured: float,
    x: Array,
    s: Array,
    candidates: int,
    floors: Array,
    times: float,
    share: float,
    at: Integers,
) -> Array:
    """Run online thinning with budget 0.

    Parameters
    ----------
    rbf, h : bool, float
        Base kernel.
    measured : float
        The value of h in the recorded KSD^2.
    x, s : array
        Draws and scores, (steps * candidates, d). Kernel rows and influences have their precision.
    candidates : int
        Number of draws of which one is added.
    floors : array
        Least number of draws to keep after each step.
    times : float
        How many times the row of a removed draw is subtracted: 2 is correct, 1 is published.
    share : float
        Factor of k0(y, y) in the criterion of the candidates: 0.5 is correct, 1 is published.
    at : array
        Steps after which the state is recorded.

    Returns
    -------
    array
        Kept draws, KSD^2 and fraction of broken steps at the recorded steps, (len(at), 3).
    """
    steps, n, broken, record, d = len(floors), 0, 0, 0, x.shape[1]
    kept, scores = np.empty((d, steps + 1), x.dtype), np.empty((d, steps + 1), x.dtype)
    influence = np.empty(steps + 1, x.dtype)  # decrease of the sum of the kernel matrix when the draw is removed
    row, best_row = np.empty(steps + 1, x.dtype), np.empty(steps + 1, x.dtype)
    total = 0.0  # sum of the kernel matrix
    out = np.empty((len(at), 3))
    for t in range(steps):
        lowest, new = np.inf, -1
        for y in range(t * candidates, (t + 1) * candidates):
            kept[:, n], scores[:, n] = x[y], s[y]
            stein_row(rbf, h, x[y], s[y], kept, scores, n + 1, row)
            value = row[:n].sum() + share * row[n]
            if value < lowest:
                lowest, new = value, y
                best_row[: n + 1] = row[: n + 1]
        kept[:, n], scores[:, n] = x[new], s[new]
        sums = best_row[:n].sum()
        influence[:n] += 2.0 * best_row[:n]
        influence[n] = 2.0 * sums + best_row[n]
        total += 2.0 * sums + best_row[n]
        n += 1
        stored, limit, removed = total, total / n**2, False  # stored: the sum as the algorithm computes it
        while n > floors[t]:
            j = np.argmax(influence[:n])
            left = stored - influence[j]
            if left / (n - 1) ** 2 > limit:
                break
            stein_row(rbf, h, kept[:, j].copy(), scores[:, j].copy(), kept, scores, n, row)
            total -= 2.0 * row[:n].sum() - row[j]
            influence[:n] -= times * row[:n]
            stored = left
            for i in range(j, n - 1):
                influence[i] = influence[i + 1]
                for k in range(d):
                    kept[k, i], scores[k, i] = kept[k, i + 1], scores[k, i + 1]
            n -= 1
            removed = True
        if removed and total / n**2 > limit * (1.0 + 1e-9):
            broken += 1
        if record < len(at) and t + 1 == at[record]:
            square = total / n**2
            if measured != h or x.itemsize < 8:
                square = mean_kernel(rbf, measured, kept[:, :n].astype(np.float64), scores[:, :n].astype(np.float64))
            out[record, 0], out[record, 1], out[record, 2] = n, square, broken / (t + 1)
            record += 1
    return out


@compiled
def mean_kernel(rbf: bool, h: float, kept: Array, scores: Array) -> float:
    """Return KSD^2 of draws and scores that are columns."""
    n = kept.shape[1]
    total, row = 0.0, np.empty(n)
    for i in range(n):
        stein_row(rbf, h, kept[:, i].copy(), scores[:, i].copy(), kept, scores, n, row)
        total += row.sum()
    return total / n**2


def run(
    algorithm: str, kernel: str, draws: Array, scores: Array, candidates: int, growth: str | float | Schedule
) -> Array:
    """Run one of the two algorithms; return step, kept draws, KSD and fraction of broken steps, (records, 4)."""
    steps, dim = len(draws) // candidates, draws.shape[1]
    t = np.arange(1.0, steps + 1)
    floors = np.maximum(1.0, np.ceil(np.minimum(schedules.evaluate(schedules.growth(growth), t), t)))
    published = algorithm == "published"
    h = dim / 2 if published else float(dim)
    at = np.unique(np.geomspace(1, steps, 100).astype(np.int64))
    constants = (1.0, 1.0) if published else (2.0, 0.5)
    out = thin(kernel == "rbf", h, float(dim), draws, scores, candidates, floors, *constants, at)
    out[:, 1] = np.sqrt(np.maximum(out[:, 1], 0.0))
    return np.column_stack([at, out])


# -- the problems ------------------------------------------------------------------------------------------------------


def adaptivity(repeats: int) -> Iterator[Result]:
    """Yield the last step of mixtures of one to ten modes, with a constant floor."""
    for modes in MODES:
        target = Mixture(np.arange(modes)[:, None] * np.ones(2), covariances=0.5**2)
        for repeat in range(repeats):
            draws, scores = target.sample(MODE_STEPS * CANDIDATES, repeat)
            for kernel in KERNELS:
                for algorithm in ALGORITHMS:
                    last = run(algorithm, kernel, draws, scores, CANDIDATES, FLOOR)[-1:]
                    yield from _results(("adaptivity", kernel, algorithm, str(modes), repeat), last)


def alpha(repeats: int) -> Iterator[Result]:
    """Yield the runs on two modes with growth sqrt(t^alpha log t) / 2."""
    target = Mixture(ALPHA_MODES, covariances=np.array(0.5))
    for repeat in range(repeats):
        draws, scores = target.sample(ALPHA_STEPS * CANDIDATES, repeat)
        for exponent in ALPHAS:
            growth = "linear" if exponent == 2.0 else f"power:{exponent}"
            for kernel in KERNELS:
                for algorithm in ALGORITHMS:
                    rows = run(algorithm, kernel, draws, scores, CANDIDATES, growth)
                    yield from _results(("alpha", kernel, algorithm, str(exponent), repeat), rows)


def alpha_of_the_authors(repeats: int) -> Iterator[Result]:
    """Yield the runs of the published algorithm on two modes with the settings of the authors' code."""
    target = Mixture(ALPHA_MODES, covariances=np.array(AUTHORS_DEVIATION**2))
    for repeat in range(repeats):
        draws, scores = (part.astype(np.float32) for part in target.sample(ALPHA_STEPS * CANDIDATES, repeat))
        for exponent in ALPHAS:
            growth = _quarter if exponent == 2.0 else f"power:{exponent}"
            for kernel in KERNELS:
                rows = run("published", kernel, draws, scores, CANDIDATES, growth)
                yield from _results((AUTHORS, kernel, "published", str(exponent), repeat), rows)


def _quarter(t: Array) -> Array:
    return AUTHORS_LINEAR * t


def goodwin(data: Path) -> Iterator[Result]:
    """Yield the runs on the published Goodwin chain: the first or the best of ten draws."""
    with np.load(data / "goodwin" / "goodwin_rw_stride100.npz") as file:
        draws, scores = file["theta"], file["score"]
    for stream, group in (("first", 1), ("best", GOODWIN_CANDIDATES)):
        every = GOODWIN_CANDIDATES if group == 1 else 1
        for method, growth in GROWTHS.items():
            for kernel in KERNELS:
                for algorithm in ALGORITHMS:
                    rows = run(algorithm, kernel, draws[::every], scores[::every], group, growth)
                    setting = f"{method}, {stream} of {GOODWIN_CANDIDATES}"
                    yield from _results(("goodwin", kernel, algorithm, setting, 0), rows)


def _results(key: tuple[str, str, str, str, int], rows: Array) -> Iterator[Result]:
    for step, kept, ksd, broken in rows:
        yield Result(*key, step=int(step), kept=int(kept), ksd=float(ksd), broken=float(broken))


# -- output ------------------------------------------------------------------------------------------------------------


def main() -> None:
    """Run the problems or read the stored results, then write the summary and draw the figure."""
    parser = argparse.ArgumentParser(description="The algorithm as published, next to the corrected one.")
    parser.add_argument("--data", type=Path, help="folder with goodwin/goodwin_rw_stride100.npz")
    parser.add_argument("--show", action="store_true", help=f"use the existing {RESULTS.name}")
    parser.add_argument("--repeats", type=int, default=REPEATS, help=f"number of repeats (default: {REPEATS})")
    arguments = parser.parse_args()
    stored = read() if RESULTS.exists() else []
    if arguments.show:
        rows = stored
    else:
        repeats = arguments.repeats
        rows = [*adaptivity(repeats), *alpha(repeats), *alpha_of_the_authors(repeats)]
        rows += goodwin(arguments.data) if arguments.data else [row for row in stored if row.problem == "goodwin"]
        write(rows)
    (HERE / "summary.md").write_text(f"{tables(rows)}\n")
    picture(rows)


def write(rows: list[Result]) -> None:
    """Write the results; KSD is rounded to six digits and ``broken`` to four, which makes the file a third as large."""
    rounded = [row._replace(ksd=float(f"{row.ksd:.6g}"), broken=float(f"{row.broken:.4g}")) for row in rows]
    write_table(RESULTS, dict(zip(Result._fields, map(np.array, zip(*rounded, strict=True)), strict=True)))


def read() -> list[Result]:
    """Read the results."""
    return [Result(*row) for row in zip(*(column.tolist() for column in read_table(RESULTS).values()), strict=True)]


def last(rows: list[Result], **key: Any) -> list[Result]:
    """Return the last step of each run with these values."""
    some = [row for row in rows if all(getattr(row, name) == value for name, value in key.items())]
    return list({row[:5]: row for row in some}.values())


def tables(rows: list[Result]) -> str:
    """Return the means over the repeats at the last step as Markdown."""
    lines = [
        "Last step of every run: means over the repeats ± one standard error; Goodwin is one chain. KSD has the kernel "
        "of the paper in every column. Ratio: KSD of the published algorithm over that of the corrected one. Lowest: "
        "lowest mean normalised KSD of the published algorithm at the recorded steps from step 10 on. Broken steps: "
        "fraction of the steps of the published algorithm whose thinning increases its KSD; the corrected algorithm "
        f"has none. {AUTHORS}: published algorithm with the settings of the authors' code.",
        "",
        "| problem | setting | kernel | kept: published | corrected | KSD: published | corrected | ratio | "
        "normalised KSD: published | lowest | corrected | broken steps |",
        "|---" * 12 + "|",
    ]
    shown = {"adaptivity": ("1", "4", "10")}
    for problem in dict.fromkeys(row.problem for row in rows):
        for setting in shown.get(problem, tuple(dict.fromkeys(row.setting for row in rows if row.problem == problem))):
            for kernel in KERNELS:
                key = {"problem": problem, "setting": setting, "kernel": kernel}
                lines.append(
                    f"| {' | '.join([problem, _setting(problem, setting), kernel.upper(), *_cells(rows, key)])} |"
                )
    return "\n".join(lines)


def _setting(problem: str, setting: str) -> str:
    """Return the number of modes or the exponent with its name."""
    if problem == "adaptivity":
        return f"{setting} mode{'s' * (setting != '1')}"
    return rf"$\alpha = {setting}$" if problem.startswith("alpha") else setting


def _cells(rows: list[Result], key: dict[str, str]) -> list[str]:
    """Return the numbers of a row of the table; those of an algorithm that was not run are empty."""
    pair = [last(rows, **key, algorithm=one) for one in ALGORITHMS]
    kept = [_estimate([row.kept for row in runs], 1) for runs in pair]
    ksd = [_estimate([row.ksd for row in runs], 5 if key["problem"].startswith("alpha") else 3) for runs in pair]
    published, corrected = (_estimate([normalised(row) for row in runs], 3) for runs in pair)
    ratio = f"{mean(row.ksd for row in pair[0]) / mean(row.ksd for row in pair[1]):.1f}" if pair[1] else ""
    steps, curve = curves(rows, **key, algorithm="published")
    lowest = f"{curve.mean(axis=0)[steps >= 10].min():.3f}" if len(steps) > 1 else ""
    broken = f"{mean(row.broken for row in pair[0]):.0%}"
    return [*kept, *ksd, ratio, published, lowest, corrected, broken]


def normalised(row: Result) -> float:
    """Return the normalised KSD of a result."""
    return row.ksd * row.kept**0.5


def curves(rows: list[Result], **key: Any) -> tuple[Array, Array]:
    """Return the recorded steps and the normalised KSD of the repeats, (repeats, steps)."""
    some = [row for row in rows if all(getattr(row, name) == value for name, value in key.items())]
    steps = np.unique([row.step for row in some])
    return steps, np.array([normalised(row) for row in some]).reshape(-1, len(steps))


def _estimate(values: list[float], digits: int) -> str:
    """Return the mean ± one standard error, the value of a single run, or nothing."""
    if len(values) < 2:
        return f"{values[0]:.{digits}f}" if values else ""
    return estimate(np.array(values), digits)


def picture(rows: list[Result]) -> None:
    """Draw size against modes, KSD on the Goodwin chain, and both measures for two exponents (all IMQ)."""
    plt = plots.pyplot()
    figure, ((left, right), below) = plt.subplots(2, 2, figsize=(13, 9), layout="constrained")
    figure.suptitle("Algorithm of the authors' code (published) and algorithm of the paper (corrected), IMQ")
    colours = dict(zip(ALGORITHMS, (plots.COLOURS[4], plots.COLOURS[0]), strict=True))
    rows = [row for row in rows if row.kernel == "imq"]
    for algorithm, colour in colours.items():
        groups = [
            [row.kept for row in last(rows, problem="adaptivity", algorithm=algorithm, setting=str(modes))]
            for modes in MODES
        ]
        means, errors = [np.mean(group) for group in groups], [_two_errors(np.array(group)) for group in groups]
        left.errorbar(MODES, means, errors, color=colour, marker="o", ms=4, capsize=3, label=algorithm)
        for stream, style in (("first", "-"), ("best", "--")):
            setting = f"KSDT-SQRT, {stream} of {GOODWIN_CANDIDATES}"
            one = [row for row in rows if (row.problem, row.algorithm, row.setting) == ("goodwin", algorithm, setting)]
            evaluations = [row.step * GOODWIN_CANDIDATES * GOODWIN_STRIDE for row in one]
            label = algorithm + (", SPMCMC" if stream == "best" else "")
            right.loglog(evaluations, [row.ksd for row in one], color=colour, ls=style, label=label)
    shown = [("alpha", algorithm, colour, algorithm) for algorithm, colour in colours.items()]
    shown.append((AUTHORS, "published", plots.COLOURS[1], "published, settings of the code"))
    for (problem, algorithm, colour, label), (exponent, style) in product(shown, (("1.0", "-"), ("1.8", "--"))):
        for axes, measure in zip(below, (lambda row: row.ksd, normalised), strict=True):
            some = [row for row in rows if row[:1] + row[2:4] == (problem, algorithm, exponent) and row.step >= 10]
            steps = np.unique([row.step for row in some])
            values = np.array([measure(row) for row in some]).reshape(-1, len(steps))
            average, error, x = values.mean(axis=0), _two_errors(values), steps * CANDIDATES
            axes.loglog(x, average, color=colour, ls=style, label=rf"{label}, $\alpha = {exponent}$")
            lower = np.maximum(average - error, average / 10)
            axes.fill_between(x, lower, average + error, color=colour, alpha=0.2, lw=0)
    left.plot(list(PAPER_SIZES), list(PAPER_SIZES.values()), "k*", ms=9, label="reported in the paper", zorder=3)
    left.axhline(FLOOR, color="0.7", lw=1, zorder=0, label="floor")
    left.set(xlabel="modes", ylabel="kept draws", ylim=(0, None))
    left.set_title(f"adaptivity: mean and two standard errors of {REPEATS} repeats")
    right.set(xlabel="evaluations (moves of the chain)", ylabel="KSD")
    right.set_title("published Goodwin chain, KSDT-SQRT: one run each")
    for axes, label in zip(below, ("KSD", "normalised KSD"), strict=True):
        axes.set(xlabel="evaluations (draws of the target)", ylabel=label)
        axes.set_title(f"exponents of growth: mean and two standard errors of {REPEATS} repeats")
        plain_ticks(axes.yaxis)
    for axes in (left, right, *below):
        axes.title.set_fontsize("medium")
        axes.spines[["top", "right"]].set_visible(False)
    left.set_xticks(MODES)
    below[1].set_yticks([0.2, 0.5, 1.0, 2.0])
    entries = dict(zip(*reversed(left.get_legend_handles_labels()), strict=True))
    entries |= dict(zip(*reversed(right.get_legend_handles_labels()), strict=True))
    style = {"frameon": False, "fontsize": "small", "loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
    right.legend(entries.values(), entries, **style)
    below[1].legend(**style)
    figure.savefig(HERE / "figure.png", dpi=110)
    plt.close(figure)


def _two_errors(values: Array) -> Array:
    """Return two standard errors of the mean over the first axis; 0 for a single repeat."""
    if len(values) < 2:
        return np.zeros(values.shape[1:])
    return np.asarray(2.0 * values.std(axis=0, ddof=1) / np.sqrt(len(values)))


if __name__ == "__main__":
    main()
