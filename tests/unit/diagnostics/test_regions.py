"""Partitions cover the draws, separate modes, and are the same for the same draws."""

from __future__ import annotations

import numpy as np

from steinstream.diagnostics.regions import kmeans_centres, partitions, region_membership


def test_every_draw_is_in_one_region_of_each_partition():
    x = np.random.default_rng(0).normal(size=(1000, 3))
    cells = partitions(x)
    assert [len(centres) for centres in cells] == [2, 4, 8, 16]
    assert (region_membership(x, cells).sum(axis=1) == len(cells)).all()


def test_two_modes_are_two_regions():
    x = np.random.default_rng(0).normal(size=(600, 2))
    x[:200] += 20.0
    centres = kmeans_centres(x, 2)
    assert sorted(region_membership(x, [centres]).sum(axis=0).tolist()) == [200, 400]


def test_the_same_draws_give_the_same_centres():
    x = np.random.default_rng(1).normal(size=(3000, 4))
    assert all(np.array_equal(a, b) for a, b in zip(partitions(x), partitions(x.copy()), strict=True))


def test_few_distinct_draws_have_few_regions():
    assert len(kmeans_centres(np.repeat([[0.0], [1.0]], 50, axis=0), 8)) == 2
