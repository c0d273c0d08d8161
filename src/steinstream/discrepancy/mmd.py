r"""Distance of draws to a stream that is represented by few weighted draws.

The stream term of the objective is a multiple of the squared MMD of the base kernel phi between the kept draws and the
stream (:mod:`steinstream._engine.penalties`). With b(x) the mean of phi(x, .) over the stream and c the mean of b,

.. math:: MMD^2 = \sum_{ij} w_i w_j \left( \phi(x_i, x_j) - b(x_i) - b(x_j) + c \right)

for draws with weights of sum 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from steinstream._typing import Array, Integers
from steinstream.kernels import Kernel

_MIN_SPREAD = 1e-12  # spread of a stream, relative to phi(0), below which the stream term has no effect


@dataclass(frozen=True)
class StreamDistance:
    """Squared MMD to a stream in the coordinates of the kernel, from base vectors (k, q) and their weights."""

    kernel: Kernel
    points: Array
    weights: Array

    @cached_property
    def _shares(self) -> Array:
        return np.asarray(self.weights / self.weights.sum())

    @cached_property
    def mean(self) -> float:
        """Mean c of phi over pairs of the stream."""
        return float(self._shares @ self.means(self.points))

    @cached_property
    def own(self) -> float:
        """Phi of a base vector with itself."""
        origin = np.zeros((1, self.points.shape[1]))
        return float(self.kernel.base_matrix(origin, origin)[0, 0])

    def means(self, base: Array) -> Array:
        """Return the mean b of phi over the stream for base vectors (n, q)."""
        from steinstream._engine.base_row import base_row_sums, base_tiles, padded  # loads numba
        from steinstream._engine.compiled_kernel import compile_kernel

        compiled = compile_kernel(self.kernel, self.points.shape[1])
        return base_row_sums(compiled, base_tiles(self.points), padded(self._shares), np.ascontiguousarray(base))

    def squared_mmd(self, base: Array, shares: Array) -> float:
        """Return the squared MMD of weighted base vectors (n, q) to the stream; ``shares`` have sum 1."""
        from steinstream._engine.base_row import base_row_sums, base_tiles, padded
        from steinstream._engine.compiled_kernel import compile_kernel

        compiled, base = compile_kernel(self.kernel, base.shape[1]), np.ascontiguousarray(base)
        inner = base_row_sums(compiled, base_tiles(base), padded(shares), base)
        return max(math.fsum(shares * inner) - 2.0 * math.fsum(shares * self.means(base)) + self.mean, 0.0)

    def centred_matrix(self, base: Array) -> Array:
        """Return phi(x, y) - b(x) - b(y) + c for all pairs of base vectors (n, q)."""
        from steinstream._engine.base_row import base_matrix, base_tiles
        from steinstream._engine.compiled_kernel import compile_kernel

        base, means = np.ascontiguousarray(base), self.means(base)
        matrix = base_matrix(compile_kernel(self.kernel, base.shape[1]), base_tiles(base), base)[:, : len(base)]
        matrix = matrix - means[:, None]
        matrix -= means - self.mean
        return np.asarray(matrix)

    def weight(self, gamma: float, diagonal: Array | None, shares: Array) -> float:
        """Return the factor of the squared MMD in the objective.

        ``diagonal`` has k0(x, x) of draws that represent the stream, None without scores, and ``shares`` their weights.

        Returns
        -------
        float
            gamma kappa / nu; 1 / nu without scores; 0 if the stream has no spread.
        """
        spread = self.own - self.mean
        if spread < _MIN_SPREAD * self.own:
            return 0.0
        if diagonal is None:
            return 1.0 / spread
        return gamma * float(shares @ diagonal) / spread


def summarise_points(kernel: Kernel, points: Array) -> tuple[Integers, Array]:
    """Select rows of points (n, q) by kernel halving; return them, and how many points each of them represents."""
    from steinstream._engine.compiled_kernel import compile_kernel
    from steinstream._engine.stream_summary import append_to_summary, empty_summary, summary_draws  # loads numba

    compiled, summary = compile_kernel(kernel, points.shape[1]), empty_summary(points.shape[1], 0, len(points))
    none, ids = np.zeros((len(points), 0)), np.zeros((len(points), 2), dtype=np.int64)
    ids[:, 1] = np.arange(len(points))
    append_to_summary(compiled, summary, np.ascontiguousarray(points), none, ids)
    found = summary_draws(summary)
    return found.ids[:, 1], found.weights
