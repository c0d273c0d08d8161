"""The kept draws in the engine: contents as given, KSD, pins, changes of the preconditioner, burn-in."""

from __future__ import annotations

import numpy as np
import pytest

import steinstream as ss
from steinstream.errors import InputError
from steinstream.thinner.config import ThinConfig
from steinstream.thinner.dictionary import Dictionary
from steinstream.thinner.ingest import CostsAndPins
from steinstream.thinner.layout import DrawLayout
from steinstream.validation import Block
from tests.thinners import ksd_thinner

SCALES = ss.Preconditioner.scales([2.0, 0.5])


def block(count=30, seed=0, chain=0):
    x = np.random.default_rng(seed).normal(size=(count, 2)) * [2.0, 0.5]
    ids = np.column_stack([np.full(count, chain), np.arange(count)[::-1]])  # arrival is not the order of the ids
    return Block(x, -x / np.array([4.0, 0.25]), ids)


def empty(movable=False, **settings):
    return Dictionary(DrawLayout(2), ThinConfig(**{"stream_weight": 0.0, **settings}), SCALES, movable)


def filled(draws, marks=None, **options):
    kept = empty(**options)
    kept.insert_all(draws, marks)
    return kept


def test_contents_are_the_draws_as_given_in_order_of_their_ids():
    draws = block()
    kept = filled(draws)
    found = kept.contents()
    assert np.array_equal(found.ids[:, :2], draws.ids[::-1])
    assert np.array_equal(found.draws, draws.draws[::-1]) and np.array_equal(found.scores, draws.scores[::-1])
    assert kept.size == 30 and found.second_scores.shape == (30, 0)
    assert kept.ksd == ss.ksd(draws.draws, draws.scores, preconditioner=SCALES)
    assert kept.squared_ksd == pytest.approx(kept.ksd**2, rel=1e-15)


def test_an_empty_set_has_no_ksd():
    kept = empty()
    assert kept.size == 0 and np.isnan(kept.ksd) and len(kept.contents().ids) == 0


def test_repeated_draws_are_counted_and_returned_with_their_ids():
    one = block(1)
    draws = Block(*(np.repeat(part, 3, axis=0) for part in (one.draws, one.scores)), np.array([[0, 0], [0, 1], [0, 2]]))
    kept = filled(draws)
    assert kept.size == 3 and np.array_equal(kept.contents().ids[:, :2], draws.ids)
    steps, values = kept.peek([1])
    assert sorted(steps.tolist()) == [-2, -1, 0] and np.array_equal(values, draws.draws[:, 1:])


def test_coordinates_for_observers_are_those_of_the_contents():
    kept = filled(block())
    _, values = kept.peek([0, 1])
    assert sorted(map(tuple, values.tolist())) == sorted(map(tuple, kept.contents().draws.tolist()))


def test_a_new_preconditioner_gives_the_ksd_of_the_same_draws():
    draws = block()
    kept, other = filled(draws, movable=True), ss.Preconditioner.scales([1.0, 3.0])
    before = kept.contents()
    kept.change_coordinates(other)
    assert kept.ksd == ss.ksd(draws.draws, draws.scores, preconditioner=other)
    assert all(np.array_equal(one, two) for one, two in zip(before[:4], kept.contents()[:4], strict=True))


def test_pins_are_those_of_kept_draws():
    kept = filled(block())
    kept.pin(np.array([[0, 3], [0, 5]]), True)
    kept.pin(np.array([[0, 3]]), False)
    assert kept.pinned.tolist() == [[0, 5]]
    with pytest.raises(InputError, match="Draw 99 of chain 0 is not kept"):
        kept.pin(np.array([[0, 99]]), True)


def test_a_state_restores_all_of_it():
    draws, marks = block(), CostsAndPins(np.linspace(1.0, 2.0, 30), np.arange(30) == 4)
    kept = filled(draws, marks, stream_weight=1.0, cost_weight=1.0)
    copy = empty(stream_weight=1.0, cost_weight=1.0)
    copy.restore(kept.state())
    one, other = kept.state(), copy.state()
    assert one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)
    assert copy.ksd == kept.ksd and np.array_equal(copy.pinned, kept.pinned)


def test_burn_in_is_removed_but_for_pinned_draws():
    thinner = ksd_thinner(2, size=20, preconditioner=SCALES, stream_weight=1.0)
    draws = block(20)
    thinner.extend(draws.draws, draws.scores)
    kept = thinner.state.dictionary
    kept.pin(np.array([[0, 2]]), True)
    removed = kept.forget_burn_in({0: 10, 7: 3})
    assert removed[:, 1].tolist() == [0, 1, *range(3, 10)]
    assert kept.contents().ids[:, 1].tolist() == [2, *range(10, 20)]
    left = kept.contents()
    assert kept.ksd == ss.ksd(left.draws, left.scores, preconditioner=SCALES)
    assert len(kept.forget_burn_in({0: 20})) == 10, "the pinned draw is left"
