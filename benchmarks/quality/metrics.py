"""Errors of a kept set against a reference sample, and their ratio to stride thinning.

The metrics of a set, in the order of `METRICS`:

means         rms error of the means, in reference sds
sds           rms relative error of the sds
correlations  rms error of the correlations
quantiles     rms error of the 5 % and 95 % quantiles, in sds
functions     rms error of the expectations of 20 nonlinear functions, in sds of the function: cosines, sigmoids and
              exponentials of random linear forms
sliced        mean over 60 directions of the Wasserstein-1 distance of the projections
energy        energy distance (square root of 2 E|X-Y| - E|X-X'| - E|Y-Y'|)
mmd2          squared MMD with an IMQ kernel whose length is the median distance
ksd           KSD with the IMQ kernel in coordinates in which the reference has covariance I / (2 d)

All but KSD are computed in coordinates in which every marginal of the reference has mean 0 and sd 1. Sums over pairs
with the reference use at most `PAIRED` of its draws. The *ratio* of an error is its quotient by the rms of the same
error over eight offsets of stride thinning of the same size. The *composite* is the geometric mean of the ratios of the
first seven metrics.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np

from benchmarks.quality.sampling import Array

METRICS = ("means", "sds", "correlations", "quantiles", "functions", "sliced", "energy", "mmd2", "ksd")
COMPOSITE = 7  # the first seven metrics enter the composite
OFFSETS = 8
LADDER = (25, 50, 100, 200, 500, 1000, 2000, 5000)  # sizes of stride thinning that `worth` interpolates
PAIRED = 20_000
_DIRECTIONS = 60
_FUNCTIONS = 20
_GRID = 2000  # points at which quantile functions are compared
_KSD_SIZE = 1000
TAILS = np.array([0.05, 0.95])
_BLOCK = 512  # a block of pairs has 2 MB

Integers = np.typing.NDArray[np.integer]


class Pairs(NamedTuple):
    """Weighted means over many points, for each row of other points: distance, and IMQ kernel."""

    distance: Array
    kernel: Array


def mean_over_pairs(x: Array, y: Array, length: float, weights: Array | None = None) -> Pairs:
    """Mean distance and mean IMQ kernel of each row of x (n, d) with the rows of y (k, d)."""
    given = np.full(len(y), 1.0 / len(y)) if weights is None else weights
    distance, kernel = np.zeros(len(x)), np.zeros(len(x))
    for left, right in product(_blocks(len(x)), _blocks(len(y))):
        squares = squared_distances(x[left], y[right])
        distance[left] += np.sqrt(squares) @ given[right]
        squares *= 1.0 / length**2
        squares += 1.0
        np.sqrt(squares, out=squares)
        np.reciprocal(squares, out=squares)
        kernel[left] += squares @ given[right]
    return Pairs(distance, kernel)


def squared_distances(x: Array, y: Array) -> Array:
    """Squared distances (n, k) of the rows of x (n, d) and y (k, d)."""
    squares = x @ (-2.0 * y.T)
    squares += (y**2).sum(1)
    squares += (x**2).sum(1)[:, None]
    return np.maximum(squares, 0.0, out=squares)


def _blocks(count: int) -> list[slice]:
    return [slice(start, start + _BLOCK) for start in range(0, count, _BLOCK)]


def spaced(count: int, size: int, phase: float = 0.5) -> Integers:
    """Indices of ``size`` evenly spaced draws of ``count``; ``phase`` in [0, 1) shifts them."""
    return np.floor((np.arange(size) + phase) * (count / size)).astype(np.int64)


def stride(count: int, size: int, offset: int) -> Integers:
    """Indices of stride thinning with one of eight offsets."""
    return spaced(count, size, (offset + 0.5) / OFFSETS)


def offsets(count: int, size: int) -> list[int]:
    """Offsets of stride thinning that give different draws: eight, or fewer if the stride is below eight."""
    number = min(OFFSETS, count // size)
    return [(2 * i + 1) * OFFSETS // (2 * number) for i in range(number)]


# -- the reference -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reference:
    """What is known about the target: summaries of its reference sample."""

    mean: Array
    sd: Array
    correlations: Array  # (d, d)
    tails: Array  # (2, d), of standardised draws
    directions: Array  # (d, 60)
    projected: Array  # (2000, 60), quantile functions of the projections
    forms: Array  # (d, 20), linear forms of the functions
    shifts: Array  # (20,)
    rates: Array  # (20,)
    expectations: Array  # (20,)
    deviations: Array  # (20,)
    whitener: Array  # (d, d), Cholesky factor of 2 d times the covariance
    paired: Array  # (at most 20 000, d), standardised
    length: Array  # median distance, ()
    self_distance: Array  # ()
    self_kernel: Array  # ()

    @classmethod
    def of(cls, draws: Array) -> Reference:
        """Summarise a reference sample (n, d)."""
        rng = np.random.default_rng(60)
        dim = draws.shape[1]
        mean, sd = draws.mean(0), draws.std(0)
        z = (draws - mean) / sd
        directions = rng.normal(size=(dim, _DIRECTIONS))
        directions /= np.linalg.norm(directions, axis=0)
        forms = rng.normal(size=(dim, _FUNCTIONS))
        forms /= np.linalg.norm(forms, axis=0)
        shifts, rates = rng.uniform(-1, 1, size=_FUNCTIONS), rng.uniform(0.5, 2, size=_FUNCTIONS)
        values = functions(z @ forms, shifts, rates)
        covariance = np.cov(draws, rowvar=False).reshape(dim, dim)
        paired = z[spaced(len(z), min(len(z), PAIRED))]
        few = paired[spaced(len(paired), 1000)]
        length = np.sqrt(np.median(squared_distances(few, few)[np.triu_indices(len(few), 1)]))
        pairs = mean_over_pairs(paired, paired, float(length))
        grid = (np.arange(_GRID) + 0.5) / _GRID
        return cls(
            mean,
            sd,
            np.corrcoef(z, rowvar=False).reshape(dim, dim),
            quantiles(z, np.full(len(z), 1.0 / len(z))),
            directions,
            np.quantile(z @ directions, grid, axis=0, method="hazen"),
            forms,
            shifts,
            rates,
            values.mean(0),
            values.std(0),
            np.linalg.cholesky(2 * dim * covariance),
            paired,
            length,
            pairs.distance.mean(),
            pairs.kernel.mean(),
        )


def functions(u: Array, shifts: Array, rates: Array) -> Array:
    """Evaluate the nonlinear functions of linear forms (n, 20): 7 cosines, 7 sigmoids, 6 exponentials."""
    v = rates * u + shifts
    exponent = 0.5 * np.clip(u[:, 14:], -6, 6)  # bounded, so that expectations exist under heavy tails
    return np.concatenate([np.cos(v[:, :7]), 1 / (1 + np.exp(-2 * v[:, 7:14])), np.exp(exponent)], axis=1)


def quantiles(z: Array, weights: Array) -> Array:
    """Weighted 5 % and 95 % quantiles (2, d) of each column, interpolated between the middles of the steps (Hazen)."""
    order = np.argsort(z, axis=0)
    values, steps = np.take_along_axis(z, order, axis=0), weights[order]
    middles = np.cumsum(steps, axis=0) - 0.5 * steps
    return np.stack([np.interp(TAILS, middles[:, j], values[:, j]) for j in range(z.shape[1])], axis=1)


# -- sets of draws of a chain ------------------------------------------------------------------------------------------


class Spread(NamedTuple):
    """Signed errors of the sds."""

    mean: float  # mean relative error over all parameters
    scales: tuple[float, ...]  # sd relative to the reference, of each log scale parameter


class ChainMetrics:
    """Errors of sets of draws of one chain.

    Parameters
    ----------
    draws, scores : array
        The chain, (n, d).
    reference : Reference
        Summaries of the reference.
    pairs : Pairs, optional
        Means over the reference, if they were computed before.
    """

    def __init__(self, draws: Array, scores: Array, reference: Reference, pairs: Pairs | None = None) -> None:
        self.reference = reference
        self.z = (draws - reference.mean) / reference.sd
        self.projections = self.z @ reference.directions
        self.values = functions(self.z @ reference.forms, reference.shifts, reference.rates)
        self.pairs = mean_over_pairs(self.z, reference.paired, float(reference.length)) if pairs is None else pairs
        self.whitened = np.linalg.solve(reference.whitener, (draws - reference.mean).T).T
        self.scores = scores @ reference.whitener

    def errors(self, indices: Integers, weights: Array | None = None) -> Array:
        """Compute all metrics of the draws at these indices, in the order of `METRICS`; equal weights by default.

        KSD is left out (nan) for more than 1000 draws.

        Returns
        -------
        array
            The metrics.
        """
        w = np.full(len(indices), 1.0 / len(indices)) if weights is None else weights / weights.sum()
        first = self._moment_errors(indices, w)
        within = mean_over_pairs(self.z[indices], self.z[indices], float(self.reference.length), w)
        energy = 2 * w @ self.pairs.distance[indices] - w @ within.distance - self.reference.self_distance
        mmd2 = w @ within.kernel - 2 * w @ self.pairs.kernel[indices] + self.reference.self_kernel
        ksd = self._ksd(indices, w) if len(indices) <= _KSD_SIZE else np.nan
        return np.array([*first, np.sqrt(max(energy, 0.0)), max(mmd2, 0.0), ksd])

    def _moment_errors(self, indices: Integers, w: Array) -> list[float]:
        """Compute the metrics that do not need pairs."""
        reference, z = self.reference, self.z[indices]
        mean = w @ z
        centred = z - mean
        covariance = (w[:, None] * centred).T @ centred
        sd = np.sqrt(np.diag(covariance))
        safe = np.where(sd > 0, sd, 1.0)
        apart = np.triu_indices(len(sd), 1)
        correlations = (covariance / np.outer(safe, safe))[apart] - reference.correlations[apart]
        expectations = (w @ self.values[indices] - reference.expectations) / reference.deviations
        return [
            _rms(mean),
            _rms(sd - 1),
            _rms(correlations),
            _rms(quantiles(z, w) - reference.tails),
            _rms(expectations),
            self._sliced(indices, w),
        ]

    def _sliced(self, indices: Integers, w: Array) -> float:
        """Compute the mean Wasserstein-1 distance of the projections."""
        projections = self.projections[indices]
        order = np.argsort(projections, axis=0)
        ends = np.cumsum(w[order], axis=0)
        grid = (np.arange(_GRID) + 0.5) / _GRID
        total = 0.0
        for j in range(_DIRECTIONS):
            rows = np.searchsorted(ends[:, j], grid).clip(max=len(w) - 1)
            total += float(np.abs(projections[order[rows, j], j] - self.reference.projected[:, j]).mean())
        return total / _DIRECTIONS

    def _ksd(self, indices: Integers, w: Array) -> float:
        """Compute the KSD with the IMQ kernel phi(u) = (1 + u)^(-1/2)."""
        x, s = self.whitened[indices], self.scores[indices]
        own = (x * s).sum(1)
        u = squared_distances(x, x)
        phi = 1 / np.sqrt(1 + u)
        cross = own[:, None] + own - s @ x.T - x @ s.T  # <s_i - s_j, x_i - x_j>
        k0 = phi * (s @ s.T) + phi**3 * (cross + x.shape[1]) - 3 * phi**5 * u
        total = float(w @ k0 @ w)
        return float(np.sqrt(max(total, 0.0)))

    def spread(self, indices: Integers, weights: Array | None = None, scales: tuple[int, ...] = ()) -> Spread:
        """Signed errors of the sds of the draws at these indices."""
        w = np.full(len(indices), 1.0 / len(indices)) if weights is None else weights / weights.sum()
        z = self.z[indices]
        sd = np.sqrt(w @ (z - w @ z) ** 2)
        return Spread(float(sd.mean() - 1), tuple(float(sd[j]) for j in scales))

    def stride_errors(self, size: int) -> Array:
        """Errors (8, metrics) of eight offsets of stride thinning; fewer if not that many differ."""
        count = len(self.z)
        return np.array([self.errors(stride(count, size, offset)) for offset in offsets(count, size)])


def _rms(values: Array) -> float:
    return float(np.sqrt(np.mean(values**2)))


# -- ratios ------------------------------------------------------------------------------------------------------------


def rms_over_offsets(errors: Array) -> Array:
    """Rms (metrics,) of errors (offsets, metrics)."""
    return np.sqrt((errors**2).mean(0))


def composite(ratios: Array) -> float:
    """Geometric mean of the first seven metrics of ratios (..., metrics)."""
    return float(np.exp(np.log(np.maximum(ratios[..., :COMPOSITE], 1e-12)).mean()))


def worth(sizes: Array, errors: Array, error: float) -> float:
    """Number of evenly spaced draws with the same error.

    ``errors`` are the errors of stride thinning of these ``sizes``. Between sizes both are interpolated on a
    logarithmic scale.

    Returns
    -------
    float
        The number; beyond the ends the smallest or largest size.
    """
    falling = np.minimum.accumulate(errors)
    return float(np.exp(np.interp(-np.log(max(error, 1e-300)), -np.log(falling), np.log(sizes))))
