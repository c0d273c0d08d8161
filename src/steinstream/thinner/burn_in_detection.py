"""Detection of burn-in while a chain runs, from the means of its batches.

*Burn-in* are the leading batches of a chain outside the region of its second half: the largest deviation of a parameter
from its mean, in standard deviations, exceeds 1.5 times that of every batch in the second half. These draws are left
out of the ESS and of the stream term, and those of them that were kept are removed.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from steinstream._typing import Array, Flags, Integers

_MARGIN = 1.5


def leading_burn_in(means: Array, variances: Array) -> int:
    """Return the number of leading batches outside the region of the second half."""
    half = len(means) // 2
    if half == 0:
        return 0
    centre = means[half:].mean(axis=0)
    sd = np.sqrt(variances[half:].mean(axis=0) + means[half:].var(axis=0))
    moving = sd > 0
    if not moving.any():
        return 0
    deviation = np.abs((means - centre)[:, moving] / sd[moving]).max(axis=1)
    inside = deviation <= _MARGIN * deviation[half:].max()
    return int(np.argmax(inside))


def is_burn_in(ids: Integers, ends: Mapping[int, int]) -> Flags:
    """Return which draws, by (chain, index, ...), come before the end of the burn-in of their chain."""
    early = np.zeros(len(ids), dtype=np.bool_)
    for chain, end in ends.items():
        early |= (ids[:, 0] == chain) & (ids[:, 1] < end)
    return early
