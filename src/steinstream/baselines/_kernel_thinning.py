"""Kernel thinning (Dwivedi and Mackey, 2021 and 2024) with the Stein kernel, by the package goodpoints.

Evenly spaced draws, size * 2^m of them with m as great as the chain allows, are halved m times into sets that balance
each other under the kernel. The best of the 2^m sets is then improved point by point, each one replaced by the draw
that makes KSD smallest (under the Stein kernel the target's mean embedding is 0). About n^2 / 2 kernel evaluations;
``seed`` decides the coins that halving throws; a draw may be taken more than once.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steinstream.baselines._stride import spaced
from steinstream.baselines.job import Integers, Job, job, pick
from steinstream.errors import InputError
from steinstream.kernels import Kernel
from steinstream.preconditioning import Preconditioner
from steinstream.validation import Block


def kernel_thinning(
    draws: ArrayLike,
    scores: ArrayLike,
    size: int,
    *,
    kernel: Kernel | None = None,
    preconditioner: Preconditioner | str = "auto",
    seed: int = 0,
    validate_scores: bool = True,
) -> Integers:
    """Halve the chain by kernel, then swap. Needs ``pip install goodpoints``."""
    _goodpoints()
    return select(job(draws, scores, size, kernel, preconditioner, seed, validate_scores)).ids


def select(job: Job) -> Block:
    """Holds an evenly spaced part of the chain, at least half of it."""
    from steinstream._engine.baseline_loops import pairs

    kt = _goodpoints()
    rounds = int(job.total // job.size).bit_length() - 1
    chain = job.rows(spaced(job.total, job.size << rounds))
    compiled = job.kernel.compiled(job.dim)
    both = np.stack(job.preconditioner.apply(chain.draws, chain.scores), axis=1)

    def stein(some: Integers, others: Integers) -> NDArray[np.float64]:
        """Draws are known to the package by their number alone."""
        one, other = (np.array(part) for part in np.broadcast_arrays(some[:, 0], others[:, 0]))
        out = np.empty(len(one))
        pairs(compiled, both, one, other, out)
        return out

    numbers = np.arange(len(both), dtype=np.int64)[:, None]
    places = kt.thin_X(numbers, rounds, stein, stein, seed=job.seed, meanK=np.zeros(len(both)))
    return pick(chain, places)


def _goodpoints() -> Any:
    try:
        return import_module("goodpoints.kt")
    except ModuleNotFoundError:
        raise InputError(
            "Kernel thinning needs the package goodpoints.", 'pip install "steinstream[kernel-thinning]"'
        ) from None
