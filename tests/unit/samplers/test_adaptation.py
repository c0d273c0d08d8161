"""Adaptation: the step that accepts as many proposals as asked for, from far off, and fixed afterwards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from steinstream.errors import InputError
from steinstream.samplers import MALA, SGLD, RandomWalk, adapt_step
from steinstream.targets import Gaussian, Goodwin
from tests.unit.samplers.common import GAUSSIAN, assert_same


@pytest.mark.parametrize("step", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize(("kind", "acceptance"), [(RandomWalk, 0.234), (MALA, 0.574)])
def test_the_acceptance_is_the_recommended_one_whatever_the_first_step(
    kind: Any, acceptance: float, step: float
) -> None:
    sampler = kind(Gaussian(np.zeros(5), 0.01), step)
    sampler, state = adapt_step(sampler, sampler.init(np.zeros(5), seed=0), 20_000)
    _, block = sampler.sample(state, 50_000)
    assert block.accepted.mean() == pytest.approx(acceptance, abs=0.03)


def test_another_acceptance_can_be_asked_for() -> None:
    sampler, state = adapt_step(RandomWalk(GAUSSIAN, 1.0), RandomWalk(GAUSSIAN, 1.0).init([0, 0], 0), 20_000, 0.5)
    _, block = sampler.sample(state, 50_000)
    assert block.accepted.mean() == pytest.approx(0.5, abs=0.03)


def test_the_chain_goes_on_and_the_same_state_gives_the_same_step() -> None:
    sampler = MALA(GAUSSIAN, 0.1)
    state = sampler.init(np.zeros(2), seed=5)
    tuned, after = adapt_step(sampler, state, 1010)
    assert (after.steps, state.steps) == (1010, 0)
    assert adapt_step(sampler, state, 1010)[0].step == tuned.step
    assert tuned.target is sampler.target
    assert_same(tuned.sample(after, 10), MALA(GAUSSIAN, tuned.step).sample(after, 10))


@pytest.mark.parametrize("step", [0.01, 1e-4])
def test_mala_finds_the_goodwin_posterior_from_far_out(step: float) -> None:
    sampler = MALA(Goodwin.simulated(seed=0), step)
    sampler, state = adapt_step(sampler, sampler.init(np.log([0.5, 1.0, 3.0, 2.0]), seed=0), 4000)
    state, block = sampler.sample(state, 3000)
    assert state.log_density > -2400
    assert 0.45 < block.accepted.mean() < 0.7


def test_without_acceptance_there_is_nothing_to_adapt() -> None:
    sampler = SGLD(GAUSSIAN, 0.1)
    with pytest.raises(InputError, match="SGLD accepts every proposal"):
        adapt_step(sampler, sampler.init(np.zeros(2), 0), 5000)


@pytest.mark.parametrize(
    ("steps", "acceptance", "problem"),
    [
        (999, None, "at least 1000 to adapt a step size, got 999"),
        (-1, None, "steps must be an integer of at least 0, got -1"),
        (5000, 1.0, "between 0 and 1, got 1.0"),
        (5000, 0, "acceptance"),
    ],
)
def test_useless_requests_are_refused(steps: int, acceptance: float | None, problem: str) -> None:
    sampler = RandomWalk(GAUSSIAN, 0.1)
    with pytest.raises(InputError, match=problem):
        adapt_step(sampler, sampler.init(np.zeros(2), 0), steps, acceptance)
