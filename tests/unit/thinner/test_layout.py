"""The columns of a draw can be joined and split, and settings that do not fit the stream raise an error."""

from __future__ import annotations

import numpy as np
import pytest

import steinstream as ss
from steinstream.errors import InputError
from steinstream.thinner.features import FeatureMap
from steinstream.thinner.layout import DrawLayout, as_layout
from steinstream.validation import Block, consecutive_ids


def block(dim=2, count=5, scores=True, features=0):
    rng = np.random.default_rng(0)
    x, s = rng.normal(size=(count, dim)), rng.normal(size=(count, dim if scores else 0))
    return Block(x, s, consecutive_ids(0, 0, count), rng.normal(size=(count, features)) if features else None)


@pytest.mark.parametrize(
    ("scores", "second", "with_ratios"),
    [(True, True, True), (True, True, False), (True, False, True), (True, False, False), (False, False, False)],
)
@pytest.mark.parametrize("features", [0, 3])
def test_split_undoes_columns(scores, second, features, with_ratios):
    given = block(scores=scores, features=features)
    layout = DrawLayout(2, scores, second, FeatureMap(features) if features else None, has_ratios=with_ratios)
    if with_ratios:
        given = given._replace(ratios=np.arange(5.0)[:, None])
    if second:
        given = given._replace(scores=np.hstack([given.scores, -given.scores]))
    columns = layout.columns(given)
    assert columns.shape == (5, layout.width)
    draws, first, other, ratios, sketches = layout.split(columns)
    assert np.array_equal(draws, given.draws) and np.array_equal(np.hstack([first, other]), given.scores)
    assert np.array_equal(ratios, given.ratios) if with_ratios else ratios is None
    assert (sketches is None) == (not features) and (sketches is None or np.array_equal(sketches, given.features))


@pytest.mark.parametrize(("stream_on", "width"), [("draws", 2), ("features", 3), ("both", 5)])
def test_base_vectors_are_what_the_stream_term_compares(stream_on, width):
    given = block(features=3)
    layout = DrawLayout(2, features=FeatureMap(3), stream_on=stream_on)
    base = layout.base_vectors(given)
    assert base.shape == (5, layout.base_width) == (5, width)
    assert layout.compares_draws == (stream_on == "draws")


def test_a_layout_survives_a_checkpoint():
    layout = as_layout(ss.ThinConfig(stream_on="both"), 2, block(features=3), True)
    again = DrawLayout.restored(layout.state())
    assert again.state().keys() == layout.state().keys()
    assert (again.width, again.base_width, again.stream_on) == (layout.width, layout.base_width, "both")


@pytest.mark.parametrize(
    ("settings", "given", "problem"),
    [
        ({"stream_weight": 0}, {"scores": False}, "cannot be thinned by KSD alone"),
        ({"kernel": "imq:linear=1"}, {"scores": False}, "linear term of the kernel is part of KSD"),
        ({"stream_on": "both"}, {}, 'stream_on="both" needs features'),
        ({"stream_weight": 0}, {"features": 3}, "features have no effect"),
        ({"stream_on": "draws"}, {"features": 3}, "features have no effect"),
        ({"stream_on": "both", "storage": "float32"}, {"features": 3}, "not available for storage"),
    ],
)
def test_settings_that_do_not_fit_the_stream_raise_an_error(settings, given, problem):
    with pytest.raises(InputError, match=problem):
        as_layout(ss.ThinConfig(**settings), 2, block(**given), False)
