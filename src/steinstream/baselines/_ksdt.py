"""Our own method, to stand beside the others: online KSD thinning with a hard cap."""

from __future__ import annotations

from numpy.typing import ArrayLike

from steinstream.baselines.job import Integers, Job, job
from steinstream.kernels import Kernel
from steinstream.preconditioning import Preconditioner
from steinstream.validation import Block


def ksdt(
    draws: ArrayLike,
    scores: ArrayLike,
    size: int,
    *,
    kernel: Kernel | None = None,
    preconditioner: Preconditioner | str = "auto",
    seed: int = 0,
    validate_scores: bool = True,
) -> Integers:
    """The ids of ``steinstream.thin(draws, scores, size=size)``."""
    return select(job(draws, scores, size, kernel, preconditioner, seed, validate_scores)).ids


def select(job: Job) -> Block:
    """One pass; holds what it keeps, and sees each draw once. ``size`` kernel evaluations a draw."""
    from steinstream.thinner import Thinner

    thinner = Thinner(
        job.dim,
        size=job.size,
        kernel=job.kernel,
        preconditioner=job.preconditioner,
        history=None,
        validate_scores=False,
    )
    for block in job.blocks():
        thinner.extend(block.draws, block.scores, ids=block.ids)
    kept = thinner.kept
    return Block(kept.draws, kept.scores, kept.ids)
