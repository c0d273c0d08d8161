"""Random-walk Metropolis: the right distribution, and the same bits however it is run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from steinstream.errors import InputError
from steinstream.samplers import Draws, RandomWalk, State
from steinstream.targets import CompiledTarget, Functions, Goodwin

START = np.log([0.95, 2.9, 0.52, 1.02])


@numba.njit(error_model="numpy")
def gaussian_log_densities(parameters: tuple[Any, Any], positions: np.ndarray, out: np.ndarray) -> None:
    mean, precision = parameters
    for k in range(out.size):
        out[k] = 0.0
        for j in range(mean.size):
            z = positions[j, k] - mean[j]
            out[k] -= 0.5 * (precision[j] * (z * z))


@numba.njit(error_model="numpy")
def gaussian_score(parameters: tuple[Any, Any], position: np.ndarray, score: np.ndarray) -> float:
    mean, precision = parameters
    total = 0.0
    for j in range(mean.size):
        z = position[j] - mean[j]
        score[j] = -precision[j] * z
        total -= 0.5 * (precision[j] * (z * z))
    return total


class Gaussian:
    """Independent coordinates, in Python and compiled."""

    def __init__(self, lanes: int) -> None:
        self.mean, self.precision = np.array([1.0, -2.0]), np.array([1.0, 4.0])
        self.lanes = lanes

    def log_density(self, x: np.ndarray) -> float:
        out = np.empty(1)
        gaussian_log_densities.py_func((self.mean, self.precision), x[:, None], out)
        return float(out[0])

    def score(self, x: np.ndarray) -> np.ndarray:
        return -self.precision * (x - self.mean)

    def compiled(self) -> CompiledTarget:
        parameters = (self.mean, self.precision)
        return CompiledTarget(gaussian_log_densities, gaussian_score, parameters, self.lanes)


def run(target: Any, n: int, step: float = 1.0, start: Any = (0.0, 0.0), seed: int = 3) -> tuple[State, Draws]:
    sampler = RandomWalk(target, step)
    return sampler.sample(sampler.init(np.array(start), seed), n)


def assert_same(first: tuple[State, Draws], second: tuple[State, Draws]) -> None:
    for one, other in zip((*first[0], *first[1]), (*second[0], *second[1]), strict=True):
        if isinstance(one, np.ndarray):
            np.testing.assert_array_equal(one, other)
        else:
            assert one == other


@pytest.fixture(scope="module")
def goodwin() -> Goodwin:
    return Goodwin.simulated(seed=0)


def test_blocks_give_the_same_chain_as_one_call() -> None:
    sampler = RandomWalk(Gaussian(lanes=4), 1.5)
    first = sampler.init(np.zeros(2), seed=1)
    state, blocks = first, []
    for n in (1, 2, 0, 3, 94, 500):
        state, block = sampler.sample(state, n)
        blocks.append(block)
    joined = Draws(*(np.concatenate(parts) for parts in zip(*blocks, strict=True)))
    assert_same((state, joined), sampler.sample(first, 600))


def test_sampling_leaves_the_state_it_started_from() -> None:
    sampler = RandomWalk(Gaussian(lanes=4), 1.0)
    state = sampler.init(np.zeros(2), seed=1)
    assert_same(sampler.sample(state, 50), sampler.sample(state, 50))
    assert state.steps == 0


@pytest.mark.parametrize("lanes", [2, 5, 16])
def test_speculation_does_not_change_the_chain(lanes: int) -> None:
    assert_same(run(Gaussian(lanes), 2000), run(Gaussian(1), 2000))


def test_a_python_target_gives_the_chain_of_the_compiled_one() -> None:
    target = Gaussian(lanes=8)
    plain = Functions(target.log_density, lambda x: target.score(x))
    assert_same(run(plain, 1000), run(target, 1000))


def test_goodwin_blocks_and_speculation_do_not_change_the_chain(goodwin: Goodwin) -> None:
    class OneByOne(Goodwin):
        def compiled(self) -> CompiledTarget:
            return super().compiled()._replace(lanes=1)

    speculative = run(goodwin, 700, step=0.01, start=START)
    assert 0.02 < speculative[1].accepted.mean() < 0.4
    assert_same(speculative, run(OneByOne(goodwin.y), 700, step=0.01, start=START))
    assert_same(speculative, run(Functions(goodwin.log_density, goodwin.score), 700, step=0.01, start=START))

    sampler = RandomWalk(goodwin, 0.01)
    state, head = sampler.sample(sampler.init(START, seed=3), 333)
    state, tail = sampler.sample(state, 367)
    joined = Draws(*(np.concatenate(parts) for parts in zip(head, tail, strict=True)))
    assert_same(speculative, (state, joined))


def test_a_fresh_process_can_start_with_a_compiled_chain() -> None:
    code = "import test_random_walk as t; t.run(t.Gaussian(4), 10)"
    subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=Path(__file__).parent, check=True)


def test_scores_belong_to_their_draws(goodwin: Goodwin) -> None:
    state, block = run(goodwin, 200, step=0.01, start=START)
    for k in (0, 57, 199):
        np.testing.assert_array_equal(block.scores[k], goodwin.score(block.draws[k]))
    assert state.log_density == goodwin.log_density(block.draws[-1])
    moved = np.any(np.diff(block.draws, axis=0, prepend=START[None]) != 0, axis=1)
    np.testing.assert_array_equal(moved, block.accepted)
    assert (state.steps, state.accepted) == (200, block.accepted.sum())


def test_a_score_is_computed_only_where_a_proposal_is_accepted() -> None:
    calls = []
    target = Functions(lambda x: -0.5 * float(x @ x), lambda x: calls.append(x) or -x)
    state, _ = run(target, 300)
    assert len(calls) == 1 + state.accepted


def test_moments_of_a_gaussian_are_right_within_monte_carlo_error() -> None:
    target = Gaussian(lanes=4)
    _, block = run(target, 400_000, step=1.2, seed=5)
    for f, truth in (
        (block.draws, target.mean),
        ((block.draws - target.mean) ** 2, 1 / target.precision),
        (block.scores, np.zeros(2)),
        (np.prod(block.draws - target.mean, axis=1)[:, None], np.zeros(1)),
    ):
        batches = f.reshape(200, -1, f.shape[1]).mean(axis=1)  # batch means: the draws are dependent
        error = batches.std(axis=0, ddof=1) / np.sqrt(len(batches))
        assert np.all(np.abs(batches.mean(axis=0) - truth) < 4 * error)
        assert np.all(error < 0.02)


def test_acceptance_follows_the_metropolis_rule() -> None:
    # On N(0, 1) with step h the mean acceptance is (2 / pi) arctan(2 / h).
    target = Functions(lambda x: -0.5 * float(x[0] * x[0]), lambda x: -x)
    state, _ = run(target, 30_000, step=2.0, start=(0.0,))
    assert state.accepted / state.steps == pytest.approx(2 / np.pi * np.arctan(1.0), abs=0.015)


def test_proposals_without_density_are_rejected() -> None:
    def inside_the_unit_interval(x: np.ndarray) -> float:
        return 0.0 if 0 < x[0] < 1 else -np.inf

    _, block = run(Functions(inside_the_unit_interval, np.zeros_like), 2000, start=(0.5,))
    assert np.all((block.draws > 0) & (block.draws < 1))


@pytest.mark.parametrize("step", [0.0, -1.0, np.nan, np.inf])
def test_a_useless_step_is_refused(step: float) -> None:
    with pytest.raises(InputError, match="step must be a positive number"):
        RandomWalk(Gaussian(1), step)


@pytest.mark.parametrize(
    ("start", "problem"),
    [
        (np.zeros((1, 2)), "start must be a vector"),
        (np.array([0.0, np.nan]), "start must be a vector"),
        (np.array([800.0, 0.0, 0.0, 0.0]), "log density at .* is -inf"),
    ],
)
def test_a_useless_start_is_refused(goodwin: Goodwin, start: np.ndarray, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        RandomWalk(goodwin, 0.01).init(start, seed=0)
