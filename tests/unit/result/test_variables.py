"""Variables of kept draws follow their draws."""

from __future__ import annotations

import numpy as np

import steinstream as ss
from steinstream.result.variables import Variable, rows_of


def test_rows_of_all_variables_are_taken_and_the_rest_stays():
    labels = {"kind": np.array(["a", "b"])}
    variables = {
        "table": Variable(np.arange(8).reshape(4, 2), ("kind",), labels),
        "number": Variable(np.array([1.0, 2.0, 3.0, 4.0])),
    }
    taken = rows_of(variables, np.array([3, 0]))
    assert taken["table"].values.tolist() == [[6, 7], [0, 1]] and taken["number"].values.tolist() == [4.0, 1.0]
    assert taken["table"].dims == ("kind",) and taken["table"].coords is labels
    assert variables["number"].values.tolist() == [1.0, 2.0, 3.0, 4.0]


def test_variables_of_a_kept_set_follow_the_order_of_use():
    draws = np.random.default_rng(0).normal(size=(300, 2))
    kept = ss.thin(draws, -draws, 20)
    variables = {"first": Variable(kept.draws[:, 0].copy())}
    ordered = ss.Kept(**{**vars(kept), "variables": variables}).ordered()
    assert np.array_equal(ordered.variables["first"].values, ordered.draws[:, 0])
    assert not np.array_equal(ordered.draws, kept.draws)
