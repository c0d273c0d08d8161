"""Number of independent draws that a chain is worth, estimated while it runs, and the trust in the chain.

The stream term compares the kept draws with the chain. If the chain itself represents the target badly, because it
mixes slowly or is still in its burn-in, the scores must decide instead. The weight of the stream term is therefore
multiplied by

    trust = min(1, max(0.03, ESS / (10 n)))

for n kept draws, with ESS the median effective sample size of the parameters. It is estimated from means of 64 to 127
batches of equal length, in the order of the stream, at 128, 256, 512, ... draws. Draws of several chains that arrive in
turn count as one stream.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from steinstream._typing import Array
from steinstream.diagnostics.convergence import effective_sample_size

_BATCHES = 128
_FIRST = 128  # draws before the first estimate
_COLUMNS = 64  # most parameters that are used
_DRAWS_PER_KEPT = 10.0
_LEAST_TRUST = 0.03


class ChainWorth:
    """Effective sample size of a stream of draws.

    Parameters
    ----------
    dim : int
        Number of dimensions.

    """

    def __init__(self, dim: int) -> None:
        columns = min(dim, _COLUMNS)
        self._columns = np.linspace(0, dim - 1, columns).astype(np.int64)
        self._shift = np.zeros(columns)
        self._sums, self._squares = np.zeros((_BATCHES, columns)), np.zeros((_BATCHES, columns))
        self._numbers = np.array([1, 0, 0, 0])
        self._due = _FIRST
        self.effective_draws: float | None = None
        """The latest estimate; None before the first one."""

    def steps_until_due(self, candidates: int) -> int:
        """Return the number of steps of ``candidates`` draws each before the next estimate."""
        return -(-(self._due - int(self._numbers[3])) // candidates)

    def update(self, draws: Array) -> bool:
        """Add draws (n, d) and return whether there is a new estimate."""
        from steinstream._engine.online_stats import update_batches  # loads numba

        update_batches(draws, self._columns, self._shift, self._sums, self._squares, self._numbers)
        if self._numbers[3] < self._due:
            return False
        while self._due <= self._numbers[3]:
            self._due *= 2
        self.effective_draws = self._estimate()
        return True

    def _estimate(self) -> float:
        """Return the median ESS of the parameters: that of the batch means, times the ratio of the variances."""
        length, count = int(self._numbers[0]), int(self._numbers[1])
        means, total = self._sums[:count] / length, length * count
        variance = self._squares[:count].sum(axis=0) / total - means.mean(axis=0) ** 2
        noise = means.var(axis=0)
        moving = noise > 0
        if not moving.any():
            return 1.0
        ess = effective_sample_size(means[:, moving]) * (variance[moving] / noise[moving])
        return float(np.median(np.clip(ess, 1.0, total)))

    def trust(self, kept: int) -> float:
        """Return the factor of the weight of the stream term for this number of kept draws."""
        if self.effective_draws is None:
            return 1.0
        return min(1.0, max(_LEAST_TRUST, self.effective_draws / (_DRAWS_PER_KEPT * max(kept, 1))))

    def state(self) -> dict[str, Any]:
        """Return the sums for a checkpoint."""
        return {
            "shift": self._shift,
            "sums": self._sums,
            "squares": self._squares,
            "numbers": self._numbers,
            "due": self._due,
            "effective_draws": self.effective_draws,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from the result of `state`."""
        self._shift, self._sums, self._squares, self._numbers = (
            state[name].copy() for name in ("shift", "sums", "squares", "numbers")
        )
        self._due, self.effective_draws = state["due"], state["effective_draws"]
