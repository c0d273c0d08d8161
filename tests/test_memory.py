"""Memory depends on the number of kept draws, not on the length of the stream."""

from __future__ import annotations

import tracemalloc

import numpy as np

import steinstream as ss


def peak(work):
    """Megabytes that the work takes at its height, compilation left out."""
    work(200)
    tracemalloc.start()
    try:
        work(None)
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


def test_ksd_of_many_points_needs_no_matrix():
    x = np.random.default_rng(0).normal(size=(20_000, 3))
    assert peak(lambda count: ss.ksd(x[:count], -x[:count])) < 20  # the matrix would take 3200


def test_a_long_stream_leaves_no_trace():
    rng = np.random.default_rng(0)

    def work(blocks):
        thinner = ss.Thinner(4, size=100)
        for _ in range(blocks or 300):
            x = rng.normal(size=(1000, 4))
            thinner.extend(x, -x)

    assert peak(work) < 6  # the summary and the subsample of the stream, and both during a change of coordinates


def test_few_draws_with_many_parameters_need_the_memory_of_these_draws():
    x = np.random.default_rng(0).normal(size=(2, 20_000))
    assert peak(lambda count: ss.thin(x, size=1)) < 100  # a full summary of the stream would take 2000
