"""An order of use: the same draws, every prefix as good as the greedy rule makes it, and never again another set."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

import steinstream as ss
from steinstream.errors import InputError
from tests.streams import kernels, streams


def thinned(dim=4, size=40, seed=0, scores=True, **settings):
    x = np.random.default_rng(seed).normal(size=(2000, dim))
    return ss.thin(x, -x if scores else None, size=size, **settings)


def objective_matrix(kept):
    """Matrix of the objective of a set that carries a summary of its stream, from the definition."""
    phi = kept.kernel.base_matrix
    x = kept.preconditioner.apply_to_draws(kept.draws)
    y, v = kept.preconditioner.apply_to_draws(kept.stream_summary.draws), kept.stream_summary.weights
    v = v / v.sum()
    means, mean = phi(x, y) @ v, v @ phi(y, y) @ v
    centred = phi(x, x) - means[:, None] - means + mean
    if kept.scores is None:
        return centred, centred
    s = kept.preconditioner.apply_to_scores(kept.scores)
    stein = kept.kernel.matrix(x, s, x, s)
    kappa = np.diag(stein).mean()
    return stein + kept.settings["trust"] * kappa / (1.0 - mean) * centred, centred


@settings(deadline=None, max_examples=40)
@given(stream=streams(max_dim=6, max_length=25), kernel=kernels)
def test_the_order_is_a_permutation_and_its_curve_the_ksd_of_prefixes(stream, kernel):
    x, s = stream
    kept = ss.thin(
        x, s, growth="none", kernel=kernel, preconditioner=ss.Preconditioner.identity(), validate_scores=False
    )
    ordered = kept.ordered()
    rows = sorted(map(tuple, np.hstack([kept.ids, kept.draws, kept.scores]).tolist()))
    assert sorted(map(tuple, np.hstack([ordered.ids, ordered.draws, ordered.scores]).tolist())) == rows
    assert ordered.order.tolist() == list(range(len(kept)))
    for k in range(1, len(kept) + 1):
        value = ss.ksd(ordered.draws[:k], ordered.scores[:k], kernel=kernel)
        assert ordered.prefix_ksd[k - 1] == pytest.approx(value, rel=1e-12, abs=1e-15)
    assert ordered.prefix_ksd[-1] == kept.ksd  # sums are exact, so the order does not show in them


@pytest.mark.parametrize("scores", [True, False])
def test_each_next_draw_leaves_the_smallest_objective(scores):
    ordered = thinned(size=25, scores=scores).ordered()
    matrix, centred = objective_matrix(ordered)
    for k in range(1, len(ordered) + 1):
        sums = [matrix[np.ix_([*range(k - 1), j], [*range(k - 1), j])].sum() for j in range(k - 1, len(ordered))]
        assert sums[0] <= min(sums) + 1e-9 * np.abs(matrix).max()
        assert ordered.prefix_mmd[k - 1] == pytest.approx(np.sqrt(centred[:k, :k].mean()), rel=1e-6)


def test_a_set_kept_by_ksd_alone_is_ordered_by_ksd_alone():
    ordered = thinned(size=25, stream_weight=0.0).ordered()
    x, s = ordered.preconditioner.apply(ordered.draws, ordered.scores)
    matrix = ss.IMQ().matrix(x, s, x, s)
    for k in range(len(ordered)):
        cost = 0.5 * np.diag(matrix) + matrix[:, :k].sum(axis=1)
        assert cost[k] <= cost[k:].min() + 1e-9 * np.abs(cost).max()
    assert ordered.prefix_mmd is None and ordered.order is not None


def test_draws_without_scores_have_an_order_and_mmd_of_prefixes():
    kept = thinned(scores=False)
    ordered = kept.ordered()
    assert ordered.prefix_ksd is None and ordered.order is not None
    assert ordered.prefix_mmd[-1] == pytest.approx(kept.mmd, rel=1e-6)
    first = ordered.prefix(12)
    assert first.mmd == ordered.prefix_mmd[11] and np.isnan(first.ksd) and first.scores is None
    assert ordered.prefix(12, weighted=True).weights.sum() == pytest.approx(1.0)


def test_features_are_ordered_with_their_draws():
    x = np.random.default_rng(3).normal(size=(2000, 3))
    ordered = ss.thin(x, size=30, features=np.column_stack([x[:, 0] ** 2, x[:, 1]])).ordered()
    assert ordered.stream_summary.kept == pytest.approx(
        np.column_stack([ordered.draws[:, 0] ** 2, ordered.draws[:, 1]])
    )
    assert ordered.prefix_mmd[9] < 0.5 * ordered.prefix_mmd[0]


def test_a_set_without_a_summary_is_ordered_to_represent_itself():
    kept = replace(thinned(scores=False), stream_summary=None)
    ordered = kept.ordered()
    assert ordered.prefix_mmd[-1] == pytest.approx(0.0, abs=1e-6)  # of the whole set to itself


@pytest.mark.parametrize("scores", [True, False])
def test_prefixes_are_better_than_in_any_usual_order(scores):
    kept, random = thinned(dim=10, size=100, scores=scores), np.random.default_rng(0)
    matrix, _ = objective_matrix(kept)

    def curve(order):
        sums = np.cumsum(np.cumsum(matrix[np.ix_(order, order)], axis=0), axis=1)
        return np.diag(sums) / np.arange(1, 101) ** 2

    places = [kept.ids.tolist().index(id) for id in kept.ordered().ids.tolist()]
    ordered, shuffled = curve(places), np.mean([curve(random.permutation(100)) for _ in range(10)], axis=0)
    assert (ordered[:80] < 0.9 * shuffled[:80]).all() and (ordered[9:50] < 0.6 * shuffled[9:50]).all()
    assert (ordered[4:75] < curve(np.arange(100))[4:75]).all()


def test_ties_go_to_the_first_and_copies_stay():
    x = np.array([[1.0], [-1.0], [1.0], [0.0]])
    identity = ss.Preconditioner.identity()
    kept = ss.thin(x, -x, growth="none", preconditioner=identity, validate_scores=False, stream_weight=0.0)
    assert kept.ordered().ids[:, 1].tolist() == [3, 0, 1, 2]


def test_weights_travel_with_their_draws():
    weighted = thinned().weighted()
    ordered = weighted.ordered()
    for weight, id in zip(ordered.weights, ordered.ids.tolist(), strict=True):
        assert weight == weighted.weights[weighted.ids.tolist().index(id)]
    assert ordered.ksd == weighted.ksd
    assert np.array_equal(ordered.ids, thinned().ordered().ids)  # an order of the draws, not of the weights


def test_a_prefix_is_a_set_of_its_own():
    ordered = thinned().weighted().ordered()
    first = ordered.prefix(12)
    assert len(first) == 12 and first.weights is None and "weights" not in first.settings
    assert first.ksd == ordered.prefix_ksd[11] and np.array_equal(first.draws, ordered.draws[:12])
    weighted = ordered.prefix(12, weighted=True)
    assert weighted.weights.shape == (12,) and weighted.weights.sum() == pytest.approx(1.0)
    assert np.array_equal(weighted.weights, first.weighted().weights)
    assert ordered.prefix(1, weighted=True).weights.tolist() == [1.0]
    assert len(first.prefix(3)) == 3


def test_what_has_no_order_has_no_prefix():
    kept = thinned(size=5)
    assert kept.order is None
    with pytest.raises(InputError, match=r"ordered\(\) first"):
        kept.prefix(2)
    for count in (0, 6, True, 2.5, "2", None):
        with pytest.raises(InputError, match="an integer from 1 to 5, got"):
            kept.ordered().prefix(count)
    assert len(kept.ordered().prefix(np.int64(2))) == 2
    with pytest.raises(InputError, match="The kept set is empty"):
        ss.Kept(*(np.zeros((0, 2)),) * 2, np.zeros((0, 2), np.int64), 0.0, kept.history).ordered()
