"""A state is restored from plain values, and a thinner that continues from it gives the same result."""

from __future__ import annotations

import json

import numpy as np
import pytest

import steinstream as ss
from steinstream.errors import InputError
from steinstream.thinner import Thinner
from steinstream.thinner.state import ThinnerState

SETTINGS = {
    "default": {"size": 15},
    "warm-up": {"size": 15, "preconditioner": ss.Warmup("scales", 200)},
    "KSD alone": {"stream_weight": 0, "growth": "sqrt"},
    "candidates": {"candidates": 4},
    "float32": {"storage": "float32", "size": 10},
}


def normal(count=500):
    x = np.random.default_rng(0).normal(size=(count, 3))
    return x, -x


def written(value):
    """Return the value after a round trip through text; arrays stay as they are."""
    arrays = []

    def keep(item):
        arrays.append(np.array(item))
        return {"array": len(arrays) - 1}

    text = json.dumps(value, default=lambda item: keep(item) if isinstance(item, np.ndarray) else item.item())
    return json.loads(text, object_hook=lambda item: arrays[item["array"]] if item.keys() == {"array"} else item)


@pytest.mark.parametrize("cut", [0, 1, 150, 333])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_restored_state_continues_bit_for_bit(name, cut):
    x, s = normal()
    config = ss.ThinConfig(**SETTINGS[name])
    whole, first = Thinner(3, config), Thinner(3, config)
    whole.extend(x, s)
    if cut:
        first.extend(x[:cut], s[:cut])
    state = ThinnerState.from_dict(config, written(first.state.to_dict()))
    rest = Thinner.from_state(config, state)
    rest.extend(x[cut:], s[cut:])
    assert np.array_equal(rest.kept.ids, whole.kept.ids) and rest.ksd == whole.ksd
    assert rest.state.seen == whole.state.seen == 500


def test_a_view_during_a_warmup_does_not_end_it():
    x, s = normal(100)
    config = ss.ThinConfig(size=10, preconditioner=ss.Warmup("scales", 200))
    thinner = Thinner(3, config)
    with pytest.raises(InputError, match="no draws yet"):
        thinner.state.without_warmup(config)
    thinner.extend(x, s)
    view = thinner.state.without_warmup(config)
    assert view.dictionary is not None and len(view) == 10
    assert thinner.state.dictionary is None and len(thinner.state) == 100
    with pytest.raises(InputError, match="still in its warm-up"):
        thinner.state.require_dictionary()


def test_an_initial_set_needs_a_fixed_preconditioner_and_room():
    x, s = normal(20)
    with pytest.raises(InputError, match="20 initial draws were given, but size=5"):
        Thinner(3, size=5, preconditioner="identity", initial=(x, s))
    with pytest.raises(InputError, match="needs a fixed preconditioner"):
        Thinner(3, preconditioner=ss.Warmup("scales", 200), initial=(x, s))
