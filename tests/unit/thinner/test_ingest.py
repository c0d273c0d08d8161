"""New draws are validated, counted and numbered; draws that are refused leave the state unchanged."""

from __future__ import annotations

import numpy as np
import pytest

import steinstream as ss
from steinstream.errors import InputError
from steinstream.thinner.ingest import CostsAndPins, NewDraws, ingest
from steinstream.thinner.state import ThinnerState


def fresh(**settings):
    config = ss.ThinConfig(preconditioner="identity", **settings)
    return config, ThinnerState.create(2, config)


def normal(count, seed=0):
    x = np.random.default_rng(seed).normal(size=(count, 2))
    return x, -x


def plain(value):
    """Return nested dictionaries with arrays as lists."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return np.asarray(value).tolist() if isinstance(value, np.ndarray) else value


def test_draws_of_a_chain_are_numbered_on():
    config, state = fresh()
    first = ingest(config, state, NewDraws(*normal(3)), None)
    other = ingest(config, state, NewDraws(*normal(2), chain=1), None)
    given = ingest(config, state, NewDraws(*normal(1), ids=[[0, 9]]), None)
    after = ingest(config, state, NewDraws(*normal(1)), None)
    assert first.ids.tolist() == [[0, 0], [0, 1], [0, 2]] and other.ids.tolist() == [[1, 0], [1, 1]]
    assert given.ids.tolist() == [[0, 9]] and after.ids.tolist() == [[0, 10]]
    assert state.seen == 7 and state.next_index == {0: 11, 1: 2}


def test_invalid_draws_are_left_out_and_counted_on_request():
    x, s = normal(5)
    x[1, 0], s[3, 1] = np.nan, np.inf
    config, state = fresh(on_bad="skip")
    block = ingest(config, state, NewDraws(x, s), None)
    assert block.ids[:, 1].tolist() == [0, 2, 4] and (state.seen, state.skipped) == (5, 2)


@pytest.mark.parametrize(
    ("settings", "new", "problem"),
    [
        ({}, {"scores": [[1.0, np.nan]] * 4}, "not finite|nan"),
        ({}, {"costs": np.ones(4)}, "costs has no effect"),
        ({"cost_weight": 1.0}, {}, "costs is required"),
        ({"cost_weight": 1.0}, {"costs": [1.0, 1.0, -1.0, 1.0]}, r"cost of draw 2 is -1"),
        ({"cost_weight": 1.0}, {"costs": np.ones(3)}, "must be 4 numbers"),
        ({}, {"pinned": [0, 1, 0, 0]}, "must be 4 booleans"),
        ({"size": 1}, {"pinned": [True, True, False, False]}, "2 draws would be pinned, but size=1"),
        ({"storage": "float32"}, {"pinned": [True] * 4}, "supports neither pins nor second scores"),
        ({}, {"scores": None, "second_scores": -np.ones((4, 2))}, "second_scores were given without scores"),
    ],
)
def test_draws_that_are_refused_leave_the_state_unchanged(settings, new, problem):
    config, state = fresh(**settings)
    x, s = normal(4)
    before = plain(state.to_dict())
    with pytest.raises(InputError, match=problem):
        ingest(config, state, NewDraws(**{"draws": x, "scores": s, **new}), 1)
    assert repr(plain(state.to_dict())) == repr(before)


def test_every_draw_has_scores_or_none_has():
    config, state = fresh()
    ingest(config, state, NewDraws(*normal(3)), None)
    with pytest.raises(InputError, match="Some draws were given with scores and others without"):
        ingest(config, state, NewDraws(normal(3)[0]), None)


@pytest.mark.parametrize("features", [None, np.sum])
def test_a_block_without_draws_decides_nothing(features):
    x = np.random.default_rng(0).normal(size=(30, 2))
    plain, other = (ss.Thinner(2, size=5, features=features) for _ in range(2))
    other.extend(x[:0])
    plain.extend(x, -x)
    other.extend(x, -x)
    other.extend(x[:0])
    assert plain.kept_ids == other.kept_ids and plain.seen == other.seen == 30


def test_costs_and_pins_are_taken_and_joined_together():
    marks = CostsAndPins(np.array([1.0, 2.0, 3.0]), np.array([True, False, True]))
    both = marks.take(np.array([2, 0])).append(CostsAndPins.none(1))
    assert both.costs.tolist() == [3.0, 1.0, 0.0] and both.pinned.tolist() == [True, True, False]


def test_two_pins_among_the_same_candidates_are_refused():
    marks = CostsAndPins(np.zeros(4), np.array([True, False, False, True]))
    marks.require_room(0, None, 2)
    with pytest.raises(InputError, match="among the same 4 candidates"):
        marks.require_room(0, None, 4)
    with pytest.raises(InputError, match="5 draws would be pinned, but size=4"):
        marks.require_room(3, 4, 1)
