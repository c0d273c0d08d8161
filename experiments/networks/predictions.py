"""Thinning the networks of docs/networks.md by their predictions: ``python experiments/networks/predictions.py``.

Ten chains of the 49 weights are sampled with NUTS (NumPyro), 6000 draws each. Five of them are thinned, one pass and
draw by draw as the collector does; the other five together are the reference. The predictive mean, standard deviation
and 5 % and 95 % quantiles of the kept networks on a grid are compared with the reference.

``--measure`` samples, thins and writes predictions.csv, one row per method, size and chain (a few minutes; requires
torch, jax and numpyro). Without it, the table of docs/network-errors.md is printed and its
figure docs/networks-predictions.png is drawn.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Any

import numpy as np

import steinstream as ss
from steinstream._typing import Array

RESULTS = Path(__file__).with_name("predictions.csv")
FIGURE = Path(__file__).parents[2] / "docs" / "networks-predictions.png"
COLUMNS = ("method", "size", "chain", "mean", "sd", "quantiles")

SIZES = (20, 30, 60)
WORK, REFERENCE, DRAWS, WARMUP = 5, 5, 6000, 2000
HIDDEN, NOISE = 16, 0.2
QUANTILES = (0.05, 0.95)
STRIDE, KSD, DEFAULT, PREDICTIONS, UNSCORED = (
    "evenly spaced",
    "KSD alone, on weights",
    "default, on weights",
    "predictions, with scores",
    "predictions, without scores",
)


def main() -> None:
    """Measure if asked to, print the table and draw the figure."""
    parser = argparse.ArgumentParser(description="Thinning networks by their predictions.")
    parser.add_argument("--measure", action="store_true", help="sample and thin the chains again")
    if parser.parse_args().measure:
        with RESULTS.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            writer.writerows(measure())
    errors = read()
    print(table(errors))
    draw(errors)


# -- the chains --------------------------------------------------------------------------------------------------------


def data() -> tuple[Array, Array, Array]:
    """Return inputs and targets of the page, and the grid of the predictions."""
    import torch

    torch.manual_seed(0)
    x = torch.cat([torch.linspace(-1.0, -0.4, 20), torch.linspace(0.2, 1.0, 20)]).double()
    y = torch.sin(4 * x[:, None])[:, 0] + NOISE * torch.randn_like(x[:, None])[:, 0]
    return x.numpy(), y.numpy(), np.linspace(-1.6, 1.6, 81)


def outputs(weights: Any, at: Any) -> Any:
    """Return the outputs of the network with these weights (49,), in the order of ``network.parameters()``."""
    import jax.numpy as jnp

    first, bias, second, last = jnp.split(weights, [HIDDEN, 2 * HIDDEN, 3 * HIDDEN])
    return jnp.tanh(at[:, None] * first + bias) @ second + last[0]


def sample() -> tuple[Array, Array, Array]:
    """Return draws, scores (chains, draws, 49) and predictions (chains, draws, 81)."""
    import jax
    from numpyro.infer import MCMC, NUTS

    jax.config.update("jax_enable_x64", True)
    x, y, grid = data()

    def log_density(weights: Any) -> Any:
        residuals = outputs(weights, x) - y
        return -(residuals**2).sum() / (2 * NOISE**2) - 0.5 * (weights**2).sum()

    draws = []
    for seed in range(WORK + REFERENCE):
        mcmc = MCMC(
            NUTS(potential_fn=lambda weights: -log_density(weights)),
            num_warmup=WARMUP,
            num_samples=DRAWS,
            progress_bar=False,
        )
        start = jax.random.normal(jax.random.PRNGKey(1000 + seed), (3 * HIDDEN + 1,))
        mcmc.run(jax.random.PRNGKey(seed), init_params=start)
        draws.append(np.asarray(mcmc.get_samples()))
        print(f"chain {seed}", flush=True)
    flat = np.concatenate(draws)
    scores = np.asarray(jax.jit(jax.vmap(jax.grad(log_density)))(flat))
    predicted = np.asarray(jax.jit(jax.vmap(lambda weights: outputs(weights, grid)))(flat))
    return np.array(draws), scores.reshape(len(draws), DRAWS, -1), predicted.reshape(len(draws), DRAWS, -1)


# -- measurement -------------------------------------------------------------------------------------------------------


def measure() -> list[tuple[Any, ...]]:
    """Return a row per method, size and chain."""
    draws, scores, predicted = sample()
    reference = statistics(predicted[WORK:].reshape(-1, predicted.shape[-1]))
    rows: list[tuple[Any, ...]] = []
    for chain in range(WORK):
        rows.append(("all draws", DRAWS, chain, *errors_of(predicted[chain], reference)))
        for size in SIZES:
            step = DRAWS // size
            offsets = [errors_of(predicted[chain][first::step], reference) for first in range(0, step, step // 8)]
            rows.append((STRIDE, size, chain, *np.sqrt(np.mean(np.square(offsets), axis=0)).tolist()))
            for method, options in {
                KSD: {"stream_weight": 0.0},
                DEFAULT: {},
                PREDICTIONS: {"features": predicted[chain]},
                UNSCORED: {"features": predicted[chain], "scores": None},
            }.items():
                kept = thinned(draws[chain], size, **{"scores": scores[chain], **options})
                rows.append((method, size, chain, *errors_of(predicted[chain][kept], reference)))
    return rows


def thinned(draws: Array, size: int, *, scores: Array | None, features: Array | None = None, **settings: Any) -> Any:
    """Return the indices of the kept draws, after one pass."""
    thinner = ss.Thinner(draws.shape[1], size=size, **settings)
    thinner.extend(draws, scores, features=features)
    return thinner.kept.indices


def statistics(predicted: Array) -> tuple[Array, Array, Array]:
    """Return mean, standard deviation and quantiles of predictions (networks, inputs)."""
    return predicted.mean(axis=0), predicted.std(axis=0), np.quantile(predicted, QUANTILES, axis=0)


def errors_of(predicted: Array, reference: tuple[Array, Array, Array]) -> list[float]:
    """Return root mean square errors over the grid, in standard deviations of the reference; of sds, relative."""
    sd = reference[1]
    return [
        float(np.sqrt(np.mean(((own - other) / sd) ** 2)))
        for own, other in zip(statistics(predicted), reference, strict=True)
    ]


# -- table and figure --------------------------------------------------------------------------------------------------

#: Errors of the chains (chains, 3), by method and size.
Errors = dict[tuple[str, int], Array]


def read() -> Errors:
    """Read predictions.csv."""
    found: dict[tuple[str, int], list[list[float]]] = {}
    with RESULTS.open(newline="") as file:
        for row in csv.DictReader(file):
            values = [float(row[name]) for name in COLUMNS[3:]]
            found.setdefault((row["method"], int(row["size"])), []).append(values)
    return {key: np.array(values) for key, values in found.items()}


def mean_and_error(values: Array) -> tuple[Array, Array]:
    """Return the means over the chains and their standard errors."""
    return values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(len(values))


def table(errors: Errors) -> str:
    """Return the table of the page."""
    lines = ["| networks | method | mean | sd | 5 % and 95 % quantiles |", "|---|---|---|---|---|"]
    for size in SIZES:
        for method in (STRIDE, KSD, DEFAULT, PREDICTIONS, UNSCORED):
            cells = [f"{m:.3f} ± {e:.3f}" for m, e in zip(*mean_and_error(errors[method, size]), strict=True)]
            lines.append(f"| {size} | {method} | {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(errors: Errors) -> None:
    """Draw the errors against the number of networks, with standard errors."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    styles = {
        STRIDE: ("0.45", "o"),
        KSD: ("C1", "s"),
        DEFAULT: ("C0", "^"),
        PREDICTIONS: ("C2", "v"),
        UNSCORED: ("C3", "D"),
    }
    figure, panels = plt.subplots(1, 3, figsize=(11, 3.6), sharey=True, layout="constrained")
    for column, (axes, title) in enumerate(zip(panels, ("mean", "sd", "5 % and 95 % quantiles"), strict=True)):
        for place, (method, (colour, marker)) in enumerate(styles.items()):
            points = [mean_and_error(errors[method, size]) for size in SIZES]
            axes.errorbar(
                [size * 1.03 ** (place - 2) for size in SIZES],
                [mean[column] for mean, _ in points],
                [error[column] for _, error in points],
                color=colour,
                marker=marker,
                ms=5,
                lw=1.3,
                capsize=2,
                label=method,
            )
        floor = mean_and_error(errors["all draws", DRAWS])[0][column]
        axes.axhline(floor, color="0.7", ls=":", lw=1.2, label=f"all {DRAWS} networks")
        axes.set(xscale="log", yscale="log", xlabel="networks kept", title=title)
        axes.set_xticks(SIZES, [str(size) for size in SIZES])
        axes.set_xticks([], minor=True)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("error, in sds of the prediction")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", frameon=False)
    figure.savefig(FIGURE, dpi=110)


if __name__ == "__main__":
    main()
