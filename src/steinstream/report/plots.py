"""Matplotlib figures of a kept set.

``ss.plot`` is this module: ``ss.plot.trace(kept).savefig("trace.svg")``. `trace`, `pairs`, `marginals` and
`kept_along_chain` make whole figures. The functions that take axes draw one panel, for the report, the demo and the
experiments. Requires the ``plot`` extra (matplotlib).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from steinstream._formatting import count
from steinstream._typing import AnyArray, Array, Flags
from steinstream.io import replacing
from steinstream.report.chain_comparison import ChainComparison
from steinstream.report.chain_summary import ChainLike, summarise_chain
from steinstream.report.provenance import stored_config
from steinstream.report.style import (
    CHAIN,
    KEPT,
    LINE,
    MARK,
    RULE,
    figure_style,
    label_axes,
    new_figure,
    plain_ticks,
    require_matplotlib,
    shorten_name,
)
from steinstream.result import History, Kept

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from steinstream.baselines.comparison import ComparisonRow

#: Colours that can be distinguished with every kind of colour vision (Okabe and Ito).
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")

#: The same and four more, with markers, for figures that compare methods.
METHOD_COLOURS = (*COLOURS, "#000000", "#999999", "#882255", "#F0E442")
MARKERS = "osv^D<>XP*"

_RASTERISE = 5000  # number of points from which they are not drawn as vectors
_BINS = 400  # of a density curve
_CELLS = 72  # of a density in two dimensions, along each side
_MASSES = (0.95, 0.8, 0.5, 0.2)  # of the regions of highest density


# -- whole figures -----------------------------------------------------------------------------------------------------


def trace(kept: Kept) -> Figure:
    """Plot KSD, without scores MMD, and the number of kept draws during the run.

    Parameters
    ----------
    kept : Kept
        The kept set.

    Returns
    -------
    Figure
        A matplotlib figure with two panels.

    Examples
    --------
    >>> import steinstream as ss
    >>> draws = np.random.default_rng(0).normal(size=(2000, 2))
    >>> len(trace(ss.thin(draws, -draws)).axes)
    2
    """
    with figure_style():
        figure, (left, right) = new_figure(8.4, 2.8, 1, 2)
        measure_panel(left, kept)
        size_panel(right, kept)
    return figure


def pairs(kept: Kept, chain: ChainLike = None, most: int = 5) -> Figure:
    """Plot the kept draws over the density of the chain, for each pair of parameters.

    Parameters
    ----------
    kept : Kept
        The kept set.
    chain : str, path, sequence of paths or array, optional
        The chain: one or several files, or draws (n, d) or (chains, n, d). Default: the subsample of the stream that
        the kept set holds.
    most : int, default 5
        Largest number of parameters. If there are more, those that differ most from the chain are shown.

    Returns
    -------
    Figure
        A matplotlib figure with one panel per pair.
    """
    comparison = ChainComparison(kept, summarise_chain(kept, chain))
    chosen = comparison.most_different(most)
    side = max(len(chosen) - 1, 1)
    with figure_style():
        figure, grid = new_figure(1.2 + 1.9 * side, 1.0 + 1.8 * side, side, side, squeeze=False)
        for row, column in np.ndindex(side, side):
            axes = grid[row, column]
            if column > row:
                axes.remove()
                continue
            pair_panel(axes, comparison, chosen[column], chosen[min(row + 1, len(chosen) - 1)])
            axes.label_outer()
    return figure


def marginals(kept: Kept, chain: ChainLike = None, most: int = 12) -> Figure:
    """Plot the marginal densities of the kept draws and of the chain.

    Parameters
    ----------
    kept : Kept
        The kept set.
    chain : str, path, sequence of paths or array, optional
        The chain, as in `pairs`.
    most : int, default 12
        Largest number of parameters. If there are more, those that differ most from the chain are shown.

    Returns
    -------
    Figure
        A matplotlib figure with one panel per parameter.
    """
    comparison = ChainComparison(kept, summarise_chain(kept, chain))
    chosen = comparison.most_different(most)
    columns = min(len(chosen), 4)
    rows = -(-len(chosen) // columns)
    with figure_style():
        figure, grid = new_figure(0.4 + 2.0 * columns, 0.2 + 1.5 * rows, rows, columns, squeeze=False)
        for axes, j in zip(grid.flat, chosen, strict=False):
            marginal_panel(axes, comparison, j)
        for axes in grid.flat[len(chosen) :]:
            axes.remove()
    return figure


def kept_along_chain(kept: Kept, chain: ChainLike = None) -> Figure:
    """Plot the positions of the kept draws in each chain, and how far out they are.

    Parameters
    ----------
    kept : Kept
        The kept set.
    chain : str, path, sequence of paths or array, optional
        The chain, as in `pairs`. Without any, only the positions are shown.

    Returns
    -------
    Figure
        A matplotlib figure with one or two panels. Burn-in is visible as a descent.
    """
    comparison = ChainComparison(kept, summarise_chain(kept, chain))
    with figure_style():
        panels = 1 if comparison.chain is None else 2
        figure, grid = new_figure(4.2 * panels, 2.8, 1, panels, squeeze=False)
        if comparison.chain is not None:
            deviation_panel(grid[0, 0], comparison)
        position_panel(grid[0, -1], comparison)
    return figure


# -- panels of a kept set ----------------------------------------------------------------------------------------------


def history_measure(kept: Kept) -> str:
    """Return "KSD", or "MMD" for draws without scores."""
    return "KSD" if kept.scores is not None else "MMD"


def measure_panel(axes: Any, kept: Kept) -> None:
    """Plot KSD, without scores MMD, during the run. Dotted lines mark changes of the preconditioner."""
    measure = history_measure(kept)
    _plot_history(axes, kept, kept.history.ksd if measure == "KSD" else kept.history.mmd, LINE, measure)


def size_panel(axes: Any, kept: Kept) -> None:
    """Plot the number of kept draws during the run."""
    _plot_history(axes, kept, kept.history.size, KEPT, "kept")


def _plot_history(axes: Any, kept: Kept, values: AnyArray, colour: str, label: str) -> None:
    steps, positive = kept.history.step, values > 0
    for change in kept.settings.get("preconditioner_changed", ()):
        axes.axvline(change, color=CHAIN, lw=0.7, ls=":", zorder=0)
    axes.loglog(
        steps[positive], values[positive], color=colour, lw=1.5, marker="o" if positive.sum() < 3 else None, ms=3
    )
    if positive.any():
        axes.plot(steps[positive][-1:], values[positive][-1:], "o", ms=3.5, color=colour, clip_on=False)
    if positive.any() and values[positive].min() == values[positive].max():
        axes.set_ylim(values[positive][0] / 2, values[positive][0] * 2)
    label_axes(axes, "draws" if stored_config(kept).get("candidates", 1) == 1 else "steps", label)
    plain_ticks(axes.xaxis, whole=True)
    plain_ticks(axes.yaxis, whole=label == "kept")
    axes.grid(color=RULE, lw=0.5)


def pair_panel(axes: Any, comparison: ChainComparison, x: int, y: int, sparse: bool = True) -> None:
    """Plot the kept draws over the density of the chain, for two parameters.

    The limits are those of the bulk of the chain, so that burn-in does not determine them. Weights are shown as areas.
    With ``sparse``, points are vectors.
    """
    both = [x, y]
    chain, kept = comparison.draws[:, both], comparison.kept.draws[:, both]
    (left, right), (low, high) = axis_limits(chain[:, 0]), axis_limits(chain[:, 1])
    columns, rows, density, levels = density_contours(chain, (left, right), (low, high))
    if levels and comparison.chain is not None:
        shades = [(CHAIN, alpha) for alpha in np.linspace(0.12, 0.4, len(levels))]
        axes.contourf(columns, rows, density, [*levels, math.inf], colors=shades, zorder=0)
        axes.contour(columns, rows, density, levels, colors=CHAIN, linewidths=0.6, alpha=0.7, zorder=1)
    size = float(np.clip(48.0 / np.sqrt(max(len(kept), 1)), 2.0, 4.5))
    alpha = float(np.clip(12.0 / np.sqrt(max(len(kept), 1)), 0.25, 0.75))
    style = {"color": KEPT, "alpha": alpha, "mew": 0, "ls": "none", "marker": "o", "rasterized": not sparse}
    for scale, chosen in _weight_classes(comparison.kept.weights, len(kept)):
        axes.plot(*kept[chosen].T, ms=size * scale, **style)
    axes.set(xlim=(left, right), ylim=(low, high))
    label_axes(axes, shorten_name(comparison.names[x]), shorten_name(comparison.names[y]))
    plain_ticks(axes.xaxis)
    plain_ticks(axes.yaxis)


def _weight_classes(weights: Array | None, count: int) -> list[tuple[float, Flags]]:
    """Return a few classes of weights: the relative diameter of the points, and which points have it."""
    if weights is None:
        return [(1.0, np.ones(count, dtype=bool))]
    scale = np.sqrt(np.clip(weights * count, 0.0, 9.0))
    steps = np.ceil(2.0 * scale) / 2.0
    return [(float(step), steps == step) for step in np.unique(steps) if step > 0]


def marginal_panel(axes: Any, comparison: ChainComparison, j: int) -> None:
    """Plot the density of one parameter: of the chain, filled, and of the kept draws, with the same bandwidth."""
    chain, kept = comparison.draws[:, j], comparison.kept.draws[:, j]
    low, high = axis_limits(chain)
    bandwidth = 1.06 * float(chain.std()) * comparison.kept.effective_size**-0.2  # Silverman's, for the smaller set
    grid, chain_density = smoothed_density(chain, None, (low, high), bandwidth)
    if comparison.chain is not None:
        axes.fill_between(grid, chain_density, color=CHAIN, alpha=0.35, lw=0)
    _, kept_density = smoothed_density(kept, comparison.weights, (low, high), bandwidth)
    axes.plot(grid, kept_density, color=KEPT, lw=1.4)
    top = max(float(kept_density.max()), float(chain_density.max()))
    axes.set(xlim=(low, high), ylim=(0, 1.08 * top if top > 0 else 1.0), yticks=[])
    axes.spines["left"].set_visible(False)
    label_axes(axes, title=shorten_name(comparison.names[j]))
    plain_ticks(axes.xaxis)


def deviation_panel(axes: Any, comparison: ChainComparison) -> None:
    """Plot how far from the mean the draws of the chain and the kept draws are, along the chain."""
    block = comparison.context.stream
    every = max(1, len(block.draws) // 4096)
    position, chain = block.ids[::every, 1], comparison.deviation(block.draws[::every])
    kept = comparison.deviation(comparison.kept.draws)
    axes.plot(position, chain, ".", ms=1.6, mew=0, color=CHAIN, alpha=0.8, rasterized=True)
    axes.plot(comparison.kept.ids[:, 1], kept, "o", ms=2.2, mew=0, color=KEPT, rasterized=len(kept) > _RASTERISE)
    if comparison.burn_in_ends:
        axes.axvline(max(comparison.burn_in_ends.values()), color=MARK, lw=1.0, ls="--")
    both = np.concatenate([chain, kept])
    if both.max() > 8.0 * np.median(both) > 0:
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, None)
    _position_axis(axes, comparison)
    label_axes(axes, "index in the chain", "distance from the mean, sd")
    plain_ticks(axes.yaxis)


def position_panel(axes: Any, comparison: ChainComparison) -> None:
    """Plot the positions of the kept draws: one line per chain, one mark per kept draw."""
    ids, chain = comparison.kept.ids, comparison.chain
    known = np.unique(ids[:, 0] if chain is None else np.r_[ids[:, 0], chain.block.ids[:, 0]])
    rows = np.searchsorted(known, ids[:, 0])
    if len(known) <= 40:
        axes.hlines(np.arange(len(known)), 0, 1, transform=axes.get_yaxis_transform(), color=RULE, lw=0.7, zorder=0)
    height = float(np.clip(110.0 / len(known), 1.0, 40.0))
    axes.plot(ids[:, 1], rows, "|", ms=height, mew=0.6, color=KEPT, rasterized=len(ids) > _RASTERISE)
    axes.set_ylim(len(known) - 0.4, -0.6)
    labelled = np.unique(np.linspace(0, len(known) - 1, min(len(known), 10)).round().astype(int))
    axes.set_yticks(labelled, [str(known[row]) for row in labelled])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    _position_axis(axes, comparison)
    label_axes(axes, "index in the chain", "chain")


def _position_axis(axes: Any, comparison: ChainComparison) -> None:
    ends = [int(comparison.kept.ids[:, 1].max())]
    if comparison.chain is not None:
        ends.append(int(comparison.chain.block.ids[:, 1].max()))
    axes.set_xlim(-0.02 * max(ends), 1.02 * max(ends) + 1)
    plain_ticks(axes.xaxis, whole=True)


# -- densities ---------------------------------------------------------------------------------------------------------


def axis_limits(values: Array) -> tuple[float, float]:
    """Return axis limits that show the central 99 % of the values with a margin, but not much beyond the extremes."""
    low, high = np.quantile(values, [0.005, 0.995])
    margin = 0.3 * (high - low)
    left, right = max(low - margin, float(values.min())), min(high + margin, float(values.max()))
    padding = 0.08 * (right - left)
    if not padding > 0:  # a constant
        padding = max(0.5 * abs(left), 0.5)
    return float(left - padding), float(right + padding)


def smoothed_density(
    values: Array, weights: Array | None, limits: tuple[float, float], bandwidth: float
) -> tuple[Array, Array]:
    """Return a grid of 100 points and a Gaussian kernel density estimate at these points, from a histogram.

    Returns
    -------
    array
        Grid of 100 points.
    array
        Density at these points.

    Examples
    --------
    >>> grid, density = smoothed_density(np.zeros(3), None, (-1.0, 1.0), 0.1)
    >>> round(float(density.sum() * (grid[1] - grid[0])), 3), float(abs(grid[np.argmax(density)])) < 0.01
    (1.0, True)
    """
    low, high = limits
    step = (high - low) / _BINS
    reach = max(1, min(int(4.0 * bandwidth / step), _BINS))
    edges = low + step * np.arange(-reach, _BINS + reach + 1)
    mass, _ = np.histogram(values, edges, weights=weights)
    mass = mass / (len(values) if weights is None else weights.sum())
    kernel = np.exp(-0.5 * (step * np.arange(-reach, reach + 1) / max(bandwidth, step / 2)) ** 2)
    density = np.convolve(mass, kernel / kernel.sum(), "valid") / step
    centres = (edges[:-1] + edges[1:])[reach:-reach] / 2.0
    return centres[::4], density[::4]


def density_contours(
    draws: Array, x: tuple[float, float], y: tuple[float, float]
) -> tuple[Array, Array, Array, list[float]]:
    """Return a smoothed density of draws (n, 2) on a grid, and the levels of its regions of highest density.

    Returns
    -------
    array
        Columns of the grid.
    array
        Rows of the grid.
    array
        Density, (rows, columns), in draws per cell.
    list of float
        Increasing levels: the regions above them hold 95, 80, 50 and 20 % of the draws within the limits. Fewer if
        levels coincide.
    """
    counts, rows, columns = np.histogram2d(draws[:, 1], draws[:, 0], _CELLS, [y, x])
    bandwidth = 1.0 + 1.5 * min(1.0, 2000.0 / len(draws))  # in cells; larger for few draws
    kernel = np.exp(-0.5 * (np.arange(-8, 9) / bandwidth) ** 2)
    for _ in range(2):  # along each side
        counts = np.apply_along_axis(np.convolve, 0, counts, kernel / kernel.sum(), "same").T
    ordered = np.sort(counts, axis=None)[::-1]
    total = np.cumsum(ordered)
    levels = [float(ordered[np.searchsorted(total, mass * total[-1])]) for mass in _MASSES] if total[-1] > 0 else []
    increasing = [level for k, level in enumerate(levels) if level > max([0.0, *levels[:k]])]
    return (columns[:-1] + columns[1:]) / 2, (rows[:-1] + rows[1:]) / 2, counts, increasing


# -- several methods ---------------------------------------------------------------------------------------------------


def pyplot() -> Any:
    """Return ``matplotlib.pyplot`` with a backend that needs no display."""
    require_matplotlib().use("Agg")
    import matplotlib.pyplot as plt

    return plt


def ksd_curves(axes: Any, histories: Mapping[str, History]) -> None:
    """Plot KSD against the number of draws on logarithmic axes, one line per method."""
    for colour, (name, history) in zip(COLOURS, histories.items(), strict=False):
        axes.loglog(
            history.step, history.ksd, color=colour, lw=1.6, label=f"{name} ({count(int(history.size[-1]))} kept)"
        )
    label_axes(axes, "draws", "KSD")
    plain_ticks(axes.xaxis, whole=True)
    plain_ticks(axes.yaxis)
    if histories:
        axes.legend()


def by_size(axes: Any, curves: Mapping[str, tuple[Sequence[float], Sequence[float]]], label: str) -> None:
    """Plot a quantity against the number of kept draws on logarithmic axes, one line per method."""
    for number, (name, (sizes, values)) in enumerate(curves.items()):
        style = {"lw": 2.4, "ms": 6, "zorder": 3} if name == "default" else {"lw": 1.3, "ms": 5}
        colour, marker = METHOD_COLOURS[number % len(METHOD_COLOURS)], MARKERS[number % len(MARKERS)]
        axes.loglog(sizes, values, marker=marker, color=colour, label=name, **style)
    ticks = sorted({int(size) for sizes, _ in curves.values() for size in sizes})
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set(xlabel="draws kept", ylabel=label)
    axes.spines[["top", "right"]].set_visible(False)


def comparison(path: str | PathLike[str], rows: Sequence[ComparisonRow]) -> None:
    """Plot errors, KSD and time of every method against the number of kept draws, and write a png file."""
    plt = pyplot()
    good = [row for row in rows if not row.problem]
    panels = {"error": "error of mean, sd and quantiles / that of a stride", "ksd": "KSD", "seconds": "seconds"}
    if all(math.isnan(row.ksd) for row in good):  # no scores
        del panels["ksd"]
    figure, grid = plt.subplots(1, len(panels), figsize=(2 + 4 * len(panels), 4), layout="constrained")
    for axes, (field, label) in zip(grid, panels.items(), strict=True):
        curves: dict[str, tuple[list[float], list[float]]] = {}
        for row in good:
            sizes, values = curves.setdefault(row.method, ([], []))
            sizes.append(row.size)
            values.append(getattr(row, field))
        by_size(axes, curves, label)
    grid[0].axhline(1.0, color="0.8", lw=1, zorder=0)
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize="small")
    with replacing(path) as file:
        figure.savefig(file, dpi=130, format="png")
    plt.close(figure)
