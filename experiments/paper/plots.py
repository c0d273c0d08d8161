"""Figures of the experiments with chains and mixtures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import numpy as np

from experiments.results import ResultTable, error_over_repeats, mean_over_repeats, select
from steinstream._typing import Array
from steinstream.report.plots import COLOURS, pyplot

_MEASURES = {"ksd": "KSD", "normalised": "normalised KSD"}


def thinned_chain(
    title: str,
    results: ResultTable,
    kernel: str,
    titles: Mapping[str, str],
    streams: Mapping[str, str],
    moves: int,
) -> Any:
    """Draw KSD and normalised KSD against evaluations of the density, one per move of the chain.

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
    moves : int
        Number of moves per step.

    Returns
    -------
    Figure
        A matplotlib figure.

    """
    plt = pyplot()
    figure, grid = plt.subplots(
        len(titles), 2, figsize=(12, 1 + 3 * len(titles)), layout="constrained", sharex=True, squeeze=False
    )
    figure.suptitle(f"{title} ({kernel.upper()})")
    methods = list(dict.fromkeys(results["method"]))
    for row, (part, part_title) in zip(grid, titles.items(), strict=True):
        for axes, (measure, label) in zip(row, _MEASURES.items(), strict=True):
            for (stream, suffix), (colour, method) in product(streams.items(), zip(COLOURS, methods, strict=False)):
                curve = select(results, kernel=kernel, part=part, stream=stream, method=method)
                style = {"color": colour, "ls": "--" if suffix else "-", "lw": 1.5}
                axes.loglog(moves * curve["step"], curve[measure], label=f"{method}{suffix}", **style)
            axes.set(ylabel=label, title=part_title)
            _hide_spines(axes)
    for axes in grid[-1]:
        axes.set_xlabel("evaluations (moves of the chain)")
    _legend_outside(figure, grid[0, 0])
    return figure


def adaptivity(results: ResultTable, kernel: str, floor: int, candidates: int) -> Any:
    """Draw size and KSD against the number of modes with standard deviations, and size against evaluations."""
    plt = pyplot()
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4.3), layout="constrained")
    repeats = len(np.unique(results["repeat"]))
    figure.suptitle(f"Kept draws against the number of modes ({kernel.upper()}): mean and sd of {repeats} repeats")
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
            evaluations = candidates * curve["step"]
            right.semilogx(evaluations, curve["kept"], color=colour, ls=line, label=f"{rule} rule, {number} modes")
    left.axhline(floor, color="0.7", lw=1, zorder=0)
    left.set(xlabel="modes", ylabel="kept at the end", ylim=(0, None))
    middle.set(xlabel="modes", ylabel="KSD at the end", ylim=(0, None))
    right.set(xlabel="evaluations", ylabel="kept", ylim=(0, None))
    left.legend(frameon=False, fontsize="small", loc="upper left")
    middle.legend(frameon=False, fontsize="small", loc="lower left")
    right.legend(frameon=False, fontsize="small", loc="upper left")
    for axes in (left, middle, right):
        _hide_spines(axes)
    return figure


def alpha(results: ResultTable, kernel: str, candidates: int) -> Any:
    """Draw KSD and normalised KSD against evaluations, one line per exponent and one row per rule, with two errors."""
    plt = pyplot()
    figure, grid = plt.subplots(2, 2, figsize=(11.5, 7), layout="constrained", sharex=True, sharey="col")
    figure.suptitle(f"Exponent of the growth ({kernel.upper()}): mean and two standard errors")
    alphas = np.unique(results["alpha"])
    shades = plt.get_cmap("viridis")(np.linspace(0, 0.92, len(alphas)))
    for row, rule in zip(grid, ("paper", "monotone"), strict=True):
        for axes, (measure, label) in zip(row, _MEASURES.items(), strict=True):
            for shade, exponent in zip(shades, alphas, strict=True):
                some = select(results, rule=rule, alpha=exponent)
                curve, error = mean_over_repeats(some), 2.0 * error_over_repeats(some, measure)
                evaluations = candidates * curve["step"]
                label_of_line = f"alpha = {exponent:g}"
                _line_with_band(axes, evaluations, curve[measure], error, color=shade, label=label_of_line)
            axes.set(ylabel=label, title=f"{rule} rule")
            axes.loglog()
            _hide_spines(axes)
    for axes in grid[1]:
        axes.set_xlabel("evaluations")
    _legend_outside(figure, grid[0, 0])
    return figure


def theory(results: ResultTable, bound: Callable[[str, str, Array], Array]) -> Any:
    """Draw E KSD^2 with two standard errors and its bound (dotted) against n, by budget (columns) and stream (rows).

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
    figure, grid = plt.subplots(2, 3, figsize=(14, 7), layout="constrained", sharex=True, sharey=True)
    figure.suptitle("Rates on two modes in two dimensions (IMQ): mean and two standard errors; dotted: bound")
    results = {**results, "square": results["ksd"] ** 2}
    for row, stream in zip(grid, _distinct(results, "stream"), strict=True):
        for axes, budget in zip(row, _distinct(results, "budget"), strict=True):
            for colour, growth in zip(COLOURS, _distinct(results, "growth"), strict=False):
                some = select(results, growth=growth, budget=budget, stream=stream)
                curve, error = mean_over_repeats(some), 2.0 * error_over_repeats(some, "square")
                limit = bound(growth, budget, curve["step"])
                _line_with_band(axes, curve["step"], curve["square"], error, color=colour, label=f"growth {growth}")
                axes.loglog(curve["step"], limit, color=colour, ls=":", lw=1.2)
            axes.set_title(f"{stream} stream, budget {budget}", fontsize="medium")
            _hide_spines(axes)
    for axes in grid[1]:
        axes.set_xlabel("n (draws)")
    for axes in grid[:, 0]:
        axes.set_ylabel("E KSD²")
    _legend_outside(figure, grid[0, 0])
    return figure


def plans(results: Mapping[float, ResultTable]) -> Any:
    """Draw the final KSD of planned runs over the radius, one marker per repeat; ``results`` are by radius."""
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
    figure.suptitle("Runs as planned on two modes in two dimensions (IMQ)")
    radii = list(results)
    growths, streams = (_distinct(results[radii[0]], name) for name in ("growth", "stream"))
    axes.axhline(1.0, color="0.6", lw=1, zorder=0, label="planned")
    width = 0.8 / (len(growths) * len(streams))
    for (index, growth), (marker, stream) in product(enumerate(growths), zip("o^", streams, strict=True)):
        for place, radius in enumerate(radii):
            runs = select(results[radius], growth=growth, stream=stream)
            last = select(runs, step=runs["step"].max())
            number = len(last["ksd"])
            column = place + width * (len(streams) * index + (marker == "^") - (len(growths) * len(streams) - 1) / 2)
            shifted = column + 0.7 * width * (np.arange(number) / max(number - 1, 1) - 0.5)  # no hidden markers
            label = f"{growth}, {stream}" if radius == radii[0] else None
            style = {"color": COLOURS[index], "ms": 4, "mew": 0, "label": label}
            axes.semilogy(shifted, last["ksd"] / radius, marker, **style)
    axes.set(xlabel="planned radius", ylabel="KSD at the end / radius")
    axes.set_xticks(range(len(radii)), [f"{radius:g}" for radius in radii])
    _legend_outside(figure, axes)
    _hide_spines(axes)
    return figure


def _distinct(table: ResultTable, name: str) -> list[Any]:
    """Return the distinct values of a column in order of appearance."""
    return list(dict.fromkeys(table[name].tolist()))


def _line_with_band(axes: Any, x: Array, mean: Array, error: Array, **style: Any) -> None:
    """Draw a line and a band of the mean plus and minus the error."""
    axes.plot(x, mean, lw=1.5, **style)
    lower = np.maximum(mean - error, mean / 10)  # a logarithmic axis has no place for values below 0
    axes.fill_between(x, lower, mean + error, color=style["color"], alpha=0.2, lw=0)


def _legend_outside(figure: Any, axes: Any) -> None:
    """Draw the legend of some axes to the right of all axes, so that it hides no curve."""
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize="small")


def _hide_spines(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
