"""Error of a forecast against the number of simulations: ``python experiments/weights/forward.py``.

The Goodwin oscillator, observed at 30, 60, 150 or 2400 times: the fewer, the wider and the less Gaussian its posterior,
sampled by a random walk that starts far out and mixes slowly. Each draw chosen costs a simulation up to t = 25, of
which three numbers are wanted. Writes forward.csv beside this file and docs/forward-simulation.png; with --draw it only
draws what is in the csv file. About ten minutes.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

import steinstream as ss
from steinstream.baselines import stein_thinning
from steinstream.report import plots
from steinstream.samplers import RandomWalk
from steinstream.targets import Goodwin

HERE = Path(__file__).parent
PICTURE = HERE.parent.parent / "docs" / "forward-simulation.png"
SEEDS = range(10)
SIZES = (5, 10, 20, 40, 80, 160)
DRAWS = 300_000
OBSERVED = (30, 60, 150, 2400)  # until t = 1.3, 1.6, 2.5, 25
START = np.log([0.5, 1.0, 3.0, 2.0])
PICTURED = (
    "stride", "Stein thinning", "KSDT", "KSDT, weights", "KSDT, like the chain", "KSDT in order", "in order, weights",
)  # fmt: skip

Array = NDArray[np.float64]

future = Goodwin(np.zeros((2400, 2)))  # only its times matter
times = np.arange(1.0, 25.0, 0.01)


class Error(NamedTuple):
    """Root mean square over the three outputs: of the mean in standard deviations, and of those, relative."""

    observed: int
    method: str
    size: int
    seed: int
    mean: float
    spread: float


class Truth(NamedTuple):
    """Mean and standard deviation of each output."""

    observed: int
    mean: Array
    spread: Array


def simulate(q: Array) -> Array:
    """The highest u, the time of the highest v, and how far v still swings after t = 10."""
    u, v = future.solution(q).T
    late = v[times > 10.0]
    return np.array([u.max(), times[v.argmax()], late.max() - late.min()])


def simulations(points: Array) -> Array:
    """Of each point."""
    return np.array([simulate(q) for q in points])


def chain(posterior: Goodwin, seed: int) -> tuple[Array, Array]:
    """Draws and scores."""
    sampler = RandomWalk(posterior, step=0.03)
    _, block = sampler.sample(sampler.init(START, seed), DRAWS)
    return block.draws, block.scores


def truth(posterior: Goodwin, count: int = 100_000) -> Truth:
    """By importance sampling from a t distribution of 5 degrees of freedom that is fitted to a chain."""
    draws, _ = chain(posterior, seed=12345)
    draws = draws[DRAWS // 2 :]
    mean, root = draws.mean(axis=0), np.linalg.cholesky(1.5 * np.cov(draws, rowvar=False))
    random = np.random.default_rng(0)
    z = random.normal(size=(count, 4)) / np.sqrt(random.chisquare(5, size=(count, 1)) / 5)
    points = mean + z @ root.T
    proposal = -4.5 * np.log1p(np.sum(z**2, axis=1) / 5)
    log = np.array([posterior.log_density(q) for q in points]) - proposal
    weights = np.exp(log - log.max())
    points, weights = points[weights > 0], weights[weights > 0] / weights.sum()
    outputs = simulations(points)
    average = weights @ outputs
    exact = Truth(len(posterior.y), average, np.sqrt(weights @ (outputs - average) ** 2))
    print(f"{1 / np.sum(weights**2):.0f} effective draws: {exact}")
    return exact


def error(method: str, size: int, seed: int, exact: Truth, outputs: Array, weights: Array | None = None) -> Error:
    """Of the estimate that these simulations make."""
    w = np.full(len(outputs), 1.0 / len(outputs)) if weights is None else weights
    mean = w @ outputs
    spread = np.sqrt(w @ (outputs - mean) ** 2)
    of_mean, of_spread = (mean - exact.mean) / exact.spread, spread / exact.spread - 1.0
    both = (float(np.sqrt(np.mean(part**2))) for part in (of_mean, of_spread))
    return Error(exact.observed, method, size, seed, *both)


def errors(posterior: Goodwin, seed: int, exact: Truth) -> Iterator[Error]:
    """Every method on one chain."""
    draws, scores = chain(posterior, seed)
    settled = draws[DRAWS // 2 :]
    moments = ss.Moments.of(settled)
    yield error("chain", 0, seed, exact, simulations(settled[::75]))
    ordered = ss.thin(draws, scores, size=max(SIZES)).ordered()
    outputs = simulations(ordered.draws)
    for size in SIZES:
        every = len(settled) // size
        yield error("stride", size, seed, exact, simulations(settled[every - 1 :: every]))
        chosen = stein_thinning(draws, scores, size)[:, 1]
        yield error("Stein thinning", size, seed, exact, simulations(draws[chosen]))
        kept = ss.thin(draws, scores, size=size)
        here = simulations(kept.draws)
        yield error("KSDT", size, seed, exact, here)
        yield error("KSDT, weights", size, seed, exact, here, kept.weighted().weights)
        yield error("KSDT, like the chain", size, seed, exact, here, kept.weighted(like=moments).weights)
        yield error("KSDT in order", size, seed, exact, outputs[:size])
        weights = ordered.prefix(size, weighted=True).weights
        yield error("in order, weights", size, seed, exact, outputs[:size], weights)


def main() -> None:
    """Measure, show, draw."""
    parser = argparse.ArgumentParser(description="Error of a forecast against the number of simulations.")
    parser.add_argument("--draw", action="store_true", help="only draw what was measured")
    if not parser.parse_args().draw:
        rows = []
        for observed in OBSERVED:
            posterior = Goodwin.simulated(seed=0, observations=observed)
            exact = truth(posterior)
            for seed in SEEDS:
                rows += errors(posterior, seed, exact)
        write(rows)
    rows = read()
    for observed in OBSERVED:
        mine = [row for row in rows if row.observed == observed]
        print(f"### {observed} observations", table(mine, "mean"), table(mine, "spread"), "", sep="\n\n")
    picture(rows)


def write(rows: list[Error]) -> None:
    """As csv, four digits."""
    with (HERE / "forward.csv").open("w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(Error._fields)
        out.writerows([*row[:4], f"{row.mean:.4g}", f"{row.spread:.4g}"] for row in rows)


def read() -> list[Error]:
    """What :func:`write` wrote."""
    with (HERE / "forward.csv").open(newline="") as file:
        lines = csv.reader(file)
        next(lines)
        return [Error(int(o), name, int(n), int(seed), float(a), float(b)) for o, name, n, seed, a, b in lines]


def summary(rows: list[Error], method: str, size: int, field: str) -> tuple[float, float]:
    """Mean over the chains, and its standard error."""
    values = [getattr(row, field) for row in rows if (row.method, row.size) == (method, size)]
    return float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))


def table(rows: list[Error], field: str) -> str:
    """Methods down, sizes across."""
    lines = [f"| {field} | {' | '.join(map(str, SIZES))} |", "|---" * (1 + len(SIZES)) + "|"]
    for method in dict.fromkeys(row.method for row in rows if row.size):
        cells = ["{:.3f} ± {:.3f}".format(*summary(rows, method, size, field)) for size in SIZES]
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", "The chain itself: {:.3f} ± {:.3f}".format(*summary(rows, "chain", 0, field))])


def picture(rows: list[Error]) -> None:
    """Both errors against the number of simulations, a column for each number of observations."""
    plt = plots.pyplot()
    figure, axes = plt.subplots(2, len(OBSERVED), figsize=(12, 6), sharex=True, sharey="row", layout="constrained")
    labels = {
        "mean": "error of the mean,\nin standard deviations",
        "spread": "relative error of the\nstandard deviation",
    }
    for line, (field, label) in zip(axes, labels.items(), strict=True):
        line[0].set(yscale="log", ylabel=label)
        line[0].set_yticks(ticks := (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2), map(str, ticks))
        line[0].set_yticks([], minor=True)
        for axis, observed in zip(line, OBSERVED, strict=True):
            draw(axis, [row for row in rows if row.observed == observed], field)
    for axis, observed in zip(axes[0], OBSERVED, strict=True):
        axis.set_title(f"{observed} observations", fontsize="medium")
    for axis in axes[1]:
        axis.set(xscale="log", xlabel="simulations")
        axis.set_xticks(SIZES, map(str, SIZES))
        axis.set_xticks([], minor=True)
    handles = axes[0, 0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=len(handles[0]), frameon=False, fontsize="small")
    with BytesIO() as raw:
        figure.savefig(raw, dpi=90)
        Image.open(raw).convert("RGB").quantize(96).save(PICTURE, optimize=True)


def draw(axis: Any, rows: list[Error], field: str) -> None:
    """One panel."""
    for number, method in enumerate(PICTURED):
        values, bars = np.array([summary(rows, method, size, field) for size in SIZES]).T
        axis.errorbar(
            np.array(SIZES) * 1.03 ** (number - 3), values, bars, color=plots.METHOD_COLOURS[number],
            marker=plots.MARKERS[number], ms=4, lw=1.3, capsize=1.5, label=method,
        )  # fmt: skip
    axis.axhline(summary(rows, "chain", 0, field)[0], color="0.5", ls="--", lw=1.2, label="the whole chain")
    axis.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    main()
