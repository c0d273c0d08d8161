"""Figures, one function each, drawn on axes that the caller gives. Needs the ``plot`` extra (matplotlib)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from steinstream.errors import InputError
from steinstream.kept import History

if TYPE_CHECKING:
    from steinstream.comparison import Row

#: Colours that stay apart for every kind of colour vision (Okabe and Ito).
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")

#: The same and two more, with markers, for as many methods as there are.
METHOD_COLOURS = (*COLOURS, "#000000", "#999999")
MARKERS = "osv^D<>X"


def pyplot() -> Any:
    """Matplotlib without a display."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise InputError("Pictures need matplotlib.", 'pip install "steinstream[plot]"') from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def ksd_curves(axes: Any, histories: Mapping[str, History]) -> None:
    """KSD against draws, both logarithmic, one line a method with its final size."""
    for colour, (name, history) in zip(COLOURS, histories.items(), strict=False):
        axes.loglog(history.step, history.ksd, color=colour, lw=1.6, label=f"{name} ({int(history.size[-1]):,} kept)")
    axes.set(xlabel="draws", ylabel="KSD")
    axes.legend(frameon=False, fontsize="small")
    axes.spines[["top", "right"]].set_visible(False)


def kept_over_chain(
    axes: Any, chain: NDArray[np.float64], kept: NDArray[np.float64], labels: Sequence[str], colour: str = COLOURS[2]
) -> None:
    """Kept points over the chain in two coordinates; the view is the chain's bulk, so that burn-in does not rule it."""
    axes.plot(*chain.T, ".", ms=2, color="0.75", rasterized=True, label="chain")
    axes.plot(*kept.T, "o", ms=2.2, mew=0, alpha=0.8, color=colour, label="kept")
    low, high = np.quantile(chain, [0.01, 0.99], axis=0)
    margin = 0.35 * (high - low)
    axes.set(
        xlim=(low[0] - margin[0], high[0] + margin[0]),
        ylim=(low[1] - margin[1], high[1] + margin[1]),
        xlabel=labels[0],
        ylabel=labels[1],
    )
    axes.spines[["top", "right"]].set_visible(False)


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


def comparison(path: str | PathLike[str], rows: Sequence[Row]) -> None:
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
