"""Local search for a good set of a given size in a sample of draws.

The search starts from the greedy selection of Stein thinning, without repeats, or from evenly spaced draws. Then each
chosen draw in turn is replaced by the draw that leaves the smallest objective, which may be the same, until nothing
changes or ten rounds are done. Finally groups of five draws are dropped and re-selected greedily, which escapes sets
that no single swap improves. The objective never rises. It is KSD^2 plus the stream term, with the sample in place of
the stream.

Inserting or removing a draw costs one kernel row over all n draws: a round of swaps takes 2 n size kernel evaluations,
the greedy selection n size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np

from steinstream.preconditioning import Preconditioner
from steinstream.thinner.config import ThinConfig
from steinstream.validation import Block

if TYPE_CHECKING:
    from steinstream._typing import Array, Integers

_ROUNDS = 10  # largest number of rounds of swaps
_TRIALS, _DROPPED = 50, 5  # number of re-selections, and of draws in each


class Selection:
    """A subset of the draws of a block, without repeats. Of the settings, ``size`` and ``kernel`` are used.

    A weight of the stream term is required for draws without scores, and its value has no effect then. The stream has
    each of the draws as often as ``counts`` says, by default once.
    """

    def __init__(
        self,
        draws: Block,
        config: ThinConfig,
        preconditioner: Preconditioner,
        stream_weight: float = 0.0,
        counts: Array | None = None,
    ) -> None:
        from steinstream._engine.compiled_kernel import compile_kernel  # compiled: only where it is used
        from steinstream._engine.local_search import empty_subset, with_stream_term
        from steinstream._engine.pairwise import as_tiles

        x, kernel = preconditioner.apply_to_draws(draws.draws), config.kernel
        s = preconditioner.apply_to_scores(draws.scores) if draws.has_scores else np.zeros_like(x)
        diagonal = kernel.diagonal(s, x) if draws.has_scores else np.zeros(len(x))
        self._draws, self._kernel = draws, compile_kernel(kernel, x.shape[1])
        self._subset = empty_subset(as_tiles(x, s), diagonal, config.size or 0, float(draws.has_scores))
        if stream_weight:
            counts = np.ones(len(x)) if counts is None else counts
            scale = stream_weight * float((diagonal * counts).sum() / counts.sum()) if draws.has_scores else 1.0
            self._subset = with_stream_term(self._kernel, self._subset, counts, scale)

    @property
    def chosen(self) -> Integers:
        """Indices of the chosen draws within the block, in no particular order."""
        return self._subset.chosen

    @property
    def energy(self) -> float:
        """The objective times size^2, up to a constant."""
        from steinstream._engine.local_search import energy

        return float(energy(self._subset))

    def block(self) -> Block:
        """Return the chosen draws, in the order of the block."""
        places = np.sort(self.chosen)
        return Block(self._draws.draws[places], self._draws.scores[places], self._draws.ids[places])

    def greedy(self) -> Self:
        from steinstream._engine.local_search import choose_greedily

        choose_greedily(self._kernel, self._subset, np.arange(len(self.chosen)))
        return self

    def even(self) -> Self:
        """Start with evenly spaced draws."""
        from steinstream._engine.local_search import choose

        size, count = len(self.chosen), len(self._draws.draws)
        choose(self._kernel, self._subset, (np.arange(size) * count) // size)
        return self

    def swap(self) -> Self:
        """Replace each chosen draw in turn by the best one, until nothing changes."""
        from steinstream._engine.local_search import swap_each

        for _ in range(_ROUNDS):
            if not swap_each(self._kernel, self._subset):
                break
        return self

    def shake(self) -> Self:
        """Drop random groups of five draws and re-select them greedily where that lowers the objective."""
        from steinstream._engine.local_search import reselect

        size, random = len(self.chosen), np.random.default_rng(0)
        count = min(_DROPPED, size)
        reselect(self._kernel, self._subset, np.array([random.choice(size, count, False) for _ in range(_TRIALS)]))
        return self
