"""Size, KSD and MMD of the kept draws along the stream."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from steinstream._typing import Array, Integers


class History(NamedTuple):
    """Number of kept draws, their KSD and their MMD to the stream after some steps.

    Attributes
    ----------
    step : array
        Steps.
    size : array
        Number of kept draws after each step.
    ksd : array
        KSD after each step; NaN without scores.
    mmd : array
        MMD after each step; NaN without a stream term.

    Examples
    --------
    >>> import steinstream as ss
    >>> draws = np.random.default_rng(0).normal(size=(1000, 2))
    >>> history = ss.thin(draws, -draws).history
    >>> int(history.step[-1]), int(history.size[-1])
    (1000, 84)
    """

    step: Integers
    size: Integers
    ksd: Array
    mmd: Array

    @classmethod
    def empty(cls) -> History:
        """Return a history without steps."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0), np.zeros(0))

    @classmethod
    def single(cls, step: int, size: int, ksd: float, mmd: float = math.nan) -> History:
        """Return a history of one step."""
        return cls(np.array([step]), np.array([size]), np.array([ksd]), np.array([mmd]))
