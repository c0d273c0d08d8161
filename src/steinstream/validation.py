"""Input validation for draws and scores.

All public entry points call these functions. Internal code assumes valid input.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from os import PathLike
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steinstream._typing import Array, Flags, Id, Ids, Integers
from steinstream.errors import InputError, NegatedScoresError

#: Largest magnitude of a draw or score. The square of a larger score overflows or dominates every other number. With a
#: linear term in the kernel, which multiplies squares of scores and draws, the limit is the square root of this one.
OVERFLOW_LIMIT = 1e100
FLOAT32_LIMIT = 1e38

#: Least and largest number of draws for which Stein's identity is evaluated, and the largest number of coordinates.
IDENTITY_MIN_DRAWS, IDENTITY_MAX_DRAWS = 100, 1000
IDENTITY_MAX_COORDINATES = 10_000


class Block(NamedTuple):
    """Consecutive draws of a stream, one per row.

    Attributes
    ----------
    draws, scores : array
        Draws and scores, (n, d) each. Second scores follow as further columns of ``scores``.
    ids : array
        Identifiers (chain, index), (n, 2).

    """

    draws: Array
    scores: Array
    ids: Integers

    def take(self, rows: slice | Flags | Integers) -> Block:
        """Return some of the rows."""
        return Block(self.draws[rows], self.scores[rows], self.ids[rows])

    def copy(self) -> Block:
        """Return a copy that shares no memory."""
        return Block(self.draws.copy(), self.scores.copy(), self.ids.copy())

    def append(self, more: Block) -> Block:
        """Return the rows of both blocks; without a copy if this one is empty."""
        if len(self.draws) == 0:
            return more
        return concatenate([self, more])


def concatenate(blocks: list[Block]) -> Block:
    """Return the rows of all blocks, in order."""
    return Block(*(np.concatenate(parts) for parts in zip(*blocks, strict=True)))


def empty_block(dim: int) -> Block:
    """Return a block without rows."""
    return Block(np.zeros((0, dim)), np.zeros((0, dim)), np.zeros((0, 2), dtype=np.int64))


def consecutive_ids(chain: int, first: int, count: int) -> Integers:
    """Return the ids (chain, first), (chain, first + 1), ..., as an array (count, 2)."""
    return np.column_stack([np.full(count, chain, dtype=np.int64), np.arange(first, first + count, dtype=np.int64)])


def as_ids(ids: ArrayLike, count: int) -> Integers:
    """Validate ``count`` ids and return them as an array (count, 2)."""
    try:
        pairs = np.asarray(ids)
    except ValueError:  # rows of different lengths
        pairs = np.zeros(0)
    if pairs.shape != (count, 2) or not np.issubdtype(pairs.dtype, np.integer):
        raise InputError(f"ids must be {count} pairs of whole numbers (chain, draw), got shape {pairs.shape}.")
    return np.ascontiguousarray(pairs, dtype=np.int64)  # compiled code expects this layout


def as_id_pairs(ids: ArrayLike) -> Integers:
    """Validate any number of ids and return them as an array (n, 2).

    Returns
    -------
    array
        Pairs (chain, index).

    Examples
    --------
    >>> as_id_pairs([(0, 3), (1, 5)])
    array([[0, 3],
           [1, 5]])

    """
    try:
        pairs = np.asarray(ids)
    except ValueError:  # rows of different lengths
        pairs = np.zeros(1)
    if pairs.ndim == 0 or (pairs.ndim == 1 and len(pairs)):
        raise InputError("ids must be pairs of whole numbers (chain, draw).", "Use rows of kept.ids.")
    return as_ids(pairs, len(pairs)) if len(pairs) else np.zeros((0, 2), dtype=np.int64)


def id_tuples(ids: Integers) -> Ids:
    """Return ids (n, 2) as a tuple of pairs."""
    pairs: list[Id] = [(chain, draw) for chain, draw in ids.tolist()]
    return tuple(pairs)


def as_floats(values: ArrayLike, what: str) -> Array:
    """Convert a user's array of real numbers to a contiguous float64 array; ``what`` names it in messages."""
    reject_path(values, what)
    if hasattr(values, "detach"):  # a PyTorch tensor that may require a gradient
        values = values.detach().cpu()
    try:
        array = np.asarray(values)
        if np.iscomplexobj(array):
            raise TypeError
        return np.ascontiguousarray(array, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(
            f"The {what} must be an array of real numbers with one row per draw, got {type(values).__name__}.",
            "Every row needs the same number of entries.",
        ) from None


def reject_path(values: object, what: str) -> None:
    """Raise an `InputError` if a file name was passed instead of an array."""
    if isinstance(values, str | PathLike):
        raise InputError(
            f"The {what} must be an array, got {str(values)!r}.",
            "Load the file and pass its arrays, or use the command line: steinstream thin FILE -o kept.npz.",
        )


def as_draws_and_scores(draws: ArrayLike, scores: ArrayLike, dim: int | None = None) -> tuple[Array, Array]:
    """Convert draws and scores to (n, d) float64 arrays of the same shape; ``dim`` is the expected d."""
    x, s = as_floats(draws, "draws"), as_floats(scores, "scores")
    if x.ndim != 2:
        raise InputError(
            f"Draws must have shape (draws, dimensions), got shape {x.shape}.",
            "Pass a single draw to push. For a single parameter, draws are a column: draws[:, None]."
            if x.ndim == 1
            else "Pass several chains to ss.thin as (chains, draws, dimensions).",
        )
    if x.shape != s.shape:
        raise InputError(
            f"Draws have shape {x.shape} and scores have shape {s.shape}.",
            "Every draw needs its own score: the gradient of the log density at that draw.",
        )
    if dim is not None and x.shape[1] != dim:
        raise InputError(f"Expected draws with {dim} dimensions, got {x.shape[1]}.")
    if x.shape[1] == 0:
        raise InputError("The draws have no dimensions.")
    return x, s


def as_chains(draws: ArrayLike, scores: ArrayLike) -> list[Block]:
    """Convert arrays (n, d) or (chains, n, d) to one block per chain."""
    x, s = as_floats(draws, "draws"), as_floats(scores, "scores")
    if x.ndim == 3 and x.shape != s.shape:
        raise InputError(
            f"Draws have shape {x.shape} and scores have shape {s.shape}.",
            "Every draw needs its own score: the gradient of the log density at that draw.",
        )
    pairs = [*zip(x, s, strict=True)] if x.ndim == 3 else [(x, s)]
    arrays = [as_draws_and_scores(*pair) for pair in pairs]
    if sum(len(x) for x, _ in arrays) == 0:
        raise InputError("There are no draws to thin.")
    return [Block(x, s, consecutive_ids(chain, 0, len(x))) for chain, (x, s) in enumerate(arrays)]


def finite_rows(block: Block, on_bad: str, linear: bool = False, storage: str = "float64") -> NDArray[np.bool_]:
    """Return a mask of the rows whose values are finite and below the overflow limit.

    Parameters
    ----------
    block : Block
        Draws and scores.
    on_bad : {"raise", "skip"}
        Raise an error for the first invalid row, or only mask it.
    linear : bool, default False
        Whether the kernel has a linear term.
    storage : {"float64", "float32"}
        Precision in which the draws will be stored.

    Returns
    -------
    array of bool
        The mask, (n,).

    """
    draws, scores, ids = block
    limit = min(OVERFLOW_LIMIT**0.5 if linear else OVERFLOW_LIMIT, FLOAT32_LIMIT if storage == "float32" else np.inf)
    if all(part.min(initial=0.0) > -limit and part.max(initial=0.0) < limit for part in (draws, scores)):
        return np.ones(len(draws), dtype=bool)
    rows = np.asarray(((np.abs(draws) < limit) & (np.abs(scores) < limit)).all(axis=1))
    if on_bad == "raise" and not rows.all():
        row = int(np.flatnonzero(~rows)[0])
        for what, values in (("draw", draws[row]), ("score", scores[row])):
            bad = np.flatnonzero(~(np.abs(values) < limit))
            if len(bad):
                chain, draw = (int(i) for i in ids[row])
                raise InputError(
                    f"The {what} of chain {chain}, draw {draw} is {values[bad[0]]} in coordinate {int(bad[0])}.",
                    'Correct the sampler\'s output, or skip such draws with on_bad="skip" (--on-bad skip).',
                )
    return rows


@dataclass(frozen=True)
class SteinIdentity:
    """Running mean of <x - mean, score>, which is -d under the target and +d if the sign of the scores is wrong.

    For a log-concave target the mean is negative for every set of draws, including burn-in. The memory is O(d). Above
    10 000 dimensions only evenly spaced coordinates are used, because the identity holds for each coordinate.
    """

    dim: int
    count: int = 0
    moment: float = 0.0
    mean_draw: Array = field(default_factory=lambda: np.zeros(0))
    mean_score: Array = field(default_factory=lambda: np.zeros(0))

    def updated(self, draws: Array, scores: Array) -> SteinIdentity:
        """Return the identity after more draws."""
        count = len(draws)
        if count == 0:
            return self
        draws, scores = draws[:, :: self._stride], scores[:, :: self._stride]
        draw, score = draws.mean(axis=0), scores.mean(axis=0)
        moment = float(np.sum((draws - draw) * (scores - score)))
        if self.count == 0:
            return SteinIdentity(self.dim, count, moment, draw, score)
        total = self.count + count
        draw_difference, score_difference = draw - self.mean_draw, score - self.mean_score
        moment += self.moment + float(draw_difference @ score_difference) * self.count * count / total
        weight = count / total
        return SteinIdentity(
            self.dim,
            total,
            moment,
            self.mean_draw + weight * draw_difference,
            self.mean_score + weight * score_difference,
        )

    @property
    def _stride(self) -> int:
        return -(-self.dim // IDENTITY_MAX_COORDINATES)

    @property
    def value(self) -> float:
        """The mean of <x - mean, score>."""
        return self.moment / self.count if self.count else 0.0

    @property
    def expected(self) -> int:
        """Its value under the target: minus the number of coordinates used."""
        return -self.dim // self._stride

    @property
    def negated(self) -> bool:
        """Whether the sign of the scores is certainly wrong, given enough draws."""
        return self.value > -self.expected / 2

    def require_plausible(self) -> None:
        """Raise a `NegatedScoresError` if the sign of the scores is certainly wrong."""
        if self.count >= IDENTITY_MIN_DRAWS and self.negated:
            raise NegatedScoresError(
                f"The scores look negated: the mean of <x - mean, score> is {self.value:+.3g}, "
                f"but Stein's identity requires {self.expected}.",
                "Pass the gradient of the log density itself: -scores, or --negate-scores. "
                "If the sign is right, use validate_scores=False (--no-validate-scores).",
            )
