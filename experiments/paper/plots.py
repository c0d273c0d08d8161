"""Figures of the experiments with chains and mixtures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import numpy as np

from experiments.paper.settings import BUDGET_FORMULAS, GROWTH_FORMULAS
from experiments.results import ResultTable, error_over_repeats, mean_over_repeats, select
from steinstream._typing import Array
from steinstream.report.plots import COLOURS, pyplot
from steinstream.report.style import plain_ticks

_MEASURES = {"ksd": "KSD", "normalised": "normalised KSD"}
_FIRST_STEP = 10
_CUT = "cut"  # group id of axes with bands that are cut


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
        Suffix of the label of each stream. Streams with a suffix are dashed and lighter.
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
    chains = len(np.unique(results["chain"])) if "chain" in results else 1
    of_chains = f": mean and two standard errors of {chains} chains" if chains > 1 else ": one chain"
    figure.suptitle(f"{title} ({kernel.upper()}){of_chains}")
    methods = list(dict.fromkeys(results["method"]))
    for row, (part, part_title) in zip(grid, titles.items(), strict=True):
        for axes, (measure, label) in zip(row, _MEASURES.items(), strict=True):
            for (stream, suffix), (colour, method) in product(streams.items(), zip(COLOURS, methods, strict=False)):
                some = select(results, kernel=kernel, part=part, stream=stream, method=method)
                if suffix:  # lighter, so that neither line hides the other where they agree
                    style = {"color": lighter(colour), "ls": "--", "lw": 1.5}
                else:
                    style = {"color": colour, "ls": "-", "lw": 2.0}
                style["label"] = f"{method}{suffix}"
                if "chain" not in some:
                    axes.plot(moves * some["step"], some[measure], **style)
                    continue
                some = _common_steps(some)
                curve, error = mean_over_repeats(some), 2.0 * error_over_repeats(some, measure)
                _line_with_band(axes, moves * curve["step"], curve[measure], error, **style)
            axes.loglog()
            axes.set(ylabel=label, title=part_title)
            hide_spines(axes)
    for axes in grid[-1]:
        axes.set_xlabel("evaluations (moves of the chain)")
    legend_outside(figure, grid[0, 0])
    return figure


def adaptivity(results: ResultTable, kernel: str, floor: int, candidates: int, reported: Mapping[int, int]) -> Any:
    """Draw size and KSD against the number of modes, and size against evaluations, with two standard errors.

    Parameters
    ----------
    results : ResultTable
        Results of `Adaptivity` for one kernel.
    kernel : str
        Name of the kernel.
    floor : int
        Smallest size.
    candidates : int
        Number of evaluations per step.
    reported : mapping
        Sizes that the paper reports, by number of modes.

    Returns
    -------
    Figure
        A matplotlib figure.
    """
    plt = pyplot()
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(14, 4.3), layout="constrained")
    repeats = len(np.unique(results["repeat"]))
    title = f"Kept draws against the number of modes ({kernel.upper()}, m = {candidates})"
    figure.suptitle(f"{title}: mean and two standard errors of {repeats} repeats")
    modes = np.unique(results["modes"])
    for shift, colour, rule in zip((-0.1, 0.1), COLOURS[1:], np.unique(results["rule"])[::-1], strict=False):
        of_rule = select(results, rule=rule)
        last = select(of_rule, step=of_rule["step"].max())
        for axes, measure in ((left, "kept"), (middle, "ksd")):
            means = [select(last, modes=number)[measure].mean() for number in modes]
            errors = 2.0 * error_over_repeats(last, measure, "modes")
            style = {"color": colour, "marker": "o", "ms": 4, "capsize": 3}
            label = f"{rule} rule" if axes is left else None
            axes.errorbar(modes + shift, means, errors, label=label, **style)
        for number, line in zip((4, 10), ("-", "--"), strict=True):
            some = select(of_rule, modes=number)
            curve, error = mean_over_repeats(some), 2.0 * error_over_repeats(some, "kept")
            evaluations = candidates * curve["step"]
            style = {"color": colour, "ls": line, "label": f"{rule} rule, {number} modes"}
            _line_with_band(right, evaluations, curve["kept"], error, **style)
    right.set_xscale("log")
    if reported:
        left.plot(list(reported), list(reported.values()), "k*", ms=9, zorder=3, label="reported in the paper")
    left.axhline(floor, color="0.7", lw=1, zorder=0, label="floor")
    left.set(xlabel="modes", ylabel="kept at the end", ylim=(0, None))
    middle.set(xlabel="modes", ylabel="KSD at the end", ylim=(0, None))
    right.set(xlabel="evaluations (draws of the target)", ylabel="kept", ylim=(0, None))
    for axes in (left, middle):
        axes.set_xticks(modes)
    for axes in (left, middle, right):
        hide_spines(axes)
    legend_outside(figure, left, right)
    return figure


def alpha(results: ResultTable, kernel: str, candidates: int) -> Any:
    """Draw KSD and normalised KSD against evaluations, one line per exponent and one row per rule, with two errors."""
    plt = pyplot()
    figure, grid = plt.subplots(2, 2, figsize=(11.5, 7), layout="constrained", sharex=True, sharey="col")
    repeats = len(np.unique(results["repeat"]))
    title = f"Exponent of the growth on two modes ({kernel.upper()}, m = {candidates})"
    figure.suptitle(f"{title}: mean and two standard errors of {repeats} repeats")
    alphas = np.unique(results["alpha"])
    shades = plt.get_cmap("viridis")(np.linspace(0, 0.92, len(alphas)))
    for row, rule in zip(grid, ("paper", "monotone"), strict=True):
        for axes, (measure, label) in zip(row, _MEASURES.items(), strict=True):
            for shade, exponent in zip(shades, alphas, strict=True):
                some = select(results, rule=rule, alpha=exponent)
                curve, error = mean_over_repeats(some), 2.0 * error_over_repeats(some, measure)
                late = curve["step"] >= _FIRST_STEP  # all growths are equal before
                x, mean, error = (column[late] for column in (candidates * curve["step"], curve[measure], error))
                style = {"color": shade, "label": rf"$\alpha = {exponent:g}$", "ls": "--" if exponent == 2.0 else "-"}
                _line_with_band(axes, x, mean, error, **style)
            axes.set(ylabel=label, title=f"{rule} rule")
            axes.loglog()
            plain_ticks(axes.yaxis)
            hide_spines(axes)
    for axes in grid[1]:
        axes.set_xlabel("evaluations (draws of the target)")
    legend_outside(figure, grid[0, 0])
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
    repeats = len(np.unique(results["repeat"]))
    figure.suptitle(f"Rates on two modes in two dimensions (IMQ): mean and two standard errors of {repeats} repeats")
    results = {**results, "square": results["ksd"] ** 2}
    for row, stream in zip(grid, _distinct(results, "stream"), strict=True):
        for axes, budget in zip(row, _distinct(results, "budget"), strict=True):
            for colour, growth in zip(COLOURS, _distinct(results, "growth"), strict=False):
                some = select(results, growth=growth, budget=budget, stream=stream)
                curve, error = mean_over_repeats(some), 2.0 * error_over_repeats(some, "square")
                limit = bound(growth, budget, curve["step"])
                _line_with_band(
                    axes, curve["step"], curve["square"], error, color=colour, label=GROWTH_FORMULAS[growth]
                )
                axes.loglog(curve["step"], limit, color=colour, ls=":", lw=1.2)
            axes.set_title(f"{stream} stream, budget {BUDGET_FORMULAS[budget]}", fontsize="medium")
            hide_spines(axes)
    for axes in grid[1]:
        axes.set_xlabel("evaluations (n, one per step)")
    for axes in grid[:, 0]:
        axes.set_ylabel("E KSD²")
    legend_outside(figure, grid[0, 0], dotted="bound for independent draws")
    return figure


def assumptions(
    results: ResultTable,
    independent_bound: Callable[[str, Array], Array],
    paper_bound: Callable[[str, float, Array], Array],
) -> Any:
    """Draw E KSD^2 with two standard errors and its bounds, one column per growth, for m = 1 (top) and m = n.

    Parameters
    ----------
    results : ResultTable
        Results of `Assumptions`.
    independent_bound : callable
        Returns our bound for a growth and numbers of steps.
    paper_bound : callable
        Returns the bound of the paper for a growth, a rate and numbers of steps.

    Returns
    -------
    Figure
        A matplotlib figure.
    """
    plt = pyplot()
    figure, grid = plt.subplots(2, 3, figsize=(14, 7.4), layout="constrained", sharey=True, sharex="row")
    title = "Autoregressive chains on a standard normal distribution, d = 2 (IMQ)"
    repeats = len(np.unique(results["repeat"]))
    figure.suptitle(f"{title}: mean and two standard errors of {repeats} repeats")
    results = {**results, "square": results["ksd"] ** 2}
    rates = _distinct(results, "rho")
    for row, candidates in zip(grid, ("1", "n"), strict=True):
        for axes, growth in zip(row, _distinct(results, "growth"), strict=True):
            for place, (colour, rho) in enumerate(zip(COLOURS, rates, strict=False)):
                some = select(results, growth=growth, candidates=candidates, rho=rho)
                curve, error = mean_over_repeats(some), 2.0 * error_over_repeats(some, "square")
                steps = curve["step"]
                label = rf"$\rho = {rho:g}$" if rho else "independent draws"
                if candidates == "1":
                    style = {"color": colour, "label": label, "lw": 3.0 - 0.6 * place}  # no line hides another
                    _line_with_band(axes, steps, curve["square"], error, **style)
                    continue
                shifted = steps**2 * 1.2 ** (place - (len(rates) - 1) / 2)  # no hidden markers
                axes.errorbar(shifted, curve["square"], error, color=colour, ls="", marker="o", ms=3.5)
                axes.plot(steps**2, paper_bound(growth, rho, steps), color=colour, ls=":", lw=1.2)
            evaluations = steps**2 if candidates == "n" else steps
            late = steps >= 2
            style = {"color": "black", "ls": "--", "lw": 1.2, "label": "bound for independent draws"}
            axes.plot(evaluations[late], independent_bound(growth, steps)[late], **style)
            axes.set_title(f"growth {GROWTH_FORMULAS[growth]}, m = {candidates}", fontsize="medium")
            axes.loglog()
            hide_spines(axes)
        row[0].set_ylabel("E KSD²")
    for axes, xlabel in zip(grid[:, 1], ("evaluations (n, one per step)", "evaluations (n², n per step)"), strict=True):
        axes.set_xlabel(xlabel)
    for axes in grid[1]:
        axes.xaxis.set_minor_formatter("")
    legend_outside(figure, grid[0, 0], dotted="bound of the paper, corrected")
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
            label = f"{GROWTH_FORMULAS[growth]}, {stream}" if radius == radii[0] else None
            style = {"color": COLOURS[index], "ms": 4, "mew": 0, "label": label}
            axes.semilogy(shifted, last["ksd"] / radius, marker, **style)
    axes.set(xlabel="planned radius", ylabel="KSD at the end / radius")
    axes.set_xticks(range(len(radii)), [f"{radius:g}" for radius in radii])
    legend_outside(figure, axes)
    hide_spines(axes)
    return figure


def _distinct(table: ResultTable, name: str) -> list[Any]:
    """Return the distinct values of a column in order of appearance."""
    return list(dict.fromkeys(table[name].tolist()))


def _common_steps(table: ResultTable) -> ResultTable:
    """Return the rows of the steps that every chain has: without burn-in, the last steps of the chains differ."""
    steps, counts = np.unique(table["step"], return_counts=True)
    rows = np.isin(table["step"], steps[counts == counts.max()])
    return {name: column[rows] for name, column in table.items()}


def lower_end(axes: Any, mean: Array, error: Array) -> Array:
    """Return the lower end of a band of the mean plus and minus the error on a logarithmic axis.

    Such an axis has no place for values below 0: the band is cut at a tenth of the mean. `legend_outside` states it.

    Returns
    -------
    ndarray
        Lower end of the band.
    """
    if (error > 0.9 * mean).any():
        axes.set_gid(_CUT)
    lower: Array = np.maximum(mean - error, mean / 10)
    return lower


def _line_with_band(axes: Any, x: Array, mean: Array, error: Array, **style: Any) -> None:
    """Draw a line and a band of the mean plus and minus the error."""
    axes.plot(x, mean, **{"lw": 1.5, **style})
    axes.fill_between(x, lower_end(axes, mean, error), mean + error, color=style["color"], alpha=0.2, lw=0)


def legend_outside(figure: Any, *some: Any, dotted: str = "") -> None:
    """Draw the legend of some axes to the right of all axes, so that it hides no curve.

    It labels dotted lines, and states whether bands are cut (`lower_end`).
    """
    entries = [entry for axes in some for entry in zip(*axes.get_legend_handles_labels(), strict=True)]
    handles, labels = map(list, zip(*entries, strict=True))
    if dotted:
        handles.append(pyplot().Line2D([], [], color="0.4", ls=":", lw=1.2))
        labels.append(dotted)
    if any(axes.get_gid() == _CUT for axes in figure.axes):
        handles.append(pyplot().Line2D([], [], ls=""))
        labels.append("bands are cut at mean / 10")
    figure.legend(handles, labels, loc="outside right upper", frameon=False, fontsize="small")


def lighter(colour: str) -> tuple[float, ...]:
    """Mix a colour such as "#0072B2" with white."""
    return tuple(0.55 + 0.45 * int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))


def hide_spines(axes: Any) -> None:
    """Hide the frame of axes except for the two axes themselves."""
    axes.spines[["top", "right"]].set_visible(False)
