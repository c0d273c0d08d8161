"""Specification of the algorithms in NumPy: everything is recomputed from scratch at every step.

Compiled functions name their counterpart in a line "Reference: ..." of their docstring: a function here or in
:mod:`steinstream.kernels`, or one of NumPy or the standard library. Tests compare the two; no other module imports this
one.

Sums of kernel values are exact (``math.fsum`` rounds once), so that ties are decided on the numbers themselves.
Matrices of kernel values are those of :meth:`steinstream.kernels.Kernel.matrix`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from steinstream._engine.stream_summary import LEVELS, capacity
from steinstream._typing import Array, Id, Integers
from steinstream.kernels import Kernel

TIE = 1.0 + 2.0**-50
_SMALLEST_SPREAD = 1e-6


def row_sum(values: Iterable[float]) -> float:
    """Return the exact sum of kernel values, rounded once."""
    return math.fsum(values)


def mean_over_pairs(total: float, size: int) -> float:
    """Return S / n^2; an S below 0 is due to rounding."""
    return max(total, 0.0) / size**2


def base_values(kernel: Kernel, x: Array, y: Array) -> Array:
    """Return phi of every row of ``x`` (n, d) with every row of ``y`` (m, d), rounded to the grid."""
    grid = kernel.parameters(x.shape[1]).base_grid
    return np.asarray(np.round(kernel.base_matrix(x, y) / grid) * grid)


@dataclass
class ReferenceSummary:
    """Summary of a stream by kernel halving: see :mod:`steinstream._engine.stream_summary`."""

    kernel: Kernel
    levels: list[list[Array]] = field(default_factory=lambda: [[] for _ in range(LEVELS)])
    """Draws of each level, in order of arrival."""
    highest: int = 0
    squared_error: float = 0.0

    @property
    def error(self) -> float:
        """Estimated MMD between the summary and the stream."""
        return math.sqrt(self.squared_error) / sum(2.0**level * len(draws) for level, draws in self._used())

    def sum(self, draw: Array) -> float:
        """Return the weighted sum of phi between a draw and the summary."""
        parts = [2.0**level * base_values(self.kernel, draw[None], np.array(draws))[0] for level, draws in self._used()]
        return math.fsum(value for part in parts for value in part)

    def sum_over_pairs(self) -> float:
        """Return the weighted sum of phi over all pairs of the summary."""
        return math.fsum(2.0**level * self.sum(draw) for level, draws in self._used() for draw in draws)

    def add(self, draw: Array) -> None:
        """Add a draw and halve the levels that are full."""
        self.levels[0].append(draw)
        level = 0
        while len(self.levels[level]) >= capacity(level, self.highest):
            self.highest = max(self.highest, level + 1)
            self.halve(level)
            level += 1

    def halve(self, level: int) -> None:
        """Select one of every two consecutive draws for the next level and forget the other."""
        draws = self.levels[level]
        count = len(draws) // 2 * 2
        phi = base_values(self.kernel, np.array(draws[:count]), np.array(draws[:count]))
        signs = np.zeros(count)
        for first in range(0, count, 2):
            product = math.fsum(phi[first] * signs) - math.fsum(phi[first + 1] * signs)
            signs[first : first + 2] = (1.0, -1.0) if product <= 0 else (-1.0, 1.0)
        self.squared_error += 4.0**level * float(signs @ phi @ signs)
        self.levels[level + 1] += [draws[i] for i in np.flatnonzero(signs > 0)]
        self.levels[level] = draws[count:]

    def _used(self) -> list[tuple[int, list[Array]]]:
        return [(level, draws) for level, draws in enumerate(self.levels) if draws]


# -- the step rule -----------------------------------------------------------------------------------------------------


def allowed_objective(before: float, after: float, budget: float, rule: str) -> float:
    """Return the largest objective that a removal within the budget may leave, with a factor that absorbs rounding.

    ``before`` and ``after`` are the objective without and with the new draw; ``before`` is infinite if no draw was
    kept. The part of the budget that is divided by the squared number of draws is included.
    """
    return ((min(before, after) if rule == "monotone" else after) + budget) * TIE


def removal_limit(allowed: float, size: int, floor: int, cap: int | None) -> float:
    """Return the largest objective that a removal from ``size`` draws may leave.

    It is -inf at the floor and inf above the cap.
    """
    if size <= floor:
        return -math.inf
    return math.inf if cap is not None and size > cap else allowed


# -- thinning ----------------------------------------------------------------------------------------------------------


@dataclass
class Reference:
    """Online thinning (Algorithms 1 and 2 of the paper), with the stream term, costs and pins.

    ``stream_weight`` is gamma, ``cost_weight`` lambda; without ``scored``, KSD^2 is not part of the objective.
    """

    kernel: Kernel
    stream_weight: float = 0.0
    cost_weight: float = 0.0
    scored: bool = True
    draws: list[Array] = field(default_factory=list)
    """The kept draws, each (d,)."""
    scores: list[Array] = field(default_factory=list)
    ids: list[Id] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    """Factors r of the kernel r_x r_y k0(x, y); 1 but for gradient-free thinning."""
    pinned: set[Id] = field(default_factory=set)
    stream: list[tuple[Array, Array, float, float]] = field(default_factory=list)
    """Draw, score, cost and ratio of every draw of the stream."""
    summary: ReferenceSummary | None = None
    stream_sums: dict[Id, float] = field(default_factory=dict)
    """Sum of phi over the stream, for each kept draw and each candidate of the step."""
    pair_sum: float = 0.0
    """Sum of phi over all pairs of draws of the stream."""

    def insert(
        self, draw: Array, score: Array, id: Id, *, cost: float = 0.0, pinned: bool = False, ratio: float = 1.0
    ) -> None:
        """Insert a draw."""
        self.draws.append(draw)
        self.scores.append(score)
        self.ids.append(id)
        self.costs.append(cost)
        self.ratios.append(ratio)
        if pinned:
            self.pinned.add(id)

    def remove(self, j: int) -> None:
        """Remove a draw."""
        for values in (self.draws, self.scores, self.ids, self.costs, self.ratios):
            del values[j]

    def matrix(self) -> Array:
        """Return the kernel values of all pairs of kept draws."""
        if not self.draws:
            return np.zeros((0, 0))
        x, s, r = np.array(self.draws), np.array(self.scores), np.array(self.ratios)
        return np.outer(r, r) * self.kernel.matrix(x, s, x, s)

    @property
    def squared_ksd(self) -> float:
        """KSD^2 of the kept draws."""
        return mean_over_pairs(row_sum(self.matrix().ravel()), len(self.draws))

    # -- the stream ----------------------------------------------------------------------------------------------------

    def observe(
        self,
        draws: Array,
        scores: Array,
        ids: Sequence[Id],
        costs: Sequence[float],
        ratios: Sequence[float] | None = None,
    ) -> None:
        """Add the candidates of a step to the stream, and compute their stream sums.

        The sum of a candidate over the stream before the step is that over the summary. Every draw of the step is added
        exactly, to the sums of the candidates and of the kept draws. A repeated state has the sum of its first copy.
        """
        self.stream += zip(draws, scores, costs, [1.0] * len(draws) if ratios is None else ratios, strict=True)
        if not self.stream_weight:
            return
        self.summary = self.summary or ReferenceSummary(self.kernel)
        before = [self.summary.sum(draw) for draw in draws]
        among = base_values(self.kernel, draws, draws)
        self.pair_sum += 2.0 * sum(before) + float(among.sum())
        if self.draws:
            for id, more in zip(self.ids, base_values(self.kernel, np.array(self.draws), draws), strict=True):
                self.stream_sums[id] += float(more.sum())
        for draw, id, value, more in zip(draws, ids, before, among, strict=True):
            same = [i for i, kept in enumerate(self.draws) if np.array_equal(kept, draw)]
            self.stream_sums[id] = self.stream_sums[self.ids[same[0]]] if same else value + float(more.sum())
            self.summary.add(draw)

    @property
    def diagonals(self) -> Array:
        """Kernel values of the draws of the stream with themselves."""
        x, s, r = (np.array([draw[part] for draw in self.stream]) for part in (0, 1, 3))
        return np.asarray(r**2 * self.kernel.diagonal(s, x))

    @property
    def kappa(self) -> float:
        """Mean of k0(x, x) over the last half to three quarters of the stream."""
        return recent_mean(self.diagonals)

    @property
    def mmd_weight(self) -> float:
        """Factor w of MMD^2."""
        own = base_values(self.kernel, np.zeros((1, len(self.stream[0][0]))), np.zeros((1, len(self.stream[0][0]))))[
            0, 0
        ]
        spread = float(own) - self.pair_sum / len(self.stream) ** 2
        if not self.stream_weight or not spread > _SMALLEST_SPREAD * own:
            return 0.0
        return self.stream_weight * self.kappa / spread if self.scored else 1.0 / spread

    @property
    def cost_scale(self) -> float:
        """Factor of costs in the penalised keys; 1 without costs."""
        total = sum(cost for _, _, cost, _ in self.stream)
        if not self.cost_weight * total > 0:
            return 1.0
        geometric = math.exp(np.mean(np.log(self.diagonals)))
        return 0.5 * self.cost_weight * (geometric if self.scored else 1.0) / (total / len(self.stream))

    # -- the objective -------------------------------------------------------------------------------------------------

    def squared_mmd(self, kept: Sequence[int]) -> float:
        """Return MMD^2 between some of the kept draws and the stream."""
        some = np.array([self.draws[i] for i in kept])
        count, size = len(self.stream), len(kept)
        inner = math.fsum(base_values(self.kernel, some, some).ravel())
        mixed = math.fsum(self.stream_sums[self.ids[i]] for i in kept)
        return inner / size**2 - 2.0 * mixed / (size * count) + self.pair_sum / count**2

    def squared_distances(self) -> tuple[list[float], float]:
        """Return w |phi(x, .) - mean embedding of the stream|^2 for each kept draw, and its mean over the stream."""
        count, own = len(self.stream), float(base_values(self.kernel, *[np.array(self.draws[:1])] * 2)[0, 0])
        pairs, weight = self.pair_sum / count**2, self.mmd_weight
        return [weight * (own - 2.0 * self.stream_sums[id] / count + pairs) for id in self.ids], weight * (own - pairs)

    def stream_term(self, kept: Sequence[int]) -> float:
        """Return the stream term of the objective for some of the kept draws."""
        return self.mmd_weight * self.squared_mmd(kept) if self.stream_weight else 0.0

    @property
    def objective(self) -> float:
        """KSD^2 plus the stream term; without scores the latter."""
        return self.scored * self.squared_ksd + self.stream_term(range(len(self.draws)))

    def objective_without(self, j: int) -> float:
        """Return the objective after the removal of draw j."""
        rest = np.delete(np.delete(self.matrix(), j, 0), j, 1)
        squared_ksd = mean_over_pairs(row_sum(rest.ravel()), len(self.draws) - 1)
        return self.scored * squared_ksd + self.stream_term([i for i in range(len(self.draws)) if i != j])

    # -- the choice of draws -------------------------------------------------------------------------------------------

    def candidate_key(self, draw: Array, score: Array, id: Id, cost: float, ratio: float = 1.0) -> float:
        """Return half the increase of n^2 times the objective by a candidate, plus its cost term.

        Without penalties this is the influence k0(x, x) / 2 + sum of k0(x, y) over the kept draws y.
        """
        own = ratio**2 * self.kernel.matrix(draw, score, draw, score)[0, 0]
        kept: Array = np.array(self.draws).reshape(-1, len(draw))
        row = self.kernel.matrix(draw, score, kept, np.array(self.scores)) if self.draws else np.zeros((1, 0))
        key = self.scored * row_sum([0.5 * own, *(ratio * np.array(self.ratios) * row.ravel())])
        if self.stream_weight:
            inner = float(
                0.5 * base_values(self.kernel, draw[None], draw[None]).sum()
                + base_values(self.kernel, draw[None], kept).sum()
            )
            key += self.mmd_weight * (inner - (len(kept) + 1) * self.stream_sums[id] / len(self.stream))
        return key + self.cost_scale * cost if self.stream_weight or self.cost_weight else key

    def best_candidate(
        self,
        draws: Array,
        scores: Array,
        ids: Sequence[Id],
        costs: Sequence[float],
        ratios: Sequence[float],
        pinned: Sequence[int],
    ) -> int:
        """Return the pinned candidate, else the one with the smallest key, the first of several."""
        if pinned:
            return pinned[0]
        keys = [self.candidate_key(*each) for each in zip(draws, scores, ids, costs, ratios, strict=True)]
        return keys.index(min(keys))

    def keys(self) -> list[float]:
        """Return the key of each kept draw: its influence, plus w (p - (n - 1) b / t) with a stream term."""
        keys = [self.scored * row_sum([*row, -0.5 * row[j]]) for j, row in enumerate(self.matrix())]
        if self.stream_weight:
            kept, weight, share = np.array(self.draws), self.mmd_weight, (len(self.draws) - 1) / len(self.stream)
            inner = base_values(self.kernel, kept, kept).sum(axis=1) - 0.5 * base_values(
                self.kernel, kept[:1], kept[:1]
            )
            outer = [share * self.stream_sums[id] for id in self.ids]
            keys = [key + weight * (p - b) for key, p, b in zip(keys, inner.ravel(), outer, strict=True)]
        return keys

    def next_removed(self, limit: float) -> int | None:
        """Return the draw to remove, or None; ``limit`` is the largest objective it may leave.

        It is the draw with the largest penalised key, of several the one with the smallest id. With costs it is the
        first in this order that the limit permits; without costs the first one leaves the smallest objective.
        """
        keys, scale = self.keys(), self.cost_scale if self.stream_weight or self.cost_weight else 1.0
        free = [j for j, id in enumerate(self.ids) if id not in self.pinned]
        order = sorted(free, key=lambda j: (-(keys[j] + scale * self.costs[j]), self.ids[j]))
        if not self.cost_weight:
            order = order[:1]
        return next((j for j in order if self.objective_without(j) <= limit), None)

    def step(
        self,
        draws: Array,
        scores: Array,
        ids: Sequence[Id],
        *,
        floor: int,
        budget: float,
        cap: int | None = None,
        rule: str = "paper",
        costs: Sequence[float] | None = None,
        pinned: Collection[Id] = (),
        ratios: Sequence[float] | None = None,
    ) -> list[Id]:
        """Insert the best of some candidates (m, d), then remove draws, and return their ids in order.

        At least ``floor`` and at most ``cap`` draws are kept, among them the ``pinned`` ones. The part of the budget
        that is divided by the squared number of draws is included. ``ratios`` are the density ratios of the candidates.
        """
        costs = [0.0] * len(ids) if costs is None else [float(cost) for cost in costs]
        ratios = [1.0] * len(ids) if ratios is None else ratios
        self.observe(draws, scores, ids, costs, ratios)
        before = self.objective if self.draws and rule == "monotone" else math.inf
        fixed = [i for i, id in enumerate(ids) if id in pinned]
        best = self.best_candidate(draws, scores, ids, costs, ratios, fixed)
        self.insert(draws[best], scores[best], ids[best], cost=costs[best], pinned=bool(fixed), ratio=ratios[best])
        allowed = allowed_objective(before, self.objective, budget, rule)
        removed = []
        while (limit := removal_limit(allowed, len(self.draws), floor, cap)) > -math.inf:
            j = self.next_removed(limit)
            if j is None:
                break
            removed.append(self.ids[j])
            self.remove(j)
        return removed


# -- statistics of a stream --------------------------------------------------------------------------------------------


def moments(draws: Array) -> tuple[int, Array, Array]:
    """Return the number of draws that differ from the one before, the mean and the sums of products about the mean."""
    distinct = 1 + int((draws[1:] != draws[:-1]).any(axis=1).sum())
    centred = draws - draws.mean(axis=0)
    return distinct, draws.mean(axis=0), centred.T @ centred


def batches(values: Array, most: int) -> tuple[int, Array, Array]:
    """Return the length of batches, and sums and sums of squares of the complete ones, for values minus the first."""
    length = 1
    while len(values) // length >= most:
        length *= 2
    parts = (values - values[0])[: len(values) // length * length].reshape(-1, length, values.shape[1])
    return length, parts.sum(axis=1), (parts**2).sum(axis=1)


def recent_mean(values: Array) -> float:
    """Return the mean over the last half to three quarters: windows of 1, 2, 4, ... values, of which the last two."""
    window = 1
    while 2 * window - 1 < len(values):
        window *= 2
    return float(np.mean(values[max(0, window // 2 - 1) :]))


def bound(
    sizes: Sequence[int],
    floors: Sequence[int],
    budgets: Sequence[float],
    cap: int | None,
    kappa: float,
    diagonal: float,
) -> float:
    """Return the square root of the bound on E KSD^2 after some steps.

    ``kappa`` and ``diagonal`` are the means of k0(x, x) over recent draws of the stream and over the kept draws. The
    part of the budgets that is divided by the squared number of draws is included.
    """
    value = ceiling = 0.0
    for before, floor, budget in zip([0, *sizes[:-1]], floors, budgets, strict=True):
        value = (before / (before + 1)) ** 2 * value + kappa / (before + 1) ** 2
        if before == cap and floor == cap:
            value = (1 - 1 / before**2) * value + diagonal / before**2
        else:
            value += budget
            if cap is not None and before + 1 > cap:
                value += diagonal / before**2
            ceiling = value
    return math.sqrt(min(value, ceiling))


# -- sums over pairs ---------------------------------------------------------------------------------------------------


def rows_before(matrix: Array, copies: Array) -> Array:
    """Return the sums of copies * k0 over the draws before each draw."""
    return np.array([row_sum(row[:i] * copies[:i]) for i, row in enumerate(matrix)])


def cumulative_squared_ksd(matrix: Array) -> Array:
    """Return KSD^2 of the first 1, 2, ..., n draws."""
    return np.array([mean_over_pairs(row_sum(matrix[:n, :n].ravel()), n) for n in range(1, len(matrix) + 1)])


def inner_products(x: Array, s: Array, y: Array, t: Array, scales: Array) -> tuple[float, float, float]:
    """Return |x - y|^2, <s - t, x - y> and <s, t> for the coordinates x / scales and scores s * scales."""
    difference = x - y
    return (
        math.fsum((difference / scales) ** 2),
        math.fsum((s - t) * difference),
        math.fsum((s * scales) * (t * scales)),
    )


# -- draws with masses -------------------------------------------------------------------------------------------------


def row_sums(matrix: Array, masses: Array) -> Array:
    """Return the sum of mass_j k0(i, j) over all draws j; with a stream term the matrix contains its part."""
    return np.array([row_sum(row * masses) for row in matrix])


def energy(matrix: Array, masses: Array, kept: Sequence[int]) -> tuple[float, float]:
    """Return S and W of some draws; the objective is S / W^2."""
    some = np.array(kept, dtype=np.int64)
    inner = matrix[np.ix_(some, some)] * np.outer(masses[some], masses[some])
    return row_sum(inner.ravel()), math.fsum(masses[some])


def _objective(matrix: Array, masses: Array, kept: Sequence[int]) -> float:
    """Return S / W^2 of some draws."""
    total, mass = energy(matrix, masses, kept)
    return total / mass**2


def drop_draws(matrix: Array, masses: Array, least: int, most: int, allowed: float) -> list[int]:
    """Drop draws, each time the one without which the objective is smallest; return the indices of the others.

    It ends with ``least`` draws, or with ``most`` or fewer if the objective would exceed ``allowed``.
    """
    kept = list(range(len(masses)))
    while len(kept) > least:
        without = [_objective(matrix, masses, [*kept[:i], *kept[i + 1 :]]) for i in range(len(kept))]
        best = int(np.argmin(without))
        if len(kept) <= most and without[best] > allowed:
            break
        del kept[best]
    return kept


def swap_draws(matrix: Array, masses: Array, kept: Sequence[int], order: Iterable[int]) -> tuple[list[int], int]:
    """Offer each draw that is not kept the place of a kept one; return the kept draws and the number of swaps.

    The kept draw to be replaced is the one whose removal leaves the smallest objective; a swap must lower it.
    """
    kept, swaps = list(kept), 0
    for new in order:
        if new in kept:
            continue
        swapped = [[*kept[:i], new, *kept[i + 1 :]] for i in range(len(kept))]
        values = [_objective(matrix, masses, each) for each in swapped]
        best = int(np.argmin(values))
        if values[best] < _objective(matrix, masses, kept) * (1.0 - 1e-12):
            kept, swaps = swapped[best], swaps + 1
    return kept, swaps


# -- local search ------------------------------------------------------------------------------------------------------


def objective_matrix(
    kernel: Kernel, draws: Array, scores: Array | None, stream_weight: float, size: int
) -> tuple[Array, Array]:
    """Return the kernel G (n, n) of the objective, and ``size`` b (n,), for draws (n, d) that are also the stream."""
    phi, matrix, scale = base_values(kernel, draws, draws), np.zeros((len(draws), len(draws))), 1.0
    if scores is not None:
        matrix = kernel.matrix(draws, scores, draws, scores)
        scale = stream_weight * float(kernel.diagonal(scores, draws).mean())
    weight = scale / float(phi[0, 0] - phi.mean())
    return matrix + weight * phi, size * weight * phi.mean(axis=1)


def subset_sums(matrix: Array, chosen: Sequence[int], bias: Array | float = 0.0) -> Array:
    """Return G(x, x) / 2 - bias(x) plus the sum of G(x, y) over the chosen draws y, for all draws x."""
    return np.array([row_sum([0.5 * row[i], *row[list(chosen)]]) for i, row in enumerate(matrix)]) - bias


def subset_energy(matrix: Array, chosen: Sequence[int], bias: Array | float = 0.0) -> float:
    """Return n^2 times the objective of the chosen draws, up to a constant."""
    outer = 2.0 * float(np.broadcast_to(bias, len(matrix))[list(chosen)].sum())
    return row_sum(matrix[np.ix_(list(chosen), list(chosen))].ravel()) - outer


def _best_addition(matrix: Array, chosen: Sequence[int], bias: Array | float) -> int:
    """Return the draw outside the subset with the smallest sum."""
    sums = subset_sums(matrix, chosen, bias)
    sums[list(chosen)] = math.inf
    return int(np.argmin(sums))


def greedy_subset(matrix: Array, chosen: Sequence[int], size: int, bias: Array | float = 0.0) -> list[int]:
    """Add the best draws to a subset, one after another, until it has this size."""
    chosen = list(chosen)
    while len(chosen) < size:
        chosen.append(_best_addition(matrix, chosen, bias))
    return chosen


def swap_subset(matrix: Array, chosen: Sequence[int], bias: Array | float = 0.0) -> list[int]:
    """Replace each draw of a subset in turn by the best draw, if that lowers the objective."""
    chosen = list(chosen)
    for place, old in enumerate(chosen):
        rest = [*chosen[:place], *chosen[place + 1 :]]
        sums, best = subset_sums(matrix, rest, bias), _best_addition(matrix, rest, bias)
        if sums[best] < sums[old]:
            chosen[place] = best
    return chosen


def reselect_subset(
    matrix: Array, chosen: Sequence[int], trials: Iterable[Sequence[int]], bias: Array | float = 0.0
) -> list[int]:
    """Re-select the draws at the places of each trial greedily, if that lowers the objective."""
    chosen = list(chosen)
    for places in trials:
        rest = [i for place, i in enumerate(chosen) if place not in places]
        added = greedy_subset(matrix, rest, len(chosen), bias)[len(rest) :]
        if subset_energy(matrix, [*rest, *added], bias) < subset_energy(matrix, chosen, bias):
            for place, i in zip(places, added, strict=True):
                chosen[place] = i
    return chosen


# -- baselines ---------------------------------------------------------------------------------------------------------


def stein_thinning(matrix: Array, size: int) -> list[int]:
    """Select the draw with the smallest sum, ``size`` times; a draw may be selected again."""
    chosen: list[int] = []
    for _ in range(size):
        chosen.append(int(np.argmin(subset_sums(matrix, chosen))))
    return chosen


def reservoir(matrix: Array, size: int) -> Integers:
    """Return the places of a reservoir that follows the chain: each draw replaces the worst one if that helps.

    With n draws in the reservoir R and t draws so far, the worst draw x has the largest
    sum of k0(x, y) over R - k0(x, x) / 2 - n / t * (sum of k0(x, y) over the chain), the new draw included.
    """
    places: list[int] = []
    for t in range(len(matrix)):
        if t < size:
            places.append(t)
            continue
        every, share = [*places, t], size / (t + 1.0)
        excess = [row_sum(matrix[i, every]) - 0.5 * matrix[i, i] - share * row_sum(matrix[i, : t + 1]) for i in every]
        worst = int(np.argmax(excess[:-1]))
        if excess[worst] >= excess[-1]:
            places[worst] = t
    return np.array(places, dtype=np.int64)
