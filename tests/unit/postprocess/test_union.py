"""The union of kept sets has their KSD and MMD, before and after draws are removed."""

from __future__ import annotations

import numpy as np
import pytest

import steinstream as ss
from steinstream.postprocess._union import Union


def parts(count=3, scores=True):
    rng = np.random.default_rng(0)
    chains = [rng.normal(0.3 * k, 1.0, size=(400, 2)) for k in range(count)]
    return [ss.thin(x, -x if scores else None, 12, preconditioner="identity") for x in chains]


def union_of(sets, mass, stream_weight=1.0):
    return Union(sets, np.array(mass), ss.ThinConfig(stream_weight=stream_weight), ss.Preconditioner.identity())


def squared_ksd(draws, scores, masses):
    shares = masses / masses.sum()
    return shares @ ss.IMQ().matrix(draws, scores, draws, scores) @ shares


def test_the_union_has_the_ksd_of_all_draws_with_their_masses():
    sets, mass = parts(), [1.0, 2.0, 5.0]
    union = union_of(sets, mass)
    draws, scores = (np.concatenate([getattr(kept, name) for kept in sets]) for name in ("draws", "scores"))
    masses = np.repeat(np.array(mass) / 12, 12)
    assert union.squares.ksd == pytest.approx(squared_ksd(draws, scores, masses), rel=1e-9)
    for kept, squares in zip(sets, union.squares_of_parts, strict=True):
        assert squares.ksd == pytest.approx(squared_ksd(kept.draws, kept.scores, np.ones(12)), rel=1e-9)


@pytest.mark.parametrize("stream_weight", [0.0, 1.0])
def test_after_thinning_ksd_is_that_of_the_draws_that_are_left(stream_weight):
    union = union_of(parts(), [1.0, 1.0, 1.0], stream_weight)
    union.thin(10, None)
    kept = union.kept({})
    assert len(kept) == 10 and kept.weights is None
    assert kept.ksd**2 == pytest.approx(squared_ksd(kept.draws, kept.scores, np.ones(10)), rel=1e-9)
    assert np.isnan(kept.mmd) == (stream_weight == 0.0)


def test_without_size_and_budget_nothing_is_removed():
    union = union_of(parts(), [1.0, 1.0, 1.0])
    union.thin(None, None)
    assert len(union.kept({})) == 36


def test_kept_draws_are_sorted_by_id_and_weighted_by_mass():
    sets = [ss.Kept(**{**vars(kept), "ids": kept.ids + np.array([2 - k, 0])}) for k, kept in enumerate(parts())]
    kept = union_of(sets, [1.0, 2.0, 5.0]).kept({})
    assert kept.ids.tolist() == sorted(kept.ids.tolist())
    shares = [kept.weights[kept.ids[:, 0] == chain].sum() for chain in range(3)]
    assert shares == pytest.approx([5 / 8, 2 / 8, 1 / 8])


def test_draws_without_scores_have_no_ksd():
    union = union_of(parts(scores=False), [1.0, 1.0, 1.0])
    before = union.squares
    union.thin(12, None)
    assert before.ksd is None and union.squares.ksd is None and union.squares.mmd > before.mmd
