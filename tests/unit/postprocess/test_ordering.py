"""An order of use: the same draws, every prefix as good as the greedy rule makes it, and never again another set."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

import steinstream as ss
from steinstream.errors import InputError
from tests.streams import kernels, streams


def thinned(dim=4, size=40, seed=0):
    x = np.random.default_rng(seed).normal(size=(2000, dim))
    return ss.thin(x, -x, size=size)


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


def test_each_next_draw_is_the_best_one():
    kept = thinned(size=25)
    ordered = kept.ordered()
    x, s = kept.preconditioner.apply(ordered.draws, ordered.scores)
    matrix = ss.IMQ().matrix(x, s, x, s)
    for k in range(len(kept)):
        cost = 0.5 * np.diag(matrix) + matrix[:, :k].sum(axis=1)
        assert cost[k] <= cost[k:].min() + 1e-9 * np.abs(cost).max()


def test_prefixes_are_better_than_in_any_usual_order():
    kept = thinned(dim=10, size=100)
    ordered, random = kept.ordered().prefix_ksd, np.random.default_rng(0)

    def curve(order):
        return ss.cumulative_ksd(kept.draws[order], kept.scores[order], preconditioner=kept.preconditioner)

    shuffled = np.mean([curve(random.permutation(100)) for _ in range(10)], axis=0)
    assert (ordered[:90] < 0.9 * shuffled[:90]).all() and (ordered[9:50] < 0.7 * shuffled[9:50]).all()
    assert (ordered[4:75] < curve(np.arange(100))[4:75]).all()


def test_ties_go_to_the_first_and_copies_stay():
    x = np.array([[1.0], [-1.0], [1.0], [0.0]])
    kept = ss.thin(x, -x, growth="none", preconditioner=ss.Preconditioner.identity(), validate_scores=False)
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
