"""The door: every block of draws is checked once, here. Behind it nothing checks again."""

from __future__ import annotations

from dataclasses import dataclass, field
from os import PathLike
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steinstream.errors import InputError, NegatedScoresError
from steinstream.kernels import IMQ, Kernel

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# Beyond this a squared score overflows or swallows every other number; beyond its root, where a linear term in the
# kernel multiplies squares of scores and of draws. And float32 holds only smaller ones.
HUGE = 1e100
SINGLE = 1e38

# Stein's identity is judged on between so many draws, and on about so many coordinates at most.
FEWEST, MOST = 100, 1000
COORDINATES = 10_000


class Block(NamedTuple):
    """Consecutive draws of a stream, one per row; ids are (chain, draw)."""

    draws: Array
    scores: Array
    ids: Integers

    def take(self, rows: slice | NDArray[np.bool_]) -> Block:
        """Some of the rows."""
        return Block(self.draws[rows], self.scores[rows], self.ids[rows])

    def copy(self) -> Block:
        """The same rows in memory of their own."""
        return Block(self.draws.copy(), self.scores.copy(), self.ids.copy())

    def then(self, more: Block) -> Block:
        """These draws and then those; without a copy when these are none."""
        if len(self.draws) == 0:
            return more
        return Block(*(np.concatenate(pair) for pair in zip(self, more, strict=True)))


def no_draws(dim: int) -> Block:
    """An empty block."""
    return Block(np.zeros((0, dim)), np.zeros((0, dim)), np.zeros((0, 2), dtype=np.int64))


def consecutive(chain: int, first: int, count: int) -> Integers:
    """The ids of so many draws of a chain."""
    return np.column_stack([np.full(count, chain, dtype=np.int64), np.arange(first, first + count, dtype=np.int64)])


def as_ids(ids: ArrayLike, count: int) -> Integers:
    """Ids given by the user."""
    names = np.asarray(ids)
    if names.shape != (count, 2) or not np.issubdtype(names.dtype, np.integer):
        raise InputError(f"ids must be {count} pairs of whole numbers (chain, draw), got shape {names.shape}.")
    return np.ascontiguousarray(names, dtype=np.int64)  # compiled code is made for one layout


def as_numbers(values: ArrayLike, what: str) -> Array:
    """An array of real numbers given by the user."""
    refuse_path(values, what)
    if hasattr(values, "detach"):  # PyTorch's, whose gradient numpy cannot carry along
        values = values.detach().cpu()
    try:
        array = np.asarray(values)
        if np.iscomplexobj(array):  # which numpy would cut down to their real part
            raise TypeError
        return np.ascontiguousarray(array, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(
            f"The {what} must be an array of real numbers, one row per draw, and this {type(values).__name__} is not.",
            "Every row needs the same number of entries.",
        ) from None


def refuse_path(values: object, what: str) -> None:
    """Raise if somebody gives a file where an array is wanted."""
    if isinstance(values, str | PathLike):
        raise InputError(
            f"The {what} must be an array, got {str(values)!r}.",
            "Load the file and give its arrays; or thin it on the command line: steinstream thin FILE -o kept.npz.",
        )


def as_kernel(kernel: Kernel | None) -> Kernel:
    """The kernel given by the user, or the paper's."""
    if kernel is not None and not isinstance(kernel, Kernel):
        raise InputError(f"kernel must be a kernel, got {kernel!r}.", "Give ss.IMQ() or ss.RBF(), with your numbers.")
    return kernel or IMQ()


def as_block(draws: ArrayLike, scores: ArrayLike, dim: int | None = None) -> tuple[Array, Array]:
    """Draws and scores as (n, d) float64 arrays of one shape."""
    x, s = as_numbers(draws, "draws"), as_numbers(scores, "scores")
    if x.ndim != 2:
        raise InputError(
            f"Draws must have shape (draws, dimensions), got shape {x.shape}.",
            "A single draw goes to push; of a single parameter draws are a column: draws[:, None]." if x.ndim == 1 else
            "A single draw goes to push; several chains go to ss.thin as (chains, draws, dimensions).",
        )  # fmt: skip
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


def usable(block: Block, on_bad: str, linear: bool = False, storage: str = "float64") -> NDArray[np.bool_]:
    """Which rows hold proper numbers only. The first bad one raises unless ``on_bad`` is ``"skip"``.

    ``linear``: they are for a kernel with a linear term; ``storage``: and to be stored like this.
    """
    draws, scores, ids = block
    huge = min(HUGE**0.5 if linear else HUGE, SINGLE if storage == "float32" else HUGE)
    if all(part.min(initial=0.0) > -huge and part.max(initial=0.0) < huge for part in (draws, scores)):
        return np.ones(len(draws), dtype=bool)
    good = (np.abs(draws) < huge) & (np.abs(scores) < huge)
    rows = np.asarray(good.all(axis=1))
    if on_bad == "raise" and not rows.all():
        row = int(np.flatnonzero(~rows)[0])
        for what, values in (("draw", draws[row]), ("score", scores[row])):
            bad = np.flatnonzero(~(np.abs(values) < huge))
            if len(bad):
                chain, draw = (int(i) for i in ids[row])
                raise InputError(
                    f"The {what} of chain {chain}, draw {draw} is {values[bad[0]]} in coordinate {int(bad[0])}.",
                    'Repair the sampler\'s output, or leave such draws out with on_bad="skip" (--on-bad skip).',
                )
    return rows


@dataclass(frozen=True)
class SteinIdentity:
    """The mean of <x - mean, score>, which is -d under the target whatever it is, and +d when the sign is wrong.

    For a log-concave target it is negative for every set of draws, in burn-in too. O(d) memory; of wide draws only some
    coordinates, evenly spaced, are looked at: the identity holds for each.
    """

    dim: int
    count: int = 0
    moment: float = 0.0
    mean_draw: Array = field(default_factory=lambda: np.zeros(0))
    mean_score: Array = field(default_factory=lambda: np.zeros(0))

    def with_more(self, draws: Array, scores: Array) -> SteinIdentity:
        """The same after more draws."""
        count = len(draws)
        if count == 0:
            return self
        draws, scores = draws[:, :: self._every], scores[:, :: self._every]
        draw, score = draws.mean(axis=0), scores.mean(axis=0)
        moment = float(np.sum((draws - draw) * (scores - score)))
        if self.count == 0:
            return SteinIdentity(self.dim, count, moment, draw, score)
        total = self.count + count
        apart, slope = draw - self.mean_draw, score - self.mean_score
        moment += self.moment + float(apart @ slope) * self.count * count / total
        part = count / total
        return SteinIdentity(self.dim, total, moment, self.mean_draw + part * apart, self.mean_score + part * slope)

    @property
    def _every(self) -> int:
        return -(-self.dim // COORDINATES)

    @property
    def value(self) -> float:
        """The mean of <x - mean, score>."""
        return self.moment / self.count if self.count else 0.0

    @property
    def expected(self) -> int:
        """What it is under the target: minus the number of coordinates that are looked at."""
        return -self.dim // self._every

    @property
    def negated(self) -> bool:
        """Whether the scores are surely of the wrong sign, if there are draws enough to tell."""
        return self.value > -self.expected / 2

    def require_plausible(self) -> None:
        """Raise when the scores are surely of the wrong sign."""
        if self.count >= FEWEST and self.negated:
            raise NegatedScoresError(
                f"The scores look negated: the mean of <x - mean, score> is {self.value:+.3g}, "
                f"Stein's identity says {self.expected}.",
                "Pass the gradient of the log density itself: -scores, or --negate-scores. "
                "If you are sure of the sign, use validate_scores=False (--no-validate-scores).",
            )
