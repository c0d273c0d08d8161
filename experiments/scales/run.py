"""Sd of scale parameters in hierarchical models: ``python experiments/scales/run.py``.

Measures what a larger weight of the stream term, and a smaller diagonal of the Stein kernel in the choice of the draw
to remove, change at 200 kept draws. Prints the tables of the README from results.csv in the folder of this file.
``--measure`` adds missing rows; it can be interrupted and resumed.

The first models have independent draws: their scale parameter is drawn by its distribution function on a grid,
everything else is Gaussian given the scale. Two targets are chains of benchmarks/quality. The last ones confirm: they
are sampled by NUTS, and the rule for the weight was fixed before they were measured. The reference of a chain are the
two others.

Less of the diagonal is expressed by costs: the search for the draw to remove adds the cost to half of k0(x, x), so
costs that fall with k0(x, x) cancel a part of it.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Iterator
from functools import cache as remembered
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import steinstream as ss
from benchmarks.quality import cache, metrics
from benchmarks.quality.sampling import Array, Chain, Problem, nuts
from steinstream.thinner.chain_worth import stream_factor

FILE = Path(__file__).with_name("results.csv")
SIZE, SEEDS, DRAWS, REFERENCE = 200, (0, 1, 2), 10_000, 5_000
PRECISE = 40_000  # draws from which the sd of a scale parameter is computed
COLUMNS = ("target", "setting", "seed", "scale", "composite", "means", "ksd")
QUALITY = ("radon-centred", "volatility")


class Model(NamedTuple):
    """Independent draws (n, d) with the log scale in the last column, and their scores."""

    draw: Callable[[np.random.Generator, int], Array]
    score: Callable[[Array], Array]


# -- models ------------------------------------------------------------------------------------------------------------


def _on_grid(grid: Array, log_density: Array) -> Callable[[np.random.Generator, int], Array]:
    """Return a sampler of a density on a grid of equal steps."""
    shares = np.exp(log_density - log_density.max())
    distribution, step = np.cumsum(shares / shares.sum()), grid[1] - grid[0]

    def draw(rng: np.random.Generator, n: int) -> Array:
        cells = np.searchsorted(distribution, rng.random(n)).clip(max=len(grid) - 1)
        return np.asarray(grid[cells] + step * (rng.random(n) - 0.5))

    return draw


def groups(number: int, tau: float, noise: tuple[float, float], seed: int) -> Model:
    """Group means in centred coordinates: (a (number,), mean, log tau); y ~ N(a, known noise), a ~ N(mean, tau)."""
    rng = np.random.default_rng(seed)
    variance = rng.uniform(*noise, size=number) ** 2
    y = 0.7 + tau * rng.normal(size=number) + np.sqrt(variance) * rng.normal(size=number)

    def mean_given(log_tau: Array) -> tuple[Array, Array, Array]:
        """Return the precisions of y, and mean and precision of the common mean, given log tau."""
        w = 1 / (variance + np.exp(2 * log_tau)[:, None])
        precision = w.sum(1) + 1 / 25
        return w, (w * y).sum(1) / precision, precision

    grid = np.linspace(-7, 2.5, 4000)
    w, centre, precision = mean_given(grid)
    fit = 0.5 * (np.log(w) - w * y**2).sum(1) + 0.5 * (centre**2 * precision - np.log(precision))
    scale = _on_grid(grid, fit - 0.5 * np.exp(2 * grid) + grid)  # half-normal prior of tau

    def draw(rng: np.random.Generator, n: int) -> Array:
        log_tau = scale(rng, n)
        _, centre, precision = mean_given(log_tau)
        mean = centre + rng.normal(size=n) / np.sqrt(precision)
        inverse = np.exp(-2 * log_tau)[:, None]
        own = 1 / variance + inverse
        a = (y / variance + mean[:, None] * inverse) / own + rng.normal(size=(n, number)) / np.sqrt(own)
        return np.column_stack([a, mean, log_tau])

    def score(x: Array) -> Array:
        a, mean, tau = x[:, :-2], x[:, -2], np.exp(x[:, -1])
        z = (a - mean[:, None]) / tau[:, None]
        pull = z / tau[:, None]
        of_scale = (z**2).sum(1) - number - tau**2 + 1
        return np.column_stack([(y - a) / variance - pull, pull.sum(1) - mean / 25, of_scale])

    return Model(draw, score)


def level(times: int, sd: float, seed: int, noise: float = 0.7) -> Model:
    """Random walk observed with noise, in non-centred coordinates: (innovations (times,), log sd of innovations)."""
    rng = np.random.default_rng(seed)
    sums = np.tril(np.ones((times, times)))
    y = sums @ (sd * rng.normal(size=times)) + noise * rng.normal(size=times)
    values, vectors = np.linalg.eigh(sums @ sums.T)
    rotated, inverse = vectors.T @ y, np.linalg.inv(sums)
    grid = np.linspace(-6, 3, 3000)
    total = np.exp(2 * grid)[:, None] * values + noise**2
    scale = _on_grid(grid, -0.5 * (np.log(total) + rotated**2 / total).sum(1) - 0.5 * ((grid + 1) / 0.7) ** 2)

    def draw(rng: np.random.Generator, n: int) -> Array:
        log_sd = scale(rng, n)
        prior = np.exp(2 * log_sd)[:, None] * values
        share = prior / (prior + noise**2)
        path = (share * rotated + noise * np.sqrt(share) * rng.normal(size=(n, times))) @ vectors.T
        return np.column_stack([path @ inverse.T / np.exp(log_sd)[:, None], log_sd])

    def score(x: Array) -> Array:
        path = np.exp(x[:, -1:]) * (x[:, :-1] @ sums.T)
        residual = (y - path) / noise**2
        of_scale = (residual * path).sum(1) - (x[:, -1] + 1) / 0.49
        return np.column_stack([np.exp(x[:, -1:]) * (residual @ sums) - x[:, :-1], of_scale])

    return Model(draw, score)


def normal(dim: int) -> Model:
    """Return a standard normal distribution: no scale parameter, for comparison."""
    return Model(lambda rng, n: rng.normal(size=(n, dim)), lambda x: -x)


def banana() -> Model:
    """Return a parabola in the plane: scores are large on its inner side, for comparison."""

    def draw(rng: np.random.Generator, n: int) -> Array:
        x = rng.normal(size=n)
        return np.column_stack([x, x**2 + 0.3 * rng.normal(size=n)])

    def score(x: Array) -> Array:
        residual = (x[:, 1] - x[:, 0] ** 2) / 0.09
        return np.column_stack([2 * x[:, 0] * residual - x[:, 0], -residual])

    return Model(draw, score)


MODELS: dict[str, Callable[[], Model]] = {
    "58 groups, strong funnel": lambda: groups(58, 0.25, (0.3, 1.2), 102),
    "88 groups, funnel": lambda: groups(88, 0.6, (0.3, 1.2), 104),
    "86 groups, weak funnel": lambda: groups(86, 0.35, (0.2, 0.5), 110),
    "random walk of 60 times": lambda: level(60, 0.35, 107),
    "normal, 50 dimensions": lambda: normal(50),
    "banana": banana,
}
WITHOUT_SCALE = ("normal, 50 dimensions", "banana")

# -- models that confirm, sampled by NUTS; the log scale is in the last column -----------------------------------------


def schools() -> Problem:
    """Proportions of 40 groups in centred coordinates: (logits (40,), mean, log tau), 12 observations each."""
    import jax.numpy as jnp

    rng = np.random.default_rng(201)
    successes = rng.binomial(12, 1 / (1 + np.exp(-(0.4 + 0.5 * rng.normal(size=40)))))

    def log_density(q: Any) -> Any:
        a, mean, log_tau = q[:40], q[40], q[41]
        prior = -0.5 * jnp.sum(((a - mean) / jnp.exp(log_tau)) ** 2) - 40 * log_tau
        likelihood = jnp.sum(successes * a - 12 * jnp.logaddexp(0.0, a))
        return prior + likelihood - 0.5 * mean**2 / 4 - 0.5 * jnp.exp(2 * log_tau) + log_tau

    return nuts(log_density, 42, accept=0.95)


def answers() -> Problem:
    """Item response: (abilities of 50 persons / sd, difficulties of 20 items, log sd of the abilities)."""
    import jax.numpy as jnp

    rng = np.random.default_rng(202)
    logits = 0.8 * rng.normal(size=(50, 1)) - 1.2 * rng.normal(size=20)
    right = (rng.random((50, 20)) < 1 / (1 + np.exp(-logits))).astype(float)

    def log_density(q: Any) -> Any:
        persons, items, log_sd = q[:50], q[50:70], q[70]
        values = jnp.exp(log_sd) * persons[:, None] - items
        prior = -0.5 * jnp.sum(persons**2) - 0.5 * jnp.sum(items**2) / 4 - 0.5 * jnp.exp(2 * log_sd) + log_sd
        return prior + jnp.sum(right * values - jnp.logaddexp(0.0, values))

    return nuts(log_density, 71, accept=0.9)


def counts() -> Problem:
    """Counts whose log rate is a random walk of 80 times in centred coordinates: (log rates (80,), log sd of steps)."""
    import jax.numpy as jnp

    rng = np.random.default_rng(203)
    y = rng.poisson(np.exp(1.0 + np.cumsum(0.2 * rng.normal(size=80))))

    def log_density(q: Any) -> Any:
        rates, log_sd = q[:80], q[80]
        steps = (rates[1:] - rates[:-1]) / jnp.exp(log_sd)
        prior = -0.5 * jnp.sum(steps**2) - 79 * log_sd - 0.5 * (rates[0] - 1) ** 2 - 0.5 * ((log_sd + 1.5) / 0.7) ** 2
        return prior + jnp.sum(y * rates - jnp.exp(rates))

    return nuts(log_density, 81, accept=0.95)


def shrinkage() -> Problem:
    """Regression with local scales: (25 coefficients / scales, 25 log local scales, log noise, log common scale)."""
    import jax.numpy as jnp

    rng = np.random.default_rng(204)
    x = rng.normal(size=(80, 25))
    y = x @ np.where(np.arange(25) < 4, 1.0, 0.0) + rng.normal(size=80)

    def log_density(q: Any) -> Any:
        z, log_local, log_noise, log_common = q[:25], q[25:50], q[50], q[51]
        residuals = (y - x @ (z * jnp.exp(log_local + log_common))) / jnp.exp(log_noise)
        prior = -0.5 * jnp.sum(z**2 + log_local**2) - 0.5 * log_noise**2 - 0.5 * (log_common + 1.5) ** 2
        return prior - 0.5 * jnp.sum(residuals**2) - 80 * log_noise

    return nuts(log_density, 52, accept=0.9)


CONFIRM: dict[str, Callable[[], Problem]] = {
    "proportions of 40 groups": schools,
    "item response": answers,
    "counts of 80 times": counts,
    "local scales": shrinkage,
}


@remembered
def confirming_chains(target: str) -> list[Chain]:
    """Return the chains of a model that confirms, from the cache of benchmarks/quality if they are there."""

    def make(seed: int) -> Callable[[], dict[str, Array]]:
        def sampled() -> dict[str, Array]:
            chain = CONFIRM[target]().chain(seed)
            return {"draws": chain.draws, "scores": chain.scores}

        return sampled

    return [Chain(**cache.stored(f"scales {target}", f"chain-{seed}", make(seed))) for seed in SEEDS]


# -- settings ----------------------------------------------------------------------------------------------------------


class Work(NamedTuple):
    """A work chain with what is known about its target."""

    draws: Array
    scores: Array
    scale: float | None  # sd of the log scale
    column: int  # of the log scale
    metrics: metrics.ChainMetrics


def _weight(total: float) -> Callable[[Work], ss.Kept]:
    """Return how to thin with a weight of the stream term, its factor included."""

    def keep(work: Work) -> ss.Kept:
        gamma = total / stream_factor(1.0, work.draws.shape[1])
        return ss.thin(work.draws, work.scores, size=SIZE, stream_weight=gamma)

    return keep


def _diagonal(part: float, most: float) -> Callable[[Work], ss.Kept]:
    """Return how to leave out a part of k0(x, x), up to a multiple of its mean, in the choice of the removed draw."""

    def keep(work: Work) -> ss.Kept:
        preconditioner = ss.thin(work.draws, work.scores, size=10, stream_weight=0.0).preconditioner
        assert preconditioner is not None
        x, s = preconditioner.apply_to_draws(work.draws), preconditioner.apply_to_scores(work.scores)
        diagonal = ss.IMQ().diagonal(s, x)
        relief = np.minimum(diagonal, most * diagonal.mean())
        costs = 1.001 * relief.max() - relief
        weight = part * costs.mean() / np.exp(np.log(diagonal).mean())
        given: dict[str, Any] = {"preconditioner": preconditioner, "costs": costs, "cost_weight": weight}
        gamma = 1.0 / stream_factor(1.0, work.draws.shape[1])
        return ss.thin(work.draws, work.scores, size=SIZE, stream_weight=gamma, **given)

    return keep


SETTINGS: dict[str, Callable[[Work], ss.Kept]] = {
    "default": lambda work: ss.thin(work.draws, work.scores, size=SIZE),
    "weight 1": _weight(1.0),
    "weight 3": _weight(3.0),
    "weight 10": _weight(10.0),
    "weight 30": _weight(30.0),
    "weight 1, half of the diagonal": _diagonal(0.5, np.inf),
    "weight 1, half of the diagonal, up to its mean": _diagonal(0.5, 1.0),
    "without scores": lambda work: ss.thin(work.draws, size=SIZE),
}

# -- measurement -------------------------------------------------------------------------------------------------------


def work_of(target: str, seed: int) -> Work:
    """Return a work chain and its metrics."""
    if target in MODELS:
        model = MODELS[target]()
        draws = model.draw(np.random.default_rng([seed, 1]), DRAWS)
        scores, precise = model.score(draws), model.draw(np.random.default_rng([99, 1]), PRECISE)
        column = draws.shape[1] - 1
    else:
        fresh = target in CONFIRM
        chains = confirming_chains(target) if fresh else [cache.work_chain(target, other) for other in SEEDS]
        draws, scores = chains[seed].draws[0], chains[seed].scores[0]
        precise = np.concatenate([chains[other].draws[0] for other in SEEDS if other != seed])
        column = draws.shape[1] - 1 if fresh else cache.TARGETS[target].scales[0]
    reference = metrics.Reference.of(precise[metrics.spaced(len(precise), REFERENCE)])
    scale = None if target in WITHOUT_SCALE else float(precise[:, column].std())
    return Work(draws, scores, scale, column, metrics.ChainMetrics(draws, scores, reference))


def measure(target: str, known: set[tuple[str, ...]]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a target that are not known."""
    for seed in SEEDS:
        wanted = [name for name in SETTINGS if (target, name, str(seed)) not in known]
        if not wanted:
            continue
        work = work_of(target, seed)
        stride = metrics.rms_over_offsets(work.metrics.stride_errors(SIZE))
        for name in wanted:
            kept = SETTINGS[name](work)
            ratios = work.metrics.errors(kept.ids[:, 1], None) / stride
            numbers = {"composite": metrics.composite(ratios), "means": ratios[0], "ksd": ratios[-1]}
            row = {"target": target, "setting": name, "seed": seed, "scale": ""}
            row |= {key: f"{value:.4g}" for key, value in numbers.items()}
            if work.scale is not None:
                row["scale"] = f"{kept.draws[:, work.column].std() / work.scale:.4g}"
            yield row


def read() -> list[dict[str, str]]:
    """Return the rows of the file, or an empty list if it does not exist."""
    if not FILE.exists():
        return []
    with FILE.open(newline="") as file:
        return list(csv.DictReader(file))


def table(rows: list[dict[str, str]], targets: list[str]) -> str:
    """Return the table of some targets: a row per target and setting."""
    lines = ["| target | setting | sd of the log scale | composite | means | KSD |", "|---|---|---|---|---|---|"]
    for target in targets:
        for name in SETTINGS:
            found = [row for row in rows if (row["target"], row["setting"]) == (target, name)]
            if not found:
                continue
            scale = [float(row["scale"]) for row in found if row["scale"]]
            first = f"{np.mean(scale) - 1:+.0%}" if scale else ""
            cells = [f"{np.exp(np.mean([np.log(float(row[key])) for row in found])):.2f}" for key in COLUMNS[4:]]
            lines.append(f"| {target} | {name} | {first} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure missing rows and print the tables."""
    parser = argparse.ArgumentParser(description="Sd of scale parameters in hierarchical models.")
    parser.add_argument("--measure", nargs="*", metavar="TARGET", help="measure missing rows; default: all targets")
    options = parser.parse_args()
    if options.measure is not None:
        for target in options.measure or [*MODELS, *QUALITY, *CONFIRM]:
            for row in measure(target, {(row["target"], row["setting"], row["seed"]) for row in read()}):
                new = not FILE.exists()
                with FILE.open("a", newline="") as file:
                    writer = csv.DictWriter(file, COLUMNS)
                    if new:
                        writer.writeheader()
                    writer.writerow(row)
    rows = read()
    print(table(rows, [*MODELS]), "\n")
    print(table(rows, [*QUALITY]), "\n")
    print(table(rows, [*CONFIRM]))


if __name__ == "__main__":
    main()
