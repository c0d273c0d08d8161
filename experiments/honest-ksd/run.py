"""How far off KSD is where scores are noisy: ``python experiments/honest-ksd/run.py [--read]``.

Two targets whose true scores are known, so that the true KSD of what was kept is too: a normal with noise added to its
scores, and logistic regression sampled by SGLD with minibatches. Writes results.csv and results.png beside this file
and prints the README's table. About three minutes.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import steinstream as ss
from steinstream.debiased import squared_ksd_debiased
from steinstream.report import plots

HERE = Path(__file__).parent
SEEDS = 100
SIZES = (25, 100)

Array = NDArray[np.float64]


class Row(NamedTuple):
    """KSD^2 of one kept set: with true scores, as selected by, from the checks, and what would be wrong."""

    target: str
    size: int
    seed: int
    true: float
    reported: float
    honest: float
    product: float  # <a, c> on the diagonal
    plain: float  # <c, c> on the diagonal, uncorrected


class Stream(NamedTuple):
    """Draws with two noisy scores each, and the true ones."""

    draws: Array
    scores: Array
    check: Array
    true: Array


def main() -> None:
    """Measure, or read what was measured, and show it."""
    parser = argparse.ArgumentParser(description="How far off KSD is where scores are noisy.")
    parser.add_argument("--read", action="store_true", help="show results.csv as it is")
    rows = read() if parser.parse_args().read else list(measure())
    write(rows)
    print(table(rows))
    picture(rows)


def measure() -> Iterator[Row]:
    """Every target, size and seed."""
    for dim, sd in ((2, 0.5), (2, 1.0), (2, 2.0), (10, 1.0)):
        for seed in range(SEEDS):
            stream = normal(dim, sd, seed)
            for size in SIZES:
                yield row(f"normal, d = {dim}, noise {sd:g}", size, seed, stream, ss.Preconditioner.identity())
    regression = Logistic()
    for batch in (100, 20):
        for seed in range(SEEDS):
            stream = regression.stream(batch, seed)
            for size in SIZES:
                yield row(f"SGLD, minibatches of {batch}", size, seed, stream, ss.Warmup())


def row(target: str, size: int, seed: int, stream: Stream, preconditioner: ss.Preconditioner | ss.Warmup) -> Row:
    """Keep so many draws, and look at them in all ways."""
    thinner = ss.Thinner(stream.draws.shape[1], size=size, preconditioner=preconditioner)
    thinner.extend(stream.draws, stream.scores, second_scores=stream.check)
    kept = thinner.kept
    within = kept.preconditioner or ss.Preconditioner.identity()
    true = stream.true[kept.ids[:, 1]]
    checks = stream.check[kept.ids[:, 1]]
    plain = ss.ksd(kept.draws, checks, preconditioner=within) ** 2
    _, a = within.apply(kept.draws, kept.scores)
    _, c = within.apply(kept.draws, checks)
    return Row(
        target, size, seed,
        true=ss.ksd(kept.draws, true, preconditioner=within) ** 2,
        reported=kept.ksd**2,
        honest=squared_ksd_debiased(kept.draws, checks, kept.excess, ss.IMQ(), within),
        product=plain + float(np.sum((a - c) * c)) / size**2,
        plain=plain,
    )  # fmt: skip


def normal(dim: int, sd: float, seed: int, draws: int = 5000) -> Stream:
    """Independent draws of a standard normal."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(draws, dim))
    a, c = (-x + sd * random.normal(size=x.shape) for _ in range(2))
    return Stream(x, a, c, -x)


class Logistic:
    """Posterior of four coefficients given 1000 answers, with a standard normal prior."""

    def __init__(self) -> None:
        random = np.random.default_rng(12345)
        self.features = random.normal(size=(1000, 4))
        chance = 1.0 / (1.0 + np.exp(-self.features @ np.array([1.0, -0.5, 0.25, 0.0])))
        self.answers = (random.random(1000) < chance).astype(np.float64)

    def score(self, position: Array) -> Array:
        """From all answers."""
        return self.from_rows(position, slice(None))

    def from_rows(self, position: Array, rows: slice | NDArray[np.int64]) -> Array:
        """From some of them."""
        x = self.features[rows]
        residual = self.answers[rows] - 1.0 / (1.0 + np.exp(-x @ position))
        slope: Array = 1000.0 / len(x) * (residual @ x) - position
        return slope

    def stream(self, batch: int, seed: int, draws: int = 4000) -> Stream:
        """SGLD, its recorded scores and the checks from minibatches of their own."""

        def minibatch(position: Array, generator: np.random.Generator) -> Array:
            return self.from_rows(position, generator.integers(1000, size=batch))

        sampler = ss.samplers.SGLD(self, step=1e-3, minibatch=minibatch, record="independent")
        state, _ = sampler.sample(sampler.init(np.zeros(4), seed=seed), 1000)
        _, block = sampler.sample(state, draws)
        apart = np.random.default_rng([seed, 1])
        check = np.array([minibatch(position, apart) for position in block.draws])
        return Stream(block.draws, block.scores, check, np.array([self.score(position) for position in block.draws]))


def write(rows: list[Row]) -> None:
    """Into results.csv."""
    with (HERE / "results.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Row._fields)
        writer.writerows([*row[:3], *(f"{value:.5g}" for value in row[3:])] for row in rows)


def read() -> list[Row]:
    """From results.csv."""
    with (HERE / "results.csv").open(newline="") as file:
        return [Row(line[0], int(line[1]), int(line[2]), *map(float, line[3:])) for line in list(csv.reader(file))[1:]]


def table(rows: list[Row]) -> str:
    """Roots of the means of KSD^2, and the error of the honest one."""
    head = ["target", "kept", *Row._fields[3:], "mean error of honest KSD^2 / true KSD^2"]
    lines = [head, ["---"] * len(head)]
    for target, size in dict.fromkeys(row[:2] for row in rows):
        squares = np.array([row[3:] for row in rows if row[:2] == (target, size)])
        means, errors = squares.mean(axis=0), (squares[:, 2] - squares[:, 0]) / squares[:, 0].mean()
        cells = [f"{np.sign(mean) * np.sqrt(np.abs(mean)):.3g}" for mean in means]
        error = f"{errors.mean():+.2f} ± {errors.std(ddof=1) / np.sqrt(len(errors)):.2f}"
        lines.append([target, str(size), *cells, error])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def picture(rows: list[Row]) -> None:
    """Reported and honest KSD^2 over the true one, with two standard errors."""
    plt = plots.pyplot()
    figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
    cases = list(dict.fromkeys(row[:2] for row in rows))
    for number, name in enumerate(("reported", "honest", "product")):
        places, values, errors = [], [], []
        for place, case in enumerate(cases[::-1]):
            some = [row for row in rows if row[:2] == case]
            ratio = np.array([getattr(row, name) for row in some]) / np.mean([row.true for row in some])
            places.append(place + 0.2 * (1 - number))
            values.append(ratio.mean())
            errors.append(2.0 * ratio.std(ddof=1) / np.sqrt(len(ratio)))
        style = {"color": plots.METHOD_COLOURS[number], "marker": plots.MARKERS[number], "ms": 4, "label": name}
        axes.errorbar(values, places, xerr=errors, ls="", **style)
    axes.axvline(1.0, color="0.8", lw=1, zorder=0)
    axes.set(xlabel="KSD$^2$ / true KSD$^2$, means over the seeds")
    axes.set_yticks(range(len(cases)), [f"{target}, {size} kept" for target, size in cases[::-1]])
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize="small")
    figure.savefig(HERE / "results.png", dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    main()
