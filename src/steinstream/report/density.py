"""Densities for figures: smoothed histograms in one and two dimensions, and the part of them that is worth showing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_BINS = 400  # along a line
_CELLS = 72  # along each side of a picture


def view(values: Array) -> tuple[float, float]:
    """From where to where a parameter is shown: its bulk and some room, but not beyond its extremes."""
    low, high = np.quantile(values, [0.005, 0.995])
    room = 0.3 * (high - low)
    left, right = max(low - room, float(values.min())), min(high + room, float(values.max()))
    margin = 0.08 * (right - left)
    if not margin > 0:  # it never moves
        margin = max(0.5 * abs(left), 0.5)
    return float(left - margin), float(right + margin)


def smooth(values: Array, weights: Array | None, low: float, high: float, width: float) -> tuple[Array, Array]:
    """A grid from ``low`` to ``high`` and the density there, smoothed with a Gaussian of this ``width``.

    >>> grid, density = smooth(np.zeros(3), None, -1.0, 1.0, 0.1)
    >>> round(float(density.sum() * (grid[1] - grid[0])), 3), float(abs(grid[np.argmax(density)])) < 0.01
    (1.0, True)
    """
    step = (high - low) / _BINS
    reach = max(1, min(int(4.0 * width / step), _BINS))
    edges = low + step * np.arange(-reach, _BINS + reach + 1)
    share, _ = np.histogram(values, edges, weights=weights)
    share = share / (len(values) if weights is None else weights.sum())
    bell = np.exp(-0.5 * (step * np.arange(-reach, reach + 1) / max(width, step / 2)) ** 2)
    density = np.convolve(share, bell / bell.sum(), "valid") / step
    centres = (edges[:-1] + edges[1:])[reach:-reach] / 2.0
    return centres[::4], density[::4]


def image(points: Array, x: tuple[float, float], y: tuple[float, float], colour: str) -> Array:
    """The density of points (n, 2) as a picture of one colour, (rows, columns, 4): the denser, the less transparent."""
    counts, _, _ = np.histogram2d(points[:, 1], points[:, 0], _CELLS, [y, x])
    width = 1.0 + 1.5 * min(1.0, 2000.0 / len(points))  # fewer draws, smoother
    bell = np.exp(-0.5 * (np.arange(-8, 9) / width) ** 2)
    for _ in range(2):  # along each side
        counts = np.apply_along_axis(np.convolve, 0, counts, bell / bell.sum(), "same").T
    picture = np.empty((_CELLS, _CELLS, 4))
    picture[:] = [int(colour[at : at + 2], 16) / 255.0 for at in (1, 3, 5)] + [0.0]
    picture[:, :, 3] = 0.9 * (counts / max(float(counts.max()), 1e-300)) ** 0.45
    return picture
