"""MALA: the right distribution, reversibly, and the Goodwin posterior."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
import pytest

from steinstream.samplers import MALA
from steinstream.targets import CompiledTarget, Functions, Goodwin, Mixture
from tests.unit.samplers.common import GAUSSIAN, assert_mean, run


@numba.njit(error_model="numpy")
def lopsided_score(_: Any, x: np.ndarray, score: np.ndarray) -> float:
    """The logarithm of an exponential variable: a long tail to the left, hardly any to the right."""
    rate = math.exp(x[0])
    score[0] = 1.0 - rate
    return x[0] - rate


@numba.njit(error_model="numpy")
def lopsided_log_densities(_: Any, positions: np.ndarray, out: np.ndarray) -> None:
    for k in range(out.size):
        out[k] = positions[0, k] - math.exp(positions[0, k])


class Lopsided:
    def log_density(self, x: np.ndarray) -> float:
        return float(x[0] - np.exp(x[0]))

    def score(self, x: np.ndarray) -> np.ndarray:
        return 1.0 - np.exp(x)

    def compiled(self) -> CompiledTarget:
        return CompiledTarget(lopsided_log_densities, lopsided_score, (np.zeros(0),))


def test_moments_of_a_gaussian_are_right_within_monte_carlo_error() -> None:
    _, block = run(MALA(GAUSSIAN, 1.0), 400_000)
    centred = block.draws - GAUSSIAN.mean
    assert_mean(block.draws, GAUSSIAN.mean, 0.02)
    assert_mean(centred**2, np.diag(GAUSSIAN.covariance), 0.02)
    assert_mean(np.prod(centred, axis=1), GAUSSIAN.covariance[0, 1], 0.02)
    assert_mean(block.scores, 0.0, 0.02)


def test_proportions_of_a_mixture_are_right_within_monte_carlo_error() -> None:
    _, block = run(MALA(Mixture([[0.0, 0.0], [2.0, 2.0]], 0.5, [1, 3]), 1.0), 400_000)
    assert_mean(block.draws, 1.5, 0.05)
    assert_mean(block.draws**2, 0.5 + 3.0, 0.1)


def test_moments_of_a_lopsided_target_are_right_within_monte_carlo_error() -> None:
    state, block = run(MALA(Lopsided(), 1.5), 400_000, [0.0])
    assert 0.5 < state.accepted / state.steps < 0.95
    assert_mean(np.exp(block.draws), 1.0, 0.01)
    assert_mean(block.draws, -np.euler_gamma, 0.01)
    assert_mean((block.draws + np.euler_gamma) ** 2, np.pi**2 / 6, 0.03)


def test_the_chain_runs_forwards_as_often_as_backwards() -> None:
    _, block = run(MALA(Lopsided(), 1.5), 400_001, [0.0])
    x, y = block.draws[:-1, 0], block.draws[1:, 0]
    assert_mean(x * y**2 - y * x**2, 0.0, 0.02)
    assert_mean(np.exp(x) * y - np.exp(y) * x, 0.0, 0.01)
    edges = [-2.0, -1.0, -0.3, 0.3, 0.8]
    before, after = np.digitize(x, edges), np.digitize(y, edges)
    for i in range(6):
        for j in range(i):
            flow = 1.0 * ((before == i) & (after == j)) - 1.0 * ((before == j) & (after == i))
            assert_mean(flow, 0.0, 1e-3)


def test_a_step_is_the_standard_deviation_of_the_noise() -> None:
    flat = Functions(lambda x: 0.0, np.zeros_like)  # there every proposal is accepted
    state, block = run(MALA(flat, 0.3), 20_000, [0.0])
    assert state.accepted == 20_000
    assert np.diff(block.draws[:, 0]).std() == pytest.approx(0.3, rel=0.02)


def test_the_drift_is_half_the_squared_step_times_the_score() -> None:
    slope = Functions(lambda x: 2.0 * float(x[0]), lambda x: np.array([2.0]))  # and there too
    state, block = run(MALA(slope, 0.5), 20_000, [0.0])
    assert state.accepted == 20_000
    assert np.diff(block.draws[:, 0]).mean() == pytest.approx(0.5 * 0.5**2 * 2.0, abs=0.015)


def test_a_proposal_that_cannot_be_accepted_may_have_any_score() -> None:
    target = Functions(
        lambda x: -0.5 * float(x @ x) if abs(x[0]) < 1 else -1e300,
        lambda x: -x if abs(x[0]) < 1 else np.array([np.nan]),
    )
    _, block = run(MALA(target, 1.0), 500, [0.0])
    assert np.all(np.abs(block.draws) < 1)


def test_the_score_is_not_asked_for_where_there_is_no_density() -> None:
    def score(x: np.ndarray) -> np.ndarray:
        return 1 / x - 1 if x[0] > 0 else pytest.fail("asked for")

    target = Functions(lambda x: float(np.log(x[0]) - x[0]) if x[0] > 0 else -np.inf, score)
    state, _ = run(MALA(target, 1.0), 2000, [1.0])
    assert state.accepted < 2000


def test_goodwin_is_sampled_from_near_its_posterior() -> None:
    sampler = MALA(Goodwin.simulated(seed=0), 0.003)
    state, block = run(sampler, 12_000, np.log([0.95, 2.9, 0.52, 1.02]))
    late = block.draws[2000:]
    assert 0.55 < block.accepted[2000:].mean() < 0.75
    assert np.all(np.abs(late.mean(axis=0) - (0.0, 1.0985, -0.6904, 0.0058)) < (0.003, 0.012, 0.002, 0.0025))
    assert np.all(np.abs(late.std(axis=0) / (0.0061, 0.0170, 0.0036, 0.0050) - 1) < 0.35)
    assert state.log_density > -2400
