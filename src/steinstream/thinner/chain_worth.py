"""Number of independent draws that a chain is worth, estimated while it runs, and the trust in the chain.

The stream term compares the kept draws with the chain. If the chain itself represents the target badly, because it
mixes slowly or is still in its burn-in, the scores must decide instead. The weight of the stream term is therefore
multiplied by

    trust = min(1, max(0.03, ESS / (10 n)))

for n kept draws, with ESS the median effective sample size of the parameters. It is estimated from means of 64 to 127
batches of equal length, in the order of the stream, at 128, 256, 512, ... draws. Draws of several chains that arrive in
turn count as one stream.

*Burn-in* are the leading batches outside the region of the second half of the stream: the largest deviation of a
parameter from its mean, in standard deviations, exceeds 1.5 times that of every batch in the second half. These draws
are left out of the ESS and of the stream term, and those of them that were kept are removed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from steinstream._typing import Array
from steinstream.diagnostics.batch_means import BatchMeans, effective_draws

_BATCHES = 128
_FIRST = 128  # draws before the first estimate
_COLUMNS = 64  # most parameters that are used
_DRAWS_PER_KEPT = 10.0
_LEAST_TRUST = 0.03
_MARGIN = 1.5


class ChainWorth:
    """Effective sample size of a stream of draws.

    Parameters
    ----------
    dim : int
        Number of dimensions.

    """

    def __init__(self, dim: int) -> None:
        self._batches = BatchMeans(np.linspace(0, dim - 1, min(dim, _COLUMNS)).astype(np.int64), _BATCHES)
        self._due = _FIRST
        self.effective_draws: float | None = None
        """The latest estimate; None before the first one."""
        self.burn_in = 0
        """Number of draws that were found to be burn-in."""
        self.burn_in_grew = False
        """Whether the latest estimate found more of them than the one before."""

    def steps_until_due(self, candidates: int) -> int:
        """Return the number of steps of ``candidates`` draws each before the next estimate."""
        return -(-(self._due - self._batches.seen) // candidates)

    def update(self, draws: Array) -> bool:
        """Add draws (n, d) and return whether there is a new estimate."""
        self._batches.add(draws)
        if self._batches.seen < self._due:
            return False
        while self._due <= self._batches.seen:
            self._due *= 2
        self._estimate()
        return True

    def _estimate(self) -> None:
        """Find the burn-in, then the median ESS of the parameters that change after it."""
        means, variances, length = self._batches.means, self._batches.variances, self._batches.length
        first = _burn_in(means, variances)
        self.burn_in_grew = first * length > self.burn_in
        self.burn_in = max(self.burn_in, first * length)
        means, variances = means[first:], variances[first:]
        ess = effective_draws(means, variances, np.full(len(means), length))[np.ptp(means, axis=0) > 0]
        self.effective_draws = float(np.median(ess)) if len(ess) else 1.0

    def trust(self, kept: int) -> float:
        """Return the factor of the weight of the stream term for this number of kept draws."""
        if self.effective_draws is None:
            return 1.0
        return min(1.0, max(_LEAST_TRUST, self.effective_draws / (_DRAWS_PER_KEPT * max(kept, 1))))

    def state(self) -> dict[str, Any]:
        """Return the sums for a checkpoint."""
        return {
            "batches": self._batches.state(),
            "due": self._due,
            "effective_draws": self.effective_draws,
            "burn_in": self.burn_in,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from the result of `state`."""
        self._batches.restore(state["batches"])
        self._due, self.effective_draws, self.burn_in = state["due"], state["effective_draws"], state["burn_in"]


def _burn_in(means: Array, variances: Array) -> int:
    """Return the number of leading batches outside the region of the second half."""
    half = len(means) // 2
    centre = means[half:].mean(axis=0)
    sd = np.sqrt(variances[half:].mean(axis=0) + means[half:].var(axis=0))
    moving = sd > 0
    if not moving.any():
        return 0
    deviation = np.abs((means - centre)[:, moving] / sd[moving]).max(axis=1)
    inside = deviation <= _MARGIN * deviation[half:].max()
    return int(np.argmax(inside))
