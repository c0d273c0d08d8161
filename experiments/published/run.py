"""The algorithm as published by its authors, next to the corrected one: ``python experiments/published/run.py``.

The authors' public code differs from the paper in three places:

- It stores for each kept draw the amount that its removal takes from the sum of the kernel matrix. When a draw is
  removed, its kernel row is subtracted once from these amounts, but it must be subtracted twice. The amounts decide
  which draw is removed next and whether KSD^2 stays below its value at the start of the step, which is exact.
- The best candidate minimises k0(y, y) + sum_i k0(y, x_i); KSD is minimised with k0(y, y) / 2.
- The RBF kernel is exp(-|x - y|^2 / d); the formula of the paper is exp(-|x - y|^2 / (2 d)).

This script implements both algorithms, from this description, and runs them on the problems of adaptivity and alpha
and, with ``--data FOLDER``, on the published Goodwin chain (FOLDER/goodwin/goodwin_rw_stride100.npz). KSD is always
that of the kept draws, with the kernel that selected them. Writes results.csv, summary.md and figure.png to the
folder of this file. Without ``--data`` the Goodwin results are those of the existing results.csv. About
five minutes of processor time.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np

from steinstream import schedules
from steinstream._typing import Array, Integers
from steinstream.report import plots
from steinstream.targets import Mixture

HERE = Path(__file__).parent
ALGORITHMS = ("published", "corrected")
KERNELS = ("imq", "rbf")
CANDIDATES, REPEATS, FLOOR = 5, 10, 10
MODES, MODE_STEPS = tuple(range(1, 11)), 20_000
ALPHAS, ALPHA_STEPS, ALPHA_REPEATS = (1.0, 1.2, 1.4, 1.6, 1.8, 2.0), 10_000, 5
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


@numba.njit(cache=False)
def stein_kernel(rbf: bool, h: float, x: Array, s: Array, y: Array, t: Array) -> float:
    """Stein kernel of x with score s and y with score t; base kernel IMQ or exp(-|x - y|^2 / (2 h))."""
    square = product = cross = 0.0
    for i in range(len(x)):
        difference = x[i] - y[i]
        square += difference * difference
        product += s[i] * t[i]
        cross += (s[i] - t[i]) * difference
    if rbf:
        phi = np.exp(-square / (2.0 * h))
        first, second = -phi / (2.0 * h), phi / (4.0 * h * h)
    else:
        base = 1.0 + square
        phi = 1.0 / np.sqrt(base)
        first, second = -0.5 * phi / base, 0.75 * phi / (base * base)
    return phi * product - 2.0 * first * (cross + len(x)) - 4.0 * second * square


@numba.njit(cache=False)
def thin(
    rbf: bool, h: float, x: Array, s: Array, candidates: int, floors: Array, times: float, share: float, at: Integers
) -> Array:
    """Run online thinning with budget 0.

    Parameters
    ----------
    rbf, h : bool, float
        Base kernel.
    x, s : array
        Draws and scores, (steps * candidates, d).
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
    steps, n, broken, record = len(floors), 0, 0, 0
    held = np.empty(steps + 1, np.int64)
    influence = np.empty(steps + 1)  # decrease of the sum of the kernel matrix when the draw is removed
    row, best_row = np.empty(steps + 1), np.empty(steps + 1)
    total = 0.0  # sum of the kernel matrix
    out = np.empty((len(at), 3))
    for t in range(steps):
        lowest, new = np.inf, -1
        for y in range(t * candidates, (t + 1) * candidates):
            diagonal = stein_kernel(rbf, h, x[y], s[y], x[y], s[y])
            value = share * diagonal
            for i in range(n):
                row[i] = stein_kernel(rbf, h, x[y], s[y], x[held[i]], s[held[i]])
                value += row[i]
            if value < lowest:
                lowest, new = value, y
                row[n] = diagonal
                best_row[: n + 1] = row[: n + 1]
        sums = best_row[:n].sum()
        influence[:n] += 2.0 * best_row[:n]
        influence[n] = 2.0 * sums + best_row[n]
        total += 2.0 * sums + best_row[n]
        held[n] = new
        n += 1
        stored, limit, removed = total, total / n**2, False  # stored: the sum as the algorithm computes it
        while n > floors[t]:
            j = np.argmax(influence[:n])
            left = stored - influence[j]
            if left / (n - 1) ** 2 > limit:
                break
            gone = held[j]
            for i in range(n):
                row[i] = stein_kernel(rbf, h, x[gone], s[gone], x[held[i]], s[held[i]])
            total -= 2.0 * row[:n].sum() - row[j]
            influence[:n] -= times * row[:n]
            stored = left
            held[j : n - 1] = held[j + 1 : n].copy()
            influence[j : n - 1] = influence[j + 1 : n].copy()
            n -= 1
            removed = True
        if removed and total / n**2 > limit * (1.0 + 1e-9):
            broken += 1
        if record < len(at) and t + 1 == at[record]:
            out[record, 0], out[record, 1], out[record, 2] = n, total / n**2, broken / (t + 1)
            record += 1
    return out


def run(algorithm: str, kernel: str, draws: Array, scores: Array, candidates: int, growth: str | float) -> Array:
    """Run one of the two algorithms; return step, kept draws, KSD and fraction of broken steps, (records, 4)."""
    steps, dim = len(draws) // candidates, draws.shape[1]
    t = np.arange(1.0, steps + 1)
    floors = np.maximum(1.0, np.ceil(np.minimum(schedules.evaluate(schedules.growth(growth), t), t)))
    published = algorithm == "published"
    h = dim / 2 if published else float(dim)
    at = np.unique(np.geomspace(1, steps, 100).astype(np.int64))
    constants = (1.0, 1.0) if published else (2.0, 0.5)
    out = thin(kernel == "rbf", h, draws, scores, candidates, floors, *constants, at)
    out[:, 1] = np.sqrt(np.maximum(out[:, 1], 0.0))
    return np.column_stack([at, out])


# -- the problems ------------------------------------------------------------------------------------------------------


def adaptivity() -> Iterator[Result]:
    """Yield the last step of mixtures of one to ten modes, with a constant floor."""
    for modes in MODES:
        target = Mixture(np.arange(modes)[:, None] * np.ones(2), covariances=0.5**2)
        for repeat in range(REPEATS):
            draws, scores = target.sample(MODE_STEPS * CANDIDATES, repeat)
            for kernel in KERNELS:
                for algorithm in ALGORITHMS:
                    last = run(algorithm, kernel, draws, scores, CANDIDATES, FLOOR)[-1:]
                    yield from _results(("adaptivity", kernel, algorithm, str(modes), repeat), last)


def alpha() -> Iterator[Result]:
    """Yield the runs on two modes with growth sqrt(t^alpha log t) / 2."""
    target = Mixture(np.array([[0.0, 0.0], [1.0, 1.0]]), covariances=np.array(0.5))
    for repeat in range(ALPHA_REPEATS):
        draws, scores = target.sample(ALPHA_STEPS * CANDIDATES, repeat)
        for exponent in ALPHAS:
            growth = "linear" if exponent == 2.0 else f"power:{exponent}"
            for kernel in KERNELS:
                for algorithm in ALGORITHMS:
                    rows = run(algorithm, kernel, draws, scores, CANDIDATES, growth)
                    yield from _results(("alpha", kernel, algorithm, str(exponent), repeat), rows)


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
    """Run the problems or read results.csv, then write the summary and draw the figure."""
    parser = argparse.ArgumentParser(description="The algorithm as published, next to the corrected one.")
    parser.add_argument("--data", type=Path, help="folder with goodwin/goodwin_rw_stride100.npz")
    parser.add_argument("--read", action="store_true", help="use the existing results.csv")
    arguments = parser.parse_args()
    stored = read() if (HERE / "results.csv").exists() else []
    if arguments.read:
        rows = stored
    else:
        rows = [*adaptivity(), *alpha()]
        rows += goodwin(arguments.data) if arguments.data else [row for row in stored if row.problem == "goodwin"]
        write(rows)
    (HERE / "summary.md").write_text(f"{tables(rows)}\n")
    picture(rows)


def write(rows: list[Result]) -> None:
    """Write results.csv."""
    with (HERE / "results.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Result._fields)
        writer.writerows([*row[:-2], f"{row.ksd:.6g}", f"{row.broken:.4g}"] for row in rows)


def read() -> list[Result]:
    """Read results.csv."""
    with (HERE / "results.csv").open(newline="") as file:
        return [
            Result(*line[:4], *map(int, line[4:7]), ksd=float(line[7]), broken=float(line[8]))
            for line in list(csv.reader(file))[1:]
        ]


def last(rows: list[Result], **key: Any) -> list[Result]:
    """Return the last step of each run with these values."""
    some = [row for row in rows if all(getattr(row, name) == value for name, value in key.items())]
    return list({row[:5]: row for row in some}.values())


def tables(rows: list[Result]) -> str:
    """Return the means over the repeats at the last step as Markdown."""
    lines = [
        "Last step of every run: means over the repeats ± one standard error; Goodwin is one chain. Ratio: KSD of the "
        "published algorithm over that of the corrected one. Broken steps: fraction of the steps of the published "
        "algorithm whose thinning increases KSD; the corrected algorithm has none.",
        "",
        "| problem | setting | kernel | kept: published | corrected | KSD: published | corrected | ratio | "
        "normalised KSD: published | corrected | broken steps |",
        "|---" * 11 + "|",
    ]
    shown = {"adaptivity": ("1", "4", "10"), "alpha": tuple(map(str, ALPHAS))}
    for problem in dict.fromkeys(row.problem for row in rows):
        for setting in shown.get(problem, tuple(dict.fromkeys(row.setting for row in rows if row.problem == problem))):
            for kernel in KERNELS:
                pair = [
                    last(rows, problem=problem, setting=setting, kernel=kernel, algorithm=one) for one in ALGORITHMS
                ]
                kept = [_estimate([row.kept for row in runs], 1) for runs in pair]
                means = [np.mean([row.ksd for row in runs]) for runs in pair]
                ksd = [_estimate([row.ksd for row in runs], 5 if problem == "alpha" else 3) for runs in pair]
                normalised = [_estimate([row.ksd * row.kept**0.5 for row in runs], 3) for runs in pair]
                broken = f"{np.mean([row.broken for row in pair[0]]):.0%}"
                ratio = f"{means[0] / means[1]:.1f}"
                cells = [problem, setting, kernel.upper(), *kept, *ksd, ratio, *normalised, broken]
                lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _estimate(values: list[float], digits: int) -> str:
    """Return the mean ± one standard error, or the value of a single run."""
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    return f"{np.mean(values):.{digits}f} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.{digits}f}"


def picture(rows: list[Result]) -> None:
    """Draw size against modes, KSD against evaluations for two exponents, and KSD on the Goodwin chain (all IMQ)."""
    plt = plots.pyplot()
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(14, 5.2), layout="constrained")
    figure.suptitle("Algorithm of the authors' code (published) and algorithm of the paper (corrected), IMQ")
    colours = dict(zip(ALGORITHMS, (plots.COLOURS[4], plots.COLOURS[0]), strict=True))
    rows = [row for row in rows if row.kernel == "imq"]
    for algorithm, colour in colours.items():
        groups = [
            [row.kept for row in last(rows, problem="adaptivity", algorithm=algorithm, setting=str(modes))]
            for modes in MODES
        ]
        means, deviations = [np.mean(group) for group in groups], [np.std(group, ddof=1) for group in groups]
        left.errorbar(MODES, means, deviations, color=colour, marker="o", ms=4, capsize=3, label=algorithm)
        for exponent, style in (("1.0", "-"), ("1.8", "--")):
            runs = [
                [row for row in rows if row[:1] + row[2:5] == ("alpha", algorithm, exponent, repeat)]
                for repeat in range(ALPHA_REPEATS)
            ]
            evaluations = [row.step * CANDIDATES for row in runs[0]]
            curve = np.array([[row.ksd for row in one] for one in runs])
            middle.loglog(
                evaluations, curve.mean(axis=0), color=colour, ls=style, label=rf"{algorithm}, $\alpha = {exponent}$"
            )
            middle.fill_between(evaluations, curve.min(axis=0), curve.max(axis=0), color=colour, alpha=0.2, lw=0)
        for stream, style in (("first", "-"), ("best", "--")):
            setting = f"KSDT-SQRT, {stream} of {GOODWIN_CANDIDATES}"
            one = [row for row in rows if (row.problem, row.algorithm, row.setting) == ("goodwin", algorithm, setting)]
            evaluations = [row.step * GOODWIN_CANDIDATES * GOODWIN_STRIDE for row in one]
            label = algorithm + (", SPMCMC" if stream == "best" else "")
            right.loglog(evaluations, [row.ksd for row in one], color=colour, ls=style, label=label)
    left.plot(list(PAPER_SIZES), list(PAPER_SIZES.values()), "k*", ms=9, label="reported in the paper", zorder=3)
    left.axhline(FLOOR, color="0.7", lw=1, zorder=0, label="floor")
    left.set(xlabel="modes", ylabel="kept draws", ylim=(0, None), title="adaptivity: mean and sd of 10 repeats")
    middle.set(xlabel="evaluations (draws of the target)", ylabel="KSD")
    middle.set_title(f"exponents of growth: mean and range of {ALPHA_REPEATS} repeats")
    right.set(xlabel="evaluations (moves of the chain)", ylabel="KSD")
    right.set_title("published Goodwin chain, KSDT-SQRT")
    for axes in (left, middle, right):
        axes.title.set_fontsize("medium")
        axes.legend(frameon=False, fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(HERE / "figure.png", dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    main()
