"""A sketch depends on the stream alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steinstream import validation
from steinstream.thinner.subsample import Subsample


def stream(length):
    x = np.arange(float(length))[:, None]
    return validation.Block(x, -x, validation.consecutive_ids(0, 0, length))


@given(st.integers(1, 30_000), st.lists(st.integers(0, 30_000), max_size=8))
def test_blocks_do_not_matter_and_the_subset_is_evenly_spaced(length, edges):
    whole, blocks = Subsample(1), Subsample(1)
    everything = stream(length)
    whole.add(everything)
    cuts = sorted(min(edge, length) for edge in edges)
    for begin, end in zip([0, *cuts], [*cuts, length], strict=True):
        blocks.add(everything.take(slice(begin, end)))
    held = whole.block.draws.ravel()
    assert np.array_equal(held, blocks.block.draws.ravel())
    assert min(length, 2048) <= len(held) <= 4096
    assert len(np.unique(np.diff(held))) <= 1 and held[0] == 0


def test_settled_is_the_second_half_of_each_chain():
    sketch = Subsample(1)
    for chain in range(3):
        x = np.arange(10.0)[:, None]
        sketch.add(validation.Block(x, -x, validation.consecutive_ids(chain, 0, 10)))
    assert sketch.second_halves().ids.tolist() == [[chain, draw] for chain in range(3) for draw in range(5, 10)]


@given(st.integers(1, 20_000), st.lists(st.integers(0, 20_000), max_size=4), st.integers(1, 9))
@settings(max_examples=30)
def test_blocks_do_not_matter_when_chains_come_in_turn(length, edges, chains):
    x = np.arange(float(length))[:, None]
    everything = validation.Block(x, -x, np.column_stack([np.arange(length) % chains, np.arange(length) // chains]))
    whole, blocks = Subsample(1), Subsample(1)
    whole.add(everything)
    cuts = sorted(min(edge, length) for edge in edges)
    for begin, end in zip([0, *cuts], [*cuts, length], strict=True):
        blocks.add(everything.take(slice(begin, end)))
    assert np.array_equal(whole.block.draws, blocks.block.draws)
    assert np.array_equal(whole.block.ids, blocks.block.ids)


@pytest.mark.parametrize("chains", [4, 64, 1000, 5000])
def test_no_chain_hides_behind_the_stride(chains):
    """With four chains in turn every fourth draw would be of one chain only."""
    length = 40 * 5000
    x = np.zeros((length, 1))
    sketch = Subsample(1)
    sketch.add(validation.Block(x, x, np.column_stack([np.arange(length) % chains, np.arange(length) // chains])))
    held = np.unique(sketch.block.ids[:, 0])
    assert 1000 < len(sketch.block.ids) <= 4096 and len(held) >= min(chains, 1000)


def test_the_sketch_keeps_copies():
    x = np.zeros((10, 1))
    sketch = Subsample(1)
    sketch.add(validation.Block(x, x, validation.consecutive_ids(0, 0, 10)))
    x += 1.0
    assert not sketch.block.draws.any()
