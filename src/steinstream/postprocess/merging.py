r"""Merge the kept sets of several thinners: the exact union, thinned again, with a bound.

Each part c represents a stream of mass m_c (its length, plus initial draws), and each of its draws an equal share of
that mass. The union has the row sums of its parts plus the cross terms between them: n1 * n2 kernel values for two
parts, summed in pairs of doubles. Then draws are removed, each time the one whose removal costs least, and swapped.

**Objective.** It is that of the thinner: KSD^2 plus the stream term, a multiple of the squared MMD between the result
and the streams of all parts. A kept set carries a summary of its stream; the summaries are joined
(``_stream.py``). A part without a summary stands for its own stream. Without scores the stream
term alone decides. The weight of the stream term falls if the chains together are worth few independent draws.

**Guarantee.** With a budget and no size, the objective of the result is at most that of the union plus the budget.

**Bound.** ``kept.settings["merged"]`` bounds KSD and MMD of the result: see ``_merge_bound.py``.

**Preconditioner.** If the parts have the same preconditioner, it is used. Otherwise it is the mass-weighted mean of
their covariances, and everything is computed again with it. The KSD of the leaves in the bound is then that under the
common preconditioner.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count, pairwise
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from steinstream._typing import Array, Integers
from steinstream.errors import InputError, positive
from steinstream.io._kept_checks import require_weights
from steinstream.kernels import IMQ, Kernel
from steinstream.postprocess._merge_bound import merge_ledger
from steinstream.postprocess._stream import largest_stream_weight
from steinstream.postprocess._union import COUNTS, Union
from steinstream.preconditioning import Preconditioner, as_preconditioner, same_preconditioner
from steinstream.result import Kept
from steinstream.thinner import Thinner
from steinstream.thinner.config import ThinConfig

T = TypeVar("T")

_LARGEST_MASS = 1e18  # draws
MASSES = ("lengths", "kept")


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
        If the parts have different kernels or dimensions, if only some of them have scores, if weights of a part are
        negative or do not have the sum 1, or a part is empty.

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
    for place, kept in enumerate(sets):
        if not isinstance(kept, Kept):
            raise InputError(
                f"The parts to merge must be thinners or kept sets, got {type(kept).__name__}.",
                "Thin each chain first: ss.merge([ss.thin(draws, scores) for ...]).",
            )
        require_weights(kept, f"Part {place}")
    facts = [PartFacts.of(kept) for kept in sets]
    kernel, budgets = common_kernel(facts), as_budgets(merge_budget)
    width = as_fan_in(fan_in) or len(sets)
    mass = as_masses(masses, facts)
    config = ThinConfig(size=size, kernel=kernel, stream_weight=as_stream_weight(stream_weight, sets))
    fixed = common_preconditioner(facts, mass) if preconditioner is None else as_preconditioner(preconditioner)
    require_stream_term(facts, config.stream_weight)
    rule = MergeRule(config, fixed, inner_size(config.size, spare), budgets)
    nodes = [Node(kept, float(m)) for kept, m in zip(with_distinct_chains(sets), mass, strict=True)]
    for level in count():
        families = groups(nodes, width)
        nodes = [rule.merge(family, level, last=len(families) == 1) for family in families]
        if len(nodes) == 1:
            break
    return nodes[0].kept


class PartFacts(NamedTuple):
    """Facts about a part that the first merge needs; small enough to be sent between processes."""

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
        seen, skipped, initial = ({"seen": len(kept), **kept.settings}.get(name, 0) for name in COUNTS)
        kernel, preconditioner = kept.kernel or IMQ(), kept.preconditioner or Preconditioner.identity()
        has_scores, dim = kept.scores is not None, kept.draws.shape[1]
        return cls(
            size=len(kept),
            seen=seen,
            skipped=skipped,
            initial=initial,
            dim=dim,
            kernel=kernel,
            preconditioner=preconditioner,
            has_scores=has_scores,
        )


class Node(NamedTuple):
    """A kept set of one or several streams, with their mass."""

    kept: Kept
    mass: float


class MergeRule(NamedTuple):
    """Rule by which the nodes of a tree are merged."""

    config: ThinConfig
    """Settings, of which ``size``, ``kernel`` and ``stream_weight`` are used."""
    preconditioner: Preconditioner
    inner_size: int | None
    """Number of draws that nodes below the root keep."""
    budgets: tuple[float, ...] | None

    def merge(self, children: Sequence[Node], level: int, last: bool) -> Node:
        """Merge nodes of a level of the tree; ``last`` if the result is the root."""
        sets, mass = [child.kept for child in children], np.array([child.mass for child in children])
        budget = None if self.budgets is None else self.budgets[min(level, len(self.budgets) - 1)]
        size, stream_weight = self.config.size, self.config.stream_weight
        union = Union(sets, mass, self.config, self.preconditioner)
        before = union.squares
        union.thin(size if last else self.inner_size, budget, last)
        spent = 0.0 if size is None and budget is None else None if stream_weight else budget
        return Node(union.kept(merge_ledger(sets, union, before, mass / mass.sum(), spent)), float(mass.sum()))


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


# -- validation --------------------------------------------------------------------------------------------------------


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
