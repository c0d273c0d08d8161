"""Every n-th draw: what everyone does."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from steinstream.baselines.job import Integers, Job, job
from steinstream.kernels import Kernel
from steinstream.preconditioning import Preconditioner
from steinstream.validation import Block


def stride(
    draws: ArrayLike,
    scores: ArrayLike,
    size: int,
    *,
    kernel: Kernel | None = None,
    preconditioner: Preconditioner | str = "auto",
    seed: int = 0,
    validate_scores: bool = True,
) -> Integers:
    """Evenly spaced draws, the last draw among them and the first, which is still burning in, as a rule not.

    >>> draws = np.zeros((2, 5, 1))
    >>> stride(draws, draws, 4).tolist()
    [[0, 1], [0, 4], [1, 1], [1, 4]]
    """
    return select(job(draws, scores, size, kernel, preconditioner, seed, validate_scores)).ids


def select(job: Job) -> Block:
    """One pass; holds what it keeps."""
    return job.rows(spaced(job.total, job.size))


def spaced(total: int, size: int) -> Integers:
    """The ends of ``size`` stretches of equal length, up to one.

    >>> spaced(10, 3)
    array([2, 5, 9])
    """
    return np.arange(1, size + 1, dtype=np.int64) * total // size - 1
