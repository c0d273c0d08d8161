"""SPMCMC without thinning (Chen et al., "Stein point Markov chain Monte Carlo", 2019), on a chain that is given.

The authors start a short chain of m draws for each point; here the given chain is cut into groups of m consecutive
draws. Of each group the draw y that makes KSD smallest joins the set,

    argmin_y  k0(y, y) / 2 + sum over the set of k0(y, x),

and nothing ever leaves it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from steinstream import schedules, validation
from steinstream.baselines.job import Integers, Job, job
from steinstream.kernels import Kernel
from steinstream.preconditioning import Preconditioner
from steinstream.validation import Block


def spmcmc(
    draws: ArrayLike,
    scores: ArrayLike,
    size: int,
    *,
    kernel: Kernel | None = None,
    preconditioner: Preconditioner | str = "auto",
    seed: int = 0,
    validate_scores: bool = True,
) -> Integers:
    """The best draw of each of ``size`` groups of consecutive draws, equally long up to one draw."""
    return select(job(draws, scores, size, kernel, preconditioner, seed, validate_scores)).ids


def select(job: Job) -> Block:
    """One pass; holds what it keeps and one group. On average ``size`` / 2 kernel evaluations a draw."""
    return best_of_groups(job, job.size, schedules.Everything())


def best_of_groups(job: Job, steps: int, growth: schedules.Schedule) -> Block:
    """The best of each of ``steps`` groups is added, then the least influential go until ``growth`` are left."""
    from steinstream.thinner import Thinner

    thinner = Thinner(
        job.dim, growth=growth, budget=np.inf, kernel=job.kernel, preconditioner=job.preconditioner,
        history=None, validate_scores=False,
    )  # fmt: skip
    for group in groups(job, steps):
        thinner.select(group.draws, group.scores, ids=group.ids)
    kept = thinner.kept
    return Block(kept.draws, kept.scores, kept.ids)


def groups(job: Job, count: int) -> Iterator[Block]:
    """The stream in so many stretches of equal length, up to one draw."""
    edges = np.arange(count + 1) * job.total // count
    held, start, done = validation.empty_block(job.dim), 0, 0
    for block in job.blocks():
        held = held.append(block)
        last = int(np.searchsorted(edges, start + len(held.draws), side="right")) - 1
        for first, end in pairwise(edges[done : last + 1] - start):
            yield held.take(slice(first, end))
        held = held.take(slice(edges[last] - start, None))
        done, start = last, int(edges[last])
