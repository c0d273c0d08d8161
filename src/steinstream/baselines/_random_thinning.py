"""Draws at random: what chance alone gives."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from steinstream.baselines.job import Integers, Job, job
from steinstream.kernels import Kernel
from steinstream.preconditioning import Preconditioner
from steinstream.validation import Block


def random_thinning(
    draws: ArrayLike,
    scores: ArrayLike,
    size: int,
    *,
    kernel: Kernel | None = None,
    preconditioner: Preconditioner | str = "auto",
    seed: int = 0,
    validate_scores: bool = True,
) -> Integers:
    """Draws taken at random without replacement; the same ones for the same ``seed``.

    >>> draws = np.zeros((5, 1))
    >>> sorted(random_thinning(draws, draws, 5).tolist())
    [[0, 0], [0, 1], [0, 2], [0, 3], [0, 4]]
    """
    return select(job(draws, scores, size, kernel, preconditioner, seed, validate_scores)).ids


def select(job: Job) -> Block:
    """One pass; holds what it keeps."""
    return job.rows(np.random.default_rng(job.seed).choice(job.total, job.size, replace=False))
