"""Figures of the experiments with chains and mixtures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import numpy as np

from experiments.results import ResultTable, mean_over_repeats, select
from steinstream._typing import Array
from steinstream.report.plots import COLOURS, pyplot

_MEASURES = {"ksd": "KSD", "normalised": "normalised KSD"}


def thinned_chain(
    title: str, results: ResultTable, kernel: str, titles: Mapping[str, str], streams: Mapping[str, str]
) -> Any:
    """Draw KSD and normalised KSD against steps.

    Parameters
    ----------
    title : str
        Title of the figure.
    results : ResultTable
        Results of a `ChainExperiment`.
    kernel : str
        Kernel to show.
    titles : mapping
        Title of each part of the chain, one row of axes per part.
    streams : mapping
        Suffix of the label of each stream. Streams with a suffix are dashed.

    Returns
    -------
    Figure
        A matplotlib figure.

    """
    plt = pyplot()
    figure, grid = plt.subplots(2, 2, figsize=(10, 7), layout="constrained", sharex=True)
    figure.suptitle(f"{title} ({kernel.upper()})")
    methods = list(dict.fromkeys(results["method"]))
    for row, (part, part_title) in zip(grid, titles.items(), strict=True):
        for axes, (measure, label) in zip(row, _MEASURES.items(), strict=True):
            for (stream, suffix), (colour, method) in product(streams.items(), zip(COLOURS, methods, strict=False)):
                curve = select(results, kernel=kernel, part=part, stream=stream, method=method)
                style = {"color": colour, "ls": "--" if suffix else "-", "lw": 1.5}
                axes.loglog(curve["step"], curve[measure], label=f"{method}{suffix}", **style)
            axes.set(ylabel=label, title=part_title)
            _hide_spines(axes)
    for axes in grid[1]:
        axes.set_xlabel("steps")
    grid[0, 0].legend(frameon=False, fontsize="x-small", loc="lower left")
    return figure


def adaptivity(results: ResultTable, floor: int) -> Any:
    """Draw size and KSD against the number of modes, and size against steps, with standard deviations."""
    plt = pyplot()
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    modes = np.unique(results["modes"])
    for colour, rule in zip(COLOURS[1:], np.unique(results["rule"])[::-1], strict=False):
        of_rule = select(results, rule=rule)
        last = select(of_rule, step=of_rule["step"].max())
        for axes, measure in ((left, "kept"), (middle, "ksd")):
            groups = [select(last, modes=number)[measure] for number in modes]
            means, deviations = [group.mean() for group in groups], [group.std() for group in groups]
            style = {"color": colour, "marker": "o", "ms": 4, "capsize": 3}
            axes.errorbar(modes, means, deviations, label=f"{rule} rule", **style)
        for number, line in zip((4, 10), ("-", "--"), strict=True):
            curve = mean_over_repeats(select(of_rule, modes=number))
            right.semilogx(curve["step"], curve["kept"], color=colour, ls=line, label=f"{rule} rule, {number} modes")
    left.axhline(floor, color="0.7", lw=1, zorder=0)
    left.set(xlabel="modes", ylabel="kept at the end", ylim=(0, None))
    middle.set(xlabel="modes", ylabel="KSD at the end", ylim=(0, None))
    right.set(xlabel="steps", ylabel="kept", ylim=(0, None))
    for axes in (left, middle, right):
        axes.legend(frameon=False, fontsize="small")
        _hide_spines(axes)
    return figure


def alpha(results: ResultTable) -> Any:
    """Draw KSD and normalised KSD against steps, one line per exponent and one row per rule."""
    plt = pyplot()
    figure, grid = plt.subplots(2, 2, figsize=(10, 7), layout="constrained", sharex=True)
    alphas = np.unique(results["alpha"])
    shades = plt.get_cmap("viridis")(np.linspace(0, 0.92, len(alphas)))
    for row, rule in zip(grid, ("paper", "monotone"), strict=True):
        for axes, (measure, label) in zip(row, _MEASURES.items(), strict=True):
            for shade, exponent in zip(shades, alphas, strict=True):
                curve = mean_over_repeats(select(results, rule=rule, alpha=exponent))
                axes.loglog(curve["step"], curve[measure], color=shade, lw=1.5, label=f"exponent {exponent:g}")
            axes.set(ylabel=label, title=f"{rule} rule")
            _hide_spines(axes)
    for axes in grid[1]:
        axes.set_xlabel("steps")
    grid[0, 0].legend(frameon=False, fontsize="small")
    return figure


def theory(results: ResultTable, bound: Callable[[str, str, Array], Array]) -> Any:
    """Draw E KSD^2 and its bound (dotted) against n, one column per budget and one row per stream.

    Parameters
    ----------
    results : ResultTable
        Results of `Theory` for two streams and three budgets.
    bound : callable
        Returns the bound for a growth, a budget and numbers of steps.

    Returns
    -------
    Figure
        A matplotlib figure.

    """
    plt = pyplot()
    figure, grid = plt.subplots(2, 3, figsize=(13, 7), layout="constrained", sharex=True, sharey=True)
    for row, stream in zip(grid, _distinct(results, "stream"), strict=True):
        for axes, budget in zip(row, _distinct(results, "budget"), strict=True):
            for colour, growth in zip(COLOURS, _distinct(results, "growth"), strict=False):
                curve = mean_over_repeats(select(results, growth=growth, budget=budget, stream=stream))
                limit = bound(growth, budget, curve["step"])
                axes.loglog(curve["step"], curve["square"], color=colour, lw=1.6, label=growth)
                axes.loglog(curve["step"], limit, color=colour, ls=":", lw=1.2)
            axes.set_title(f"{stream} stream, budget {budget}", fontsize="medium")
            _hide_spines(axes)
    for axes in grid[1]:
        axes.set_xlabel("n")
    for axes in grid[:, 0]:
        axes.set_ylabel("E KSD²")
    grid[0, 0].legend(frameon=False, fontsize="small", title="growth (dotted: bound)")
    return figure


def plans(results: Mapping[float, ResultTable]) -> Any:
    """Draw the final KSD of planned runs against the radius, one marker per repeat; ``results`` are by radius."""
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(5.5, 4.2), layout="constrained")
    radii = list(results)
    growths, streams = (_distinct(results[radii[0]], name) for name in ("growth", "stream"))
    axes.loglog(radii, radii, color="0.6", lw=1, zorder=0, label="planned")
    for (index, growth), (marker, stream) in product(enumerate(growths), zip("o^", streams, strict=True)):
        for radius in radii:
            runs = select(results[radius], growth=growth, stream=stream)
            last = select(runs, step=runs["step"].max())
            shifted = radius * 1.06 ** (2 * index + (marker == "^") - 2.5)  # avoid overlapping markers
            label = f"{growth}, {stream}" if radius == radii[0] else None
            style = {"color": COLOURS[index], "ms": 4, "alpha": 0.6, "label": label}
            axes.plot(np.full(len(last["ksd"]), shifted), last["ksd"], marker, **style)
    axes.set(xlabel="planned radius", ylabel="KSD at the end")
    axes.set_xticks(radii, [f"{radius:g}" for radius in radii])
    axes.minorticks_off()
    axes.legend(frameon=False, fontsize="x-small")
    _hide_spines(axes)
    return figure


def _distinct(table: ResultTable, name: str) -> list[Any]:
    """Return the distinct values of a column in order of appearance."""
    return list(dict.fromkeys(table[name].tolist()))


def _hide_spines(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
