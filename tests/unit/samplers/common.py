"""Targets and assertions shared by the tests of the samplers."""

from __future__ import annotations

from typing import Any

import numpy as np

from steinstream.samplers import Draws, State
from steinstream.targets import Functions, Gaussian

COVARIANCE = np.array([[2.0, 0.6], [0.6, 0.5]])
GAUSSIAN = Gaussian([1.0, -2.0], COVARIANCE)


def run(sampler: Any, n: int, start: Any = (0.0, 0.0), seed: int = 3) -> tuple[State, Draws]:
    return sampler.sample(sampler.init(np.array(start), seed), n)


def in_python(target: Any) -> Functions:
    return Functions(lambda x: target.log_density(x), lambda x: target.score(x))


def assert_same(first: tuple[State, Draws], second: tuple[State, Draws]) -> None:
    for one, other in zip((*first[0], *first[1]), (*second[0], *second[1]), strict=True):
        if isinstance(one, dict):
            assert one == other
        else:
            np.testing.assert_array_equal(one, other)


def assert_mean(values: np.ndarray, truth: Any, largest_error: float) -> None:
    """The mean of a chain's values (n,) or (n, k) is right within Monte Carlo error, and that error is small."""
    batches = values.reshape(200, len(values) // 200, -1).mean(axis=1)  # batch means: the draws are dependent
    error = batches.std(axis=0, ddof=1) / np.sqrt(len(batches))
    assert np.all(np.abs(batches.mean(axis=0) - truth) < 4 * error)
    assert np.all(error < largest_error)
