"""Number of independent draws that a chain is worth, estimated while it runs, and the weight of the stream term.

The stream term compares the kept draws with the chain. If the chain itself represents the target badly, because it
mixes slowly or is still in its burn-in, the scores must decide instead. The trust in the chain is

    trust = min(1, max(0.03, ESS / (10 n)))^min(1, ESS / c)

for n kept draws in d dimensions, with ESS the median effective sample size of the parameters and c = d (d + 1) / 2, the
number of variances and covariances. The ESS is estimated from means of 64 to 127 batches of equal length per chain,
whenever a chain has 128, 256, 512, ... draws. Draws of the first 32 chains are counted per chain; those of further
chains count as one more chain. Detected burn-in is left out.

The exponent is below 1 if the chain is worth fewer draws than the target has variances and covariances. Then no subset
of the chain has the right spread in all directions, and KSD alone selects draws near the mode.

The weight of the stream term is multiplied by

    trust * max(1, trust * min(25, (d / 20)^2)).

In many dimensions all values of the base kernel are similar, so that the squared MMD of different subsets differs
little, while k0(x, x) still varies between the draws: without the second factor KSD would decide alone, and avoid draws
with large scores, such as those in the neck of a funnel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from steinstream._typing import Array, Integers
from steinstream.diagnostics.batch_means import BatchMeans, effective_draws
from steinstream.thinner.burn_in_detection import leading_burn_in

BATCHES = 128
_FIRST = 128  # draws of a chain before the first estimate
_CHAINS = 32
_OTHERS = -2  # number of the chain that holds the draws of further chains; no user has it
COLUMNS = 64  # most parameters that are used
_DRAWS_PER_KEPT = 10.0
_LEAST_TRUST = 0.03
_PLAIN_DIMENSIONS = 20.0  # up to which the stream weight is used as given
LARGEST_FACTOR = 25.0


class _ChainRecord:
    """Batches of one chain, and the index of the first draw of each batch."""

    def __init__(self, columns: Integers) -> None:
        self.batches = BatchMeans(columns, BATCHES)
        self.starts = np.zeros(0, dtype=np.int64)
        self.due = _FIRST
        self.burn_in = 0
        """Number of draws of the burn-in."""

    def add(self, draws: Array, indices: Integers) -> None:
        """Add draws (n, d) with their indices (n,)."""
        seen, length = self.batches.seen, self.batches.length
        self.batches.add(draws)
        longer = self.batches.length
        first = -seen % longer
        self.starts = np.concatenate([self.starts[:: longer // length], indices[first::longer]])

    def find_burn_in(self) -> bool:
        """Estimate the burn-in and return whether it became longer."""
        found = leading_burn_in(self.batches.means, self.batches.variances) * self.batches.length
        grew = found > self.burn_in
        self.burn_in = max(self.burn_in, found)
        return grew

    @property
    def burn_in_end(self) -> int:
        """Index of the first draw after the burn-in."""
        return int(self.starts[-(-self.burn_in // self.batches.length)])

    def settled(self) -> tuple[Array, Array, Array]:
        """Return means, variances and lengths of the batches after the burn-in."""
        first = -(-self.burn_in // self.batches.length)
        means, variances = self.batches.means[first:], self.batches.variances[first:]
        return means, variances, np.full(len(means), self.batches.length)


class ChainWorth:
    """Effective sample size and burn-in of the chains in a stream."""

    def __init__(self, dim: int) -> None:
        self._dim = dim
        self._columns = np.linspace(0, dim - 1, min(dim, COLUMNS)).astype(np.int64)
        self._chains: dict[int, _ChainRecord] = {}
        self.effective_draws: float | None = None
        """The estimate that determines the trust; None before the first one."""
        self.burn_in_grew = False
        """Whether the latest estimate found a longer burn-in than the one before."""

    @property
    def burn_in(self) -> int:
        """Number of draws that were found to be burn-in, in all chains."""
        return sum(chain.burn_in for chain in self._chains.values())

    @property
    def burn_in_ends(self) -> Mapping[int, int]:
        """Index of the first draw after the burn-in, for chains with a burn-in."""
        return {number: chain.burn_in_end for number, chain in self._chains.items() if chain.burn_in}

    def steps_until_due(self, candidates: int, chains: Integers) -> int:
        """Return the number of steps before the next estimate; the draws to come belong to these chains."""
        numbers = self._numbers(chains)
        due = len(numbers) + 1
        for number in np.unique(numbers).tolist():
            chain = self._chains.get(number)
            missing = _FIRST if chain is None else chain.due - chain.batches.seen
            rows = np.flatnonzero(numbers == number)
            if missing <= len(rows):
                due = min(due, int(rows[missing - 1]) + 1)
        return -(-due // candidates)

    def update(self, draws: Array, ids: Integers) -> bool:
        """Add draws (n, d) with their ids (n, 2) and return whether there is a new estimate."""
        numbers, due = self._numbers(ids[:, 0]), []
        for number in np.unique(numbers).tolist():
            rows = numbers == number
            chain = self._chains.setdefault(number, _ChainRecord(self._columns))
            chain.add(np.ascontiguousarray(draws[rows]), ids[rows, 1])
            if chain.batches.seen >= chain.due:
                due.append((number, chain))
        for _, chain in due:
            while chain.due <= chain.batches.seen:
                chain.due *= 2
        if due:
            grew = [chain.find_burn_in() for number, chain in due if number != _OTHERS]
            self.burn_in_grew = any(grew)
            self.effective_draws = self._effective_draws()
        return bool(due)

    def _numbers(self, chains: Integers) -> Integers:
        """Return the numbers under which draws of these chains are counted."""
        known = [*self._chains]
        new = [number for number in dict.fromkeys(chains.tolist()) if number not in self._chains]
        own = {*known, *new[: max(_CHAINS - len(known), 0)]}
        return chains if len(own) == len(known) + len(new) else np.where(np.isin(chains, [*own]), chains, _OTHERS)

    def current_effective_draws(self) -> float | None:
        """Return the estimate from all complete batches, also of draws after the latest change of the trust."""
        return None if self.effective_draws is None else self._effective_draws()

    def _effective_draws(self) -> float:
        """Return the median ESS of the parameters that change."""
        parts = [self._chains[number].settled() for number in sorted(self._chains)]
        means, variances, lengths = (np.concatenate(part) for part in zip(*parts, strict=True))
        ess = effective_draws(means, variances, lengths)[np.ptp(means, axis=0) > 0]
        return float(np.median(ess)) if len(ess) else 1.0

    def trust(self, kept: int) -> float:
        """Return the trust in the chain for this number of kept draws."""
        return trust_in(self.effective_draws, kept, self._dim)

    def stream_factor(self, kept: int) -> float:
        """Return the factor of the weight of the stream term for this number of kept draws."""
        return stream_factor(self.trust(kept), self._dim)

    def state(self) -> dict[str, Any]:
        """Return the sums for a checkpoint."""
        return {
            "effective_draws": self.effective_draws,
            "chains": {
                str(number): {
                    "batches": chain.batches.state(),
                    "starts": chain.starts,
                    "due": chain.due,
                    "burn_in": chain.burn_in,
                }
                for number, chain in self._chains.items()
            },
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from the result of `state`."""
        self.effective_draws, self._chains = state["effective_draws"], {}
        for number, values in state["chains"].items():
            chain = self._chains[int(number)] = _ChainRecord(self._columns)
            chain.batches.restore(values["batches"])
            chain.starts, chain.due, chain.burn_in = values["starts"].copy(), values["due"], values["burn_in"]


def trust_in(effective_draws: float | None, kept: int, dim: int) -> float:
    """Return the trust in a chain.

    Parameters
    ----------
    effective_draws : float or None
        Number of independent draws that the chain is worth; None if it is not known.
    kept : int
        Number of kept draws.
    dim : int
        Number of dimensions of the draws.

    Returns
    -------
    float
        Trust, between 0.03 and 1; 1 if the worth is not known.

    Examples
    --------
    >>> trust_in(250.0, 100, dim=2), round(trust_in(250.0, 100, dim=31), 2), trust_in(None, 100, dim=2)
    (0.25, 0.5, 1.0)
    """
    if effective_draws is None:
        return 1.0
    share = min(1.0, max(_LEAST_TRUST, effective_draws / (_DRAWS_PER_KEPT * max(kept, 1))))
    covariances = dim * (dim + 1) / 2
    return float(share ** min(1.0, effective_draws / covariances))


def stream_factor(trust: float, dim: int) -> float:
    """Return the factor of the stream weight.

    Parameters
    ----------
    trust : float
        Trust in the chain, between 0 and 1.
    dim : int
        Number of dimensions of the draws.

    Returns
    -------
    float
        At most 1 up to 20 dimensions, at most 25 in more.

    Examples
    --------
    >>> stream_factor(1.0, 10), stream_factor(1.0, 60), stream_factor(0.1, 60)
    (1.0, 9.0, 0.1)
    """
    return trust * max(1.0, trust * _dimension_factor(dim))


def trust_of_factor(factor: float, dim: int) -> float:
    """Return the trust for which `stream_factor` has a value.

    Parameters
    ----------
    factor : float
        Value of `stream_factor`.
    dim : int
        Number of dimensions of the draws.

    Returns
    -------
    float
        Trust in the chain.

    Examples
    --------
    >>> trust_of_factor(0.5, 10), trust_of_factor(9.0, 60)
    (0.5, 1.0)
    """
    largest = _dimension_factor(dim)
    return factor if factor * largest <= 1.0 else math.sqrt(factor / largest)


def _dimension_factor(dim: int) -> float:
    """Return the factor for a chain that is trusted completely, before it is raised to 1."""
    return min(LARGEST_FACTOR, (dim / _PLAIN_DIMENSIONS) ** 2)
