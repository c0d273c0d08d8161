"""Partition of a stream into regions: nearest of 2, 4, 8 and 16 k-means centres of the standardised draws.

A mode is one region or several. Unlike balls and boxes, such cells are hardly affected if a set is slightly narrower
than the stream as a whole.
"""

from __future__ import annotations

import numpy as np

from steinstream._typing import Array

_NUMBERS = (2, 4, 8, 16)
_MAX_PER_DIMENSION = 8  # the kernel does not resolve gaps of less than half a standard deviation
_ITERATIONS = 15
_MAX_DRAWS = 2048  # to find the centres


def partitions(draws: Array) -> list[Array]:
    """Return the centres of each partition of ``draws`` (n, d), from coarse to fine."""
    some = draws[:: -(-len(draws) // _MAX_DRAWS)]
    return [kmeans_centres(some, number) for number in _NUMBERS if number <= _MAX_PER_DIMENSION * draws.shape[1]]


def region_membership(draws: Array, partitions: list[Array]) -> Array:
    """Return a 0/1 matrix (n, k): which of the k regions of all partitions contain each draw."""
    return np.concatenate([_one_hot(draws, centres) for centres in partitions], axis=1)


def kmeans_centres(draws: Array, number: int) -> Array:
    """Run k-means with k-means++ initialisation and a fixed seed, and return the centres of the non-empty regions.

    D. Arthur and S. Vassilvitskii, "k-means++: the advantages of careful seeding" (2007).

    Returns
    -------
    array
        At most ``number`` centres.
    """
    random = np.random.default_rng(0)
    chosen = [draws[random.integers(len(draws))]]
    nearest = ((draws - chosen[0]) ** 2).sum(axis=1)
    while len(chosen) < number and nearest.sum() > 0:
        chosen.append(draws[random.choice(len(draws), p=nearest / nearest.sum())])
        nearest = np.minimum(nearest, ((draws - chosen[-1]) ** 2).sum(axis=1))
    centres = np.array(chosen)
    for _ in range(_ITERATIONS):
        membership = _one_hot(draws, centres)
        counts = membership.sum(axis=0)
        sums = np.einsum("nk,nd->kd", membership, draws)
        centres = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1.0)[:, None], centres)
    return centres[_one_hot(draws, centres).any(axis=0)]


def _one_hot(draws: Array, centres: Array) -> Array:
    """Return (n, k): 1 for the nearest centre, else 0."""
    nearest = ((centres**2).sum(axis=1) - 2.0 * np.einsum("nd,kd->nk", draws, centres)).argmin(axis=1)
    return np.asarray(nearest[:, None] == np.arange(len(centres)), dtype=np.float64)
