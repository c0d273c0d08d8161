"""Figures of the experiments with networks."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np

from experiments.paper.chains import GROWTHS
from experiments.paper.columns import Columns
from experiments.paper.network_summary import MEASURES, curve
from steinstream.report.plots import COLOURS, pyplot

_LABELS = ("agreement with the ground truth", "total variation to the ground truth", "accuracy",
           "expected calibration error")  # fmt: skip
_STYLES = {"SGLD": "-", "SPMCMC": "--"}


def measures(title: str, results: Columns, kernel: str, levels: Mapping[str, float]) -> Any:
    """The four measures against the number of networks kept; grey: the ground truth's own."""
    plt = pyplot()
    figure, grid = plt.subplots(2, 2, figsize=(11, 7.5), layout="constrained", sharex=True)
    figure.suptitle(f"{title} ({kernel.upper()})")
    for axes, measure, label in zip(grid.flat, MEASURES, _LABELS, strict=True):
        for (colour, method), (stream, style) in product(zip(COLOURS, GROWTHS, strict=False), _STYLES.items()):
            mine = curve(results, kernel=kernel, stream=stream, method=method, rule="paper", preconditioner="identity")
            axes.semilogx(mine["kept"], mine[measure], style, color=colour, lw=1.5, label=f"{method}, {stream}")
        if measure in levels:
            axes.axhline(levels[measure], color="0.6", lw=1, zorder=0)
        _finish(axes, label)
    for axes in grid[1]:
        axes.set_xlabel("networks kept")
    grid[0, 0].legend(frameon=False, fontsize="x-small")
    return figure


def variants(title: str, results: Columns, kernel: str) -> Any:
    """Agreement and total variation of KSDT-SQRT on SGLD under both rules and coordinates, beside the whole chain."""
    plt = pyplot()
    figure, pair = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    figure.suptitle(f"{title}: KSDT-SQRT on SGLD ({kernel.upper()})")
    for axes, measure, label in zip(pair, MEASURES, _LABELS, strict=False):
        whole = curve(
            results, kernel=kernel, stream="SGLD", method="every draw", rule="paper", preconditioner="identity"
        )  # fmt: skip
        axes.semilogx(whole["kept"], whole[measure], color=COLOURS[0], lw=1.5, label="every draw")
        for colour, (rule, place) in zip(
            COLOURS[1:], product(("paper", "monotone"), ("identity", "followed")), strict=False
        ):
            mine = curve(results, kernel=kernel, stream="SGLD", method="KSDT-SQRT", rule=rule, preconditioner=place)
            axes.semilogx(mine["kept"], mine[measure], color=colour, lw=1.5, label=f"{rule} rule, {place} coordinates")
        axes.set_xlabel("networks kept")
        _finish(axes, label)
    pair[0].legend(frameon=False, fontsize="x-small")
    return figure


def plane(title: str, stages: Any) -> Any:
    """The ground truth's draws and one chain's, with the curve on which the networks lie."""
    plt = pyplot()
    figure, pair = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    figure.suptitle(title)
    truth, chain = stages.truth.draws[0], stages.recording(0).draws[0]
    for axes, whole in zip(pair, (True, False), strict=True):
        if whole:
            axes.plot([1, 0, -1], [0, 1, 0], color="0.7", lw=1, zorder=0)
            axes.plot([1, -1], [0, 0], "s", color="0.4", ms=5, label="trained networks")
        axes.plot([0], [1], "^", color="0.4", ms=6, label="middle of the curve: start")
        axes.plot(*truth[:: max(1, len(truth) // 4000)].T, ".", color="0.75", ms=2, label="ground truth")
        axes.plot(*chain.T, color=COLOURS[1], lw=0.6, label="first chain")
        axes.set(xlabel="z₁", ylabel="z₂", title="the plane" if whole else "closer")
        axes.spines[["top", "right"]].set_visible(False)
    if np.ptp(truth[:, 0]) > 0:
        pair[1].set(xlim=_room(truth[:, 0], 0.0), ylim=_room(truth[:, 1], 1.0))
    pair[0].legend(frameon=False, fontsize="small")
    return figure


def _room(values: Any, also: float) -> tuple[float, float]:
    low, high = min(float(values.min()), also), max(float(values.max()), also)
    return low - 0.08 * (high - low), high + 0.08 * (high - low)


def _finish(axes: Any, label: str) -> None:
    axes.set_ylabel(label)
    axes.spines[["top", "right"]].set_visible(False)
