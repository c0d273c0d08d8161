"""Figures, one function each, drawn on axes that the caller gives. Needs the ``plot`` extra (matplotlib)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steinstream.errors import InputError
from steinstream.kept import History

#: Colours that stay apart for every kind of colour vision (Okabe and Ito).
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")


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
