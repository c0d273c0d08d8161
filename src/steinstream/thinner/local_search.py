"""A good set of a given size out of draws that are all at hand: begin, swap, shake.

Two ways to begin: the greedy choice of Stein thinning, without repeats, and evenly spaced draws. Then each chosen draw
in turn gives way to the draw that makes KSD smallest, which may be itself, until nothing changes, ten rounds at most.
Last, five draws at a time are dropped and others chosen greedily, which gets out where no swap would help. Nothing
raises KSD. A draw that comes or goes costs one sweep over all draws: n evaluations of the kernel, so that a round takes
2 n size of them, and the greedy choice n size.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from steinstream.kernels import Kernel
from steinstream.preconditioning import Preconditioner
from steinstream.validation import Block

_ROUNDS = 10  # of swaps, at most
_TRIALS, _DROP = 50, 5  # how often some draws are dropped and others taken instead, and how many


class Selection:
    """So many draws of a block, none twice."""

    def __init__(self, draws: Block, size: int, kernel: Kernel, preconditioner: Preconditioner) -> None:
        from steinstream._engine.pairwise import as_tiles

        x, s = preconditioner.apply(draws.draws, draws.scores)
        tiles = as_tiles(x, s)
        half = np.full(tiles.shape[0] * tiles.shape[3], np.inf)  # an empty place is never the best
        half[: len(x)] = 0.5 * kernel.diagonal(s, x)
        self._draws, self._half = draws, half
        self.chosen = np.zeros(size, dtype=np.int64)
        """Where in the block the chosen draws are, in no order."""
        taken, sums, row = np.zeros(len(half), dtype=bool), half.copy(), np.zeros(len(half))
        self._state = kernel.compiled(x.shape[1]), tiles, self.chosen, taken, sums, row

    @property
    def energy(self) -> float:
        """size^2 KSD^2."""
        from steinstream._engine.local_search import energy

        return float(energy(*self._state, self._half))

    def block(self) -> Block:
        """The chosen draws, in the order of the block."""
        places = np.sort(self.chosen)
        return Block(self._draws.draws[places], self._draws.scores[places], self._draws.ids[places])

    def greedy(self) -> Self:
        """Begin with the draw that makes KSD smallest, again and again."""
        from steinstream._engine.local_search import refill

        refill(*self._state, np.arange(len(self.chosen)))
        return self

    def even(self) -> Self:
        """Begin with evenly spaced draws."""
        from steinstream._engine.local_search import take

        size, count = len(self.chosen), len(self._draws.draws)
        take(*self._state, (np.arange(size) * count) // size)
        return self

    def swap(self) -> Self:
        """Let each draw in turn give way to the best one."""
        from steinstream._engine.local_search import swap_each

        for _ in range(_ROUNDS):
            if not swap_each(*self._state):
                break
        return self

    def shake(self) -> Self:
        """Some trials: five draws go, the greedy choice comes, and stays if KSD is less."""
        from steinstream._engine.local_search import shake

        size, random = len(self.chosen), np.random.default_rng(0)
        drops = np.array([random.choice(size, min(_DROP, size), replace=False) for _ in range(_TRIALS)])
        shake(*self._state, self._half, drops)
        return self
