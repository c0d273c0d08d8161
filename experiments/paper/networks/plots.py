"""Figures of the experiments with networks."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np

from experiments.paper.networks.summary import MEASURES, UNTHINNED, mean_over_chains
from experiments.paper.settings import GROWTHS
from experiments.results import ResultTable
from steinstream.report.plots import COLOURS, pyplot

_LABELS = (
    "agreement with the ground truth",
    "total variation to the ground truth",
    "accuracy",
    "expected calibration error",
)
_STYLES = {"SGLD": "-", "SPMCMC": "--"}


def measures(title: str, results: ResultTable, kernel: str, levels: Mapping[str, float]) -> Any:
    """Draw the four measures against the number of kept networks.

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
    figure, grid = plt.subplots(2, 2, figsize=(11, 7.5), layout="constrained", sharex=True)
    figure.suptitle(f"{title} ({kernel.upper()})")
    for axes, measure, label in zip(grid.flat, MEASURES, _LABELS, strict=True):
        for (colour, method), (stream, style) in product(zip(COLOURS, GROWTHS, strict=False), _STYLES.items()):
            variant = {**UNTHINNED, "method": method}
            curve = mean_over_chains(results, kernel=kernel, stream=stream, **variant)
            axes.semilogx(curve["kept"], curve[measure], style, color=colour, lw=1.5, label=f"{method}, {stream}")
        if measure in levels:
            axes.axhline(levels[measure], color="0.6", lw=1, zorder=0)
        _finish(axes, label)
    for axes in grid[1]:
        axes.set_xlabel("kept networks")
    grid[0, 0].legend(frameon=False, fontsize="x-small")
    return figure


def variants(title: str, results: ResultTable, kernel: str) -> Any:
    """Draw agreement and total variation of KSDT-SQRT on SGLD for both rules and preconditioners."""
    plt = pyplot()
    figure, pair = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    figure.suptitle(f"{title}: KSDT-SQRT on SGLD ({kernel.upper()})")
    for axes, measure, label in zip(pair, MEASURES, _LABELS, strict=False):
        unthinned = mean_over_chains(results, kernel=kernel, stream="SGLD", **UNTHINNED)
        axes.semilogx(unthinned["kept"], unthinned[measure], color=COLOURS[0], lw=1.5, label="every draw")
        pairs = product(("paper", "monotone"), ("identity", "streaming"))
        for colour, (rule, preconditioner) in zip(COLOURS[1:], pairs, strict=False):
            variant = {"method": "KSDT-SQRT", "rule": rule, "preconditioner": preconditioner}
            curve = mean_over_chains(results, kernel=kernel, stream="SGLD", **variant)
            text = f"{rule} rule, {preconditioner} preconditioner"
            axes.semilogx(curve["kept"], curve[measure], color=colour, lw=1.5, label=text)
        axes.set_xlabel("kept networks")
        _finish(axes, label)
    pair[0].legend(frameon=False, fontsize="x-small")
    return figure


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


def _finish(axes: Any, label: str) -> None:
    axes.set_ylabel(label)
    axes.spines[["top", "right"]].set_visible(False)
