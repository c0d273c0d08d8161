"""The algorithm as written down, in plain Python: everything recomputed from scratch at every step, nothing carried.

Sums over kernel values are exact (``math.fsum`` rounds once), so ties are decided on the numbers themselves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from steinstream.kernels import Kernel

TIE = 1.0 + 2.0**-50


@dataclass
class Reference:
    kernel: Kernel
    points: list = field(default_factory=list)
    scores: list = field(default_factory=list)
    ids: list = field(default_factory=list)

    def matrix(self):
        if not self.points:
            return np.zeros((0, 0))
        x, s = np.array(self.points), np.array(self.scores)
        return self.kernel.matrix(x, s, x, s)

    @property
    def square(self):
        return max(math.fsum(self.matrix().ravel()), 0.0) / len(self.points) ** 2

    def add(self, point, score, name):
        self.points.append(point)
        self.scores.append(score)
        self.ids.append(name)

    def remove(self, j):
        del self.points[j], self.scores[j], self.ids[j]

    def influence(self, point, score):
        """k0(y, y) / 2 + sum of k0(y, x_i): half of what adding y costs in n^2 KSD^2."""
        own = self.kernel.matrix(point, score, point, score)[0, 0]
        rows = self.kernel.matrix(point, score, np.array(self.points), np.array(self.scores)) if self.points else []
        return math.fsum([0.5 * own, *np.ravel(rows)])

    def least_influential(self):
        matrix = self.matrix()
        gains = [math.fsum([*(2.0 * row), -row[j]]) for j, row in enumerate(matrix)]
        best = max(gains)
        return min((j for j, gain in enumerate(gains) if gain == best), key=lambda j: self.ids[j])

    def without(self, j):
        rest = np.delete(np.delete(self.matrix(), j, 0), j, 1)
        return max(math.fsum(rest.ravel()), 0.0) / (len(self.points) - 1) ** 2

    def step(self, candidates, scores, names, floor, budget, cap=None, rule="paper"):
        """One step of Algorithm 1. Returns the ids dropped and KSD^2 right after the addition."""
        before = self.square if self.points and rule == "monotone" else math.inf
        costs = [self.influence(x, s) for x, s in zip(candidates, scores, strict=True)]
        best = costs.index(min(costs))
        self.add(candidates[best], scores[best], names[best])
        enlarged = self.square
        dropped = []
        while len(self.points) > floor:
            j = self.least_influential()
            within = self.without(j) <= (min(enlarged, before) + budget) * TIE
            if not within and (cap is None or len(self.points) <= cap):
                break
            dropped.append(self.ids[j])
            self.remove(j)
        return dropped, enlarged
