"""The algorithm as written down, in plain Python: everything recomputed from scratch at every step, nothing carried.

Sums over kernel values are exact (``math.fsum`` rounds once), so ties are decided on the numbers themselves. With an
anchor, costs or pins the objective and the keys are those of steinstream._engine.fourier_features and steinstream._engine.penalties.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from steinstream._engine.fourier_features import features, frequencies
from steinstream.kernels import Kernel

TIE = 1.0 + 2.0**-50


@dataclass
class Reference:
    kernel: Kernel
    points: list = field(default_factory=list)
    scores: list = field(default_factory=list)
    ids: list = field(default_factory=list)
    costs: list = field(default_factory=list)
    pinned: set = field(default_factory=set)
    stream: list = field(default_factory=list)  # (point, score, cost) of every draw
    anchor: float = 0.0  # gamma
    cost: float = 0.0  # lambda

    def __post_init__(self):
        self.costs = self.costs or [0.0] * len(self.points)

    def matrix(self):
        if not self.points:
            return np.zeros((0, 0))
        x, s = np.array(self.points), np.array(self.scores)
        return self.kernel.matrix(x, s, x, s)

    @property
    def square(self):
        return max(math.fsum(self.matrix().ravel()), 0.0) / len(self.points) ** 2

    def add(self, point, score, name, cost=0.0, pinned=False):
        self.points.append(point)
        self.scores.append(score)
        self.ids.append(name)
        self.costs.append(cost)
        if pinned:
            self.pinned.add(name)

    def remove(self, j):
        del self.points[j], self.scores[j], self.ids[j], self.costs[j]

    # -- the anchor and the costs ----------------------------------------------------------------------------------

    @property
    def guided(self):
        return self.anchor > 0 or self.cost > 0

    def waves(self, points):
        points = np.array(points)
        return features(points, frequencies(self.kernel, points.shape[1], np.array(1.0)))

    @property
    def mean(self):
        return self.waves([x for x, _, _ in self.stream]).sum(axis=0) / len(self.stream)

    @property
    def kappa(self):
        x, s = (np.array([draw[part] for draw in self.stream]) for part in (0, 1))
        return math.exp(np.mean(np.log(self.kernel.diagonal(s, x))))

    @property
    def weight(self):
        """w / M: of the squared distance between the sums' means."""
        mean = self.mean
        pairs = len(mean) / 2
        spread = pairs - math.fsum(mean**2)  # the mean of |f - mean|^2, for |f|^2 = M
        return self.anchor * self.kappa / spread if spread > 1e-6 * pairs else 0.0

    @property
    def scale(self):
        total = sum(cost for _, _, cost in self.stream)
        return 0.5 * self.cost * self.kappa / (total / len(self.stream)) if self.cost * total > 0 else 1.0

    def gap(self, points):
        """What the anchor adds to the objective of these points."""
        if not self.anchor:
            return 0.0
        return self.weight * math.fsum((self.waves(points).sum(axis=0) / len(points) - self.mean) ** 2)

    @property
    def objective(self):
        return self.square + self.gap(self.points)

    # -- the algorithm ---------------------------------------------------------------------------------------------

    def influence(self, point, score, cost):
        """k0(y, y) / 2 + sum of k0(y, x_i): half of what adding y costs in n^2 KSD^2; then anchor and costs."""
        own = self.kernel.matrix(point, score, point, score)[0, 0]
        rows = self.kernel.matrix(point, score, np.array(self.points), np.array(self.scores)) if self.points else []
        influence = math.fsum([0.5 * own, *np.ravel(rows)])
        if self.anchor:
            kept = self.waves(self.points).sum(axis=0) if self.points else 0.0
            lean = kept - (len(self.points) + 1) * self.mean
            influence += self.weight * float(lean @ self.waves([point])[0])
        return influence + self.scale * cost if self.guided else influence

    def keys(self):
        """For each draw its influence and what the anchor adds."""
        keys = [math.fsum([*row, -0.5 * row[j]]) for j, row in enumerate(self.matrix())]
        if self.anchor:
            waves, mean, weight = self.waves(self.points), self.mean, self.weight
            lean = waves.sum(axis=0) - (len(waves) - 1) * mean
            keys = [weight * product(lean, wave) + key for key, wave in zip(keys, waves, strict=True)]
        return keys

    def first_to_go(self, allowed):
        """Who goes: of those who may, the one with the greatest key and cost; of equals the smallest id."""
        keys, scale = self.keys(), self.scale if self.guided else 1.0
        free = [j for j, name in enumerate(self.ids) if name not in self.pinned]
        order = sorted(free, key=lambda j: (-(keys[j] + scale * self.costs[j]), self.ids[j]))
        if not self.cost:
            order = order[:1]  # without costs the first one leaves the least behind
        return next((j for j in order if self.without(j) <= allowed), None)

    def without(self, j):
        """The objective if draw j were gone."""
        rest = np.delete(np.delete(self.matrix(), j, 0), j, 1)
        square = max(math.fsum(rest.ravel()), 0.0) / (len(self.points) - 1) ** 2
        return square + self.gap([x for i, x in enumerate(self.points) if i != j])

    def step(self, candidates, scores, names, floor, budget, cap=None, rule="paper", costs=None, pinned=()):
        """One step of Algorithm 1. Returns the ids dropped and the objective right after the addition."""
        costs = [0.0] * len(names) if costs is None else [float(cost) for cost in costs]
        self.stream += zip(candidates, scores, costs, strict=True)
        before = self.objective if self.points and rule == "monotone" else math.inf
        must = [i for i, name in enumerate(names) if name in pinned]
        raised = [self.influence(x, s, c) for x, s, c in zip(candidates, scores, costs, strict=True)]
        best = must[0] if must else raised.index(min(raised))
        self.add(candidates[best], scores[best], names[best], costs[best], bool(must))
        enlarged = self.objective
        allowed = (min(enlarged, before) + budget) * TIE
        dropped = []
        while len(self.points) > floor:
            over = cap is not None and len(self.points) > cap
            j = self.first_to_go(math.inf if over else allowed)
            if j is None:
                break
            dropped.append(self.ids[j])
            self.remove(j)
        return dropped, enlarged


def product(lean, wave):
    """<lean, wave> in single precision: four sums, each of every fourth product, every product rounded once."""
    sums = [np.float32(0.0)] * 4
    for m, (one, other) in enumerate(zip(lean.astype(np.float32), wave.astype(np.float32), strict=True)):
        sums[m % 4] = np.float32(float(one) * float(other) + float(sums[m % 4]))
    return float((sums[0] + sums[1]) + (sums[2] + sums[3]))
