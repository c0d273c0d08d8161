"""The experiments' figures."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np

from experiments.paper.columns import Columns, matching, mean_over_repeats
from steinstream.report.plots import COLOURS, pyplot


def thinned_chain(
    name: str, results: Columns, kernel: str, titles: Mapping[str, str], streams: Mapping[str, str]
) -> Any:
    """KSD and normalised KSD against steps; rows: the whole chain, the settled part. Dashed: SPMCMC."""
    plt = pyplot()
    figure, grid = plt.subplots(2, 2, figsize=(10, 7), layout="constrained", sharex=True)
    figure.suptitle(f"{name} ({kernel.upper()})")
    methods = list(dict.fromkeys(results["method"]))
    for row, (part, title) in zip(grid, titles.items(), strict=True):
        for axes, (measure, label) in zip(row, {"ksd": "KSD", "normalised": "normalised KSD"}.items(), strict=True):
            for (stream, suffix), (colour, method) in product(streams.items(), zip(COLOURS, methods, strict=False)):
                curve = matching(results, kernel=kernel, part=part, stream=stream, method=method)
                axes.loglog(curve["step"], curve[measure], color=colour, ls="--" if suffix else "-", lw=1.5,
                            label=f"{method}{suffix}")  # fmt: skip
            axes.set(ylabel=label, title=title)
            _clean(axes)
    for axes in grid[1]:
        axes.set_xlabel("steps")
    grid[0, 0].legend(frameon=False, fontsize="x-small", loc="lower left")
    return figure


def adaptivity(results: Columns, floor: int) -> Any:
    """Kept and KSD against the number of modes, and kept against steps; means and standard deviations over repeats."""
    plt = pyplot()
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    modes = np.unique(results["modes"])
    for colour, rule in zip(COLOURS[1:], np.unique(results["rule"])[::-1], strict=False):
        mine = matching(results, rule=rule)
        last = matching(mine, step=mine["step"].max())
        for axes, measure in ((left, "kept"), (middle, "ksd")):
            groups = [matching(last, modes=number)[measure] for number in modes]
            axes.errorbar(modes, [g.mean() for g in groups], [g.std() for g in groups], color=colour, marker="o", ms=4,
                          capsize=3, label=f"{rule} rule")  # fmt: skip
        for number, style in zip((4, 10), ("-", "--"), strict=True):
            curve = mean_over_repeats(matching(mine, modes=number))
            right.semilogx(curve["step"], curve["kept"], color=colour, ls=style, label=f"{rule} rule, {number} modes")
    left.axhline(floor, color="0.7", lw=1, zorder=0)
    left.set(xlabel="modes", ylabel="kept at the end", ylim=(0, None))
    middle.set(xlabel="modes", ylabel="KSD at the end", ylim=(0, None))
    right.set(xlabel="steps", ylabel="kept", ylim=(0, None))
    for axes in (left, middle, right):
        axes.legend(frameon=False, fontsize="small")
        _clean(axes)
    return figure


def alpha(results: Columns) -> Any:
    """KSD and normalised KSD against steps, one line an exponent; rows: the rules."""
    plt = pyplot()
    figure, grid = plt.subplots(2, 2, figsize=(10, 7), layout="constrained", sharex=True)
    alphas = np.unique(results["alpha"])
    shades = plt.get_cmap("viridis")(np.linspace(0, 0.92, len(alphas)))
    for row, rule in zip(grid, ("paper", "monotone"), strict=True):
        for axes, (measure, label) in zip(row, (("ksd", "KSD"), ("normalised", "normalised KSD")), strict=True):
            for shade, exponent in zip(shades, alphas, strict=True):
                curve = mean_over_repeats(matching(results, rule=rule, alpha=exponent))
                axes.loglog(curve["step"], curve[measure], color=shade, lw=1.5, label=f"exponent {exponent:g}")
            axes.set(ylabel=label, title=f"{rule} rule")
            _clean(axes)
    for axes in grid[1]:
        axes.set_xlabel("steps")
    grid[0, 0].legend(frameon=False, fontsize="small")
    return figure


def theory(results: Columns) -> Any:
    """E KSD^2 against n, columns by budget, rows by stream; dotted: the bound."""
    from experiments.paper.theory import BUDGETS, GROWTHS, STREAMS, bound, stein_diagonal

    plt = pyplot()
    figure, grid = plt.subplots(2, 3, figsize=(13, 7), layout="constrained", sharex=True, sharey=True)
    kappa = stein_diagonal()
    for row, stream in zip(grid, STREAMS, strict=True):
        for axes, budget in zip(row, BUDGETS, strict=True):
            for colour, growth in zip(COLOURS, GROWTHS, strict=False):
                curve = mean_over_repeats(matching(results, growth=growth, budget=budget, stream=stream))
                axes.loglog(curve["step"], curve["square"], color=colour, lw=1.6, label=growth)
                axes.loglog(curve["step"], bound(growth, budget, curve["step"], kappa), color=colour, ls=":", lw=1.2)
            axes.set_title(f"{stream} stream, budget {budget}", fontsize="medium")
            _clean(axes)
    for axes in grid[1]:
        axes.set_xlabel("n")
    for axes in grid[:, 0]:
        axes.set_ylabel("E KSD²")
    grid[0, 0].legend(frameon=False, fontsize="small", title="growth (dotted: bound)")
    return figure


def plans(results: Columns) -> Any:
    """KSD at the end of each planned run against the radius it was planned for, one mark a repeat."""
    from experiments.paper.theory import EXPONENTS, PLANNED, RADII, STREAMS

    plt = pyplot()
    figure, axes = plt.subplots(figsize=(5.5, 4.2), layout="constrained")
    axes.loglog(RADII, RADII, color="0.6", lw=1, zorder=0, label="planned")
    for (place, growth), (marker, stream) in product(enumerate(EXPONENTS), zip("o^", STREAMS, strict=True)):
        for radius in RADII:
            runs = matching(results, growth=growth, stream=stream, budget=f"{PLANNED}{radius}")
            last = matching(runs, step=runs["step"].max())
            beside = radius * 1.06 ** (2 * place + (marker == "^") - 2.5)  # so that marks do not hide each other
            axes.plot(np.full(len(last["ksd"]), beside), last["ksd"], marker, color=COLOURS[place], ms=4, alpha=0.6,
                      label=f"{growth}, {stream}" if radius == RADII[0] else None)  # fmt: skip
    axes.set(xlabel="radius that was planned for", ylabel="KSD at the end")
    axes.set_xticks(RADII, [f"{radius:g}" for radius in RADII])
    axes.minorticks_off()
    axes.legend(frameon=False, fontsize="x-small")
    _clean(axes)
    return figure


def _clean(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
