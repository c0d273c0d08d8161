"""Average predictions of the networks that a method keeps, compared with the ground truth.

`thinned` measures a thinner with the settings of the paper while it receives a chain. `baselines` measures the other
methods, each with the same part of the chain and the same number of networks as KSDT-SQRT, and with fixed numbers of
networks of the complete chain, where KSDT-SQRT has a fixed size too (``size=N``). The features of a draw are the
predictions of its network for some training inputs; the measures use the test inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

import steinstream as ss
from experiments.paper.networks.chains import ComparedChain
from experiments.paper.settings import GROWTHS, paper_thinner
from steinstream._typing import Array
from steinstream.ensemble import accuracy, agreement, expected_calibration_error, total_variation

EVERY, EVERY_SETTLED = "every draw", "every draw, no burn-in"
EVEN, EVEN_SETTLED = "evenly spaced", "evenly spaced, no burn-in"
PAPER, DEFAULT, FEATURES = "KSDT-SQRT", "default", "default, predictions"
SIZES = (10, 20, 50, 100)  # numbers of networks of the complete chain
PAPER_STEPS = (100, 200, 500, 1000, 2000)  # steps at which the paper reports results
BURN_IN = 10  # methods without burn-in leave out the first of this number of equal parts of a chain

Measure = Callable[[Array], dict[str, float]]


def measure_against(truth: Array, labels: NDArray[np.int64]) -> Measure:
    """Return a function that computes all measures of an average prediction (inputs, classes)."""

    def measures(mean: Array) -> dict[str, float]:
        return {
            "agreement": agreement(mean, truth),
            "total_variation": total_variation(mean, truth),
            "accuracy": accuracy(mean, labels),
            "expected_calibration_error": expected_calibration_error(mean, labels),
        }

    return measures


def thinned(thinner: ss.Thinner, chain: ComparedChain, steps: Sequence[int], measure: Measure) -> list[dict[str, Any]]:
    """Thin a chain and measure the average prediction of the kept networks at some steps."""
    draws, scores = chain.draws
    kept, total, rows = np.zeros(0, dtype=np.int64), np.zeros(()), []
    for first, last in pairwise([0, *steps]):
        thinner.extend(draws[first:last], scores[first:last])
        now = np.asarray(thinner.kept.indices)
        total = total + chain.total(np.setdiff1d(now, kept)) - chain.total(np.setdiff1d(kept, now))
        kept = now
        row = {"step": last, "size": 0, "kept": len(kept), "ksd": thinner.ksd}
        rows.append(row | measure(total / len(kept)))
    return rows


def baselines(chain: ComparedChain, measure: Measure, progress: Callable[[float], None]) -> list[dict[str, Any]]:
    """Measure every method with the steps and sizes of KSDT-SQRT (``size`` 0) and with fixed sizes."""
    moves = len(chain.draws[0])
    steps = [step for step in PAPER_STEPS if step <= moves]
    thinner = paper_thinner(chain.draws[0].shape[1], growth=GROWTHS[PAPER], history=None, validate_scores=False)
    matched = thinned(thinner, chain, steps, measure)
    rows = [{"method": PAPER} | row for row in matched]
    cases = [(row["step"], 0, row["kept"]) for row in matched]
    cases += [(moves, size, size) for size in SIZES if 2 * size <= moves]
    for number, (step, size, networks) in enumerate(cases):
        progress(number / len(cases))
        labels = {"step": step, "size": size, "ksd": np.nan}
        for method, indices in _selections(chain, step, networks, fixed=size > 0).items():
            measures = measure(chain.total(indices) / len(indices))
            rows.append({"method": method, **labels, "kept": len(indices)} | measures)
    return rows


def _selections(chain: ComparedChain, step: int, networks: int, *, fixed: bool) -> dict[str, NDArray[np.int64]]:
    """Return the indices of the draws that each method takes from the first ``step`` draws."""
    burn_in = step // BURN_IN
    draws, scores = (array[:step] for array in chain.draws)
    selections = {
        EVERY: np.arange(networks if fixed else step),
        EVEN: _evenly_spaced(0, step, networks),
        EVEN_SETTLED: _evenly_spaced(burn_in, step, networks),
        DEFAULT: _kept(draws, scores, None, size=networks),
        FEATURES: _kept(draws, scores, chain.features[:step], size=networks),
    }
    if fixed:
        selections[PAPER] = _kept(draws, scores, None, **ss.PAPER, size=networks)
    else:
        selections[EVERY_SETTLED] = np.arange(burn_in, step)
    return selections


def _evenly_spaced(first: int, last: int, count: int) -> NDArray[np.int64]:
    """Return the middles of ``count`` equal parts of a range.

    >>> _evenly_spaced(0, 10, 2).tolist()
    [2, 7]
    """
    return first + ((np.arange(count) + 0.5) * (last - first) / count).astype(np.int64)


def _kept(draws: Array, scores: Array, features: Array | None, **settings: Any) -> NDArray[np.int64]:
    """Return the draws that a thinner with these settings keeps, after one pass."""
    thinner = ss.Thinner(draws.shape[1], **settings, validate_scores=False)
    thinner.extend(draws, scores, features=features)
    return np.asarray(thinner.kept.indices)
