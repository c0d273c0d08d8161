"""The interleaved order depends on the lengths of the chains only, and advances all of them in proportion."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steinstream.io.interleaving import turns

lengths = st.one_of(
    st.lists(st.integers(1, 40), min_size=1, max_size=7),
    st.builds(lambda each, chains: [each] * chains, st.integers(1, 20), st.integers(1, 7)),
)


def ids_in_order(lengths, rows, skip=0):
    """Return the pairs (chain, index) of all blocks, in order, and the length of each block."""
    found, sizes = [], []
    for parts, order in turns(lengths, rows, skip):
        pairs = [(chain, index) for chain, part in enumerate(parts) for index in range(part.start, part.stop)]
        sizes.append(len(pairs))
        found += [pairs[row] for row in order]
    return found, sizes


@given(lengths=lengths, rows=st.integers(1, 50), skip=st.integers(0, 300))
def test_the_order_is_exact_for_any_block_size_and_start(lengths, rows, skip):
    expected = sorted(
        ((chain, index) for chain, n in enumerate(lengths) for index in range(n)),
        key=lambda pair: (Fraction(pair[1] + 1, lengths[pair[0]]), pair[0]),
    )
    found, sizes = ids_in_order(lengths, rows, skip)
    assert found == expected[skip:]
    assert max(sizes, default=0) <= max(rows, len(lengths))


@given(lengths=lengths)
def test_every_chain_has_its_share_of_every_prefix(lengths):
    chains = np.array([chain for chain, _ in ids_in_order(lengths, 8)[0]])
    for chain, length in enumerate(lengths):
        expected = np.arange(1, len(chains) + 1) * length / sum(lengths)
        difference = np.cumsum(chains == chain) - expected
        assert difference.min() >= -1.0 - 1e-9 and difference.max() <= len(lengths) + 1e-9


@given(each=st.integers(1, 20), chains=st.integers(1, 7), rows=st.integers(1, 30))
def test_chains_of_equal_length_are_read_one_draw_of_each_in_turn(each, chains, rows):
    expected = [(chain, index) for index in range(each) for chain in range(chains)]
    assert ids_in_order([each] * chains, rows)[0] == expected


def test_chains_without_draws_are_left_out():
    assert ids_in_order([0, 2, 0], 4)[0] == [(1, 0), (1, 1)]
    assert ids_in_order([0, 0], 4)[0] == []


@pytest.mark.parametrize("start", [0, 12_345_678, 24_999_990])
def test_the_start_within_long_chains_is_exact(start):
    """Lengths at which the products of lengths and positions are rounded."""
    lengths = [10_000_019, 9_999_991, 4_999_999, 13]
    whole, _ = ids_in_order(lengths, 64, start) if start > 24_000_000 else ([], [])
    first = next(turns(lengths, 64, start))
    read = sum(part.start for part in first.rows)
    assert start - 2 * len(lengths) <= read <= start
    later = next(turns(lengths, 64, start + 5))
    taken = [np.concatenate([np.arange(p.start, p.stop) for p in turn.rows])[turn.order] for turn in (first, later)]
    assert np.array_equal(taken[0][5:40], taken[1][:35])
    assert not whole or whole[-4:] == [(chain, length - 1) for chain, length in enumerate(lengths)]
