"""Greedy selection, swaps and re-selection agree with the specification."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steinstream._engine import local_search, reference
from steinstream._engine.compiled_kernel import compile_kernel
from steinstream._engine.pairwise import as_tiles
from tests.streams import kernels


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(2, 30), kernels, st.data())
def test_a_search_is_the_specification(seed, count, kernel, data):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 2))
    s = -x + 0.3 * rng.normal(size=x.shape)
    matrix, compiled = kernel.matrix(x, s, x, s), compile_kernel(kernel, 2)
    size = data.draw(st.integers(1, count - 1))
    subset = local_search.empty_subset(as_tiles(x, s), np.diag(matrix), size)

    def assert_chosen(expected):
        assert sorted(subset.chosen.tolist()) == sorted(expected)
        assert np.flatnonzero(subset.taken).tolist() == sorted(expected)
        scale = np.abs(matrix).sum()
        assert subset.sums[:count] == pytest.approx(reference.subset_sums(matrix, expected), abs=1e-12 * scale)
        assert local_search.energy(subset) == pytest.approx(
            reference.subset_energy(matrix, expected), abs=1e-12 * scale
        )

    chosen = reference.greedy_subset(matrix, [], size)
    local_search.choose_greedily(compiled, subset, np.arange(size))
    assert_chosen(chosen)
    swapped = reference.swap_subset(matrix, chosen)
    assert local_search.swap_each(compiled, subset) == (swapped != chosen)
    assert_chosen(swapped)
    for _ in range(4):  # one trial at a time: rounding may accept the same set in a different order
        places = rng.permutation(size)[: min(3, size)]
        expected = reference.reselect_subset(matrix, subset.chosen.tolist(), [places.tolist()])
        local_search.reselect(compiled, subset, places[None])
        assert_chosen(expected)
