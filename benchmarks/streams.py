"""Draws with their scores, to feed everyone the same."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Stream(NamedTuple):
    """Draws (n, d) and scores (n, d)."""

    name: str
    draws: Array
    scores: Array


def normal(count: int, dim: int) -> Stream:
    """Independent draws from a standard normal."""
    draws = np.random.default_rng(dim).normal(size=(count, dim))
    return Stream("normal", draws, -draws)


def mixture(count: int, modes: int = 4, width: float = 0.5) -> Stream:
    """Independent draws from the paper's Gaussian mixture: modes at (i, i), standard deviation 0.5."""
    rng = np.random.default_rng(modes)
    means = np.repeat(np.arange(modes, dtype=float)[:, None], 2, axis=1)
    draws = means[rng.integers(modes, size=count)] + width * rng.normal(size=(count, 2))
    toward = (means - draws[:, None]) / width**2
    logs = -0.5 * width**2 * np.sum(toward**2, axis=-1)
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return Stream("mixture", draws, np.einsum("nm,nmd->nd", weights, toward))


def goodwin(data: Path) -> Stream:
    """A real random-walk chain for the Goodwin oscillator, in units of its standard deviations."""
    with np.load(data / "goodwin" / "goodwin_rw_stride100.npz") as file:
        draws, scores = file["theta"], file["score"]
    scale = draws.std(axis=0)
    return Stream("Goodwin chain", draws / scale, scores * scale)
