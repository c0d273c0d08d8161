"""SPMCMC: a chain run into a thinner is what one gets by passing groups of candidates by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from steinstream import PAPER, Thinner
from steinstream.errors import InputError
from steinstream.samplers import MALA, SGLD, RandomWalk, spmcmc, stein_point_mcmc
from tests.unit.samplers.common import GAUSSIAN, assert_same

SAMPLERS = [RandomWalk(GAUSSIAN, 1.0), MALA(GAUSSIAN, 1.0), SGLD(GAUSSIAN, 0.1)]


def assert_same_kept(one: Thinner, other: Thinner) -> None:
    assert one.ksd == other.ksd
    assert one.steps == other.steps
    for a, b in zip(one.kept.history, other.kept.history, strict=True):
        np.testing.assert_array_equal(a, b)
    for name in ("ids", "draws", "scores"):
        np.testing.assert_array_equal(getattr(one.kept, name), getattr(other.kept, name))


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: type(sampler).__name__)
def test_the_result_is_that_of_groups_passed_by_hand(sampler: Any) -> None:
    start = sampler.init(np.zeros(2), seed=1)
    state, by_hand = start, Thinner(2)
    for step in range(300):
        state, block = sampler.sample(state, 7)
        by_hand.select(block.draws, block.scores, ids=[(4, 7 * step + k) for k in range(7)])
    thinner = Thinner(2, candidates=7)
    reached = spmcmc(sampler, start, thinner, 300, chain=4)
    assert_same_kept(thinner, by_hand)
    assert_same((reached, block), (state, block))


def test_blocks_and_repeated_calls_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = SAMPLERS[0]
    state = sampler.init(np.zeros(2), seed=1)
    whole, parts = Thinner(2, candidates=5), Thinner(2, candidates=5)
    expected = spmcmc(sampler, state, whole, 400)
    monkeypatch.setattr(stein_point_mcmc, "_BLOCK", 17)
    for steps in (0, 1, 99, 300):
        state = spmcmc(sampler, state, parts, steps)
    assert_same_kept(whole, parts)
    assert state.steps == expected.steps == 2000
    assert state.random == expected.random


def test_ids_are_positions_in_the_chain() -> None:
    sampler, thinner = SAMPLERS[1], Thinner(2, candidates=10)
    start = sampler.init(np.zeros(2), seed=2)
    burned, _ = sampler.sample(start, 123)
    spmcmc(sampler, burned, thinner, 200)
    _, block = sampler.sample(start, 123 + 2000)
    kept = thinner.kept
    assert kept.ids[:, 1].min() >= 123
    np.testing.assert_array_equal(kept.draws, block.draws[kept.ids[:, 1]])
    np.testing.assert_array_equal(kept.scores, block.scores[kept.ids[:, 1]])


def test_the_best_of_several_candidates_serves_better_than_any_draw() -> None:
    sampler = SAMPLERS[0]
    settings = {**PAPER, "growth": "none"}
    few, many = Thinner(2, **settings), Thinner(2, **settings, candidates=10)
    for thinner in (few, many):
        spmcmc(sampler, sampler.init(np.zeros(2), seed=2), thinner, 300)
    assert len(many) == len(few) == 300
    assert many.ksd < 0.5 * few.ksd


def test_a_thinner_of_another_dimension_is_refused() -> None:
    with pytest.raises(InputError, match="2 dimensions, the thinner 3"):
        spmcmc(SAMPLERS[0], SAMPLERS[0].init(np.zeros(2), 0), Thinner(3), 1)


def test_a_useless_number_of_steps_is_refused() -> None:
    with pytest.raises(InputError, match="steps must be an integer of at least 0, got -1"):
        spmcmc(SAMPLERS[0], SAMPLERS[0].init(np.zeros(2), 0), Thinner(2), -1)
