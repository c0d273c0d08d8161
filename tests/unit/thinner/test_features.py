"""Features are sketched and whitened as NumPy does it, in any blocks, and the same after a checkpoint."""

from __future__ import annotations

import numpy as np
import pytest

from steinstream.thinner.features import FeatureMap


def whitened(window, at):
    """Return whitened principal components with 99.9 % of the variance, at most 32, of total variance 1/2."""
    centred = window - window.mean(axis=0)
    _, lengths, axes = np.linalg.svd(centred, full_matrices=False)
    variances = lengths**2 / (len(window) - 1)
    count = min(int(np.searchsorted(np.cumsum(variances) / variances.sum(), 0.999)) + 1, 32)
    return (at - window.mean(axis=0)) @ axes[:count].T / np.sqrt(2.0 * count * variances[:count])


def gram(points):
    """Return all inner products, which do not depend on the signs of the components."""
    return points @ points.T


def correlated(count, width, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, width)) * 2.0 ** -np.arange(width) @ rng.normal(size=(width, width)) + 5.0


@pytest.mark.parametrize("block", [1, 7, 50, 400])
@pytest.mark.parametrize("width", [1, 12, 60])
def test_the_components_are_those_of_the_draws_since_the_previous_doubling(width, block):
    x, map_ = correlated(400, width), FeatureMap(width)
    changes = []
    first = 0
    while first < len(x):
        rows = x[first : first + min(block, map_.steps_until_due(1))]
        first += len(rows)
        if map_.update(rows):
            changes.append(first)
    assert changes == [100, 200, 400]
    expected = whitened(x[200:], x)
    assert map_.components == expected.shape[1]
    assert np.allclose(gram(map_.apply(x)), gram(expected), rtol=1e-6, atol=1e-6)
    assert map_.apply(x[200:]).var(axis=0, ddof=1).sum() == pytest.approx(0.5)


def test_a_row_does_not_depend_on_the_others():
    x, map_ = correlated(300, 20), FeatureMap(20)
    map_.update(x)
    assert np.array_equal(map_.apply(x)[17], map_.apply(x[17:18])[0])


def test_a_sketch_is_linear_the_same_in_every_run_and_preserves_distances():
    map_, x = FeatureMap(5000), np.random.default_rng(0).normal(size=(40, 5000))
    matrix = map_.sketch(np.eye(5000))  # one row per coordinate: a sign in one of 512 places
    assert matrix.shape == (5000, 512) and set(np.abs(matrix).sum(axis=1)) == {1.0}
    sketches = map_.sketch(x)
    assert np.allclose(sketches, x @ matrix, atol=1e-9)
    assert np.array_equal(FeatureMap(5000).sketch(x), sketches)
    error = gram(sketches) / 5000 - gram(x) / 5000
    assert np.sqrt(np.mean(error**2)) < 0.07  # 1 / sqrt(512) is 0.044
    assert map_.sketch(x[:0]).shape == (0, 512)


def test_short_vectors_are_not_sketched():
    x = correlated(5, 512)
    assert FeatureMap(512).sketch(x) is x


def test_after_a_checkpoint_the_map_is_the_same_to_the_last_bit():
    x, whole = correlated(700, 30), FeatureMap(30)
    parts = FeatureMap(30)
    for first in range(0, 700, 25):
        whole.update(x[first : first + 25])
        parts.update(x[first : first + 25])
        state, parts = parts.state(), FeatureMap(30)
        parts.restore(state)
    assert np.array_equal(whole.apply(x), parts.apply(x))
    assert whole.components == parts.components


def test_constant_features_leave_the_map_as_it_is():
    map_ = FeatureMap(3)
    assert not map_.update(np.ones((200, 3)))
    assert map_.components == 3
