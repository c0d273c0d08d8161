"""SPMCMC that drops points on a fixed timetable (Chen et al. 2019, appendix A.6.5).

Each step adds the best of the next m draws, as SPMCMC does. At the drop sites, steps fixed beforehand, the least
influential point (the one whose loss leaves the smallest KSD) goes first, whether KSD gains by it or not. For a drop
rate r there are size / (1 - r) steps, and the sites are evenly spaced from step 10 to the last, as in the authors'
public code; for fewer than ten points they start earlier. So the set grows linearly, and ends with ``size`` points.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from steinstream.baselines._spmcmc import best_of_groups
from steinstream.baselines.job import Integers, Job, job
from steinstream.errors import InputError
from steinstream.kernels import Kernel
from steinstream.preconditioning import Preconditioner
from steinstream.validation import Block

_RATE = 0.3  # the greatest that the authors try


def spmcmc_fixed_drops(
    draws: ArrayLike,
    scores: ArrayLike,
    size: int,
    *,
    kernel: Kernel | None = None,
    preconditioner: Preconditioner | str = "auto",
    seed: int = 0,
    validate_scores: bool = True,
    drop_rate: float = _RATE,
) -> Integers:
    """SPMCMC in which a fixed share ``drop_rate`` of the steps also drops the least influential point."""
    return select(job(draws, scores, size, kernel, preconditioner, seed, validate_scores), drop_rate).ids


def select(job: Job, drop_rate: float = _RATE) -> Block:
    """One pass; holds what it keeps and one group."""
    if not 0 <= drop_rate < 1:
        raise InputError(f"The drop rate must be at least 0 and below 1, got {drop_rate}.")
    steps = min(round(job.size / (1.0 - drop_rate)), job.total)
    return best_of_groups(job, steps, _growth(drop_sites(steps, job.size)))


def drop_sites(steps: int, size: int) -> Integers:
    """The steps, counted from 1, that drop a point before they add one.

    >>> drop_sites(20, 14)
    array([10, 12, 14, 16, 18, 20])
    """
    first = max(2, min(10, size + 1))
    return np.floor(np.linspace(first, steps, steps - size) + 0.5).astype(np.int64)


def _growth(sites: Integers) -> Callable[[int], float]:
    """How many points are left after step t, when what step t + 1 drops has gone already."""

    def growth(t: int) -> float:
        return float(t - np.searchsorted(sites, t + 1, side="right"))

    return growth
