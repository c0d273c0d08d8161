"""Errors of posterior predictions: means and quantiles of new data, for the finished fits.

The predictive distribution of a new observation is the mean, over the kept draws, of its distribution given a draw.

means      rms error of the predictive means, in sds of the expectation given a draw
quantiles  rms error of the 5 % and 95 % predictive quantiles, relative to their distance in the reference

New observations are counts. Their distribution functions are continuous between integers (incomplete beta functions),
so that quantiles have no steps.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from benchmarks.quality import metrics
from benchmarks.quality.cache import reference_draws, stored, work_chain
from benchmarks.quality.metrics import LADDER, TAILS, Integers
from benchmarks.quality.sampling import Array
from benchmarks.quality.targets import regression_data

VERSION = 1  # increase it if a prediction or an error changes
PREDICTIONS = ("means", "quantiles")
_BLOCK = 1000  # draws
_TRIALS = 20


class NewData(NamedTuple):
    """Distribution of k new observations given each of n draws."""

    means: Array  # (n, k)
    values: Array  # (v,)
    below: Array  # (n, k, v): probability of at most each value


def _fit_mixed(draws: Array) -> NewData:
    """Successes in 20 trials of each of the 12 groups, with predictors from -1.5 to 1.5."""
    from scipy.special import betainc, expit

    eta, (intercept, slope, log_tau) = draws[:, :12], draws[:, 12:].T[:, :, None]
    p = expit(intercept + np.exp(log_tau) * eta + slope * np.linspace(-1.5, 1.5, 12))
    values = np.linspace(-0.99, _TRIALS - 0.01, 60)
    return NewData(_TRIALS * p, values, betainc(_TRIALS - values, values + 1, 1 - p[:, :, None]))


def _fit_count(draws: Array) -> NewData:
    """Negative binomial counts of 12 new rows."""
    from scipy.special import betainc

    x, _, _ = regression_data(16, 12, 6)
    means, shape = np.exp(draws[:, :6] @ x.T), np.exp(draws[:, 6:])
    values = np.concatenate([np.linspace(-0.99, 10, 23), np.geomspace(11, 200, 37)])
    return NewData(means, values, betainc(shape[:, :, None], values + 1, (shape / (shape + means))[:, :, None]))


PREDICT: dict[str, Callable[[Array], NewData]] = {"fit-mixed": _fit_mixed, "fit-count": _fit_count}


class Predictor(NamedTuple):
    """Predictions of a work chain, of the reference, and the errors of stride thinning of every size."""

    data: NewData
    mean: Array  # (k,), of the reference
    sd: Array  # (k,), of the expectation given a draw
    tails: Array  # (2, k)
    stride_errors: dict[int, Array]  # (offsets, errors)

    def errors(self, indices: Integers, weights: Array | None = None) -> Array:
        """Compute the errors of the draws at these indices, in the order of `PREDICTIONS`."""
        w = np.full(len(indices), 1.0 / len(indices)) if weights is None else weights / weights.sum()
        means = (w @ self.data.means[indices] - self.mean) / self.sd
        below = np.tensordot(w, self.data.below[indices], 1)
        tails = (_quantiles(self.data.values, below) - self.tails) / (self.tails[1] - self.tails[0])
        return np.sqrt(np.array([np.mean(means**2), np.mean(tails**2)]))

    def ratios(self, size: int, indices: Integers, weights: Array | None = None) -> dict[str, float]:
        """Compute the errors relative to those of stride thinning of this size."""
        ratios = self.errors(indices, weights) / metrics.rms_over_offsets(self.stride_errors[size])
        return dict(zip(PREDICTIONS, ratios.tolist(), strict=True))


def _quantiles(values: Array, below: Array) -> Array:
    """Tail quantiles (2, k) of distribution functions (k, v)."""
    return np.stack([np.interp(TAILS, each, values) for each in below], axis=1)


@lru_cache(maxsize=2)
def predictor(target: str, seed: int) -> Predictor:
    """Return the predictions of a work chain of a finished fit."""
    predict = PREDICT[target]
    draws = work_chain(target, seed).draws
    data = predict(draws.reshape(-1, draws.shape[-1]))

    def make() -> dict[str, Array]:
        reference = reference_draws(target, 0)
        blocks = [predict(reference[start : start + _BLOCK]) for start in range(0, len(reference), _BLOCK)]
        means = np.concatenate([block.means for block in blocks])
        below = sum(block.below.sum(0) for block in blocks) / len(reference)
        return {"mean": means.mean(0), "sd": means.std(0), "tails": _quantiles(data.values, below)}

    found = Predictor(data, **stored(target, f"predictions-{VERSION}", make), stride_errors={})
    count = len(data.means)
    for size in (size for size in LADDER if size <= count // 2):
        chosen = [metrics.stride(count, size, offset) for offset in metrics.offsets(count, size)]
        found.stride_errors[size] = np.array([found.errors(indices) for indices in chosen])
    return found
