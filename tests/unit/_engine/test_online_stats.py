"""Running moments agree with the specification and do not depend on their division into blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steinstream._engine import reference
from steinstream._engine.online_stats import update_moments
from tests.streams import streams


def accumulate(draws, edges, whole):
    dim = draws.shape[1]
    counts, mean, last = np.zeros(2, dtype=np.int64), np.zeros(dim), np.zeros(dim)
    second = np.zeros((dim if whole else 1, dim))
    for begin, end in zip([0, *edges], [*edges, len(draws)], strict=True):
        update_moments(draws[begin:end], counts, mean, second, last, np.zeros(dim))
    return counts, mean, second


@settings(max_examples=40)
@given(streams(max_dim=6, max_length=40), st.lists(st.integers(0, 40), max_size=4))
def test_moments(stream, edges):
    draws, _ = stream
    edges = sorted(min(edge, len(draws)) for edge in edges)
    counts, mean, second = accumulate(draws, edges, whole=True)
    distinct, expected, products = reference.moments(draws)
    scale = 1e-12 * (1.0 + np.abs(draws).max() ** 2) * len(draws)
    assert counts.tolist() == [len(draws), distinct]
    assert mean == pytest.approx(expected, abs=scale)
    assert np.tril(second) == pytest.approx(np.tril(products), abs=scale)
    for one, other in zip((counts, mean, second), accumulate(draws, [], whole=True), strict=True):
        assert np.array_equal(one, other)
    if draws.shape[1] > 1:
        _, _, diagonal = accumulate(draws, edges, whole=False)
        assert diagonal[0] == pytest.approx(np.diag(products), abs=scale)


@pytest.mark.parametrize(("count", "first"), [(1, 0), (2, 0), (3, 0), (4, 1), (7, 1), (8, 3), (20, 7)])
def test_recent_values_are_the_last_half_to_three_quarters(count, first):
    values = np.arange(float(count))
    assert reference.recent_mean(values) == values[first:].mean()
