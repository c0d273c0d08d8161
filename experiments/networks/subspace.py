"""Networks in a subspace, in docs/networks.md: ``python experiments/networks/subspace.py``.

Runs the code of the page, then the same chain with other seeds. The posterior is computed by importance sampling from a
wide Gaussian. Writes subspace.csv, one row per method and chain, and docs/networks.png, and prints the table of
docs/network-errors.md. One to two minutes; requires torch and matplotlib.
"""

from __future__ import annotations

import argparse
import csv
import doctest
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch

from steinstream._typing import Array

mpl.use("Agg")
from matplotlib import pyplot as plt

RESULTS = Path(__file__).with_name("subspace.csv")
COLUMNS = ("method", "chain", "mean", "sd")
PAGE = Path(__file__).parent.parent.parent / "docs" / "networks.md"
SEEDS = range(5)
WIDTH, DRAWS, BATCH = 1.3, 400_000, 20_000


def main() -> None:
    """Run the page, measure the errors and draw the figure."""
    argparse.ArgumentParser(description="Networks in a subspace, in docs/networks.md.").parse_args()
    torch.set_num_threads(1)
    page = run_page()
    truth = importance(page)
    errors: dict[str, list[tuple[float, float]]] = {"30 kept": [], "30 evenly spaced": [], "all 3000": []}
    for seed in SEEDS:
        collector, chain = page["collected"](seed) if seed else (page["collector"], page["chain"])
        every = predictions(page, chain)
        online = collector.predictions
        errors["30 kept"].append(error(page, truth, online.mean, np.sqrt(online.variance)))
        some = every[50::100]
        errors["30 evenly spaced"].append(error(page, truth, some.mean(axis=0), some.std(axis=0)))
        errors["all 3000"].append(error(page, truth, every.mean(axis=0), every.std(axis=0)))
    with RESULTS.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows((name, k, *pair) for name, pairs in errors.items() for k, pair in enumerate(pairs))
    print(table())
    draw(page, errors)


def table() -> str:
    """Return the table of the page from subspace.csv."""
    errors: dict[str, list[list[float]]] = {}
    with RESULTS.open(newline="") as file:
        for row in csv.DictReader(file):
            errors.setdefault(row["method"], []).append([float(row[name]) for name in COLUMNS[2:]])
    lines = [f"| error of | {' | '.join(errors)} |", "|---" * (1 + len(errors)) + "|"]
    for column, name in enumerate(("mean", "standard deviation")):
        values = [np.array(pairs)[:, column] for pairs in errors.values()]
        cells = [f"{v.mean():.4f} ± {v.std(ddof=1) / np.sqrt(len(v)):.4f}" for v in values]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def run_page() -> dict[str, Any]:
    """Run the code of the page and return its names."""
    names: dict[str, Any] = {}
    test = doctest.DocTestParser().get_doctest(PAGE.read_text(), names, PAGE.name, str(PAGE), 0)
    runner = doctest.DocTestRunner()
    runner.run(test, clear_globs=False)
    if runner.failures:
        raise SystemExit("The code of docs/networks.md gives other results than the page shows.")
    return test.globs


def predictions(page: dict[str, Any], positions: Array) -> Array:
    """Return the predictions of the networks at these positions on the grid of the page."""
    with torch.no_grad():
        weights = page["space"].weights(torch.tensor(positions))
        return np.asarray(torch.vmap(lambda w: page["outputs"](w, page["grid"]))(weights).numpy())


def importance(page: dict[str, Any]) -> tuple[Array, Array]:
    """Return mean and standard deviation of the prediction under the posterior on the subspace."""
    rng = np.random.default_rng(0)
    sums, total, squares, best = np.zeros((2, len(page["grid"]))), 0.0, 0.0, None
    for _ in range(DRAWS // BATCH):
        z = WIDTH * rng.normal(size=(BATCH, 3))
        with torch.no_grad():
            log = torch.vmap(page["log_density"])(torch.tensor(z)).numpy() + 0.5 * (z**2).sum(axis=1) / WIDTH**2
        best = log.max() if best is None else best
        weight = np.exp(log - best)
        said = predictions(page, z)
        sums += weight @ said, weight @ said**2
        total, squares = total + weight.sum(), squares + (weight**2).sum()
    print(f"importance sampling: {total**2 / squares:.0f} effective draws")
    mean, square = sums / total
    return mean, np.sqrt(square - mean**2)


def error(page: dict[str, Any], truth: tuple[Array, Array], mean: Array, spread: Array) -> tuple[float, float]:
    """Return the root mean square errors over the grid of mean and standard deviation."""
    return page["rms_difference"](mean, truth[0]), page["rms_difference"](spread, truth[1])


def draw(page: dict[str, Any], errors: dict[str, list[tuple[float, float]]]) -> None:
    """Draw the predictions, the draws and the errors."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 3.6), width_ratios=(1.6, 1.1, 1))
    at, every, chain = page["grid"][:, 0].numpy(), page["every"], page["chain"]
    mean, spread = every.mean(axis=0), every.std(axis=0)
    left.fill_between(at, mean - 2 * spread, mean + 2 * spread, color="0.85", label="3000 networks")
    left.plot(at, mean, color="0.5")
    for sign in (-2, 0, 2):
        left.plot(at, page["mean"] + sign * page["spread"], "C3", lw=1.2, label="30 kept" if sign == 0 else None)
    left.plot(page["x"], page["y"], "k.", ms=4)
    left.set(xlabel="x", ylabel="prediction", title="prediction")
    left.legend(frameon=False)
    kept = page["collector"].kept.draws
    middle.plot(chain[:, 1], chain[:, 2], ".", color="0.75", ms=2)
    middle.plot(kept[:, 1], kept[:, 2], "C3.", ms=7)
    middle.set(xlabel="z2", ylabel="z3", title="draws")
    for place, pairs in enumerate(errors.values()):
        values = np.array(pairs)
        for column, colour in ((0, "C0"), (1, "C1")):
            label = ("mean", "sd")[column] if place == 0 else None
            x = np.full(len(values), place + 0.16 * (2 * column - 1))
            right.plot(x, values[:, column], ".", color=colour, label=label)
    right.set_yscale("log")
    right.set_xticks(range(3), [name.replace(" ", "\n", 1) for name in errors])
    right.set_title("error, five chains")
    right.legend(frameon=False)
    for axes in (left, middle, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(PAGE.with_name("networks.png"), dpi=110)


if __name__ == "__main__":
    main()
