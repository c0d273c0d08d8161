"""Faults exactly as large as the sensitivity that a check states: nine of ten should be found.

Each case keeps a sound set, reads from the text of its diagnosis what the check would have found, plants this fault and
diagnoses again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from cases import (
    MakeKept,
    SampleStream,
    at_random,
    cached,
    evenly_spaced,
    independent,
    modes,
    several,
    student_draws,
    thinned,
)

import steinstream as ss
from steinstream.targets import Gaussian

#: Function that plants a fault of a size in a kept set; the last argument is a seed.
Plant = Callable[[ss.Kept, float, int], ss.Kept]

PARAMETER = 3
SIZES = (50, 200)


class StatedCase(NamedTuple):
    """A check, the pattern of its sensitivity, a kept set and the fault that is planted in it."""

    check: str
    pattern: str
    name: str
    make: MakeKept
    plant: Plant

    def run(self, seed: int) -> tuple[float, bool] | None:
        """Return the stated sensitivity and whether the fault was found; None without such a number."""
        kept = self.make(seed)
        found = re.search(self.pattern, kept.diagnose()[self.check].detects)
        if found is None:
            return None
        stated = float(found[1])
        return stated, self.plant(kept, stated, seed).diagnose()[self.check].fired


def shifted(kept: ss.Kept, by: float, seed: int) -> ss.Kept:
    """Shift one parameter of the kept draws."""
    assert kept.stream is not None
    draws = kept.draws.copy()
    draws[:, PARAMETER] += by * kept.stream.draws[:, PARAMETER].std()
    return replace(kept, draws=draws)


def scaled(kept: ss.Kept, ratio: float, seed: int) -> ss.Kept:
    """Multiply one parameter of the kept draws, which has the median 0."""
    return replace(kept, draws=kept.draws * np.where(np.arange(kept.draws.shape[1]) == PARAMETER, ratio, 1.0))


def below_median(kept: ss.Kept, percent: float, seed: int) -> ss.Kept:
    """Shift one parameter, which is normal, so that another proportion lies below its median."""
    return shifted(kept, -NormalDist().inv_cdf(percent / 100.0), seed)


def other_proportion(kept: ss.Kept, percent: float, seed: int) -> ss.Kept:
    """Choose the mode of each draw at random, with this probability for the second one."""
    random = np.random.default_rng(seed)
    distance = 6.0 / np.sqrt(2.0)
    second = kept.draws.sum(axis=1) > distance
    wanted = random.random(len(kept)) < percent / 100.0
    return replace(kept, draws=kept.draws + distance * (wanted.astype(float) - second)[:, None])


def other_scores(kept: ss.Kept, error: float, seed: int) -> ss.Kept:
    """Increase the scores of one parameter of the stream."""
    assert kept.stream is not None
    factors = np.where(np.arange(kept.draws.shape[1]) == PARAMETER, 1.0 + error, 1.0)
    return replace(kept, stream=kept.stream._replace(scores=kept.stream.scores * factors))


def other_quarter(kept: ss.Kept, by: float, seed: int) -> ss.Kept:
    """Shift one parameter in the third quarter of the stream."""
    assert kept.stream is not None
    draws, count = kept.stream.draws.copy(), len(kept.stream.draws)
    draws[count // 2 : 3 * count // 4, PARAMETER] += by
    return replace(kept, stream=kept.stream._replace(draws=draws))


def other_chain(kept: ss.Kept, by: float, seed: int) -> ss.Kept:
    """Shift one parameter in one chain of the stream."""
    assert kept.stream is not None
    draws = kept.stream.draws.copy()
    draws[kept.stream.ids[:, 0] == 1, PARAMETER] += by
    return replace(kept, stream=kept.stream._replace(draws=draws))


def slow_stream(kept: ss.Kept, effective: float, seed: int) -> ss.Kept:
    """Replace the stream by one with this effective sample size."""
    assert kept.stream is not None
    stream = autoregression(len(kept.stream.draws), 1, effective, seed)[0]
    return replace(kept, draws=kept.draws[:, :1], stream=kept.stream._replace(draws=stream, scores=-stream))


def autoregression(count: int, dim: int, effective: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a normal chain with this effective sample size, and its scores."""
    tau = count / effective
    rho = (tau - 1.0) / (tau + 1.0)
    x = np.random.default_rng(seed).normal(size=(count, dim))
    for t in range(1, count):
        x[t] = rho * x[t - 1] + np.sqrt(1.0 - rho**2) * x[t]
    return x, -x


def stated() -> Iterator[StatedCase]:
    """Return all cases."""
    normal, heavy = cached(independent(Gaussian(np.zeros(10), 1.0), 8000)), cached(student_draws(10, 4.0, 8000))
    two, chains = cached(independent(modes(2, 6.0, 0.5), 8000)), cached(several(_short, 4))
    slow = cached(lambda seed: autoregression(4000, 10, 400.0, seed))
    narrow, wide = r"below (\d+\.\d+)", r"above (\d+\.\d+)"
    for size in SIZES:
        for method, make in _methods(normal, size):
            name = f"normal d=10, {size} kept, {method}"
            yield StatedCase("mean", wide, name, make, shifted)
            yield StatedCase("spread", narrow, f"{name}, too narrow", make, scaled)
            yield StatedCase("spread", wide, f"{name}, too wide", make, scaled)
            yield StatedCase("ranges", narrow, f"{name}, too narrow", make, scaled)
            yield StatedCase("ranges", wide, f"{name}, too wide", make, scaled)
            yield StatedCase("quantiles", r"(\d+)% below", name, make, below_median)
        for method, make in _methods(heavy, size):
            name = f"Student t(4) d=10, {size} kept, {method}"
            yield StatedCase("ranges", narrow, f"{name}, too narrow", make, scaled)
            yield StatedCase("ranges", wide, f"{name}, too wide", make, scaled)
        make = at_random(two, size)
        yield StatedCase("regions", r"holds (\d+)%", f"modes 6 apart, {size} kept, random", make, other_proportion)
    sound, mixing = thinned(normal, size=100), thinned(slow, size=100)
    yield StatedCase("scores", wide, "normal d=10, independent", sound, other_scores)
    yield StatedCase("drift", r"by (\d+\.\d+)", "normal d=10, independent", sound, other_quarter)
    yield StatedCase("drift", r"by (\d+\.\d+)", "normal d=10, effective sample size 400", mixing, other_quarter)
    yield StatedCase("chains", r"by (\d+\.\d+)", "normal d=10, four chains", thinned(chains, size=100), other_chain)
    yield StatedCase("slow", r"below (\d+)", "normal d=1", sound, slow_stream)


def _short(seed: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(seed).normal(size=(1000, 10))
    return x, -x


def _methods(stream: SampleStream, size: int) -> Iterator[tuple[str, MakeKept]]:
    yield "stream term", thinned(stream, size=size, stream_weight=1.0)
    yield "evenly spaced", evenly_spaced(stream, size)
