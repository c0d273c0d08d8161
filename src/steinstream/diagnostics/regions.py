"""Regions of a stream: what is nearest to each of 2, 4, 8 and 16 centres, by k-means on standardised draws.

A mode is one of them or several. Unlike balls and boxes such cells hardly notice that a set is a little narrower than
the stream as a whole.
"""

from __future__ import annotations

import numpy as np

from steinstream.validation import Array

_NUMBERS = (2, 4, 8, 16)
_FINEST = 8  # regions a dimension: a gap below half a standard deviation the kernel takes for none
_TURNS = 15
_MOST = 2048  # draws that are enough to find the centres


def divisions(draws: Array) -> list[Array]:
    """The centres of each division, from coarse to fine."""
    some = draws[:: -(-len(draws) // _MOST)]
    return [centres(some, number) for number in _NUMBERS if number <= _FINEST * draws.shape[1]]


def regions_of(draws: Array, divisions: list[Array]) -> Array:
    """(n, k): which of the k regions of all divisions each draw is in, as 0 and 1."""
    return np.concatenate([_one_hot(draws, centres) for centres in divisions], axis=1)


def centres(draws: Array, number: int) -> Array:
    """k-means, begun with draws far from each other as k-means++ does. The same draws give the same centres.

    D. Arthur and S. Vassilvitskii, "k-means++: the advantages of careful seeding" (2007).
    """
    random = np.random.default_rng(0)
    chosen = [draws[random.integers(len(draws))]]
    nearest = ((draws - chosen[0]) ** 2).sum(axis=1)
    while len(chosen) < number and nearest.sum() > 0:
        chosen.append(draws[random.choice(len(draws), p=nearest / nearest.sum())])
        nearest = np.minimum(nearest, ((draws - chosen[-1]) ** 2).sum(axis=1))
    found = np.array(chosen)
    for _ in range(_TURNS):
        members = _one_hot(draws, found)
        counts = members.sum(axis=0)
        sums = np.einsum("nk,nd->kd", members, draws)
        found = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1.0)[:, None], found)
    return found[_one_hot(draws, found).any(axis=0)]


def _one_hot(draws: Array, centres: Array) -> Array:
    """(n, k): 1 for the nearest centre, else 0."""
    nearest = ((centres**2).sum(axis=1) - 2.0 * np.einsum("nd,kd->nk", draws, centres)).argmin(axis=1)
    return np.asarray(nearest[:, None] == np.arange(len(centres)), dtype=np.float64)
