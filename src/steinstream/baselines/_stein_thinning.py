"""Stein thinning (Riabiz et al., "Optimal thinning of MCMC output", 2022).

The next point is the draw y of the whole chain that makes KSD smallest,

    argmin_y  k0(y, y) / 2 + sum over the points so far of k0(y, x);

a draw may be taken more than once. The sums of all draws are carried along, so that a point costs one pass over the
chain: n * size kernel evaluations in all, and memory for the chain.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steinstream.baselines.job import Integers, Job, job, pick
from steinstream.errors import InputError
from steinstream.kernels import PROFILES, Kernel
from steinstream.preconditioning import Preconditioner
from steinstream.validation import Block

Array = NDArray[np.float64]
#: Adds the kernel values of a chosen draw to all sums, and returns the place of the least one.
Add = Callable[[int, Array], int]

_BLOCK = 8192


def stein_thinning(
    draws: ArrayLike,
    scores: ArrayLike,
    size: int,
    *,
    kernel: Kernel | None = None,
    preconditioner: Preconditioner | str | float = "auto",
    seed: int = 0,
    validate_scores: bool = True,
    standardize: bool = True,
    unique: bool = False,
) -> Integers:
    """Greedy selection from the whole chain; with ``unique`` no draw is taken twice.

    With the ``preconditioner`` ``id``, ``med``, ``sclmed``, ``smpcov`` or a squared length, the kernel is that of the
    package stein-thinning, and so are the ids; ``standardize`` then divides each coordinate by its mean absolute
    deviation first.

    >>> draws = np.random.default_rng(0).normal(size=(1000, 2))
    >>> stein_thinning(draws, -draws, 3).tolist()
    [[0, 462], [0, 426], [0, 646]]
    """
    if not is_of_the_package(preconditioner):
        return select(job(draws, scores, size, kernel, preconditioner, seed, validate_scores), unique).ids
    from steinstream.baselines.preconditioners import COVARIANCE, by_length

    given = job(draws, scores, size, kernel, Preconditioner.identity(), seed, validate_scores)
    chain = given.whole()
    if preconditioner == COVARIANCE:
        return chain.ids[_weighted(given, chain, standardize, unique)]
    return select(given._replace(preconditioner=by_length(chain.draws, preconditioner, standardize)), unique).ids


def is_of_the_package(preconditioner: object) -> bool:
    """Whether this is a preconditioner by the name, or the number, that the package stein-thinning gives it."""
    from steinstream.baselines.preconditioners import COVARIANCE, LENGTHS

    if isinstance(preconditioner, str):
        return preconditioner in (COVARIANCE, *LENGTHS) or preconditioner.replace(".", "", 1).isdigit()
    return isinstance(preconditioner, int | float)


def select(job: Job, unique: bool = False) -> Block:
    """Holds the chain as given and in the kernel's coordinates."""
    from steinstream._engine.baseline_loops import add_row, fill_tiles
    from steinstream._engine.simd import LANES

    chain = job.whole()
    tiles = np.zeros((-(-job.total // LANES), job.dim, 2, LANES))
    sums = np.full(len(tiles) * LANES, np.inf)  # no empty slot is ever the best
    for start in range(0, job.total, _BLOCK):
        rows = slice(start, min(start + _BLOCK, job.total))
        x, s = job.preconditioner.apply(chain.draws[rows], chain.scores[rows])
        fill_tiles(tiles, start, x, s)
        sums[rows] = _half_diagonal(job.kernel, x, s, np.ones(job.dim))
    compiled = job.kernel.compiled(job.dim)
    return pick(chain, greedy(partial(add_row, compiled, tiles), sums, job.size, unique))


def _weighted(job: Job, chain: Block, standardize: bool, unique: bool) -> Integers:
    """The places chosen with the covariance as preconditioner."""
    from steinstream._engine.baseline_loops import add_weighted_row
    from steinstream.baselines.preconditioners import by_covariance

    if job.kernel.linear:
        raise InputError("This preconditioner knows no kernel with a linear term.", "Leave linear or smpcov out.")
    x, s, weights = by_covariance(chain.draws, chain.scores, standardize)
    compiled, columns = job.kernel.compiled(job.dim), np.ascontiguousarray(np.stack([x.T, s.T]))
    half = _half_diagonal(job.kernel, x, s, weights)
    return greedy(partial(add_weighted_row, compiled, weights, columns), half, job.size, unique)


def greedy(add: Add, sums: Array, size: int, unique: bool) -> Integers:
    """The place with the least sum, ``size`` times over, the kernel values of each one added before the next."""
    chosen = np.zeros(size, dtype=np.int64)
    chosen[0] = np.argmin(sums)
    for i in range(1, size):
        if unique:
            sums[chosen[i - 1]] = np.inf
        chosen[i] = add(chosen[i - 1], sums)
    return chosen


def _half_diagonal(kernel: Kernel, points: Array, scores: Array, weights: Array) -> Array:
    """k0(x, x) / 2 with weights, coordinate after coordinate, so that equal states have equal values."""
    compiled = kernel.compiled(len(weights))
    phi, slope, _ = PROFILES[compiled.profile](0.0, compiled.first, compiled.second)
    half = np.zeros(len(scores))
    for weight, score in zip(weights, scores.T, strict=True):
        half += 0.5 * weight * (phi * score**2 + slope)
    if kernel.linear:
        half += 0.5 * kernel.linear_diagonal(scores, points)
    return half
