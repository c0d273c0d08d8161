"""What can be said of chains that nobody keeps: split R-hat, effective sample size and divergences, as they go by.

R-hat or ESS of a thinned set mean nothing: its draws were chosen, in an order that no chain made. So they are computed
from the chains themselves, of which only 16 to 31 blocks of equal length are remembered, as means and sums of squares:
O(chains * d) memory. R-hat is the split one of Gelman et al., *Bayesian Data Analysis* (2013), 11.4, over the halves of
each chain, without ranks; ESS is by batch means, over all blocks, and rough: 20 %.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_MOST = 32  # blocks a chain; then pairs are made one
_FEWEST = 4  # blocks, below which there is nothing to say


class Sums(NamedTuple):
    """Mean, and sum of squares about it, of some draws."""

    draws: int
    mean: Array
    squares: Array


def together(parts: Sequence[Sums]) -> Sums:
    """Of all the draws at once.

    >>> parts = [Sums(2, np.array([1.0]), np.array([2.0])), Sums(2, np.array([3.0]), np.array([0.0]))]
    >>> together(parts)  # of 0, 2, 3, 3
    Sums(draws=4, mean=array([2.]), squares=array([6.]))
    """
    counts = np.array([part.draws for part in parts])[:, None]
    means = np.array([part.mean for part in parts])
    mean = (counts * means).sum(axis=0) / counts.sum()
    squares = sum(part.squares for part in parts) + (counts * (means - mean) ** 2).sum(axis=0)
    return Sums(int(counts.sum()), mean, squares)


class Blocks:
    """A chain as a few blocks of equal length, which grows with the chain."""

    def __init__(self, dim: int) -> None:
        self.draws = 0
        self.done: list[Sums] = []
        self._length = 1
        self._empty = Sums(0, np.zeros(dim), np.zeros(dim))
        self._open = self._empty

    def add(self, draw: Array) -> None:
        """Take one draw (d,)."""
        self.draws += 1
        count, mean, squares = self._open
        apart = draw - mean
        mean = mean + apart / (count + 1)
        self._open = Sums(count + 1, mean, squares + apart * (draw - mean))
        if self._open.draws == self._length:
            self.done.append(self._open)
            self._open = self._empty
        if len(self.done) == _MOST:
            self.done = [together(self.done[i : i + 2]) for i in range(0, _MOST, 2)]
            self._length *= 2

    def halves(self) -> list[Sums]:
        """The first half and the second, of whole blocks."""
        half = len(self.done) // 2
        return [together(self.done[:half]), together(self.done[half : 2 * half])]


class Health:
    """The health of chains, from all their draws."""

    def __init__(self, dim: int) -> None:
        self._blocks: defaultdict[int, Blocks] = defaultdict(lambda: Blocks(dim))
        self._diverging = 0

    def add(self, chain: int, draw: Array, diverging: bool = False) -> None:
        """Take one draw (d,) of a chain."""
        self._blocks[chain].add(draw)
        self._diverging += diverging

    def report(self, names: Sequence[str]) -> dict[str, Any]:
        """In plain numbers: R-hat of the worst parameter and ESS of the worst, where there is enough to tell."""
        chains = [blocks for _, blocks in sorted(self._blocks.items())]
        said: dict[str, Any] = {"draws": [blocks.draws for blocks in chains], "divergences": self._diverging}
        chains = [blocks for blocks in chains if len(blocks.done) >= _FEWEST]
        if chains:
            for what, values, pick in (("rhat", rhat(chains), np.argmax), ("ess", ess(chains), np.argmin)):
                worst = int(pick(values))
                said |= {what: float(values[worst]), f"{what}_of": names[worst]}
        return said


def rhat(chains: Sequence[Blocks]) -> Array:
    """Split R-hat of every parameter; 1 for one that never moved."""
    halves = [half for blocks in chains for half in blocks.halves()]
    within = np.mean([half.squares / max(half.draws - 1, 1) for half in halves], axis=0)
    between = np.var([half.mean for half in halves], axis=0, ddof=1)
    length = np.mean([half.draws for half in halves])
    ratio = np.divide(between, within, out=np.where(between > 0, np.inf, 1 / length), where=within > 0)
    return np.asarray(np.sqrt((length - 1) / length + ratio))


def ess(chains: Sequence[Blocks]) -> Array:
    """Effective sample size of every parameter by batch means."""
    blocks = [block for chain in chains for block in chain.done]
    whole = together(blocks)
    noise = np.var([block.mean for block in blocks], axis=0, ddof=1)
    length = whole.draws / len(blocks)
    variance = whole.squares / (whole.draws - 1)
    ratio = np.divide(variance, noise * length, out=np.ones_like(noise), where=noise > 0)
    return np.asarray(whole.draws * ratio)
