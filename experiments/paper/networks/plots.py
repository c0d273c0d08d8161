"""Figures of the experiments with networks."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np

from experiments.paper.networks.summary import UNTHINNED
from experiments.paper.settings import GROWTHS
from experiments.results import ResultTable, error_over_repeats, select
from steinstream.report.plots import COLOURS, pyplot

_LABELS = {
    "disagreement": "disagreement with the ground truth",
    "total_variation": "total variation to the ground truth",
    "accuracy": "accuracy",
    "expected_calibration_error": "expected calibration error",
}
_ON_LOG_AXIS = ("disagreement", "total_variation")
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
    figure.suptitle(f"{title} ({kernel.upper()}): mean and two standard errors over the chains")
    for axes, measure in zip(grid.flat, _LABELS, strict=True):
        for (colour, method), (stream, style) in product(zip(COLOURS, GROWTHS, strict=False), _STYLES.items()):
            chosen = {"kernel": kernel, "stream": stream, **UNTHINNED, "method": method}
            _curve(axes, results, measure, chosen, f"{method}, {stream}", color=colour, ls=style)
        if measure in levels:
            axes.axhline(levels[measure], color="0.6", lw=1, zorder=0, label="ground truth")
        _finish(axes, measure)
    for axes in grid[1]:
        axes.set_xlabel("kept networks")
    _legend_outside(figure, grid[0, 0])
    return figure


def variants(title: str, results: ResultTable, kernel: str) -> Any:
    """Draw disagreement and total variation of KSDT-SQRT on SGLD for both rules and preconditioners."""
    plt = pyplot()
    figure, pair = plt.subplots(1, 2, figsize=(14, 4.2), layout="constrained")
    figure.suptitle(f"{title}: KSDT-SQRT on SGLD ({kernel.upper()}), mean and two standard errors over the chains")
    for axes, measure in zip(pair, _ON_LOG_AXIS, strict=True):
        common = {"kernel": kernel, "stream": "SGLD"}
        _curve(axes, results, measure, {**common, **UNTHINNED}, "every draw", color=COLOURS[0])
        for (colour, preconditioner), (rule, style) in product(
            zip(COLOURS[1:], ("identity", "streaming"), strict=False), (("paper", "-"), ("monotone", (0, (2, 2))))
        ):
            chosen = {**common, "method": "KSDT-SQRT", "rule": rule, "preconditioner": preconditioner}
            text = f"{rule} rule, {preconditioner} preconditioner"
            _curve(axes, results, measure, chosen, text, color=colour, ls=style)
        axes.set_xlabel("kept networks")
        _finish(axes, measure)
    _legend_outside(figure, pair[0])
    return figure


def _curve(axes: Any, results: ResultTable, measure: str, chosen: Mapping[str, str], label: str, **style: Any) -> None:
    """Draw a measure against the kept networks, with a band of two standard errors over the chains."""
    some = select({**results, "disagreement": 1.0 - results["agreement"]}, **chosen)
    steps = np.unique(some["step"])
    mean, kept = ([some[name][some["step"] == step].mean() for step in steps] for name in (measure, "kept"))
    error = 2.0 * error_over_repeats(some, measure)
    axes.plot(kept, mean, lw=1.5, label=label, **style)
    lower = np.maximum(np.array(mean) - error, np.array(mean) / 10) if measure in _ON_LOG_AXIS else mean - error
    axes.fill_between(kept, lower, mean + error, color=style["color"], alpha=0.15, lw=0)


def plane(title: str, stages: Any) -> Any:
    """Draw the plane with the curve, the draws of the ground truth and one compared chain."""
    plt = pyplot()
    figure, pair = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    figure.suptitle(title)
    truth, chain = stages.ground_truth.draws[0], stages.compared_chain(0).draws[0]
    for axes, whole in zip(pair, (True, False), strict=True):
        if whole:
            axes.plot([1, 0, -1], [0, 1, 0], color="0.7", lw=1, zorder=0)
            axes.plot([1, -1], [0, 0], "s", color="0.4", ms=5, label="trained networks")
        axes.plot([0], [1], "^", color="0.4", ms=6, label="midpoint of the curve: start")
        axes.plot(*truth[:: max(1, len(truth) // 4000)].T, ".", color="0.75", ms=2, label="ground truth")
        axes.plot(*chain.T, color=COLOURS[1], lw=0.6, label="first chain")
        axes.set(xlabel="z₁", ylabel="z₂", title="plane" if whole else "detail")
        axes.spines[["top", "right"]].set_visible(False)
    if np.ptp(truth[:, 0]) > 0:
        pair[1].set(xlim=_limits(truth[:, 0], 0.0), ylim=_limits(truth[:, 1], 1.0))
    pair[0].legend(frameon=False, fontsize="small")
    return figure


def _limits(values: Any, included: float) -> tuple[float, float]:
    """Return axis limits with a margin that include all values and one more."""
    low, high = min(float(values.min()), included), max(float(values.max()), included)
    return low - 0.08 * (high - low), high + 0.08 * (high - low)


def _legend_outside(figure: Any, axes: Any) -> None:
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize="small")


def _finish(axes: Any, measure: str) -> None:
    axes.set_xscale("log")
    if measure in _ON_LOG_AXIS:
        axes.set_yscale("log")
    axes.set_ylabel(_LABELS[measure])
    axes.spines[["top", "right"]].set_visible(False)
