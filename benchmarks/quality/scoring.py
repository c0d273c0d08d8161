"""Scores of kept sets, with everything that depends on the target or the chain alone read from the cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from benchmarks.quality import metrics
from benchmarks.quality.cache import reference_draws, stored, work_chain
from benchmarks.quality.metrics import LADDER, METRICS, ChainMetrics, Pairs, Reference
from benchmarks.quality.predictions import PREDICT, predictor
from benchmarks.quality.sampling import Array, Chain
from benchmarks.quality.targets import TARGETS

VERSION = 1  # increase it if a metric changes


class Selection(NamedTuple):
    """Indices of the kept draws in the concatenated chains, and their weights; None for equal weights."""

    indices: Any
    weights: Any = None


class Scorer(NamedTuple):
    """The metrics of a chain, and the errors (offsets, metrics) of stride thinning of every size in LADDER."""

    metrics: ChainMetrics
    stride_errors: dict[int, Array]

    def baseline(self, size: int) -> Array:
        """Rms errors (metrics,) of stride thinning of this size."""
        if size not in self.stride_errors:
            raise ValueError(f"Size {size} is not one of {[*self.stride_errors]}.")
        return metrics.rms_over_offsets(self.stride_errors[size])


def chain(target: str, seed: int) -> Chain:
    """Return the work chains of a target, (chains, n, d), with scores."""
    return work_chain(target, seed)


@lru_cache(maxsize=2)
def reference(target: str, seed: int) -> Reference:
    """Return the summaries of the reference; ``seed`` is 0 if all seeds share it."""
    key = f"summary-{VERSION}-{seed}"
    return Reference(**stored(target, key, lambda: asdict(Reference.of(reference_draws(target, seed)))))


@lru_cache(maxsize=4)
def scorer(target: str, seed: int) -> Scorer:
    """Return the metrics of a chain."""
    summary = reference(target, seed if TARGETS[target].reference_per_seed else 0)
    work = chain(target, seed)
    draws, scores = (values.reshape(-1, values.shape[-1]) for values in (work.draws, work.scores))

    def make() -> dict[str, Array]:
        found = ChainMetrics(draws, scores, summary)
        sizes = [size for size in LADDER if size <= len(draws) // 2]
        return {**found.pairs._asdict(), **{str(size): found.stride_errors(size) for size in sizes}}

    known = stored(target, f"stride-{VERSION}-{seed}", make)
    pairs = Pairs(known.pop("distance"), known.pop("kernel"))
    return Scorer(ChainMetrics(draws, scores, summary, pairs), {int(size): known[size] for size in known})


def score(target: str, seed: int, size: int, selection: Selection) -> dict[str, Any]:
    """Compute errors, ratios, composite and spread of one kept set, compared with stride thinning of this size.

    Returns
    -------
    dict
        ``errors`` and ``ratios`` (metric -> number), ``composite``, ``spread`` (mean relative error of the sds, signed)
        and ``scales`` (sd relative to the reference, of each log scale parameter). For finished fits also
        ``predictions``, the ratios of the errors of posterior predictions.
    """
    found = scorer(target, seed)
    indices = np.asarray(selection.indices, dtype=np.int64)
    weights = None if selection.weights is None else np.asarray(selection.weights, dtype=np.float64)
    errors = found.metrics.errors(indices, weights)
    ratios = errors / found.baseline(size)
    spread = found.metrics.spread(indices, weights, TARGETS[target].scales)
    predictions = {"predictions": predictor(target, seed).ratios(size, indices, weights)} if target in PREDICT else {}
    return {
        "errors": dict(zip(METRICS, errors.tolist(), strict=True)),
        "ratios": dict(zip(METRICS, ratios.tolist(), strict=True)),
        "composite": metrics.composite(ratios),
        "spread": spread.mean,
        "scales": list(spread.scales),
        **predictions,
    }


def evaluate(target: str, seed: int, kept: Mapping[int, ArrayLike | Selection]) -> dict[int, dict[str, Any]]:
    """Score kept sets of a work chain; see `score`.

    Parameters
    ----------
    target : str
        Name of a target.
    seed : int
        Seed of the work chain: 0, 1 or 2.
    kept : mapping
        For every size, the indices of the kept draws in the concatenated chains (chains * n, d), or a `Selection` with
        weights.

    Returns
    -------
    dict
        For every size, the result of `score`.
    """
    return {
        size: score(target, seed, size, each if isinstance(each, Selection) else Selection(each))
        for size, each in kept.items()
    }
