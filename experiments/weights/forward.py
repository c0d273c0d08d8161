"""Error of a forecast against the number of simulations: ``python experiments/weights/forward.py``.

The Goodwin oscillator is observed at 60, 150 or 2400 times. With fewer observations, its posterior is wider and
less Gaussian. It is sampled by a random walk that starts far out and mixes slowly. Each selected draw requires a
simulation up to t = 25, from which three numbers are computed. Writes forward.csv to the folder of this file and
docs/forward-simulation.png; with --show it only draws the existing csv file. About twenty minutes.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

import steinstream as ss
from steinstream._typing import Array
from steinstream.baselines import stein_thinning
from steinstream.report import plots
from steinstream.samplers import RandomWalk
from steinstream.targets import Goodwin

HERE = Path(__file__).parent
PICTURE = HERE.parent.parent / "docs" / "forward-simulation.png"
SEEDS = range(5)
SIZES = (5, 10, 20, 40, 80, 160)
DRAWS = 100_000
OBSERVED = (60, 150, 2400)  # up to t = 1.6, 2.5, 25
START = np.log([0.5, 1.0, 3.0, 2.0])
DRAWN = (
    "stride",
    "Stein thinning",
    "KSD alone",
    "without scores",
    "default",
    "default, weights",
    "default, in order",
)

future = Goodwin(np.zeros((2400, 2)))  # only its observation times are used
times = np.arange(1.0, 25.0, 0.01)


class ForecastError(NamedTuple):
    """Root mean square errors over the outputs: of the means in standard deviations, and of the relative sds."""

    observed: int
    method: str
    size: int
    seed: int
    mean: float
    spread: float


class ForecastTruth(NamedTuple):
    """Exact mean and standard deviation of each output."""

    observed: int
    mean: Array
    spread: Array


def simulate(q: Array) -> Array:
    """Return the maximum of u, the time of the maximum of v, and the range of v after t = 10."""
    u, v = future.solution(q).T
    late = v[times > 10.0]
    return np.array([u.max(), times[v.argmax()], late.max() - late.min()])


def simulate_all(draws: Array) -> Array:
    """Simulate each draw."""
    return np.array([simulate(q) for q in draws])


def chain(posterior: Goodwin, seed: int) -> tuple[Array, Array]:
    """Return the draws and scores of a random walk."""
    sampler = RandomWalk(posterior, step=0.03)
    _, block = sampler.sample(sampler.init(START, seed), DRAWS)
    return block.draws, block.scores


def truth(posterior: Goodwin, count: int = 100_000) -> ForecastTruth:
    """Compute the exact values by importance sampling from a t distribution fitted to a chain."""
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
    outputs = simulate_all(points)
    average = weights @ outputs
    exact = ForecastTruth(len(posterior.y), average, np.sqrt(weights @ (outputs - average) ** 2))
    print(f"{1 / np.sum(weights**2):.0f} effective draws: {exact}")
    return exact


def error(
    method: str, size: int, seed: int, exact: ForecastTruth, outputs: Array, weights: Array | None = None
) -> ForecastError:
    """Return the error of the forecast from these simulations."""
    w = np.full(len(outputs), 1.0 / len(outputs)) if weights is None else weights
    mean = w @ outputs
    spread = np.sqrt(w @ (outputs - mean) ** 2)
    of_mean, of_spread = (mean - exact.mean) / exact.spread, spread / exact.spread - 1.0
    both = (float(np.sqrt(np.mean(part**2))) for part in (of_mean, of_spread))
    return ForecastError(exact.observed, method, size, seed, *both)


def errors(posterior: Goodwin, seed: int, exact: ForecastTruth) -> Iterator[ForecastError]:
    """Run every method on one chain."""
    draws, scores = chain(posterior, seed)
    settled = draws[DRAWS // 2 :]
    yield error("chain", 0, seed, exact, simulate_all(settled[::25]))
    ordered = ss.thin(draws, scores, size=max(SIZES)).ordered()
    outputs = simulate_all(ordered.draws)
    chosen = stein_thinning(draws, scores, max(SIZES))[:, 1]
    by_stein = simulate_all(draws[chosen])
    for size in SIZES:
        every = len(settled) // size
        yield error("stride", size, seed, exact, simulate_all(settled[every - 1 :: every]))
        yield error("Stein thinning", size, seed, exact, by_stein[:size])
        alone = ss.thin(draws, scores, size=size, stream_weight=0.0)
        yield error("KSD alone", size, seed, exact, simulate_all(alone.draws))
        yield error("without scores", size, seed, exact, simulate_all(ss.thin(draws, size=size).draws))
        kept = ss.thin(draws, scores, size=size)
        here = simulate_all(kept.draws)
        yield error("default", size, seed, exact, here)
        yield error("default, weights", size, seed, exact, here, kept.weighted().weights)
        yield error("default, in order", size, seed, exact, outputs[:size])


def main() -> None:
    """Measure, print the tables and draw the figure."""
    parser = argparse.ArgumentParser(description="Error of a forecast against the number of simulations.")
    parser.add_argument("--show", action="store_true", help="only draw the existing csv file")
    if not parser.parse_args().show:
        rows = []
        for observed in OBSERVED:
            posterior = Goodwin.simulated(seed=0, observations=observed)
            exact = truth(posterior)
            for seed in SEEDS:
                rows += errors(posterior, seed, exact)
        write(rows)
    rows = read()
    for observed in OBSERVED:
        some = [row for row in rows if row.observed == observed]
        print(f"### {observed} observations", table(some, "mean"), table(some, "spread"), "", sep="\n\n")
    picture(rows)


def write(rows: list[ForecastError]) -> None:
    """Write forward.csv with four digits."""
    with (HERE / "forward.csv").open("w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(ForecastError._fields)
        out.writerows([*row[:4], f"{row.mean:.4g}", f"{row.spread:.4g}"] for row in rows)


def read() -> list[ForecastError]:
    """Read forward.csv."""
    with (HERE / "forward.csv").open(newline="") as file:
        lines = csv.reader(file)
        next(lines)
        return [ForecastError(int(o), name, int(n), int(seed), float(a), float(b)) for o, name, n, seed, a, b in lines]


def summary(rows: list[ForecastError], method: str, size: int, field: str) -> tuple[float, float]:
    """Return the mean over the chains and its standard error."""
    values = [getattr(row, field) for row in rows if (row.method, row.size) == (method, size)]
    return float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))


def table(rows: list[ForecastError], field: str) -> str:
    """Return a table with a row per method and a column per size."""
    lines = [f"| {field} | {' | '.join(map(str, SIZES))} |", "|---" * (1 + len(SIZES)) + "|"]
    for method in dict.fromkeys(row.method for row in rows if row.size):
        cells = ["{:.3f} ± {:.3f}".format(*summary(rows, method, size, field)) for size in SIZES]
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", "The chain itself: {:.3f} ± {:.3f}".format(*summary(rows, "chain", 0, field))])


def picture(rows: list[ForecastError]) -> None:
    """Draw both errors against the number of simulations, one column per number of observations."""
    plt = plots.pyplot()
    figure, axes = plt.subplots(2, len(OBSERVED), figsize=(10, 6), sharex=True, sharey="row", layout="constrained")
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


def draw(axis: Any, rows: list[ForecastError], field: str) -> None:
    """Draw one panel."""
    for number, method in enumerate(DRAWN):
        values, bars = np.array([summary(rows, method, size, field) for size in SIZES]).T
        style = {"color": plots.METHOD_COLOURS[number], "marker": plots.MARKERS[number], "ms": 4, "lw": 1.3}
        sizes = np.array(SIZES) * 1.03 ** (number - 3)
        axis.errorbar(sizes, values, bars, capsize=1.5, label=method, **style)
    axis.axhline(summary(rows, "chain", 0, field)[0], color="0.5", ls="--", lw=1.2, label="the whole chain")
    axis.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    main()
