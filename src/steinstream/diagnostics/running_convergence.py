"""Split R-hat, effective sample size and divergences of chains that are not stored.

R-hat and ESS of a thinned set are meaningless, because its draws were selected. They are therefore computed from the
chains themselves, while these run, in O(chains * d) memory: of each chain, the means and variances of 16 to 31 batches
are held (:mod:`steinstream.diagnostics.batch_means`). R-hat compares the halves of the chains, without rank
normalisation.

Memory is limited: of more than 1000 parameters, 1000 that are evenly spaced are used, and if there are too many chains,
the draws of the last ones are only counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from steinstream._typing import AnyArray, Array, Integers
from steinstream.diagnostics.batch_means import BatchMeans, effective_draws
from steinstream.diagnostics.convergence import r_hat
from steinstream.errors import CheckpointError
from steinstream.validation import OVERFLOW_LIMIT

#: Largest number of parameters that are used, also if their batches are stored often or sent between processes.
PARAMETERS, FEW_PARAMETERS = 1000, 64

_MAX_BATCHES = 32  # of a chain
_MIN_BATCHES = 4
_MAX_RECORDS = 256_000  # of one parameter of one chain
_BUFFER = 1024  # draws that are collected before they are added


class RunningConvergence:
    """Convergence diagnostics of several chains, from all of their finite draws; at most ``parameters`` are used."""

    def __init__(self, dim: int, parameters: int = PARAMETERS) -> None:
        self._columns = np.linspace(0, dim - 1, min(dim, parameters)).astype(np.int64)
        self._chains: dict[int, BatchMeans] = {}
        self._further: list[tuple[int, BatchMeans]] = []  # chains, or other parts of them, of other runs
        self._only_counted = Counter[int]()
        self._divergences: int | None = None
        self._held: list[tuple[Integers, Array]] = []
        self._held_count = 0

    def add(self, ids: Integers, draws: Array, diverging: ArrayLike | None = None) -> None:
        """Add draws of any chains, those of each chain in order; ``diverging`` marks divergent transitions."""
        self._held.append((ids[:, 0].copy(), np.array(draws[:, self._columns], dtype=np.float64)))
        self._held_count += len(draws)
        if diverging is not None:
            self.add_divergences(int(np.sum(diverging)))
        if self._held_count >= _BUFFER:
            self._flush()

    def add_divergences(self, count: int | None) -> None:
        """Add to the number of divergent transitions; None if it is not known."""
        if count is not None:
            self._divergences = (self._divergences or 0) + count

    def _flush(self) -> None:
        if not self._held:
            return
        chains, draws = (np.concatenate(parts) for parts in zip(*self._held, strict=True))
        self._held, self._held_count = [], 0
        valid = (np.abs(draws) < OVERFLOW_LIMIT).all(axis=1)  # as in a thinner; not NaN either
        for chain in np.unique(chains).tolist():
            rows = draws[(chains == chain) & valid]
            if not len(rows):
                continue
            if chain not in self._chains and (len(self._chains) + 1) * len(self._columns) > _MAX_RECORDS:
                self._only_counted[chain] += len(rows)
            else:
                self._chains.setdefault(chain, self._empty()).add(rows)

    def _empty(self) -> BatchMeans:
        return BatchMeans(np.arange(len(self._columns)), _MAX_BATCHES)

    def join(self, other: RunningConvergence) -> None:
        """Add what is known about other chains, or about other parts of these chains, with the same parameters."""
        other._flush()
        self._further += [*other._chains.items(), *other._further]
        self._only_counted += other._only_counted
        self.add_divergences(other._divergences)

    def summary(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Return draws per chain, divergences, the largest R-hat and the smallest ESS, as JSON values.

        Returns
        -------
        dict
            ``draws``; ``divergences`` if the sampler reports them; with at least 4 draws in a chain also ``rhat``,
            ``rhat_of``, ``ess``, ``ess_of``.
        """
        self._flush()
        records = sorted([*self._chains.items(), *self._further], key=lambda record: record[0])
        draws = Counter(self._only_counted)
        for chain, batches in records:
            draws[chain] += batches.seen
        result: dict[str, Any] = {"draws": [count for _, count in sorted(draws.items())]}
        if self._divergences is not None:
            result["divergences"] = self._divergences
        long = [batches for _, batches in records if batches.count >= _MIN_BATCHES]
        if long:
            for name, values, pick in (("rhat", _r_hat(long), np.argmax), ("ess", _ess(long), np.argmin)):
                worst = int(pick(values))
                column = int(self._columns[worst])
                result |= {name: float(values[worst]), f"{name}_of": f"x{column}" if names is None else names[column]}
        return result

    def state(self) -> dict[str, Any]:
        """Return the sums for a checkpoint."""
        self._flush()
        return {
            "divergences": self._divergences,
            "only_counted": [list(pair) for pair in self._only_counted.items()],
            "chains": {str(chain): batches.state() for chain, batches in self._chains.items()},
        }

    def restore(self, state: Any) -> None:
        """Continue from the result of `state`.

        Raises
        ------
        CheckpointError
            If the state is invalid, or not one of chains with as many parameters.
        """
        with reading_state():
            for chain, values in state["chains"].items():
                batches = self._chains[int(chain)] = self._empty()
                batches.restore(_valid_batches(batches.state(), values))
            self._only_counted = Counter({int(chain): int(count) for chain, count in state["only_counted"]})
            self._divergences = None if state["divergences"] is None else int(state["divergences"])


@contextmanager
def reading_state() -> Iterator[None]:
    """Convert the errors of an invalid state to a `CheckpointError`."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CheckpointError(
            f"The convergence in the checkpoint is invalid: {type(error).__name__} {error}.",
            "Delete the checkpoint to start again.",
        ) from error


def _valid_batches(empty: Mapping[str, AnyArray], values: Mapping[str, ArrayLike]) -> dict[str, AnyArray]:
    """Return arrays, or lists from JSON, as arrays of batches; compiled code does not check them."""
    arrays = {name: np.array(values[name], dtype=expected.dtype) for name, expected in empty.items()}
    for name, expected in empty.items():
        if arrays[name].shape != expected.shape:
            raise ValueError(f"{name} has shape {arrays[name].shape}, expected {expected.shape}")
    length, count, current, seen = arrays["numbers"].tolist()
    if not (length >= 1 and 0 <= count < _MAX_BATCHES and 0 <= current < length and seen == count * length + current):
        raise ValueError(f"batches have the numbers {[length, count, current, seen]}")
    return arrays


def _r_hat(chains: Sequence[BatchMeans]) -> Array:
    """Return split R-hat of every parameter, from the halves of the complete batches; infinite if squares overflow."""
    means, squares, lengths = [], [], []
    for chain in chains:
        half = chain.count // 2
        for rows in (slice(0, half), slice(half, 2 * half)):
            means.append(chain.means[rows].mean(axis=0))
            with np.errstate(over="ignore"):
                within = chain.variances[rows] + (chain.means[rows] - means[-1]) ** 2
            squares.append(chain.length * within.sum(axis=0))
            lengths.append(half * chain.length)
    variance = np.sum(squares, axis=0) / max(sum(lengths) - len(lengths), 1)
    with np.errstate(over="ignore", invalid="ignore"):
        found = r_hat(np.array(means), np.array(lengths), variance)
    return np.where(np.isnan(found), np.inf, found)


def _ess(chains: Sequence[BatchMeans]) -> Array:
    """Return the effective sample size of every parameter; the number of draws for a constant."""
    means, variances = (np.concatenate([getattr(chain, name) for chain in chains]) for name in ("means", "variances"))
    return effective_draws(means, variances, np.repeat([c.length for c in chains], [c.count for c in chains]))
