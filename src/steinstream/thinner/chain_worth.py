"""Number of independent draws that a chain is worth, estimated while it runs, and the trust in the chain.

The stream term compares the kept draws with the chain. If the chain itself represents the target badly, because it
mixes slowly or is still in its burn-in, the scores must decide instead. The weight of the stream term is therefore
multiplied by

    trust = min(1, max(0.03, ESS / (10 n)))

for n kept draws, with ESS the median effective sample size of the parameters. It is estimated from means of 64 to 127
batches of equal length per chain, whenever a chain has 128, 256, 512, ... draws. Draws of the first 32 chains are
counted per chain; those of further chains count as one more chain.

*Burn-in* are the leading batches of a chain outside the region of its second half: the largest deviation of a parameter
from its mean, in standard deviations, exceeds 1.5 times that of every batch in the second half. These draws are left
out of the ESS and of the stream term, and those of them that were kept are removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from steinstream._typing import Array, Flags, Integers
from steinstream.diagnostics.batch_means import BatchMeans, effective_draws

BATCHES = 128
_FIRST = 128  # draws of a chain before the first estimate
_CHAINS = 32
_OTHERS = -2  # number of the chain that holds the draws of further chains; no user has it
COLUMNS = 64  # most parameters that are used
_DRAWS_PER_KEPT = 10.0
_LEAST_TRUST = 0.03
_MARGIN = 1.5
_MENTIONED = 0.005  # share of the draws from which a burn-in is mentioned: a slow chain has a few by chance


class _Chain:
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
        found = _burn_in(self.batches.means, self.batches.variances) * self.batches.length
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
    """Effective sample size and burn-in of the chains in a stream.

    Parameters
    ----------
    dim : int
        Number of dimensions.

    """

    def __init__(self, dim: int) -> None:
        self._columns = np.linspace(0, dim - 1, min(dim, COLUMNS)).astype(np.int64)
        self._chains: dict[int, _Chain] = {}
        self.effective_draws: float | None = None
        """The latest estimate; None before the first one."""
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
            chain = self._chains.setdefault(number, _Chain(self._columns))
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

    def _effective_draws(self) -> float:
        """Return the median ESS of the parameters that change."""
        parts = [self._chains[number].settled() for number in sorted(self._chains)]
        means, variances, lengths = (np.concatenate(part) for part in zip(*parts, strict=True))
        ess = effective_draws(means, variances, lengths)[np.ptp(means, axis=0) > 0]
        return float(np.median(ess)) if len(ess) else 1.0

    def trust(self, kept: int) -> float:
        """Return the factor of the weight of the stream term for this number of kept draws."""
        return trust_in(self.effective_draws, kept)

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
            chain = self._chains[int(number)] = _Chain(self._columns)
            chain.batches.restore(values["batches"])
            chain.starts, chain.due, chain.burn_in = values["starts"].copy(), values["due"], values["burn_in"]


def trust_in(effective_draws: float | None, kept: int) -> float:
    """Return the trust in a chain.

    Parameters
    ----------
    effective_draws : float or None
        Number of independent draws that the chain is worth; None if it is not known.
    kept : int
        Number of kept draws.

    Returns
    -------
    float
        Factor of the stream weight, between 0.03 and 1; 1 if the worth is not known.

    Examples
    --------
    >>> trust_in(500.0, 100), trust_in(None, 100)
    (0.5, 1.0)

    """
    if effective_draws is None:
        return 1.0
    return min(1.0, max(_LEAST_TRUST, effective_draws / (_DRAWS_PER_KEPT * max(kept, 1))))


def is_burn_in(ids: Integers, ends: Mapping[int, int]) -> Flags:
    """Return which draws, by (chain, index, ...), come before the end of the burn-in of their chain."""
    early = np.zeros(len(ids), dtype=np.bool_)
    for chain, end in ends.items():
        early |= (ids[:, 0] == chain) & (ids[:, 1] < end)
    return early


def describe_trust(settings: Mapping[str, Any]) -> str | None:
    """Say in one sentence what the chain is worth and what decides, from ``Kept.settings``.

    Parameters
    ----------
    settings : mapping
        ``Kept.settings``.

    Returns
    -------
    str or None
        The sentence; None without an estimate.

    Examples
    --------
    >>> describe_trust({"effective_draws": 25.2, "trust": 0.03, "burn_in": 0, "has_scores": True})
    "The chain is worth about 25 independent draws, so the target's scores decide."
    >>> describe_trust({"effective_draws": 5210.0, "trust": 1.0, "burn_in": 300, "has_scores": True})
    'The chain is worth about 5200 independent draws; its first 300 draws are burn-in and were left out.'

    """
    worth, trust, burn_in = (settings.get(name) for name in ("effective_draws", "trust", "burn_in"))
    if worth is None:
        return None
    text = f"The chain is worth about {_rounded(worth)} independent draws"
    if trust is not None and trust < 0.5:
        text += ", so the target's scores decide" if settings.get("has_scores") else ", and scores are missing"
        text += "" if settings.get("has_scores") else " to correct it: the kept draws are no better than the chain"
    if burn_in and burn_in >= _MENTIONED * settings.get("seen", 0):
        chains = settings.get("burn_in_chains", 1)
        which = "its first" if chains == 1 else f"in {chains} chains, the first"
        text += f"; {which} {burn_in} draws are burn-in and were left out"
    return text + "."


def _rounded(number: float) -> str:
    """Return a number with two significant digits."""
    return str(int(float(f"{number:.2g}")))


def _burn_in(means: Array, variances: Array) -> int:
    """Return the number of leading batches outside the region of the second half."""
    half = len(means) // 2
    if half == 0:
        return 0
    centre = means[half:].mean(axis=0)
    sd = np.sqrt(variances[half:].mean(axis=0) + means[half:].var(axis=0))
    moving = sd > 0
    if not moving.any():
        return 0
    deviation = np.abs((means - centre)[:, moving] / sd[moving]).max(axis=1)
    inside = deviation <= _MARGIN * deviation[half:].max()
    return int(np.argmax(inside))
