r"""Merge the kept sets of several thinners: the exact union, thinned again, with a bound.

Each part c represents a stream of mass m_c (its length, plus initial draws), and each of its draws an equal share of
that mass. The union has the row sums of its parts plus the cross terms between them: n1 * n2 kernel values for two
parts, summed in pairs of doubles. Then draws are removed, each time the one whose removal costs least, and swapped.

**Objective.** It is that of the thinner: KSD^2 plus the stream term, a multiple of the squared MMD between the result
and the streams of all parts. A kept set carries a summary of its stream; the summaries are joined
(``_stream.py``). A part without a summary stands for its own stream. Without scores the stream
term alone decides. The weight of the stream term falls if the chains together are worth few independent draws.

**Guarantee.** With a budget and no size, the objective of the result is at most that of the union plus the budget.

**Bound.** KSD^2 and MMD^2 are convex, so those of the union are at most the mean over the parts, weighted by mass.
Removing draws changes them by a measured amount. If merged sets are merged again, in a tree,

.. math:: KSD^2(\text{root}) \le \sum_c m_c KSD^2(\text{leaf}_c) + \sum_{\text{levels}} \text{increase} ,

where the increase of a level is the mean over its nodes, and the same holds for MMD^2, with the error of compressing
the joined stream included in the increase. ``kept.settings["merged"]`` contains both sides of the bound on KSD:
``bound`` with the measured increases, and ``bound_by_budget`` with the budgets in their place, which is known before
the first merge. It is None if a size or a stream term may cost more than the budget. ``merged["mmd"]`` contains those
of the bound on MMD.

**Preconditioner.** If the parts have the same preconditioner, it is used. Otherwise it is the mass-weighted mean of
their covariances, and everything is computed again with it. The KSD of the leaves in the bound is then that under the
common preconditioner.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from steinstream import __version__
from steinstream._typing import Array, Flags, Integers
from steinstream.discrepancy.ksd import run_rows_in_threads
from steinstream.errors import InputError, positive
from steinstream.kernels import IMQ, Kernel
from steinstream.postprocess._stream import ComparedSets, compared, largest_stream_weight, shares_of
from steinstream.preconditioning import Preconditioner, as_preconditioner, same_preconditioner
from steinstream.result import MODEL_GROUPS, History, Kept, SummarisedStream, Variable
from steinstream.thinner import Thinner
from steinstream.thinner.chain_worth import trust_in
from steinstream.thinner.config import ThinConfig
from steinstream.validation import Block, concatenate

if TYPE_CHECKING:
    from steinstream._engine.merging import RowSums, Slots, WeightedDraws

T = TypeVar("T")

_LARGEST_MASS = 1e18  # draws
MASSES = ("lengths", "kept")
COUNTS = ("seen", "skipped", "initial")
_ROUNDING = 1e-12
_STREAM_DRAWS = 4096  # of the evenly spaced subsample of all streams
_SWAP_PASSES, _SWAP_GAIN = 10, 0.02  # largest number of swap passes, and relative decrease below which they end
_RESTARTS, _TRIED = (8, 48), 4800  # least and largest number of restarts, and draws tried in all: see _restarts


def merge(
    parts: Iterable[Thinner | Kept],
    *,
    size: int | None = None,
    merge_budget: float | Sequence[float] | None = None,
    masses: str | ArrayLike = "lengths",
    preconditioner: Preconditioner | ArrayLike | None = None,
    stream_weight: float | None = None,
    fan_in: int | None = None,
    spare: float = 2.0,
) -> Kept:
    """Merge thinners or kept sets: the exact union, thinned to ``size`` or within ``merge_budget``.

    Parameters
    ----------
    parts : iterable of Thinner or Kept
        The parts. Ids keep their chain, unless two parts have a chain of the same number: then the chains are numbered
        again, part after part.
    size : int, optional
        Number of draws to keep.
    merge_budget : float or sequence of float, optional
        Allowed increase of the objective, or one value per level of the tree, lowest level first; the last value
        applies to all further levels. With ``size``, draws are removed until ``size`` is reached or the budget is
        spent.
    masses : {"lengths", "kept"} or array_like, default "lengths"
        Mass of each part: the length of its stream, its number of kept draws, or one number per part. If the mass
        per draw differs between parts, the result has weights.
    preconditioner : Preconditioner or array_like, optional
        Preconditioner of the result. Default: the common one of the parts.
    stream_weight : float, optional
        Weight of the stream term, the squared MMD between the result and the streams: see `ThinConfig`. Default: the
        largest one of the parts.
    fan_in : int, optional
        Merge in a tree, this many sets at a time, for many parts whose union would be large. Default: all at once.
    spare : float, default 2.0
        Nodes below the root of a tree keep ``spare * size`` draws. With 1, user metrics of the result are 2 % worse,
        and nodes take half the time.

    Returns
    -------
    Kept
        The merged set. The same parts in the same order give the same result to the last bit.

    Raises
    ------
    InputError
        If the parts have different kernels or dimensions, if only some of them have scores, or a part is empty.

    Examples
    --------
    >>> import steinstream as ss
    >>> draws = np.random.default_rng(0).normal(size=(3, 4000, 2))
    >>> parts = [ss.thin(x, -x, size=50) for x in draws]
    >>> ss.merge(parts)
    Kept(150 of 12000 draws, 2 dimensions, KSD 0.03363)
    >>> kept = ss.merge(parts, size=50)
    >>> kept
    Kept(50 of 12000 draws, 2 dimensions, KSD 0.04875)
    >>> kept.ksd <= kept.settings["merged"]["bound"]
    True

    """
    sets = [part.kept if isinstance(part, Thinner) else part for part in parts]
    for kept in sets:
        if not isinstance(kept, Kept):
            raise InputError(
                f"The parts to merge must be thinners or kept sets, got {type(kept).__name__}.",
                "Thin each chain first: ss.merge([ss.thin(draws, scores) for ...]).",
            )
    facts = [PartFacts.of(kept) for kept in sets]
    kernel, budgets = common_kernel(facts), as_budgets(merge_budget)
    width = as_fan_in(fan_in) or len(sets)
    mass = as_masses(masses, facts)
    size = as_size(size)
    fixed = common_preconditioner(facts, mass) if preconditioner is None else as_preconditioner(preconditioner)
    weight = as_stream_weight(stream_weight, sets)
    require_stream_term(facts, weight)
    rule = MergeRule(kernel, fixed, size, inner_size(size, spare), budgets, weight)
    nodes = [Node(kept, float(m)) for kept, m in zip(with_distinct_chains(sets), mass, strict=True)]
    for level in count():
        families = groups(nodes, width)
        nodes = [rule.merge(family, level, last=len(families) == 1) for family in families]
        if len(nodes) == 1:
            break
    return nodes[0].kept


class PartFacts(NamedTuple):
    """What has to be known about every part before the first merge; small enough to be sent between processes."""

    size: int
    seen: int
    skipped: int
    initial: int
    dim: int
    kernel: Kernel
    preconditioner: Preconditioner
    has_scores: bool

    @property
    def mass(self) -> float:
        """Number of draws that the part represents: valid draws of the stream, and initial ones."""
        return float(self.seen - self.skipped + self.initial)

    @classmethod
    def of(cls, kept: Kept) -> PartFacts:
        """Return the facts about a kept set."""
        seen, skipped, initial = ({"seen": len(kept), **kept.settings}.get(name, 0) for name in COUNTS)
        kernel, preconditioner = kept.kernel or IMQ(), _preconditioner_of(kept)
        has_scores, dim = kept.scores is not None, kept.draws.shape[1]
        return cls(len(kept), seen, skipped, initial, dim, kernel, preconditioner, has_scores)


class Node(NamedTuple):
    """A kept set of one or several streams, with their mass."""

    kept: Kept
    mass: float


class MergeRule(NamedTuple):
    """How the nodes of a tree are merged."""

    kernel: Kernel
    preconditioner: Preconditioner
    size: int | None
    inner_size: int | None
    """Number of draws that nodes below the root keep."""
    budgets: tuple[float, ...] | None
    stream_weight: float

    def merge(self, children: Sequence[Node], level: int, last: bool) -> Node:
        """Merge nodes of a level of the tree; ``last`` if the result is the root."""
        sets, mass = [child.kept for child in children], np.array([child.mass for child in children])
        budget = None if self.budgets is None else self.budgets[min(level, len(self.budgets) - 1)]
        union = _Union(sets, mass, self.kernel, self.preconditioner, self.stream_weight)
        before = union.squares
        union.thin(self.size if last else self.inner_size, budget, last)
        spent = 0.0 if self.size is None and budget is None else None if self.stream_weight else budget
        return Node(union.kept(_ledger(sets, union, before, mass / mass.sum(), spent)), float(mass.sum()))


def groups(nodes: Sequence[T], fan_in: int) -> list[Sequence[T]]:
    """Split nodes into neighbouring groups of at most ``fan_in``, as even as possible: one level of the tree.

    The tree has as few levels as possible, and the lowest level has the smallest groups, because the root does better
    the more sets it can choose from.

    Returns
    -------
    list of sequence
        The groups, in order.

    Examples
    --------
    >>> groups("abcde", 2), groups("abcdefghij", 4)
    (['ab', 'cd', 'e'], ['abc', 'def', 'gh', 'ij'])

    """
    most = fan_in
    while most * fan_in < len(nodes):
        most *= fan_in
    number = 1 if len(nodes) <= fan_in else -(-len(nodes) // -(-len(nodes) // most))
    edges = [len(nodes) // number * i + min(i, len(nodes) % number) for i in range(number + 1)]
    return [nodes[first:last] for first, last in pairwise(edges)]


class Squares(NamedTuple):
    """KSD^2 and MMD^2 of a set; None without scores, and without a stream term."""

    ksd: float | None
    mmd: float | None


def _ledger(sets: Sequence[Kept], union: _Union, before: Squares, share: Array, budget: float | None) -> dict[str, Any]:
    """Return both sides of the bounds, for ``settings["merged"]``."""
    after, parts, known = union.squares, union.squares_of_parts, [_known(kept, union) for kept in sets]
    found: dict[str, Any] = {"parts": len(sets), "leaves": None, "increases": None, "bound": None}
    found |= {"bound_by_budget": None, "stream_weight": union.stream_weight, "trust": union.trust, "mmd": None}
    if after.ksd is not None and before.ksd is not None:
        own = [part.ksd or 0.0 for part in parts]
        found |= _bound(known, own, share, after.ksd - before.ksd)
        squares = [_square_by_budget(one, square) for one, square in zip(known, own, strict=True)]
        if budget is not None and None not in squares:
            total = math.fsum(part * (square or 0.0) for part, square in zip(share.tolist(), squares, strict=True))
            found["bound_by_budget"] = math.sqrt(total + budget)
    if after.mmd is not None and before.mmd is not None:
        own = [part.mmd or 0.0 for part in parts]
        mean = float(share @ np.array(own))
        compression = (math.sqrt(mean) + union.stream_error) ** 2 - mean
        found["mmd"] = _bound([one.get("mmd") or {} for one in known], own, share, after.mmd - before.mmd + compression)
        found["mmd"]["stream_error"] = union.stream_error
    return found


def _known(kept: Kept, union: _Union) -> dict[str, Any]:
    """Return what is known from earlier merges of a part, if that still holds with the preconditioner of the union."""
    same = same_preconditioner(_preconditioner_of(kept), union.preconditioner)
    return kept.settings.get("merged", {}) if same else {}


def _square_by_budget(known: dict[str, Any], own: float) -> float | None:
    """Return the square of the bound of a part by the budgets of earlier merges; None if there is none."""
    if not _holds(known, own):
        return own
    root = known["bound_by_budget"]
    return None if root is None else float(root) ** 2


def _holds(known: dict[str, Any], own: float) -> bool:
    """Return whether the bound of earlier merges of a part holds for its measured square."""
    leaves = known.get("leaves")
    return leaves is not None and own <= math.fsum([leaves, *known["increases"], _ROUNDING * leaves])


def _bound(known: Sequence[dict[str, Any]], own: Sequence[float], share: Array, increase: float) -> dict[str, Any]:
    """Return both sides of a bound; a part that was merged before contributes its own, if that still holds."""
    leaves = 0.0
    increases: list[float] = []
    for before, square, part in zip(known, own, share.tolist(), strict=True):
        merged = _holds(before, square)
        leaves += part * (before["leaves"] if merged else square)
        earlier = before["increases"] if merged else []
        increases += [0.0] * (len(earlier) - len(increases))
        for level, value in enumerate(earlier):
            increases[level] += part * value
    increases.append(increase)
    return {"leaves": leaves, "increases": increases, "bound": math.sqrt(max(leaves + math.fsum(increases), 0.0))}


# -- validation --------------------------------------------------------------------------------------------------------


def as_size(size: int | None) -> int | None:
    """Validate the number of draws to keep."""
    return None if size is None else positive(size, "size")


def inner_size(size: int | None, spare: float) -> int | None:
    """Return ``spare * size``, rounded up."""
    if not (isinstance(spare, int | float) and 1 <= spare < math.inf):
        raise InputError(f"spare must be a number of at least 1, got {spare!r}.")
    return None if size is None else math.ceil(spare * size)


def as_stream_weight(value: float | None, sets: Sequence[Kept]) -> float:
    """Validate the weight of the stream term, or return the largest one of some kept sets."""
    if value is not None:
        return ThinConfig(stream_weight=value).stream_weight
    return largest_stream_weight(sets)


def require_stream_term(parts: Sequence[PartFacts], stream_weight: float) -> None:
    """Raise an `InputError` if draws without scores would be merged without a stream term."""
    if stream_weight == 0.0 and not parts[0].has_scores:
        raise InputError(
            "Draws without scores cannot be merged by KSD alone (stream_weight=0).",
            "Leave out stream_weight: the result is then compared with the streams.",
        )


def as_budgets(merge_budget: float | Sequence[float] | None) -> tuple[float, ...] | None:
    """Validate the budgets of the levels; the last one applies to all further levels."""
    if merge_budget is None:
        return None
    each = tuple(merge_budget) if isinstance(merge_budget, Sequence | np.ndarray) else (merge_budget,)
    if not each or not all(isinstance(one, int | float) and 0 <= one < math.inf for one in each):
        raise InputError(f"merge_budget must be a number of at least 0, or one per level, got {merge_budget!r}.")
    return tuple(float(one) for one in each)


def as_fan_in(fan_in: int | None) -> int | None:
    """Validate the number of sets that are merged at a time; None for all."""
    if fan_in is not None and positive(fan_in, "fan_in") < 2:
        raise InputError(f"fan_in must be a whole number of at least 2, got {fan_in!r}.")
    return None if fan_in is None else int(fan_in)


def as_masses(masses: str | ArrayLike, parts: Sequence[PartFacts]) -> Array:
    """Return a positive mass for each part."""
    if isinstance(masses, str):
        if masses not in MASSES:
            raise InputError(f"masses must be {' or '.join(map(repr, MASSES))}, or numbers, got {masses!r}.")
        each = np.array([float(part.size) if masses == "kept" else part.mass for part in parts])
        for place in np.flatnonzero(each <= 0).tolist():
            raise InputError(f"Part {place} represents no draws.", 'Leave it out, or use masses="kept".')
        for place in np.flatnonzero(each > _LARGEST_MASS).tolist():
            raise InputError(f"Part {place} claims {each[place]:g} draws.", 'Correct its file, or use masses="kept".')
        return each
    given = np.asarray(masses, dtype=np.float64)
    if given.shape != (len(parts),) or not ((given > 0) & (given <= _LARGEST_MASS)).all():
        raise InputError(f"masses must be {len(parts)} positive numbers up to 1e18, one per part, got {masses!r}.")
    return given


def common_preconditioner(parts: Sequence[PartFacts], mass: Array) -> Preconditioner:
    """Return the preconditioner of all parts, or the weighted mean of their covariances and centres."""
    each, share = [part.preconditioner for part in parts], mass / mass.sum()
    if all(same_preconditioner(one, each[0]) for one in each):
        return each[0]
    dim = parts[0].dim
    centres = [one.centre for one in each if one.centre is not None]
    centre = share @ np.array(centres) if len(centres) == len(each) else None
    if all(one.factor.ndim < 2 for one in each):
        squares = np.array([np.broadcast_to(one.factor**2, (dim,)) for one in each])
        return replace(Preconditioner.scales(np.sqrt(share @ squares)), centre=centre)
    covariances = [
        one.factor @ one.factor.T if one.factor.ndim == 2 else np.diag(np.broadcast_to(one.factor**2, dim))
        for one in each
    ]
    mean = np.tensordot(share, np.array(covariances), axes=1)
    return replace(Preconditioner.covariance(mean), centre=centre)


def common_kernel(parts: Sequence[PartFacts]) -> Kernel:
    """Return the kernel of all parts, or raise an `InputError` if kernels or dimensions differ."""
    if not parts:
        raise InputError("There is nothing to merge.", "Pass some thinners or kept sets.")
    for place, part in enumerate(parts):
        if part.size == 0:
            raise InputError(f"Part {place} is empty.", "Leave it out.")
        if part.dim != parts[0].dim:
            raise InputError(
                f"Part {place} has {part.dim} dimensions, part 0 has {parts[0].dim}.", "Merge chains of one model."
            )
        if part.has_scores != parts[0].has_scores:
            which = (place, 0) if parts[0].has_scores else (0, place)
            raise InputError(
                f"Part {which[0]} has no scores, part {which[1]} has scores.",
                "Thin all chains with scores, or all without.",
            )
    kernels = [part.kernel for part in parts]
    if any(kernel != kernels[0] for kernel in kernels):
        names = ", ".join(sorted(set(map(repr, kernels))))
        raise InputError(f"The parts have different kernels: {names}.", "Use the same kernel for all.")
    return kernels[0]


def with_distinct_chains(sets: Sequence[Kept]) -> list[Kept]:
    """Return the sets with every chain number in one set only; if necessary, chains are numbered again."""
    chains = [np.unique(np.concatenate([ids[:, 0] for ids in _all_ids(kept)])) for kept in sets]
    if len(np.unique(np.concatenate(chains))) == sum(map(len, chains)):
        return list(sets)
    renumbered, before = [], 0
    for kept, own in zip(sets, chains, strict=True):
        ids = [np.column_stack([before + np.searchsorted(own, ids[:, 0]), ids[:, 1]]) for ids in _all_ids(kept)]
        stream = None if kept.stream is None else kept.stream._replace(ids=ids[1])
        renumbered.append(replace(kept, ids=ids[0], stream=stream))
        before += len(own)
    return renumbered


def _all_ids(kept: Kept) -> list[Integers]:
    """Return the ids of the kept draws, and those of the subsample of the stream if there is one."""
    return [kept.ids] if kept.stream is None else [kept.ids, kept.stream.ids]


def _preconditioner_of(kept: Kept) -> Preconditioner:
    return kept.preconditioner or Preconditioner.identity()


# -- the union ---------------------------------------------------------------------------------------------------------


class _Union:
    """All draws of some kept sets with their masses, under one preconditioner, and the streams of these sets."""

    def __init__(
        self, sets: Sequence[Kept], mass: Array, kernel: Kernel, preconditioner: Preconditioner, stream_weight: float
    ) -> None:
        from steinstream._engine.merging import RowSums  # loads numba

        self._sets, self._mass, self.preconditioner, self._kernel = sets, mass, preconditioner, kernel
        preconditioner.require(sets[0].draws.shape[1])
        self._draws = np.concatenate([kept.draws for kept in sets], dtype=np.float64)
        scores = [kept.scores for kept in sets if kept.scores is not None]
        self._scores = np.concatenate(scores, dtype=np.float64) if scores else None
        self._masses = np.concatenate([shares_of(kept) * m for kept, m in zip(sets, mass, strict=True)])
        x = preconditioner.apply_to_draws(self._draws)
        s = np.zeros_like(x) if self._scores is None else preconditioner.apply_to_scores(self._scores)
        self._states = np.stack([x, s], axis=1)
        self._diagonal = np.zeros(len(x)) if self._scores is None else kernel.diagonal(s, x)
        self._sums = RowSums(np.zeros(len(x)), np.zeros(len(x)), np.zeros(len(x)))
        self._left: Flags = np.ones(len(x), dtype=np.bool_)
        self._edges = np.cumsum([0, *map(len, sets)])
        self.stream_weight, self._compared = stream_weight, None
        if stream_weight:
            self._compared = compared(sets, mass, kernel, preconditioner)
        worth = [kept.settings.get("effective_draws") for kept in sets]
        self._effective_draws = None if None in worth else math.fsum(value or 0.0 for value in worth)
        self.trust = trust_in(self._effective_draws, 0)
        self.squares_of_parts = self._squares_of_parts()

    def _squares_of_parts(self) -> list[Squares]:
        """Return KSD^2 and MMD^2 of each part; compute the row sums of the union."""
        squares: Sequence[float | None] = [None] * len(self._sets)
        if self._scores is not None:
            squares = self._compute_row_sums()
        if self._compared is None:
            return [Squares(square, None) for square in squares]
        base = np.split(self._compared.base, self._edges[1:-1])
        return [
            Squares(square, stream.squared_mmd(points, shares_of(kept)))
            for square, stream, points, kept in zip(squares, self._compared.streams, base, self._sets, strict=True)
        ]

    def _compute_row_sums(self) -> list[float]:
        """Compute the row sums within each part, which give its KSD^2, then add the cross terms."""
        from steinstream._engine.compiled_kernel import compile_kernel  # loads numba
        from steinstream._engine.merging import RowSums, add_row_sums, energy_of
        from steinstream._engine.pairwise import tiled

        spans = list(pairwise(self._edges.tolist()))
        parts = [tiled(self._states[a:b, 0], self._states[a:b, 1], self._masses[a:b]) for a, b in spans]
        compiled = compile_kernel(self._kernel, self._states.shape[2])

        def add(within: bool) -> None:
            """Add to every row sum the terms within its part, or those with the other parts in order."""

            def rows(first: int, last: int) -> int:
                for onto, (begin, end) in enumerate(spans):
                    low, high = max(first, begin), min(last, end)
                    for of in range(len(spans)) if low < high else ():
                        if (of == onto) == within:
                            add_row_sums(compiled, parts[of], self._states, low, high, self._sums)
                return last - first

            run_rows_in_threads(rows, len(self._states), None)

        add(within=True)
        squares = []
        for part, (a, b) in enumerate(spans):
            own = RowSums(self._sums.high[a:b], self._sums.low[a:b], self._sums.stream[a:b])
            energy, _ = energy_of(self._masses[a:b], own, np.ones(b - a, dtype=np.bool_))
            squares.append(max(energy, 0.0) / float(self._mass[part]) ** 2)
        if len(spans) > 1:
            add(within=False)
        return squares

    @property
    def squares(self) -> Squares:
        """KSD^2 and MMD^2 of the draws that are left."""
        from steinstream._engine.merging import energy_of

        ksd, mmd, masses = None, None, self._masses[self._left]
        if self._scores is not None:
            energy, mass = energy_of(self._masses, self._sums, self._left)
            ksd = max(float(energy), 0.0) / float(mass) ** 2
        if self._compared is not None:
            mmd = self._compared.stream.squared_mmd(self._compared.base[self._left], masses / masses.sum())
        return Squares(ksd, mmd)

    @property
    def stream_error(self) -> float:
        """Bound on the MMD between the joined stream and the streams of the parts together."""
        return 0.0 if self._compared is None else self._compared.error

    def thin(self, size: int | None, budget: float | None, last: bool = True) -> None:
        """Remove draws until ``size`` are left or the budget is spent; then swap removed draws in where that helps.

        Swaps end in a set that no single swap improves. With a ``size`` they are therefore also started from other
        sets, scattered over the union, and the best result is used. The last merge tries more of them.
        """
        whole = len(self._left)
        self.trust = trust_in(self._effective_draws, min(size or whole, whole))
        if size is None and budget is None:
            return
        pool = self._pool()
        everything = _Subset(np.arange(whole), self._sums._replace(stream=pool.stream_sums(np.arange(whole))))
        thinned = pool.drop(everything, size, budget)
        if len(thinned.rows) == whole:
            return
        best = pool.swap(thinned, np.arange(whole))
        for start in range(_restarts(size, last) if size is not None and len(thinned.rows) == size else 0):
            order = scattered(whole, start)
            other = pool.swap(pool.subset(order[: len(thinned.rows)]), order)
            if pool.objective(other) < pool.objective(best):
                best = other
        self._left[:] = False
        self._left[best.rows] = True
        self._sums.high[best.rows], self._sums.low[best.rows] = best.sums.high, best.sums.low

    def _pool(self) -> _Pool:
        """Return the draws with their masses, and what the stream term needs."""
        from steinstream._engine.merging import WeightedDraws

        none, stein = np.zeros(len(self._masses)), float(self._scores is not None)
        base = self._states[:, 0, :0] if self._compared is None else self._compared.base
        draws = WeightedDraws(self._states, base, self._masses, self._diagonal, none, 0.0, stein, 0.0)
        if self._compared is not None:
            stream, shares = self._compared.stream, self._masses / self._masses.sum()
            weight = stream.weight(self.stream_weight * self.trust, self._diagonal if stein else None, shares)
            means = stream.means(base)
            diagonal = self._diagonal + weight * (stream.own - 2.0 * means + stream.mean)
            draws = draws._replace(diagonal=diagonal, base_means=means, base_mean=stream.mean, stream_weight=weight)
        return _Pool(self._kernel, draws)

    def kept(self, merged: dict[str, Any]) -> Kept:
        """Return the draws that are left, sorted by id."""
        ids = np.concatenate([kept.ids for kept in self._sets])
        order = np.lexsort((ids[:, 1], ids[:, 0]))
        order = order[self._left[order]]
        masses, first = self._masses[order], self._sets[0]
        equal = bool(masses.max() <= masses.min() * (1.0 + 1e-12))
        counts = {name: sum(kept.settings.get(name, 0) for kept in self._sets) for name in COUNTS}
        ksd, mmd = (math.nan if square is None else math.sqrt(square) for square in self.squares)
        return Kept(
            self._draws[order],
            None if self._scores is None else self._scores[order],
            ids[order],
            ksd,
            History.single(counts["seen"], len(order), ksd, mmd),
            kernel=self._kernel,
            preconditioner=self.preconditioner,
            names=first.names if all(kept.names == first.names for kept in self._sets) else None,
            weights=None if equal else masses / masses.sum(),
            mmd=mmd,
            settings={
                "steinstream": __version__,
                "kernel": repr(self._kernel),
                "preconditioner": str(self.preconditioner),
                **counts,
                "has_scores": self._scores is not None,
                **self._chain_worth(),
                "merged": merged,
            },
            variables=_common_variables([kept.variables for kept in self._sets], order),
            groups=_common_groups([kept.groups for kept in self._sets], order),
            stream=_joined_subsample(self._sets, self._mass),
            stream_summary=None if self._compared is None else _summary_for(self._compared, order),
        )

    def _chain_worth(self) -> dict[str, Any]:
        """Return what is known about the chains, as in the settings of a thinner."""
        if self._effective_draws is None:
            return {}
        burn_in = {
            name: sum(kept.settings.get(name, 0) for kept in self._sets) for name in ("burn_in", "burn_in_chains")
        }
        return {"effective_draws": self._effective_draws, **burn_in, "trust": self.trust}


def _summary_for(streams: ComparedSets, order: Integers) -> SummarisedStream:
    """Return the joined stream for some of the kept draws."""
    return replace(streams.summary, kept=None if streams.given is None else streams.given[order])


def _joined_subsample(sets: Sequence[Kept], mass: Array) -> Block | None:
    """Join the evenly spaced subsamples of the streams, equally dense in all streams; None if one is missing."""
    blocks = [kept.stream for kept in sets if kept.stream is not None]
    if len(blocks) < len(sets):
        return None
    density = np.array([len(block.draws) for block in blocks]) / mass
    target = min(float(density.min()), _STREAM_DRAWS / float(mass.sum()))
    if target == 0.0:
        return None
    strides = np.ceil(density / target * (1.0 - _ROUNDING)).astype(np.int64).tolist()
    return concatenate([block.take(slice(None, None, stride)) for block, stride in zip(blocks, strides, strict=True)])


class _Subset(NamedTuple):
    """Some rows of a pool with their row sums among each other."""

    rows: Integers
    sums: RowSums


class _Pool:
    """Draws with masses, of which a subset is chosen."""

    def __init__(self, kernel: Kernel, draws: WeightedDraws) -> None:
        from steinstream._engine.compiled_kernel import compile_kernel  # loads numba

        self._pool = draws
        self._kernels = (
            compile_kernel(kernel, draws.draws.shape[2]),
            compile_kernel(kernel, max(draws.base.shape[1], 1)),
        )

    def stream_sums(self, rows: Integers) -> Array:
        """Return the stream term's part of the row sums of some rows among each other."""
        from steinstream._engine.base_row import base_row_sums

        pool, masses = self._pool, self._pool.masses[rows]
        if pool.stream_weight == 0.0:
            return np.zeros(len(rows))
        slots, means, mass = self._slots(rows), pool.base_means[rows], masses.sum()
        sums = base_row_sums(self._kernels[1], slots.base_tiles, slots.masses, pool.base[rows])
        return np.asarray(pool.stream_weight * (sums - means * mass - masses @ means + pool.base_mean * mass))

    def objective(self, subset: _Subset) -> float:
        """Return KSD^2 plus the stream term."""
        from steinstream._engine.merging import energy_with_stream_term

        alive = np.ones(len(subset.rows), dtype=np.bool_)
        energy, mass = energy_with_stream_term(self._pool.masses[subset.rows], subset.sums, alive)
        return float(energy / mass**2)

    def subset(self, rows: Integers) -> _Subset:
        """Return some rows with their row sums."""
        from steinstream._engine.merging import RowSums, add_row_sums
        from steinstream._engine.pairwise import tiled

        number, states = len(rows), self._pool.draws[rows]
        sums = RowSums(np.zeros(number), np.zeros(number), self.stream_sums(rows))
        if self._pool.stein:
            points = tiled(states[:, 0], states[:, 1], self._pool.masses[rows])
            add_row_sums(self._kernels[0], points, states, 0, number, sums)
        return _Subset(rows.copy(), sums)

    def _slots(self, rows: Integers) -> Slots:
        """Return some rows in the layout of kernel rows."""
        from steinstream._engine.base_row import base_tiles, padded
        from steinstream._engine.merging import Slots
        from steinstream._engine.pairwise import as_tiles

        states = self._pool.draws[rows]
        return Slots(
            as_tiles(states[:, 0], states[:, 1]), base_tiles(self._pool.base[rows]), padded(self._pool.masses[rows])
        )

    def drop(self, subset: _Subset, size: int | None, budget: float | None) -> _Subset:
        """Remove the draws that cost least, half of them at a time, so that no kernel row covers many removed draws."""
        from steinstream._engine.merging import DropLimits, drop
        from steinstream._engine.step_rule import TIE

        least, whole = size or 1, len(subset.rows)
        allowed = (self.objective(subset) + (budget or 0.0)) * TIE
        subset = _Subset(subset.rows, subset.sums.take(np.arange(whole)))
        while len(subset.rows) > least:
            rows, alive = subset.rows, np.ones(len(subset.rows), dtype=np.bool_)
            goal = max(least, len(rows) // 2)
            limits = DropLimits(goal, goal if budget is None else whole, allowed)
            drop(self._kernels, self._slots(rows), self._pool.take(rows), subset.sums, alive, limits)
            left = np.flatnonzero(alive)
            subset = _Subset(rows[left], subset.sums.take(left))
            if len(subset.rows) > goal:
                break
        return subset

    def swap(self, subset: _Subset, order: Integers) -> _Subset:
        """Offer every other draw a place, in this order, as long as that helps."""
        from steinstream._engine.merging import swap

        slots = self._slots(subset.rows)
        for _ in range(_SWAP_PASSES):
            before = self.objective(subset)
            swaps = swap(self._kernels, slots, self._pool, subset.rows, subset.sums, order)
            if swaps == 0 or self.objective(subset) > (1.0 - _SWAP_GAIN) * before:
                break
        return subset


def _restarts(size: int, last: bool) -> int:
    """Return the number of further initial sets; small sets differ more, so they get more (measured for 25 to 200).

    >>> [_restarts(size, True) for size in (50, 200, 1000)], _restarts(50, False)
    ([48, 24, 8], 8)
    """
    few, many = _RESTARTS
    return max(few, min(many, _TRIED // size)) if last else few


def scattered(number: int, start: int) -> Integers:
    """Return the numbers below ``number`` in a pseudo-random order that depends on ``start`` only.

    Returns
    -------
    array
        The numbers.

    Examples
    --------
    >>> scattered(6, 0).tolist(), scattered(6, 1).tolist()
    ([1, 5, 3, 0, 4, 2], [4, 3, 5, 2, 0, 1])

    """
    z = np.arange(number, dtype=np.uint64) + np.uint64((start + 1) << 32)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # the finalizer of splitmix64
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    return np.argsort(z ^ (z >> np.uint64(31)), kind="stable").astype(np.int64)


def _common_variables(parts: Sequence[Mapping[str, Variable]], rows: Integers) -> dict[str, Variable]:
    """Return the variables that all parts have."""
    variables = {}
    for name, first in parts[0].items():
        if all(name in part for part in parts):
            variables[name] = first._replace(values=np.concatenate([part[name].values for part in parts])[rows])
    return variables


def _common_groups(
    parts: Sequence[Mapping[str, Mapping[str, Variable]]], rows: Integers
) -> dict[str, dict[str, Variable]]:
    """Return the groups that all parts have; those of the model from the first part."""
    return {
        name: dict(first) if name in MODEL_GROUPS else _common_variables([part[name] for part in parts], rows)
        for name, first in parts[0].items()
        if all(name in part for part in parts)
    }
