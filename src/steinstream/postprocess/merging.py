r"""Merging what several thinners keep: the exact union, thinned again, with a bound.

Each part c stands for a stream of its own, of mass m_c (its length, and initial draws), and each of its draws for an
equal share of that. The union has the row sums that the parts have already, and the cross terms between them: n1 * n2
kernel values for two parts, summed in pairs of doubles. Then draws go, each time the one whose loss costs least.

**Bound.** KSD^2 is convex, so that of the union is at most the mean over the parts, weighted by mass; dropping draws
raises it by what was measured, at most the budget. Merging merged sets again, in a tree,

.. math:: KSD^2(\text{root}) \le \sum_c m_c KSD^2(\text{leaf}_c) + \sum_{\text{levels}} \text{rise} ,

where a level's rise is the mean over its nodes, and at most the level's budget if it has one.
``kept.settings["merged"]`` has both sides: ``bound`` with the rises as measured, and ``promised`` with the budgets in
their place, which is known before the first merge; None where a size, or an anchor, may cost more than the budget.

**Preconditioner.** Where the parts agree, theirs; where not, the mass-weighted mean of their covariances, and everything
is computed anew in it. The leaves' KSD in the bound is then that in the common coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count, pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steinstream._engine.fourier_features import strength
from steinstream.errors import InputError, positive
from steinstream.gradient_free import refuse_ratios
from steinstream.kernels import IMQ, Kernel
from steinstream.postprocess.union import COUNTS, Union
from steinstream.preconditioning import Preconditioner, as_fixed
from steinstream.result import Kept
from steinstream.thinner import Thinner

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

T = TypeVar("T")

MASSES = ("lengths", "kept")
_ROUNDING = 1e-12


def merge(
    parts: Iterable[Thinner | Kept],
    *,
    size: int | None = None,
    merge_budget: float | Sequence[float] | None = None,
    masses: str | ArrayLike = "lengths",
    preconditioner: Preconditioner | ArrayLike | None = None,
    anchor: float | bool = False,
    fan_in: int | None = None,
    spare: float = 1.0,
) -> Kept:
    """The union of what these thinners or kept sets hold, exactly; then thinned to ``size``, or within ``budget``.

    ``size`` alone is a hard cap. ``budget`` alone lets KSD^2 rise by so much, and drops what it can; with both, draws
    go until ``size`` is reached or the budget is spent. ``masses`` are the streams' ``"lengths"``, or ``"kept"`` to let
    every kept draw count the same, or one number for each part; where they differ from draw to draw, the result has
    weights. ``anchor`` keeps the proportions of the union (:mod:`steinstream._engine.fourier_features`).

    ``fan_in`` merges in a tree, so many at a time, every node thinned as above: for many parts, whose union would be
    large. Nodes below the root keep ``spare * size``: twice as many bring the root closer to one thinner over all
    draws. A ``budget`` for each level, the leaves' first, is a list; its last entry serves all further levels. The same
    parts in the same order give the same result, to the last bit.

    Ids keep their chain. If two parts have a chain of the same number, chains are numbered anew, part after part.

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
                f"Parts to merge must be thinners or kept sets, got {type(kept).__name__}.",
                "Thin each chain first: ss.merge([ss.thin(draws, scores) for each of them]).",
            )
        refuse_ratios(kept, "Merging")
    facts = [Facts.of(kept) for kept in sets]
    kernel, budgets = same_kernel(facts), as_budgets(merge_budget)
    width = as_fan_in(fan_in) or len(sets)
    mass = as_masses(masses, facts)
    size = as_size(size)
    inner = times(size, spare)
    fixed = common_preconditioner(facts, mass) if preconditioner is None else as_fixed(preconditioner)
    how = Merge(kernel, fixed, size, inner, budgets, strength(anchor))
    nodes = [Node(kept, float(m)) for kept, m in zip(chains_apart(sets), mass, strict=True)]
    for level in count():
        families = groups(nodes, width)
        nodes = [how.node(family, level, last=len(families) == 1) for family in families]
        if len(nodes) == 1:
            break
    return nodes[0].kept


class Facts(NamedTuple):
    """What has to be known of every part before the first two are merged; a few numbers, which travel well."""

    size: int
    seen: int
    skipped: int
    initial: int
    dim: int
    kernel: Kernel
    preconditioner: Preconditioner

    @property
    def mass(self) -> float:
        """How many draws it stands for: good ones that came, and initial ones."""
        return float(self.seen - self.skipped + self.initial)

    @classmethod
    def of(cls, kept: Kept) -> Facts:
        """Those of a kept set."""
        seen, skipped, initial = ({"seen": len(kept), **kept.settings}.get(name, 0) for name in COUNTS)
        return cls(len(kept), seen, skipped, initial, kept.draws.shape[1], kept.kernel or IMQ(), _preconditioner(kept))


class Node(NamedTuple):
    """What is kept of a stream, or of several, and their mass."""

    kept: Kept
    mass: float


def groups(nodes: Sequence[T], fan_in: int) -> list[Sequence[T]]:
    """Neighbours, at most so many at a time, in parts as even as can be: one level of the tree.

    The levels are as few as they can be, and the lowest has the smallest groups: the more sets the root has to choose
    from, the better.

    >>> groups("abcde", 2), groups("abcdefghij", 4)
    (['ab', 'cd', 'e'], ['abc', 'def', 'gh', 'ij'])
    """
    most = fan_in
    while most * fan_in < len(nodes):
        most *= fan_in
    count = 1 if len(nodes) <= fan_in else -(-len(nodes) // -(-len(nodes) // most))
    edges = [len(nodes) // count * i + min(i, len(nodes) % count) for i in range(count + 1)]
    return [nodes[first:last] for first, last in pairwise(edges)]


class Merge(NamedTuple):
    """How nodes are merged."""

    kernel: Kernel
    preconditioner: Preconditioner
    size: int | None
    inner: int | None
    """What nodes below the root keep."""
    budgets: tuple[float, ...] | None
    gamma: float

    def node(self, children: Sequence[Node], level: int, last: bool) -> Node:
        """The union of these, thinned as this level of the tree may, or as the root."""
        sets, mass = [child.kept for child in children], np.array([child.mass for child in children])
        budget = None if self.budgets is None else self.budgets[min(level, len(self.budgets) - 1)]
        union = Union(sets, mass, self.kernel, self.preconditioner)
        before = union.square
        union.thin(self.size if last else self.inner, budget, self.gamma, last)
        spent = 0.0 if self.size is None and budget is None else None if self.gamma else budget
        merged = _ledger(sets, union, mass / mass.sum(), union.square - before, spent)
        return Node(union.kept(merged), float(mass.sum()))


def _ledger(sets: Sequence[Kept], union: Union, share: Array, rise: float, budget: float | None) -> dict[str, Any]:
    """Both sides of the bound. A part that was merged before brings its own, if that is true of it as it is now."""
    leaves = 0.0
    rises: list[float] = []
    promises: list[float | None] = []
    for kept, own, part in zip(sets, union.part_squares, share.tolist(), strict=True):
        alone: dict[str, Any] = {"leaves": own, "rises": [], "promised": math.sqrt(own)}
        known = (
            kept.settings.get("merged") if same_preconditioner(_preconditioner(kept), union.preconditioner) else None
        )
        if known is None or own > math.fsum([known["leaves"], *known["rises"], _ROUNDING * known["leaves"]]):
            known = alone
        leaves += part * known["leaves"]
        rises += [0.0] * (len(known["rises"]) - len(rises))
        for level, value in enumerate(known["rises"]):
            rises[level] += part * value
        promises.append(None if known["promised"] is None else part * known["promised"] ** 2)
    rises.append(rise)
    known_all = [promise for promise in promises if promise is not None]
    promised = None if budget is None or len(known_all) < len(promises) else math.sqrt(math.fsum(known_all) + budget)
    bound = math.sqrt(max(leaves + math.fsum(rises), 0.0))
    return {"parts": len(sets), "leaves": leaves, "rises": rises, "bound": bound, "promised": promised}


def as_size(size: int | None) -> int | None:
    """How many to keep; None if as many as the budget says."""
    return None if size is None else positive(size, "size")


def times(size: int | None, spare: float) -> int | None:
    """So many times the size, rounded up."""
    if not (isinstance(spare, int | float) and 1 <= spare < math.inf):
        raise InputError(f"spare must be a number of at least 1, got {spare!r}.")
    return None if size is None else math.ceil(spare * size)


def as_budgets(budget: float | Sequence[float] | None) -> tuple[float, ...] | None:
    """One for each level, the last for all further ones."""
    if budget is None:
        return None
    each = tuple(budget) if isinstance(budget, Sequence | np.ndarray) else (budget,)
    if not each or not all(isinstance(one, int | float) and 0 <= one < math.inf for one in each):
        raise InputError(f"budget must be a number of at least 0, or one for each level, got {budget!r}.")
    return tuple(float(one) for one in each)


def as_fan_in(fan_in: int | None) -> int | None:
    """How many are merged at a time; None if all."""
    if fan_in is not None and positive(fan_in, "fan_in") < 2:
        raise InputError(f"fan_in must be a whole number of at least 2, got {fan_in!r}.")
    return None if fan_in is None else int(fan_in)


def as_masses(masses: str | ArrayLike, parts: Sequence[Facts]) -> Array:
    """One positive number for each part."""
    if isinstance(masses, str):
        if masses not in MASSES:
            raise InputError(f"masses must be {' or '.join(map(repr, MASSES))}, or numbers, got {masses!r}.")
        each = np.array([float(part.size) if masses == "kept" else part.mass for part in parts])
        for place in np.flatnonzero(each <= 0).tolist():
            raise InputError(f"Part {place} stands for no draws.", 'Leave it out, or use masses="kept".')
        return each
    given = np.asarray(masses, dtype=np.float64)
    if given.shape != (len(parts),) or not (np.isfinite(given) & (given > 0)).all():
        raise InputError(f"masses must be {len(parts)} positive numbers, one for each part, got {masses!r}.")
    return given


def common_preconditioner(parts: Sequence[Facts], mass: Array) -> Preconditioner:
    """The coordinates of all parts, or the mean of their covariances, and of their centres if all have one."""
    each, share = [part.preconditioner for part in parts], mass / mass.sum()
    if all(same_preconditioner(one, each[0]) for one in each):
        return each[0]
    dim = parts[0].dim
    centres = [one.centre for one in each if one.centre is not None]
    centre = share @ np.array(centres) if len(centres) == len(each) else None
    if all(one.factor.ndim < 2 for one in each):
        squares = np.array([np.broadcast_to(one.factor**2, (dim,)) for one in each])
        return replace(Preconditioner.scales(np.sqrt(share @ squares)), centre=centre)
    whole = [
        one.factor @ one.factor.T if one.factor.ndim == 2 else np.diag(np.broadcast_to(one.factor**2, dim))
        for one in each
    ]
    return replace(Preconditioner.covariance(np.tensordot(share, np.array(whole), axes=1)), centre=centre)


def same_preconditioner(one: Preconditioner, other: Preconditioner) -> bool:
    """Whether they are the same to the last bit."""
    if (one.centre is None) != (other.centre is None) or not np.array_equal(one.factor, other.factor):
        return False
    return one.centre is None or other.centre is None or np.array_equal(one.centre, other.centre)


def _preconditioner(kept: Kept) -> Preconditioner:
    return kept.preconditioner or Preconditioner.identity()


def same_kernel(parts: Sequence[Facts]) -> Kernel:
    """The kernel of all parts, which must have draws of the same dimension."""
    if not parts:
        raise InputError("There is nothing to merge.", "Give some thinners or kept sets.")
    for place, part in enumerate(parts):
        if part.size == 0:
            raise InputError(f"Part {place} keeps no draws.", "Leave it out.")
        if part.dim != parts[0].dim:
            raise InputError(
                f"Part {place} has {part.dim} dimensions, part 0 has {parts[0].dim}.", "Merge chains of one model."
            )
    kernels = [part.kernel for part in parts]
    if any(kernel != kernels[0] for kernel in kernels):
        raise InputError(f"The parts have different kernels: {', '.join(sorted(set(map(repr, kernels))))}.", "Use one.")
    return kernels[0]


def chains_apart(sets: Sequence[Kept]) -> list[Kept]:
    """The same with every chain in one part only: as they are, or numbered anew."""
    chains = [np.unique(kept.ids[:, 0]) for kept in sets]
    if len(np.unique(np.concatenate(chains))) == sum(map(len, chains)):
        return list(sets)
    apart, before = [], 0
    for kept, own in zip(sets, chains, strict=True):
        chain = before + np.searchsorted(own, kept.ids[:, 0])
        apart.append(replace(kept, ids=np.column_stack([chain, kept.ids[:, 1]])))
        before += len(own)
    return apart
