"""Bias of KSD with noisy scores: ``python experiments/noisy-scores/run.py [--show]``.

The true scores of both targets are known, and hence the true KSD of the kept draws: a normal with noise added to its
scores, and logistic regression sampled by SGLD with minibatches. Writes results.csv and results.png to the folder of
this file and prints the table of the README. About three minutes.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

import steinstream as ss
from steinstream._typing import Array, Integers
from steinstream.discrepancy.ksd import squared_ksd_debiased
from steinstream.report import plots

HERE = Path(__file__).parent
SEEDS = 100
SIZES = (25, 100)


class NoisyScoreResult(NamedTuple):
    """KSD^2 of one kept set: with the true scores, as reported, debiased, and two biased estimates."""

    target: str
    size: int
    seed: int
    true: float
    reported: float
    debiased: float
    product: float  # with <a, c> on the diagonal (a: score of the selection, c: second score)
    plain: float  # with <c, c> on the diagonal


class NoisyStream(NamedTuple):
    """Draws with two independent noisy scores each, and the true scores."""

    draws: Array
    scores: Array
    second: Array
    true: Array


def main() -> None:
    """Measure or read results.csv, then print the table and draw the figure."""
    parser = argparse.ArgumentParser(description="Bias of KSD with noisy scores.")
    parser.add_argument("--show", action="store_true", help="use the existing results.csv")
    rows = read() if parser.parse_args().show else list(measure())
    write(rows)
    print(table(rows))
    picture(rows)


def measure() -> Iterator[NoisyScoreResult]:
    """Run every target, size and seed."""
    for dim, sd in ((2, 0.5), (2, 1.0), (2, 2.0), (10, 1.0)):
        for seed in range(SEEDS):
            stream = normal(dim, sd, seed)
            for size in SIZES:
                yield evaluate(f"normal, d = {dim}, noise {sd:g}", size, seed, stream, ss.Preconditioner.identity())
    regression = Logistic()
    for batch in (100, 20):
        for seed in range(SEEDS):
            stream = regression.stream(batch, seed)
            for size in SIZES:
                yield evaluate(f"SGLD, minibatches of {batch}", size, seed, stream, ss.Warmup())


def evaluate(
    target: str, size: int, seed: int, stream: NoisyStream, preconditioner: ss.Preconditioner | ss.Warmup
) -> NoisyScoreResult:
    """Keep ``size`` draws and compute all estimates of their KSD^2."""
    thinner = ss.Thinner(stream.draws.shape[1], size=size, preconditioner=preconditioner, stream_weight=0.0)
    thinner.extend(stream.draws, stream.scores, second_scores=stream.second)
    kept = thinner.kept
    fitted = kept.preconditioner or ss.Preconditioner.identity()
    true = stream.true[kept.ids[:, 1]]
    second = stream.second[kept.ids[:, 1]]
    plain = ss.ksd(kept.draws, second, preconditioner=fitted) ** 2
    _, a = fitted.apply(kept.draws, kept.scores)
    _, c = fitted.apply(kept.draws, second)
    noise = kept.settings["second_scores_noise"]
    return NoisyScoreResult(
        target,
        size,
        seed,
        true=ss.ksd(kept.draws, true, preconditioner=fitted) ** 2,
        reported=kept.ksd**2,
        debiased=squared_ksd_debiased(kept.draws, second, noise, ss.IMQ(), fitted),
        product=plain + float(np.sum((a - c) * c)) / size**2,
        plain=plain,
    )


def normal(dim: int, sd: float, seed: int, draws: int = 5000) -> NoisyStream:
    """Return independent draws of a standard normal with noisy scores."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(draws, dim))
    a, c = (-x + sd * random.normal(size=x.shape) for _ in range(2))
    return NoisyStream(x, a, c, -x)


class Logistic:
    """Posterior of four coefficients of a logistic regression with 1000 observations and a standard normal prior."""

    def __init__(self) -> None:
        random = np.random.default_rng(12345)
        self.features = random.normal(size=(1000, 4))
        probability = 1.0 / (1.0 + np.exp(-self.features @ np.array([1.0, -0.5, 0.25, 0.0])))
        self.outcomes = (random.random(1000) < probability).astype(np.float64)

    def score(self, position: Array) -> Array:
        """Return the score from all observations."""
        return self.score_of_rows(position, slice(None))

    def score_of_rows(self, position: Array, rows: slice | Integers) -> Array:
        """Estimate the score from some observations."""
        x = self.features[rows]
        residual = self.outcomes[rows] - 1.0 / (1.0 + np.exp(-x @ position))
        score: Array = 1000.0 / len(x) * (residual @ x) - position
        return score

    def stream(self, batch: int, seed: int, draws: int = 4000) -> NoisyStream:
        """Sample with SGLD; recorded scores and second scores are from independent minibatches."""

        def minibatch(position: Array, generator: np.random.Generator) -> Array:
            return self.score_of_rows(position, generator.integers(1000, size=batch))

        sampler = ss.samplers.SGLD(self, step=1e-3, minibatch=minibatch, record="independent")
        state, _ = sampler.sample(sampler.init(np.zeros(4), seed=seed), 1000)
        _, block = sampler.sample(state, draws)
        generator = np.random.default_rng([seed, 1])
        second = np.array([minibatch(position, generator) for position in block.draws])
        true = np.array([self.score(position) for position in block.draws])
        return NoisyStream(block.draws, block.scores, second, true)


def write(rows: list[NoisyScoreResult]) -> None:
    """Write results.csv."""
    with (HERE / "results.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(NoisyScoreResult._fields)
        writer.writerows([*row[:3], *(f"{value:.5g}" for value in row[3:])] for row in rows)


def read() -> list[NoisyScoreResult]:
    """Read results.csv."""
    with (HERE / "results.csv").open(newline="") as file:
        lines = list(csv.reader(file))[1:]
    return [NoisyScoreResult(line[0], int(line[1]), int(line[2]), *map(float, line[3:])) for line in lines]


def table(rows: list[NoisyScoreResult]) -> str:
    """Return the roots of the mean KSD^2 and the error of the debiased estimate as Markdown."""
    head = ["target", "kept", *NoisyScoreResult._fields[3:], "mean error of debiased KSD^2 / true KSD^2"]
    lines = [head, ["---"] * len(head)]
    for target, size in dict.fromkeys(row[:2] for row in rows):
        squares = np.array([row[3:] for row in rows if row[:2] == (target, size)])
        means, errors = squares.mean(axis=0), (squares[:, 2] - squares[:, 0]) / squares[:, 0].mean()
        cells = [f"{np.sign(mean) * np.sqrt(np.abs(mean)):.3g}" for mean in means]
        error = f"{errors.mean():+.2f} ± {errors.std(ddof=1) / np.sqrt(len(errors)):.2f}"
        lines.append([target, str(size), *cells, error])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def picture(rows: list[NoisyScoreResult]) -> None:
    """Draw the reported and debiased KSD^2 relative to the true one, with two standard errors."""
    plt = plots.pyplot()
    figure, axes = plt.subplots(figsize=(8.5, 4), layout="constrained")
    cases = list(dict.fromkeys(row[:2] for row in rows))
    for number, name in enumerate(("reported", "debiased", "product")):
        places, values, errors = [], [], []
        for place, case in enumerate(cases[::-1]):
            some = [row for row in rows if row[:2] == case]
            ratio = np.array([getattr(row, name) for row in some]) / np.mean([row.true for row in some])
            places.append(place + 0.2 * (1 - number))
            values.append(ratio.mean())
            errors.append(2.0 * ratio.std(ddof=1) / np.sqrt(len(ratio)))
        style = {"color": plots.METHOD_COLOURS[number], "marker": plots.MARKERS[number], "ms": 4, "label": name}
        axes.errorbar(values, places, xerr=errors, ls="", **style)
    axes.axvline(1.0, color="0.6", lw=1, zorder=0)
    figure.suptitle(f"KSD with noisy scores (IMQ): mean and two standard errors of {SEEDS} seeds", fontsize="medium")
    axes.set(xlabel="KSD² / true KSD²")
    axes.set_yticks(range(len(cases)), [f"{target}, {size} kept" for target, size in cases[::-1]])
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right upper", frameon=False, fontsize="small")
    figure.savefig(HERE / "results.png", dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    main()
