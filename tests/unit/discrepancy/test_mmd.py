"""The distance to a stream is the MMD of the textbook formula, and vanishes for the stream itself."""

from __future__ import annotations

import numpy as np
import pytest

import steinstream as ss
from steinstream.discrepancy.mmd import StreamDistance, summarise_points

KERNELS = [ss.IMQ(), ss.IMQ(c=2.0, beta=-0.3), ss.RBF(h=1.5)]


def stream(kernel, count=40, seed=0):
    rng = np.random.default_rng(seed)
    return StreamDistance(kernel, rng.normal(size=(count, 3)), rng.integers(1, 9, count).astype(float))


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_the_squared_mmd_is_the_quadratic_form_of_all_points(kernel):
    distance, rng = stream(kernel), np.random.default_rng(1)
    points, shares = rng.normal(size=(7, 3)) + 1.0, rng.dirichlet(np.ones(7))
    everything = np.vstack([points, distance.points])
    signed = np.concatenate([shares, -distance.weights / distance.weights.sum()])
    expected = signed @ kernel.base_matrix(everything, everything) @ signed
    assert distance.squared_mmd(points, shares) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_the_centred_matrix_has_the_same_quadratic_form(kernel):
    distance, rng = stream(kernel), np.random.default_rng(2)
    points, shares = rng.normal(size=(9, 3)), rng.dirichlet(np.ones(9))
    matrix = distance.centred_matrix(points)
    assert shares @ matrix @ shares == pytest.approx(distance.squared_mmd(points, shares), rel=1e-9)


def test_the_stream_has_no_distance_to_itself_in_any_unit_of_its_weights():
    distance = stream(ss.IMQ())
    shares = distance.weights / distance.weights.sum()
    assert distance.squared_mmd(distance.points, shares) == pytest.approx(0.0, abs=1e-14)
    other = StreamDistance(distance.kernel, distance.points, 1000.0 * distance.weights)
    points = distance.points[:5]
    assert other.squared_mmd(points, np.full(5, 0.2)) == pytest.approx(distance.squared_mmd(points, np.full(5, 0.2)))


def test_the_weight_is_that_of_the_objective_and_0_without_spread():
    distance, shares = stream(ss.IMQ()), np.full(4, 0.25)
    spread = distance.own - distance.mean
    assert distance.weight(2.0, np.array([1.0, 2.0, 3.0, 6.0]), shares) == pytest.approx(2.0 * 3.0 / spread)
    assert distance.weight(2.0, None, shares) == pytest.approx(1.0 / spread)
    constant = StreamDistance(ss.IMQ(), np.ones((5, 3)), np.ones(5))
    assert constant.weight(2.0, None, shares) == 0.0


def test_a_summary_represents_every_point_once():
    points = np.random.default_rng(3).normal(size=(5000, 2))
    rows, weights = summarise_points(ss.IMQ(), points)
    assert len(rows) < 2000 and weights.sum() == 5000 and len(np.unique(rows)) == len(rows)
    whole = StreamDistance(ss.IMQ(), points, np.ones(5000))
    spaced = points[:: 5000 // len(rows)]
    assert whole.squared_mmd(points[rows], weights / 5000) < 0.1 * whole.squared_mmd(
        spaced, np.full(len(spaced), 1 / len(spaced))
    )
