r"""Merge the kept sets of several thinners: the exact union, thinned again, with a bound.

Each part c represents a stream of mass m_c (its length, plus initial draws), and each of its draws an equal share of
that mass. The union has the row sums of its parts plus the cross terms between them: n1 * n2 kernel values for two
parts, summed in pairs of doubles. Then draws are removed, each time the one whose removal costs least.

**Bound.** KSD^2 is convex, so that of the union is at most the mean over the parts, weighted by mass. Removing draws
increases it by a measured amount, at most the budget. If merged sets are merged again, in a tree,

.. math:: KSD^2(\text{root}) \le \sum_c m_c KSD^2(\text{leaf}_c) + \sum_{\text{levels}} \text{increase} ,

where the increase of a level is the mean over its nodes, and at most the budget of the level.
``kept.settings["merged"]`` contains both sides: ``bound`` with the measured increases, and ``bound_by_budget`` with the
budgets in their place, which is known before the first merge. It is None if a size or a stream term may cost more than
the budget.

**Stream term.** The union stands for the streams of its parts: the stream term is the squared MMD between the result
and the union. By the triangle inequality, the MMD to the joined stream exceeds it by at most the mean of the MMD of
the parts to their own streams, weighted by mass.

**Preconditioner.** If the parts have the same preconditioner, it is used. Otherwise it is the mass-weighted mean of
their covariances, and everything is computed again with it. The KSD of the leaves in the bound is then that under the
common preconditioner.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from steinstream import __version__
from steinstream._typing import Array, Flags, Integers
from steinstream.discrepancy import run_rows_in_threads
from steinstream.errors import InputError, positive
from steinstream.gradient_free import reject_ratios
from steinstream.kernels import IMQ, Kernel
from steinstream.preconditioning import Preconditioner, as_preconditioner, same_preconditioner
from steinstream.result import History, Kept, Variable
from steinstream.thinner import Thinner
from steinstream.thinner.config import ThinConfig

if TYPE_CHECKING:
    from steinstream._engine.merging import RowSums, WeightedDraws
    from steinstream._engine.pairwise import TiledDraws

T = TypeVar("T")

MASSES = ("lengths", "kept")
COUNTS = ("seen", "skipped", "initial")
_ROUNDING = 1e-12
_MIN_SPREAD = 1e-12  # spread of the union, relative to phi(0), below which the stream term has no effect
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
    spare: float = 1.0,
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
        Allowed increase of KSD^2, or one value per level of the tree, lowest level first; the last value applies to
        all further levels. With ``size``, draws are removed until ``size`` is reached or the budget is spent.
    masses : {"lengths", "kept"} or array_like, default "lengths"
        Mass of each part: the length of its stream, its number of kept draws, or one number per part. If the mass
        per draw differs between parts, the result has weights.
    preconditioner : Preconditioner or array_like, optional
        Preconditioner of the result. Default: the common one of the parts.
    stream_weight : float, optional
        Weight of the stream term, the squared MMD between the result and the union: see `ThinConfig`. Default: the
        largest one of the parts.
    fan_in : int, optional
        Merge in a tree, this many sets at a time, for many parts whose union would be large. Default: all at once.
    spare : float, default 1.0
        Nodes below the root keep ``spare * size`` draws. A value of 2 brings the root closer to a single thinner over
        all draws.

    Returns
    -------
    Kept
        The merged set. The same parts in the same order give the same result to the last bit.

    Raises
    ------
    InputError
        If the parts have different kernels or dimensions, or a part is empty.

    Examples
    --------
    >>> import steinstream as ss
    >>> draws = np.random.default_rng(0).normal(size=(3, 4000, 2))
    >>> parts = [ss.thin(x, -x, size=50) for x in draws]
    >>> ss.merge(parts)
    Kept(150 of 12000 draws, 2 dimensions, KSD 0.0314)
    >>> kept = ss.merge(parts, size=50)
    >>> kept
    Kept(50 of 12000 draws, 2 dimensions, KSD 0.0368)
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
        reject_ratios(kept, "merge")
    facts = [PartFacts.of(kept) for kept in sets]
    kernel, budgets = common_kernel(facts), as_budgets(merge_budget)
    width = as_fan_in(fan_in) or len(sets)
    mass = as_masses(masses, facts)
    size = as_size(size)
    fixed = common_preconditioner(facts, mass) if preconditioner is None else as_preconditioner(preconditioner)
    rule = MergeRule(kernel, fixed, size, inner_size(size, spare), budgets, as_stream_weight(stream_weight, sets))
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

    @property
    def mass(self) -> float:
        """Number of draws that the part represents: valid draws of the stream, and initial ones."""
        return float(self.seen - self.skipped + self.initial)

    @classmethod
    def of(cls, kept: Kept) -> PartFacts:
        """Return the facts about a kept set."""
        seen, skipped, initial = ({"seen": len(kept), **kept.settings}.get(name, 0) for name in COUNTS)
        kernel, preconditioner = kept.kernel or IMQ(), _preconditioner_of(kept)
        return cls(len(kept), seen, skipped, initial, kept.draws.shape[1], kernel, preconditioner)


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
        union = _Union(sets, mass, self.kernel, self.preconditioner)
        before = union.squared_ksd
        union.thin(self.size if last else self.inner_size, budget, self.stream_weight, last)
        spent = 0.0 if self.size is None and budget is None else None if self.stream_weight else budget
        merged = _bound(sets, union, mass / mass.sum(), union.squared_ksd - before, spent)
        merged["stream_weight"] = self.stream_weight
        return Node(union.kept(merged), float(mass.sum()))


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


def _bound(sets: Sequence[Kept], union: _Union, share: Array, increase: float, budget: float | None) -> dict[str, Any]:
    """Return both sides of the bound; a part that was merged before contributes its own, if that still holds."""
    leaves = 0.0
    increases: list[float] = []
    by_budget: list[float | None] = []
    for kept, own, part in zip(sets, union.squared_ksd_of_parts, share.tolist(), strict=True):
        alone: dict[str, Any] = {"leaves": own, "increases": [], "bound_by_budget": math.sqrt(own)}
        same = same_preconditioner(_preconditioner_of(kept), union.preconditioner)
        known = kept.settings.get("merged") if same else None
        if known is None or own > math.fsum([known["leaves"], *known["increases"], _ROUNDING * known["leaves"]]):
            known = alone
        leaves += part * known["leaves"]
        increases += [0.0] * (len(known["increases"]) - len(increases))
        for level, value in enumerate(known["increases"]):
            increases[level] += part * value
        root = known["bound_by_budget"]
        by_budget.append(None if root is None else part * root**2)
    increases.append(increase)
    squares = [square for square in by_budget if square is not None]
    complete = budget is not None and len(squares) == len(by_budget)
    return {
        "parts": len(sets),
        "leaves": leaves,
        "increases": increases,
        "bound": math.sqrt(max(leaves + math.fsum(increases), 0.0)),
        "bound_by_budget": math.sqrt(math.fsum(squares) + budget) if complete and budget is not None else None,
    }


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
    places = ("config", "merged")  # of a set that was thinned, or merged before
    weights = [kept.settings.get(place, {}).get("stream_weight", 0.0) for kept in sets for place in places]
    return float(max(weights, default=0.0))


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
        return each
    given = np.asarray(masses, dtype=np.float64)
    if given.shape != (len(parts),) or not (np.isfinite(given) & (given > 0)).all():
        raise InputError(f"masses must be {len(parts)} positive numbers, one per part, got {masses!r}.")
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
    kernels = [part.kernel for part in parts]
    if any(kernel != kernels[0] for kernel in kernels):
        names = ", ".join(sorted(set(map(repr, kernels))))
        raise InputError(f"The parts have different kernels: {names}.", "Use the same kernel for all.")
    return kernels[0]


def with_distinct_chains(sets: Sequence[Kept]) -> list[Kept]:
    """Return the sets with every chain number in one set only; if necessary, chains are numbered again."""
    chains = [np.unique(kept.ids[:, 0]) for kept in sets]
    if len(np.unique(np.concatenate(chains))) == sum(map(len, chains)):
        return list(sets)
    renumbered, before = [], 0
    for kept, own in zip(sets, chains, strict=True):
        chain = before + np.searchsorted(own, kept.ids[:, 0])
        renumbered.append(replace(kept, ids=np.column_stack([chain, kept.ids[:, 1]])))
        before += len(own)
    return renumbered


def _preconditioner_of(kept: Kept) -> Preconditioner:
    return kept.preconditioner or Preconditioner.identity()


# -- the union ---------------------------------------------------------------------------------------------------------


class _Union:
    """All draws of some kept sets with their masses, under one preconditioner."""

    def __init__(self, sets: Sequence[Kept], mass: Array, kernel: Kernel, preconditioner: Preconditioner) -> None:
        from steinstream._engine.merging import RowSums  # loads numba

        self._sets, self.preconditioner, self._kernel = sets, preconditioner, kernel
        preconditioner.require(sets[0].draws.shape[1])
        self._draws = np.concatenate([kept.draws for kept in sets], dtype=np.float64)
        self._scores = np.concatenate([kept.scores for kept in sets], dtype=np.float64)
        self._masses = np.concatenate([_shares(kept) * m for kept, m in zip(sets, mass, strict=True)])
        x, s = preconditioner.apply(self._draws, self._scores)
        self._states = np.stack([x, s], axis=1)
        self._diagonal = kernel.diagonal(s, x)
        self._sums = RowSums(np.zeros(len(x)), np.zeros(len(x)), np.zeros(len(x)))
        self._left: Flags = np.ones(len(x), dtype=np.bool_)
        self.squared_ksd_of_parts = self._compute_row_sums(np.cumsum([0, *map(len, sets)]), mass)

    def _compute_row_sums(self, edges: Integers, mass: Array) -> list[float]:
        """Compute the row sums within each part, which give its KSD^2, then add the cross terms."""
        from steinstream._engine.merging import RowSums, add_row_sums, energy_of
        from steinstream._engine.pairwise import tiled  # loads numba

        spans = list(pairwise(edges.tolist()))
        parts = [tiled(self._states[a:b, 0], self._states[a:b, 1], self._masses[a:b]) for a, b in spans]
        compiled = self._kernel.compiled(self._states.shape[2])

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
            squares.append(max(energy, 0.0) / float(mass[part]) ** 2)
        if len(spans) > 1:
            add(within=False)
        return squares

    @property
    def squared_ksd(self) -> float:
        """KSD^2 of the draws that are left."""
        from steinstream._engine.merging import energy_of

        energy, mass = energy_of(self._masses, self._sums, self._left)
        return max(float(energy), 0.0) / float(mass) ** 2

    def thin(self, size: int | None, budget: float | None, stream_weight: float, last: bool = True) -> None:
        """Remove draws until ``size`` are left or the budget is spent; then swap removed draws in where that helps.

        Swaps end in a set that no single swap improves. With a ``size`` they are therefore also started from other
        sets, scattered over the union, and the best result is used. The last merge tries more of them.
        """
        from steinstream._engine.merging import WeightedDraws

        if size is None and budget is None:
            return
        whole = len(self._left)
        pool = _Pool(self._kernel, WeightedDraws(self._states, self._masses, self._diagonal, np.zeros(whole), 0.0, 0.0))
        if stream_weight > 0.0:
            pool.add_stream_term(stream_weight)
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

    def kept(self, merged: dict[str, Any]) -> Kept:
        """Return the draws that are left, sorted by id."""
        ids = np.concatenate([kept.ids for kept in self._sets])
        order = np.lexsort((ids[:, 1], ids[:, 0]))
        order = order[self._left[order]]
        masses, first = self._masses[order], self._sets[0]
        equal = bool(masses.max() <= masses.min() * (1.0 + 1e-12))
        counts = {name: sum(kept.settings.get(name, 0) for kept in self._sets) for name in COUNTS}
        ksd = math.sqrt(self.squared_ksd)
        kernel, preconditioner = repr(self._kernel), str(self.preconditioner)
        return Kept(
            self._draws[order],
            self._scores[order],
            ids[order],
            ksd,
            History(np.array([counts["seen"]]), np.array([len(order)]), np.array([ksd])),
            kernel=self._kernel,
            preconditioner=self.preconditioner,
            names=first.names if all(kept.names == first.names for kept in self._sets) else None,
            weights=None if equal else masses / masses.sum(),
            settings={
                "steinstream": __version__,
                "kernel": kernel,
                "preconditioner": preconditioner,
                **counts,
                "merged": merged,
            },
            variables=_common_variables(self._sets, order),
        )


class _Subset(NamedTuple):
    """Some rows of a pool with their row sums among each other."""

    rows: Integers
    sums: RowSums


class _Pool:
    """Draws with masses, of which a subset is chosen."""

    def __init__(self, kernel: Kernel, draws: WeightedDraws) -> None:
        self._kernel, self._compiled = kernel, kernel.compiled(draws.draws.shape[2])
        self._pool = draws

    def add_stream_term(self, gamma: float) -> None:
        """Add the stream term to the kernel, with the weight that the thinner gives it."""
        from steinstream._engine.merging import base_row_sums

        pool, every = self._pool, self._tiled(np.arange(len(self._pool.masses)))
        share = pool.masses / pool.masses.sum()
        means = base_row_sums(self._compiled, every.tiles, every.copies, pool.draws) / pool.masses.sum()
        own, mean = float(self._kernel.base_matrix(np.zeros((1, 1)), np.zeros((1, 1)))[0, 0]), float(share @ means)
        if own - mean < _MIN_SPREAD * own:
            return
        weight = gamma * float(np.exp(share @ np.log(pool.diagonal))) / (own - mean)
        diagonal = pool.diagonal + weight * (own - 2.0 * means + mean)
        self._pool = pool._replace(diagonal=diagonal, base_means=means, base_mean=mean, stream_weight=weight)

    def stream_sums(self, rows: Integers) -> Array:
        """Return the stream term's part of the row sums of some rows among each other."""
        from steinstream._engine.merging import base_row_sums

        pool, masses = self._pool, self._pool.masses[rows]
        if pool.stream_weight == 0.0:
            return np.zeros(len(rows))
        points, means, mass = self._tiled(rows), pool.base_means[rows], masses.sum()
        sums = base_row_sums(self._compiled, points.tiles, points.copies, pool.draws[rows])
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

        number = len(rows)
        sums = RowSums(np.zeros(number), np.zeros(number), self.stream_sums(rows))
        add_row_sums(self._compiled, self._tiled(rows), self._pool.draws[rows], 0, number, sums)
        return _Subset(rows.copy(), sums)

    def _tiled(self, rows: Integers) -> TiledDraws:
        """Return some rows in the layout of kernel rows."""
        from steinstream._engine.pairwise import tiled

        states = self._pool.draws[rows]
        return tiled(states[:, 0], states[:, 1], self._pool.masses[rows])

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
            drop(self._compiled, self._tiled(rows).tiles, self._pool.take(rows), subset.sums, alive, limits)
            left = np.flatnonzero(alive)
            subset = _Subset(rows[left], subset.sums.take(left))
            if len(subset.rows) > goal:
                break
        return subset

    def swap(self, subset: _Subset, order: Integers) -> _Subset:
        """Offer every other draw a place, in this order, as long as that helps."""
        from steinstream._engine.merging import swap

        points = self._tiled(subset.rows)
        for _ in range(_SWAP_PASSES):
            before = self.objective(subset)
            swaps = swap(self._compiled, points, self._pool, subset.rows, subset.sums, order)
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


def _shares(kept: Kept) -> Array:
    """Return the share of each draw in its part."""
    return np.full(len(kept), 1.0 / len(kept)) if kept.weights is None else kept.weights


def _common_variables(sets: Sequence[Kept], rows: Integers) -> dict[str, Variable]:
    """Return the variables that all parts have."""
    common = [name for name in sets[0].variables if all(name in kept.variables for kept in sets)]
    variables = {}
    for name in common:
        values = np.concatenate([kept.variables[name].values for kept in sets])[rows]
        variables[name] = sets[0].variables[name]._replace(values=values)
    return variables
