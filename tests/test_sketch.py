"""A sketch depends on the stream alone."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from steinstream import door
from steinstream.sketch import Sketch


def stream(length):
    x = np.arange(float(length))[:, None]
    return door.Block(x, -x, door.consecutive(0, 0, length))


@given(st.integers(1, 30_000), st.lists(st.integers(0, 30_000), max_size=8))
def test_blocks_do_not_matter_and_the_subset_is_evenly_spaced(length, edges):
    whole, blocks = Sketch(1), Sketch(1)
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
    sketch = Sketch(1)
    for chain in range(3):
        x = np.arange(10.0)[:, None]
        sketch.add(door.Block(x, -x, door.consecutive(chain, 0, 10)))
    assert sketch.settled().ids.tolist() == [[chain, draw] for chain in range(3) for draw in range(5, 10)]
