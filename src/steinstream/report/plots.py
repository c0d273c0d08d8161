"""The figures, one function each. Needs the ``plot`` extra (matplotlib).

Those that take axes draw one panel where the caller wants it: a report, the demo, an experiment. The others make a
whole figure of a kept set, and are ``ss.plot``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from steinstream._formatting import count
from steinstream.report.chain_summary import ChainLike, outline
from steinstream.report.compare import Beside
from steinstream.report.density import image, smooth, view
from steinstream.report.style import (
    CHAIN,
    KEPT,
    LINE,
    MARK,
    RULE,
    drawing,
    figure,
    name_axes,
    need_matplotlib,
    plain_ticks,
    shown,
)
from steinstream.result import History, Kept

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from steinstream.baselines.comparison import ComparisonRow

#: Colours that stay apart for every kind of colour vision (Okabe and Ito).
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")

#: The same and two more, with markers, for as many methods as there are.
METHOD_COLOURS = (*COLOURS, "#000000", "#999999")
MARKERS = "osv^D<>X"

_MANY = 5000  # points that are no longer drawn as vectors


def pyplot() -> Any:
    """Matplotlib without a display."""
    need_matplotlib().use("Agg")
    import matplotlib.pyplot as plt

    return plt


def ksd_curves(axes: Any, histories: Mapping[str, History]) -> None:
    """KSD against draws, both logarithmic, one line a method with its final size."""
    for colour, (name, history) in zip(COLOURS, histories.items(), strict=False):
        axes.loglog(
            history.step, history.ksd, color=colour, lw=1.6, label=f"{name} ({count(int(history.size[-1]))} kept)"
        )
    name_axes(axes, "draws", "KSD")
    plain_ticks(axes.xaxis, whole=True)
    plain_ticks(axes.yaxis)
    axes.legend()


def kept_over_chain(
    axes: Any, chain: NDArray[np.float64], kept: NDArray[np.float64], labels: Sequence[str], colour: str = KEPT,
    weights: NDArray[np.float64] | None = None, sparse: bool = True,
) -> None:  # fmt: skip
    """Kept points over the chain's density in two coordinates; areas go with weights. The view is the chain's bulk, so
    that burn-in does not rule it. Points are vectors if they are ``sparse``.
    """
    (left, right), (low, high) = view(chain[:, 0]), view(chain[:, 1])
    axes.imshow(
        image(chain, (left, right), (low, high), CHAIN), extent=(left, right, low, high), origin="lower",
        aspect="auto", interpolation="bilinear", zorder=0,
    )  # fmt: skip
    size = float(np.clip(42.0 / np.sqrt(max(len(kept), 1)), 1.6, 4.0))
    style = {"color": colour, "mew": 0, "ls": "none", "marker": "o", "rasterized": not sparse}
    for scale, rows in _by_weight(weights, len(kept)):
        axes.plot(*kept[rows].T, ms=size * scale, **style)
    axes.set(xlim=(left, right), ylim=(low, high))
    name_axes(axes, *map(shown, labels))
    plain_ticks(axes.xaxis)
    plain_ticks(axes.yaxis)


def _by_weight(weights: NDArray[np.float64] | None, count: int) -> list[tuple[float, NDArray[np.bool_]]]:
    """Diameters, as multiples of the usual one, and which points have each: a few classes of weights."""
    if weights is None:
        return [(1.0, np.ones(count, dtype=bool))]
    scale = np.sqrt(np.clip(weights * count, 0.0, 9.0))
    steps = np.ceil(2.0 * scale) / 2.0
    return [(float(step), steps == step) for step in np.unique(steps) if step > 0]


def ksd_trace(axes: Any, kept: Kept) -> None:
    """KSD of what was kept, while the draws came; a dotted line where the coordinates changed, and KSD with them."""
    _against_steps(axes, kept, kept.history.ksd, LINE, "KSD")


def size_trace(axes: Any, kept: Kept) -> None:
    """How many were kept, while the draws came."""
    _against_steps(axes, kept, kept.history.size, KEPT, "kept")


def _against_steps(axes: Any, kept: Kept, values: NDArray[Any], colour: str, label: str) -> None:
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
    name_axes(axes, "draws" if kept.settings.get("candidates", 1) == 1 else "steps", label)
    plain_ticks(axes.xaxis, whole=True)
    plain_ticks(axes.yaxis, whole=label == "kept")
    axes.grid(color=RULE, lw=0.5)


def marginal(axes: Any, beside: Beside, j: int) -> None:
    """One parameter: the density of the chain, filled, and of what is kept, both smoothed alike."""
    chain, ours = beside.draws[:, j], beside.kept.draws[:, j]
    low, high = view(chain)
    width = 1.06 * float(chain.std()) * beside.kept.effective_size**-0.2  # Silverman's, for the smaller set
    grid, theirs = smooth(chain, None, low, high, width)
    if beside.outline is not None:
        axes.fill_between(grid, theirs, color=CHAIN, alpha=0.35, lw=0)
    _, mine = smooth(ours, beside.weights, low, high, width)
    axes.plot(grid, mine, color=KEPT, lw=1.4)
    top = max(float(mine.max()), float(theirs.max()))
    axes.set(xlim=(low, high), ylim=(0, 1.08 * top if top > 0 else 1.0), yticks=[])
    axes.spines["left"].set_visible(False)
    name_axes(axes, title=shown(beside.names[j]))
    plain_ticks(axes.xaxis)


def distance_along_chain(axes: Any, beside: Beside) -> None:
    """How far out the draws are, along the chain, and the kept ones among them: burn-in is where it comes down."""
    block = beside.evidence.stream
    every = max(1, len(block.draws) // 4096)
    place, far = block.ids[::every, 1], beside.distance(block.draws[::every])
    mine = beside.distance(beside.kept.draws)
    axes.plot(place, far, ".", ms=1.6, mew=0, color=CHAIN, alpha=0.8, rasterized=True)
    axes.plot(beside.kept.ids[:, 1], mine, "o", ms=2.2, mew=0, color=KEPT, rasterized=len(mine) > _MANY)
    if beside.settled_from:
        axes.axvline(max(beside.settled_from.values()), color=MARK, lw=1.0, ls="--")
    both = np.concatenate([far, mine])
    if both.max() > 8.0 * np.median(both) > 0:
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, None)
    _along(axes, beside)
    name_axes(axes, "draw in its chain", "distance from the mean, sd")
    plain_ticks(axes.yaxis)


def places_along_chain(axes: Any, beside: Beside) -> None:
    """Which draws were kept: a line for each chain, a mark for each kept draw."""
    ids = beside.kept.ids
    known = np.unique(ids[:, 0] if beside.outline is None else np.r_[ids[:, 0], beside.outline.block.ids[:, 0]])
    rows = np.searchsorted(known, ids[:, 0])
    if len(known) <= 40:
        axes.hlines(np.arange(len(known)), 0, 1, transform=axes.get_yaxis_transform(), color=RULE, lw=0.7, zorder=0)
    height = float(np.clip(110.0 / len(known), 1.0, 40.0))
    axes.plot(ids[:, 1], rows, "|", ms=height, mew=0.6, color=KEPT, rasterized=len(ids) > _MANY)
    axes.set_ylim(len(known) - 0.4, -0.6)
    named = np.unique(np.linspace(0, len(known) - 1, min(len(known), 10)).round().astype(int))
    axes.set_yticks(named, [str(known[row]) for row in named])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    _along(axes, beside)
    name_axes(axes, "draw in its chain", "chain")


def _along(axes: Any, beside: Beside) -> None:
    ends = [int(beside.kept.ids[:, 1].max())]
    if beside.outline is not None:
        ends.append(int(beside.outline.block.ids[:, 1].max()))
    axes.set_xlim(-0.02 * max(ends), 1.02 * max(ends) + 1)
    plain_ticks(axes.xaxis, whole=True)


# -- whole figures: ss.plot ----------------------------------------------------------------------------------------


def trace(kept: Kept) -> Figure:
    """KSD and the number kept, against draws.

    >>> import steinstream as ss
    >>> draws = np.random.default_rng(0).normal(size=(2000, 2))
    >>> len(trace(ss.thin(draws, -draws)).axes)
    2
    """
    with drawing():
        whole, (left, right) = figure(8.4, 2.8, 1, 2)
        ksd_trace(left, kept)
        size_trace(right, kept)
    return whole


def pairs(kept: Kept, chain: ChainLike = None, most: int = 5) -> Figure:
    """Kept points over the chain's density, for each pair of parameters: at most so many, those that differ most.

    ``chain`` is a file, an array of draws (n, d) or (chains, n, d), or left out: then it is what the kept set
    remembers of its stream.
    """
    beside = Beside(kept, outline(kept, chain))
    chosen = beside.most_different(most)
    side = max(len(chosen) - 1, 1)
    with drawing():
        whole, grid = figure(1.2 + 1.9 * side, 1.0 + 1.8 * side, side, side, squeeze=False)
        for row, column in np.ndindex(side, side):
            axes = grid[row, column]
            if column > row:
                axes.remove()
                continue
            pair(axes, beside, chosen[column], chosen[min(row + 1, len(chosen) - 1)])
            axes.label_outer()
    return whole


def pair(axes: Any, beside: Beside, x: int, y: int, sparse: bool = True) -> None:
    """Kept points over the chain's density, for two parameters."""
    both = [x, y]
    names = beside.names[x], beside.names[y]
    kept_over_chain(
        axes, beside.draws[:, both], beside.kept.draws[:, both], names, weights=beside.kept.weights, sparse=sparse
    )


def marginals(kept: Kept, chain: ChainLike = None, most: int = 12) -> Figure:
    """The density of each parameter, of the chain and of what is kept; at most so many, those that differ most.

    ``chain`` as in :func:`pairs`.
    """
    beside = Beside(kept, outline(kept, chain))
    chosen = beside.most_different(most)
    columns = min(len(chosen), 4)
    rows = -(-len(chosen) // columns)
    with drawing():
        whole, grid = figure(0.4 + 2.0 * columns, 0.2 + 1.5 * rows, rows, columns, squeeze=False)
        for axes, j in zip(grid.flat, chosen, strict=False):
            marginal(axes, beside, j)
        for axes in grid.flat[len(chosen) :]:
            axes.remove()
    return whole


def kept_along_chain(kept: Kept, chain: ChainLike = None) -> Figure:
    """Which draws were kept, along each chain, and with a chain how far out they are: burn-in shows.

    ``chain`` as in :func:`pairs`.
    """
    beside = Beside(kept, outline(kept, chain))
    with drawing():
        panels = 1 if beside.outline is None else 2
        whole, grid = figure(4.2 * panels, 2.8, 1, panels, squeeze=False)
        if beside.outline is not None:
            distance_along_chain(grid[0, 0], beside)
        places_along_chain(grid[0, -1], beside)
    return whole


# -- several methods -----------------------------------------------------------------------------------------------


def by_size(
    axes: Any, curves: Mapping[str, tuple[Sequence[float], Sequence[float]]], label: str, ours: str = "ksdt"
) -> None:
    """Something against the number of draws kept, both logarithmic, one line a method, with ours standing out."""
    for number, (name, (sizes, values)) in enumerate(curves.items()):
        style = {"lw": 2.4, "ms": 6, "zorder": 3} if name == ours else {"lw": 1.3, "ms": 5}
        colour, marker = METHOD_COLOURS[number % len(METHOD_COLOURS)], MARKERS[number % len(MARKERS)]
        axes.loglog(sizes, values, marker=marker, color=colour, label=name, **style)
    ticks = sorted({int(size) for sizes, _ in curves.values() for size in sizes})
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set(xlabel="draws kept", ylabel=label)
    axes.spines[["top", "right"]].set_visible(False)


def comparison(path: str | PathLike[str], rows: Sequence[ComparisonRow]) -> None:
    """KSD and time of every method against size, as a png."""
    from steinstream.io import replacing

    plt = pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    good = [row for row in rows if not row.problem]
    for axes, field, label in ((left, "ksd", "KSD"), (right, "seconds", "seconds")):
        curves: dict[str, tuple[list[float], list[float]]] = {}
        for row in good:
            sizes, values = curves.setdefault(row.method, ([], []))
            sizes.append(row.size)
            values.append(getattr(row, field))
        by_size(axes, curves, label)
    figure.legend(*left.get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize="small")
    with replacing(path) as file:
        figure.savefig(file, dpi=130, format="png")
    plt.close(figure)
