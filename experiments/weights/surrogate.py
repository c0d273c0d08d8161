"""Error of a forecast if a cheap surrogate chooses the simulations: ``python experiments/weights/surrogate.py``.

Two posteriors, each with a simulation of three outputs:

- goodwin: the Goodwin oscillator of forward.py with 150 observations, 4 parameters. The surrogate solves the same
  equations with steps of 0.1 instead of 0.01.
- diffusion: -(k u')' = 1 on (0, 1) with u = 0 at both ends, where log k has 20 coefficients with a normal prior. u is
  observed at seven points. The simulation is another source on a grid of 1024 cells; the surrogate has 32 cells.

The outputs of the surrogate at all draws of a chain are its features. Writes surrogate.csv to the folder of this file
and docs/forward-surrogate.png; with --show it only draws the existing csv file. About ten minutes.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from PIL import Image

import steinstream as ss
from steinstream._typing import Array
from steinstream.report import plots
from steinstream.samplers import RandomWalk
from steinstream.targets import Goodwin

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent.parent))

from experiments.weights.forward import START, ForecastTruth, simulate, truth  # noqa: E402

PICTURE = HERE.parent.parent / "docs" / "forward-surrogate.png"
SEEDS = range(8)
SIZES = (5, 10, 20, 40, 80)
METHODS = ("stride", "draws", "draws and scores", "surrogate", "surrogate and scores")


class ForecastRow(NamedTuple):
    """Errors of one forecast: root mean squares over the outputs, in standard deviations of each output."""

    problem: str
    method: str
    size: int
    seed: int
    runs: int
    """Number of simulations: distinct draws."""
    mean: float
    spread: float
    """Relative error of the standard deviation."""
    standard_error: float
    """Standard error of the mean by the changes along the order of use."""


class Problem(Protocol):
    """A posterior, and a simulation of its draws."""

    @property
    def title(self) -> str:
        """Description for the figure."""

    @property
    def exact(self) -> ForecastTruth:
        """Exact mean and standard deviation of each output."""

    def chain(self, seed: int) -> tuple[Array, Array]:
        """Return draws and scores of a chain without burn-in, (n, d) or (chains, n, d)."""

    def simulate(self, q: Array) -> Array:
        """Return the outputs (3,) of one draw (d,)."""

    def surrogate(self, draws: Array) -> Array:
        """Return approximate outputs (n, 3) of draws (n, d)."""


class GoodwinForecast:
    """The Goodwin oscillator; a random walk whose proposals have the covariance of the posterior."""

    title = "oscillator, 4 parameters"
    moves, step = 50_000, 0.1

    def __init__(self) -> None:
        self._posterior = Goodwin.simulated(seed=0, observations=150)
        self.exact = truth(self._posterior)
        sampler = RandomWalk(self._posterior, step=0.03)
        _, long = sampler.sample(sampler.init(START, 12345), 100_000)
        settled = long.draws[50_000:]
        self._centre, self._root = settled.mean(axis=0), np.linalg.cholesky(np.cov(settled, rowvar=False))

    def chain(self, seed: int) -> tuple[Array, Array]:
        """Run the random walk."""
        random, target = np.random.default_rng(seed), self._posterior
        state = self._centre + self._root @ random.normal(size=4)
        density, score = target.log_density_and_score(state)
        draws, scores = np.empty((2, self.moves, 4))
        for i in range(self.moves):
            proposal = state + 1.2 * self._root @ random.normal(size=4)
            if np.log(random.uniform()) < target.log_density(proposal) - density:
                state = proposal
                density, score = target.log_density_and_score(state)
            draws[i], scores[i] = state, score
        return draws, scores

    def simulate(self, q: Array) -> Array:
        """Return the maximum of u, the time of the maximum of v, and the range of v after t = 10."""
        return simulate(q)

    def surrogate(self, draws: Array) -> Array:
        """Integrate with large steps, all draws at once."""
        h, (a, b, c, d) = self.step, np.exp(draws).T
        u, v = np.zeros((2, len(draws)))
        times = h * np.arange(1, round(25 / h))
        path = np.empty((2, len(times), len(draws)))

        def slope(u: Array, v: Array) -> tuple[Array, Array]:
            return a / (1 + b * v**10) - c * u, d * u - c * v

        for i in range(len(times)):
            p1, q1 = slope(u, v)
            p2, q2 = slope(u + h / 2 * p1, v + h / 2 * q1)
            p3, q3 = slope(u + h / 2 * p2, v + h / 2 * q2)
            p4, q4 = slope(u + h * p3, v + h * q3)
            u = u + h / 6 * (p1 + 2 * p2 + 2 * p3 + p4)
            v = v + h / 6 * (q1 + 2 * q2 + 2 * q3 + q4)
            path[:, i] = u, v
        late = path[1, times > 10.0]
        peaks = path[0].max(axis=0), times[path[1].argmax(axis=0)]
        return np.stack([*peaks, late.max(axis=0) - late.min(axis=0)], axis=1)


class Diffusion:
    """Diffusion with a random coefficient; 16 chains of preconditioned Crank-Nicolson moves (Cotter et al. 2013)."""

    title = "diffusion, 20 parameters"
    dim, chains, moves, every, noise = 20, 16, 15_000, 5, 0.01

    def __init__(self) -> None:
        points = np.arange(1, 8) / 8
        self._points, random = points, np.random.default_rng(0)
        self._data = self._observed(random.normal(size=(1, self.dim)))[0] + self.noise * random.normal(size=len(points))
        draws = self._sample(np.random.default_rng(12345), 64, 20_000)[:, 2000::20].reshape(-1, self.dim)
        outputs = self._outputs(draws, 1024)
        self.exact = ForecastTruth(len(points), outputs.mean(axis=0), outputs.std(axis=0))

    def _coefficient(self, draws: Array, cells: int) -> Array:
        """Return 1 / k in the middle of each cell, (n, cells)."""
        x, j = (np.arange(cells) + 0.5) / cells, np.arange(self.dim) + 0.5
        modes = 1.5 * np.sqrt(2) * np.sin(np.pi * np.outer(j, x)) / (np.pi * j[:, None])
        return np.exp(-draws @ modes)

    def _solution(self, draws: Array, source: Array) -> tuple[Array, Array]:
        """Return u at the right end of each cell, (n, cells), and the flux at the left end of the interval, (n,)."""
        cells = len(source)
        resistance, supplied = self._coefficient(draws, cells) / cells, (np.cumsum(source) - source / 2) / cells
        inflow = (resistance @ supplied) / resistance.sum(axis=1)  # such that u = 0 at the right end
        return np.cumsum(resistance * (inflow[:, None] - supplied), axis=1), inflow

    def _observed(self, draws: Array) -> Array:
        """Return u at the observation points, by 128 cells."""
        return self._solution(draws, np.ones(128))[0][:, (128 * self._points).astype(int) - 1]

    def _outputs(self, draws: Array, cells: int) -> Array:
        """Return the maximum of u for a source at x = 0.8, its flux at the left end, and the effective coefficient."""
        x = (np.arange(cells) + 0.5) / cells
        parts = []
        for some in np.array_split(draws, 1 + len(draws) // 4096):
            u, inflow = self._solution(some, 10 * np.exp(-(((x - 0.8) / 0.1) ** 2)))
            parts.append(np.stack([u.max(axis=1), inflow, 1 / self._coefficient(some, cells).mean(axis=1)], axis=1))
        return np.concatenate(parts)

    def _misfit(self, draws: Array) -> Array:
        return 0.5 * np.sum(((self._observed(draws) - self._data) / self.noise) ** 2, axis=1)

    def _sample(self, random: np.random.Generator, chains: int, moves: int, beta: float = 0.15) -> Array:
        """Return chains of draws, (chains, moves, d)."""
        state = random.normal(size=(chains, self.dim))
        misfit, draws = self._misfit(state), np.empty((chains, moves, self.dim))
        for i in range(moves):
            proposal = np.sqrt(1 - beta**2) * state + beta * random.normal(size=state.shape)
            proposed = self._misfit(proposal)
            accept = np.log(random.uniform(size=chains)) < misfit - proposed
            state, misfit = np.where(accept[:, None], proposal, state), np.where(accept, proposed, misfit)
            draws[:, i] = state
        return draws

    def chain(self, seed: int) -> tuple[Array, Array]:
        """Sample, and differentiate the log density by central differences."""
        draws = self._sample(np.random.default_rng(seed), self.chains, self.moves + 1000)[:, 1000 :: self.every]
        states, inverse = np.unique(draws.reshape(-1, self.dim), axis=0, return_inverse=True)
        scores, step = -states, 1e-5
        for j, direction in enumerate(step * np.eye(self.dim)):
            scores[:, j] -= (self._misfit(states + direction) - self._misfit(states - direction)) / (2 * step)
        return draws, scores[inverse.ravel()].reshape(draws.shape)

    def simulate(self, q: Array) -> Array:
        """Solve on the fine grid."""
        outputs: Array = self._outputs(q[None], 1024)[0]
        return outputs

    def surrogate(self, draws: Array) -> Array:
        """Solve on a coarse grid."""
        return self._outputs(draws, 32)


PROBLEMS: dict[str, Callable[[], Problem]] = {"goodwin": GoodwinForecast, "diffusion": Diffusion}


def outcome(problem: Problem, name: str, method: str, size: int, seed: int, kept: ss.Kept) -> ForecastRow:
    """Simulate the kept draws and return the errors of the forecast."""
    average, exact = kept.average(problem.simulate), problem.exact
    away, spread = (average.mean - exact.mean) / exact.spread, average.sd / exact.spread - 1
    errors = (float(np.sqrt(np.mean(part**2))) for part in (away, spread, average.standard_error / exact.spread))
    return ForecastRow(name, method, size, seed, len(average.runs.run), *errors)


def rows_of(problem: Problem, name: str, seed: int) -> Iterator[ForecastRow]:
    """Run every method on one chain."""
    draws, scores = problem.chain(seed)
    flat = draws.reshape(-1, draws.shape[-1])
    states, inverse = np.unique(flat, axis=0, return_inverse=True)
    features = problem.surrogate(states)[inverse.ravel()].reshape(*draws.shape[:-1], -1)
    for size in SIZES:
        spaced = flat[len(flat) // size // 2 :: len(flat) // size][:size]
        yield outcome(problem, name, "stride", size, seed, ss.thin(spaced, size=size))
        yield outcome(problem, name, "draws", size, seed, ss.thin(draws, size=size))
        yield outcome(problem, name, "draws and scores", size, seed, ss.thin(draws, scores, size=size))
        yield outcome(problem, name, "surrogate", size, seed, ss.thin(draws, size=size, features=features))
        both = ss.thin(draws, scores, size=size, features=features)
        yield outcome(problem, name, "surrogate and scores", size, seed, both)
    outputs = np.array([problem.simulate(q) for q in flat[::10]])
    away = (outputs.mean(axis=0) - problem.exact.mean) / problem.exact.spread
    spread = outputs.std(axis=0) / problem.exact.spread - 1
    errors = [float(np.sqrt(np.mean(part**2))) for part in (away, spread)]
    yield ForecastRow(name, "chain", 0, seed, len(outputs), *errors, float("nan"))


def measure() -> Iterator[ForecastRow]:
    """Run all chains."""
    for name, create in PROBLEMS.items():
        problem = create()
        draws = problem.chain(12345)[0]
        sample = draws.reshape(-1, draws.shape[-1])[::500]
        away = problem.surrogate(sample) - np.array([problem.simulate(q) for q in sample])
        print(
            f"{name}: sd of the error of the surrogate, in sds of the outputs:", away.std(axis=0) / problem.exact.spread
        )
        for seed in SEEDS:
            yield from rows_of(problem, name, seed)
            print(f"chain {seed} finished", flush=True)


def write(rows: Iterable[ForecastRow]) -> None:
    """Write surrogate.csv with four digits."""
    with (HERE / "surrogate.csv").open("w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(ForecastRow._fields)
        out.writerows([*row[:5], *(f"{value:.4g}" for value in row[5:])] for row in rows)


def read() -> list[ForecastRow]:
    """Read surrogate.csv."""
    with (HERE / "surrogate.csv").open(newline="") as file:
        lines = csv.reader(file)
        next(lines)
        return [
            ForecastRow(problem, method, int(size), int(seed), int(runs), float(a), float(b), float(c))
            for problem, method, size, seed, runs, a, b, c in lines
        ]


def summary(rows: list[ForecastRow], problem: str, method: str, size: int, field: str) -> tuple[float, float]:
    """Return the mean of an error over the chains and its standard error."""
    values = [getattr(row, field) for row in rows if (row.problem, row.method, row.size) == (problem, method, size)]
    return float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))


def table(rows: list[ForecastRow], problem: str, field: str) -> str:
    """Return a table with a row per method and a column per size."""
    lines = [f"| {field} | {' | '.join(map(str, SIZES))} |", "|---" * (1 + len(SIZES)) + "|"]
    for method in METHODS:
        cells = ["{:.3f} ± {:.3f}".format(*summary(rows, problem, method, size, field)) for size in SIZES]
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines)


def picture(rows: list[ForecastRow]) -> None:
    """Draw the errors against the number of kept draws, one column per problem."""
    plt = plots.pyplot()
    figure, axes = plt.subplots(2, 2, figsize=(9, 6), sharex=True, sharey="row", layout="constrained")
    labels = {
        "mean": "error of the mean,\nin standard deviations",
        "spread": "relative error of the\nstandard deviation",
    }
    for line, (field, label) in zip(axes, labels.items(), strict=True):
        line[0].set(yscale="log", ylabel=label)
        line[0].set_yticks(ticks := (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1), map(str, ticks))
        line[0].set_yticks([], minor=True)
        for axis, problem in zip(line, PROBLEMS, strict=True):
            for number, method in enumerate(METHODS):
                values, bars = np.array([summary(rows, problem, method, size, field) for size in SIZES]).T
                style = {"color": plots.METHOD_COLOURS[number], "marker": plots.MARKERS[number], "ms": 4, "lw": 1.3}
                sizes = np.array(SIZES) * 1.03 ** (number - 2)
                axis.errorbar(sizes, values, bars, capsize=1.5, label=method, **style)
            whole = summary(rows, problem, "chain", 0, field)[0]
            axis.axhline(whole, color="0.5", ls="--", lw=1.2, label="the whole chain")
            axis.spines[["top", "right"]].set_visible(False)
    for axis, title in zip(axes[0], (GoodwinForecast.title, Diffusion.title), strict=True):
        axis.set_title(title, fontsize="medium")
    for axis in axes[1]:
        axis.set(xscale="log", xlabel="kept draws, one simulation each")
        axis.set_xticks(SIZES, map(str, SIZES))
        axis.set_xticks([], minor=True)
    handles = axes[0, 0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=6, frameon=False, fontsize="small")
    with BytesIO() as raw:
        figure.savefig(raw, dpi=90)
        Image.open(raw).convert("RGB").quantize(96).save(PICTURE, optimize=True)


def main() -> None:
    """Measure, print the tables and draw the figure."""
    parser = argparse.ArgumentParser(description="Error of a forecast with and without a surrogate.")
    parser.add_argument("--show", action="store_true", help="only draw the existing csv file")
    if not parser.parse_args().show:
        write(measure())
    rows = read()
    for problem in PROBLEMS:
        print(
            f"### {problem}",
            *(table(rows, problem, field) for field in ("mean", "spread", "standard_error")),
            sep="\n\n",
        )
        whole = [summary(rows, problem, "chain", 0, field)[0] for field in ("mean", "spread")]
        print("\nThe whole chain: mean {:.3f}, spread {:.3f}\n".format(*whole))
    picture(rows)


if __name__ == "__main__":
    main()
