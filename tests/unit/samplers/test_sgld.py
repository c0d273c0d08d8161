"""SGLD: its known stationary distribution, and which score goes with a draw."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from steinstream.errors import InputError
from steinstream.samplers import SGLD
from steinstream.targets import Gaussian
from tests.unit.samplers.common import GAUSSIAN, assert_mean, assert_same, run

RECORDS = ("step", "full", "independent")


def noisy(x: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """The score of GAUSSIAN with noise of variance 4."""
    return GAUSSIAN.score(x) + 2.0 * generator.standard_normal(2)


@pytest.mark.parametrize("step", [0.1, 0.5, 1.0])
def test_variance_of_a_gaussian_is_the_known_one(step: float) -> None:
    variance = np.array([0.5, 2.0])
    _, block = run(SGLD(Gaussian([3.0, 0.0], variance), step), 1_000_000, [3.0, 0.0])
    assert_mean(block.draws, (3.0, 0.0), 0.02)
    assert_mean((block.draws - (3.0, 0.0)) ** 2, variance / (1 - step / (4 * variance)), 0.03)


def test_noise_of_the_minibatch_adds_to_the_variance() -> None:
    step = 0.5

    def score(x: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        return -x + 2.0 * generator.standard_normal(1)

    _, block = run(SGLD(None, step, score), 30_000, [0.0])
    # x' = (1 - h / 2) x + (h / 2) e + sqrt(h) z, with e of variance 4
    assert_mean(block.draws**2, (step + step**2 / 4 * 4) / (1 - (1 - step / 2) ** 2), 0.05)


def test_what_is_recorded_does_not_change_the_chain() -> None:
    chains = [run(SGLD(GAUSSIAN, 0.1, noisy, record=record), 200) for record in RECORDS]
    for state, block in chains[1:]:
        np.testing.assert_array_equal(block.draws, chains[0][1].draws)
        np.testing.assert_array_equal(state.score, chains[0][0].score)


def test_the_recorded_score_can_be_the_one_that_makes_the_next_step() -> None:
    sampler = SGLD(None, 0.1, noisy)
    start = sampler.init(np.zeros(2), seed=3)
    state, block = sampler.sample(start, 200)
    np.testing.assert_array_equal(state.score, block.scores[-1])
    before = np.vstack([start.position, block.draws[:-1]])
    scores = np.vstack([start.score, block.scores[:-1]])
    noise = (block.draws - before - 0.05 * scores) / np.sqrt(0.1)
    np.testing.assert_allclose(noise, np.random.Generator(np.random.PCG64(3)).standard_normal((200, 2)), atol=1e-12)
    assert 3.0 < (block.scores - GAUSSIAN.scores(block.draws)).var() < 5.0


def test_the_recorded_score_can_be_the_full_one() -> None:
    _, block = run(SGLD(GAUSSIAN, 0.1, noisy, record="full"), 200)
    np.testing.assert_array_equal(block.scores, GAUSSIAN.scores(block.draws))


def test_the_recorded_score_can_be_independent_of_the_step() -> None:
    def errors(record: Any) -> np.ndarray:
        _, block = run(SGLD(GAUSSIAN, 0.1, noisy, record=record), 5000)
        return block.scores - GAUSSIAN.scores(block.draws)

    of_step, fresh = errors("step"), errors("independent")
    assert np.all(np.abs(fresh.mean(axis=0)) < 4 * 2 / np.sqrt(5000))
    np.testing.assert_allclose(fresh.var(axis=0), 4.0, rtol=0.1)
    correlation = np.corrcoef(np.hstack([of_step[:-1], fresh[:-1], of_step[1:], fresh[1:]]).T)
    assert np.all(np.abs(correlation[np.triu_indices(8, 1)]) < 4 / np.sqrt(5000))


def test_a_target_may_be_only_a_score() -> None:
    only = SimpleNamespace(score=GAUSSIAN.score)
    state, block = run(SGLD(only, 0.1), 100)
    with_density, same = run(SGLD(GAUSSIAN, 0.1), 100)
    np.testing.assert_array_equal(block.draws, same.draws)
    assert np.isnan(state.log_density)
    assert with_density.log_density == GAUSSIAN.log_density(same.draws[-1])


def test_a_minibatch_is_never_accompanied_by_a_log_density() -> None:
    state, _ = run(SGLD(GAUSSIAN, 0.1, noisy), 10)
    assert np.isnan(state.log_density)


def test_every_step_counts_as_accepted() -> None:
    state, block = run(SGLD(GAUSSIAN, 0.1), 100)
    assert (state.steps, state.accepted, block.accepted.sum()) == (100, 100, 100)


def test_the_minibatch_of_a_step_does_not_depend_on_how_many_numbers_others_took() -> None:
    def greedy(x: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        score = noisy(x, generator)
        generator.standard_normal(1000)
        return score

    assert_same(run(SGLD(None, 0.1, noisy), 50), run(SGLD(None, 0.1, greedy), 50))


@pytest.mark.parametrize("in_python", [False, True])
def test_a_chain_on_its_way_to_infinity_is_stopped(in_python: bool) -> None:
    target = SimpleNamespace(score=GAUSSIAN.score) if in_python else GAUSSIAN
    with pytest.raises(
        InputError, match=r"score at \[.*\] is .*e\+100 in .*, reached in step \d+\. .* step is too large: it is 50"
    ):
        run(SGLD(target, 50.0), 1000)


@pytest.mark.parametrize("record", RECORDS)
def test_a_bad_score_of_a_minibatch_is_refused(record: Any) -> None:
    def breaks(x: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        return -x if x[0] < 1 else np.array([np.inf, 0.0])

    with pytest.raises(InputError, match=r"score at \[.*\] is inf in coordinate 0, reached in step \d+\."):
        run(SGLD(GAUSSIAN, 0.5, breaks, record=record), 1000)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"target": None}, "target is None"),
        ({"target": None, "minibatch": noisy, "record": "full"}, "target is None"),
        ({"target": GAUSSIAN, "record": "independent"}, "requires a minibatch, got None"),
        ({"target": GAUSSIAN, "record": "half"}, "or \"independent\", got 'half'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        SGLD(step=0.1, **arguments)
