"""Figures of the experiments with networks."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np

from experiments.paper.networks.description import Plane
from experiments.paper.networks.measurement import DEFAULT, EVEN, EVEN_SETTLED, EVERY, FEATURES, PAPER, SIZES
from experiments.paper.networks.summary import OTHERS, UNTHINNED
from experiments.paper.plots import hide_spines, legend_outside, lighter, lower_end
from experiments.paper.settings import GROWTHS, RULES
from experiments.results import ResultTable, error_over_repeats, select
from steinstream.report.plots import COLOURS, pyplot
from steinstream.report.style import plain_ticks

_LABELS = {
    "disagreement": "disagreement with the ground truth",
    "total_variation": "total variation to the ground truth",
    "accuracy": "accuracy",
    "expected_calibration_error": "expected calibration error",
}
_ON_LOG_AXIS = ("disagreement", "total_variation")
METHODS = (EVERY, EVEN, EVEN_SETTLED, PAPER, DEFAULT, FEATURES)
MARKERS = "ovs^DP"
MOST = 200  # networks; sets of all draws are not shown
_STYLES = {"SGLD": "-", "SPMCMC": "--"}


def measures(title: str, results: ResultTable, kernel: str, levels: Mapping[str, float]) -> Any:
    """Draw the four measures against the number of kept networks: mean and two standard errors over the chains.

    Parameters
    ----------
    title : str
        Title of the figure.
    results : ResultTable
        Results of a `NetworkExperiment`.
    kernel : str
        Kernel to show.
    levels : mapping
        Measures of the ground truth, drawn in grey.

    Returns
    -------
    Figure
        A matplotlib figure.
    """
    plt = pyplot()
    figure, grid = plt.subplots(2, 2, figsize=(13, 7.5), layout="constrained", sharex=True)
    figure.suptitle(f"{title} ({kernel.upper()}): {_of_chains(results)}")
    for axes, measure in zip(grid.flat, _LABELS, strict=True):
        for (colour, method), (stream, style) in product(zip(COLOURS, GROWTHS, strict=False), _STYLES.items()):
            chosen = {"kernel": kernel, "stream": stream, **UNTHINNED, "method": method}
            _curve(axes, results, measure, chosen, f"{method}, {stream}", color=colour, ls=style)
        if measure in levels:
            axes.axhline(levels[measure], color="0.6", lw=1, zorder=0, label="ground truth (bottom row)")
        _finish(axes, measure)
    for axes in grid[1]:
        axes.set_xlabel("kept networks")
    legend_outside(figure, grid[1, 0])
    return figure


def variants(title: str, results: ResultTable, kernel: str) -> Any:
    """Draw disagreement and total variation of KSDT-SQRT on SGLD for both rules and preconditioners.

    A monotone rule with the same results as the rule of the paper has no line of its own but is named in the label.

    Returns
    -------
    Figure
        A matplotlib figure.
    """
    plt = pyplot()
    figure, pair = plt.subplots(1, 2, figsize=(15, 4.2), layout="constrained")
    figure.suptitle(f"{title}: KSDT-SQRT on SGLD ({kernel.upper()}), {_of_chains(results)}")
    for axes, measure in zip(pair, _ON_LOG_AXIS, strict=True):
        common = {"kernel": kernel, "stream": "SGLD"}
        _curve(axes, results, measure, {**common, **UNTHINNED}, "every draw", color=COLOURS[0])
        lines = zip(COLOURS[1:], ("identity", "streaming"), (3.0, 1.5), strict=False)  # no line hides another
        for (colour, preconditioner, width), (rule, style) in product(lines, zip(RULES, ("-", "--"), strict=True)):
            chosen = {**common, "method": "KSDT-SQRT", "preconditioner": preconditioner}
            same = _same_curve(*(select(results, **chosen, rule=name) for name in RULES))
            text = f"{rule} rule, {preconditioner} preconditioner"
            shade = colour if rule == "paper" else lighter(colour)  # neither line hides the other
            if same and rule == "monotone":
                continue
            if same:
                text = f"{preconditioner} preconditioner\n(both rules, less than 1 % apart)"
            _curve(axes, results, measure, {**chosen, "rule": rule}, text, color=shade, ls=style, lw=width)
        axes.set_xlabel("kept networks")
        _finish(axes, measure)
    legend_outside(figure, pair[0])
    return figure


def _same_curve(first: ResultTable, second: ResultTable) -> bool:
    """Return whether the mean measures of two variants differ by less than 1 % at every step."""
    steps = np.unique(first["step"])
    means = [
        [some[name][some["step"] == step].mean() for name in _ON_LOG_AXIS for step in steps]
        for some in ({**table, "disagreement": 1.0 - table["agreement"]} for table in (first, second))
    ]
    return np.allclose(means[0], means[1], rtol=0.01)


def comparison(title: str, results: ResultTable) -> Any:
    """Draw disagreement and total variation of all methods with fixed numbers of networks of the complete chain."""
    plt = pyplot()
    figure, pair = plt.subplots(1, 2, figsize=(14, 4.4), layout="constrained")
    figure.suptitle(f"{title}: networks of the complete chain (IMQ), {_of_chains(results)}")
    others = select({**results, "disagreement": 1.0 - results["agreement"]}, stream=OTHERS)
    last = select(others, step=int(others["step"].max()))
    for axes, measure in zip(pair, _ON_LOG_AXIS, strict=True):
        for place, (colour, method) in enumerate(zip(COLOURS, METHODS, strict=False)):
            rows = select(last, method=method)
            rows = {name: column[rows["kept"] <= MOST] for name, column in rows.items()}
            kept = np.unique(rows["kept"])
            mean = np.array([rows[measure][rows["kept"] == size].mean() for size in kept])
            error = 2.0 * error_over_repeats(rows, measure, "kept")
            lower = mean - lower_end(axes, mean, error)
            shift = 1.02 ** (place - len(METHODS) / 2)
            style = {"color": colour, "marker": MARKERS[place], "ms": 5, "lw": 1.3, "capsize": 2}
            axes.errorbar(kept * shift, mean, (lower, error), label=method, **style)
        axes.set(xlabel="networks", xscale="log", yscale="log", ylabel=_LABELS[measure])
        axes.set_xticks(SIZES, [str(size) for size in SIZES])
        axes.set_xticks([], minor=True)
        plain_ticks(axes.yaxis)
        hide_spines(axes)
    legend_outside(figure, pair[0])
    return figure


def _of_chains(results: ResultTable) -> str:
    """Return what lines and bands are, for the title."""
    return f"mean and two standard errors of {len(np.unique(results['chain']))} chains"


def _curve(axes: Any, results: ResultTable, measure: str, chosen: Mapping[str, str], label: str, **style: Any) -> None:
    """Draw a measure against the kept networks, with a band of two standard errors over the chains."""
    some = select({**results, "disagreement": 1.0 - results["agreement"]}, **chosen)
    steps = np.unique(some["step"])
    mean, kept = (np.array([some[name][some["step"] == step].mean() for step in steps]) for name in (measure, "kept"))
    error = 2.0 * error_over_repeats(some, measure)
    last = np.append(np.diff(kept) != 0.0, True)  # several steps may keep the same number: the last of them
    kept, mean, error = kept[last], mean[last], error[last]
    axes.plot(kept, mean, label=label, **{"lw": 1.5, **style})
    lower = lower_end(axes, mean, error) if measure in _ON_LOG_AXIS else mean - error
    axes.fill_between(kept, lower, mean + error, color=style["color"], alpha=0.15, lw=0)


def plane(title: str, plane: Plane) -> Any:
    """Draw the plane with the curve, the draws of the ground truth and one compared chain."""
    plt = pyplot()
    figure, pair = plt.subplots(1, 2, figsize=(13, 4.6), layout="constrained")
    figure.suptitle(f"{title}: draws in the plane of the curve")
    truth, chain = plane.truth, plane.chain
    for axes, whole in zip(pair, (True, False), strict=True):
        if whole:
            axes.plot([1, 0, -1], [0, 1, 0], color=COLOURS[0], lw=1.5, zorder=3, label="curve")
            axes.plot([1, -1], [0, 0], "s", color=COLOURS[0], ms=6, zorder=4, label="trained networks")
            if len(plane.corners):
                axes.plot(*plane.corners.T, color="0.6", lw=0.8, ls=":", label="rectangle of the interpolant")
        axes.plot([0], [1], "^", color=COLOURS[0], ms=7, zorder=4, label="midpoint of the curve: start")
        axes.plot(*chain.T, color=COLOURS[1], lw=0.5, alpha=0.7, label="first chain")
        axes.plot(*truth.T, ".", color="0.3", ms=2.6, mew=0, label="ground truth")
        axes.set(xlabel="$z_1$", ylabel="$z_2$", title="plane" if whole else "detail")
        hide_spines(axes)
    both = np.concatenate([truth, chain])
    if np.ptp(both[:, 0]) > 0:
        pair[1].set(xlim=_limits(both[:, 0], 0.0), ylim=_limits(both[:, 1], 1.0))
    legend_outside(figure, pair[0])
    return figure


def _limits(values: Any, included: float) -> tuple[float, float]:
    """Return axis limits with a margin that include all values and one more."""
    low, high = min(float(values.min()), included), max(float(values.max()), included)
    return low - 0.08 * (high - low), high + 0.08 * (high - low)


def _finish(axes: Any, measure: str) -> None:
    axes.set_xscale("log")
    if measure in _ON_LOG_AXIS:
        axes.set_yscale("log")
        plain_ticks(axes.yaxis)
    axes.set_ylabel(_LABELS[measure])
    hide_spines(axes)
