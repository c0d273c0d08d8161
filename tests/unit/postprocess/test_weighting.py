"""Weights: they lower the objective, stay close to equal, and are used by KSD and by expectations."""

from __future__ import annotations

import numpy as np
import pytest

import steinstream as ss
from steinstream.errors import InputError
from steinstream.result import History, Kept


def gaussian(seed=0, draws=5000, dim=10):
    x = np.random.default_rng(seed).normal(size=(draws, dim))
    return x, -x


def by_hand(points, scores=None, **more):
    ids = np.column_stack([np.zeros(len(points), np.int64), np.arange(len(points))])
    return Kept(points, -points if scores is None else scores, ids, 0.5, History.empty(), **more)


def objective_matrix(kept):
    """Matrix of the objective of a set that carries a summary of its stream, from the definition."""
    phi = kept.kernel.base_matrix
    x = kept.preconditioner.apply_to_draws(kept.draws)
    y, v = kept.preconditioner.apply_to_draws(kept.stream_summary.draws), kept.stream_summary.weights
    v = v / v.sum()
    means, mean = phi(x, y) @ v, v @ phi(y, y) @ v
    centred = (phi(x, x) - means[:, None] - means + mean) / (1.0 - mean)
    if kept.scores is None:
        return centred
    s = kept.preconditioner.apply_to_scores(kept.scores)
    stein = kept.kernel.matrix(x, s, x, s)
    return stein + kept.settings["trust"] * np.diag(stein).mean() * centred


# -- weights of kept draws -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("scores", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.95])
def test_weights_minimise_the_objective_with_this_effective_size(scores, share):
    x, s = gaussian(dim=4)
    kept = ss.thin(x, s if scores else None, size=60)
    weighted = kept.weighted(effective_share=share)
    w, details, matrix = weighted.weights, weighted.settings["weights"], objective_matrix(kept)
    assert w.min() >= 0 and w.sum() == pytest.approx(1.0, abs=1e-12)
    assert details["objective"] == pytest.approx(w @ matrix @ w, rel=1e-8)
    assert details["equal_weights_objective"] == pytest.approx(matrix.mean(), rel=1e-8)
    assert details["objective"] <= details["equal_weights_objective"] and 0 <= details["gap"] < 1e-8
    assert weighted.effective_size >= 60 * share * (1 - 1e-9)
    gradient = matrix @ w + details["penalty"] * w  # of the objective with its penalty, over two
    assert gradient.min() >= (w @ gradient) * (1 - 1e-6)  # no other weights are better
    assert details["penalty"] == 0 or weighted.effective_size < 60 * (share + 0.0101)
    assert kept.weights is None and kept.effective_size == 60.0 and "effective size" in repr(weighted)


def test_ksd_and_mmd_are_those_of_the_weighted_set():
    x, s = gaussian(dim=3)
    kept = ss.thin(x, s, size=40)
    weighted = kept.weighted()
    w = weighted.weights
    assert weighted.ksd == ss.ksd(kept.draws, kept.scores, preconditioner=kept.preconditioner, weights=w)
    y, v = kept.preconditioner.apply_to_draws(kept.stream_summary.draws), kept.stream_summary.weights / 5000
    z, phi = kept.preconditioner.apply_to_draws(kept.draws), kept.kernel.base_matrix
    square = w @ phi(z, z) @ w - 2 * w @ phi(z, y) @ v + v @ phi(y, y) @ v
    assert weighted.mmd == pytest.approx(np.sqrt(square), rel=1e-6)
    assert kept.bound is not None and weighted.bound is None and "bound" not in weighted.settings


def test_a_perfect_set_keeps_equal_weights():
    corners = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    assert by_hand(corners).weighted().weights == pytest.approx(np.full(4, 0.25), abs=1e-9)


def test_copies_have_equal_weights_and_together_that_of_one_without_a_penalty():
    x, s = gaussian(draws=30, dim=3)
    rows = np.append(np.arange(30), [4, 4, 11])
    once, twice = (kept.weighted(effective_share=0.0) for kept in (by_hand(x, s), by_hand(x[rows], s[rows])))
    together = np.bincount(rows, weights=twice.weights)
    assert together == pytest.approx(once.weights, abs=1e-8)
    assert len({twice.weights[4], twice.weights[30], twice.weights[31]}) == 1
    assert twice.ksd == pytest.approx(once.ksd, rel=1e-9)
    assert by_hand(x[rows], s[rows]).weighted(effective_share=0.9).effective_size >= 0.9 * 33 * (1 - 1e-9)


def test_a_chain_replaces_the_summary_of_the_stream():
    x, s = gaussian(draws=3000, dim=2)
    kept = ss.thin(x, s, size=40, preconditioner="identity")
    same = kept.weighted(like=x).weights
    assert same == pytest.approx(kept.weighted().weights, abs=1e-9)
    shifted = kept.weighted(like=x + np.array([0.3, 0.0]), effective_share=0.5)
    assert shifted.mean()[0] > kept.mean()[0] + 0.03 and shifted.settings["weights"]["like"] == "chain"
    assert kept.weighted(like=x.reshape(3, 1000, 2)).weights == pytest.approx(same, abs=1e-9)


def test_proportions_of_modes_stay_those_of_the_stream():
    from steinstream.targets import Mixture

    draws, scores = Mixture([[0.0, 0.0], [6.0, 0.0]], covariances=1.0, weights=[0.2, 0.8]).sample(10_000, seed=0)
    for given in (scores, None):
        weighted = ss.thin(draws, given, size=100).weighted()
        assert float(weighted.expect(lambda x: float(x[0] < 3.0))) == pytest.approx(0.2, abs=0.02)


def test_a_set_kept_by_ksd_alone_is_weighted_by_ksd_alone_unless_a_chain_is_given():
    from steinstream.targets import Mixture

    draws, scores = Mixture([[0.0, 0.0], [6.0, 0.0]], covariances=1.0, weights=[0.2, 0.8]).sample(10_000, seed=0)
    kept = ss.thin(draws, scores, size=100, stream_weight=0.0)
    alone, like = kept.weighted(effective_share=0.0), kept.weighted(like=draws, effective_share=0.0)
    assert alone.ksd < kept.ksd and np.isnan(alone.mmd)
    shares = [float(one.expect(lambda x: float(x[0] < 3.0))) for one in (kept, alone, like)]
    assert abs(shares[2] - 0.2) < 0.02 < 0.05 < abs(shares[0] - 0.2)


def test_a_coordinate_that_never_moves_does_no_harm():
    x, s = gaussian(draws=500, dim=2)
    x[:, 1], s[:, 1] = 3.0, 0.0
    weights = ss.thin(x, s, size=30).weighted().weights
    assert np.isfinite(weights).all() and weights.sum() == pytest.approx(1.0)


# -- weighted KSD and expectations ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", [ss.IMQ(), ss.IMQ(c=2.0, beta=-0.3), ss.RBF()])
def test_weighted_ksd_is_the_quadratic_form(kernel):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(150, 3))
    s, w = -x + 0.1 * rng.normal(size=x.shape), rng.random(150)
    w[::7] = 0.0
    scales = ss.Preconditioner.scales([1.0, 2.0, 0.5])
    matrix = kernel.matrix(*scales.apply(x, s), *scales.apply(x, s))
    expected = np.sqrt(w @ matrix @ w) / w.sum()
    assert ss.ksd(x, s, kernel=kernel, preconditioner=scales, weights=w) == pytest.approx(expected, rel=1e-12)
    assert ss.ksd(x, s, kernel=kernel, weights=np.full(150, 3.0)) == pytest.approx(
        ss.ksd(x, s, kernel=kernel), rel=1e-12
    )


def test_whole_weights_are_copies():
    x, s = gaussian(draws=20, dim=2)
    copies = np.random.default_rng(0).integers(0, 4, size=20)
    repeated = ss.ksd(np.repeat(x, copies, axis=0), np.repeat(s, copies, axis=0))
    assert ss.ksd(x, s, weights=copies) == pytest.approx(repeated, rel=1e-12)


@pytest.mark.parametrize("weights", [[1.0], [1.0, -1.0, 1.0], [0.0, 0.0, 0.0], [1.0, np.nan, 1.0], [np.inf, 1.0, 1.0]])
def test_weights_that_are_none_are_refused(weights):
    x = np.arange(6.0).reshape(3, 2)
    with pytest.raises(InputError, match="3 non-negative numbers"):
        ss.ksd(x, -x, weights=weights)


def test_expectations_use_the_weights_and_run_nothing_for_zero():
    points = np.array([[1.0], [2.0], [4.0], [2.0]])
    kept = by_hand(points, weights=np.array([0.5, 0.25, 0.0, 0.25]))
    calls = []
    assert kept.expect(lambda x: calls.append(x[0]) or x[0]) == pytest.approx(1.5)
    assert sorted(calls) == [1.0, 2.0]
    assert kept.expect(lambda x: x[0], weights=np.ones(4)) == pytest.approx(2.25)


@pytest.mark.parametrize("wrong", [[np.inf] * 10, [1.0] * 9 + [np.nan], [-1.0] + [1.0] * 9, ["a"] * 10, [1.0] * 9])
def test_expectations_refuse_weights_that_are_none(wrong):
    x, s = gaussian(draws=50, dim=2)
    with pytest.raises(InputError, match="10 non-negative numbers"):
        ss.thin(x, s, size=10).expect(lambda point: point, weights=wrong)


def test_what_cannot_be_weighed_is_refused():
    x, s = gaussian(draws=50, dim=2)
    kept = ss.thin(x, s, size=10)
    for share in (-0.1, 1.0, np.nan, "0.5"):
        with pytest.raises(InputError, match="effective_share must be a number from 0 to below 1"):
            kept.weighted(effective_share=share)
    with pytest.raises(InputError, match=r"shape \(9, 5\), but the kept draws have 2 dimensions"):
        kept.weighted(like=np.ones((9, 5)))
    with pytest.raises(InputError, match=r"shape \(9,\)"):
        kept.weighted(like=np.ones(9))
    with pytest.raises(InputError, match="must be finite"):
        kept.weighted(like=[[np.nan, 1.0]])
    with pytest.raises(InputError, match="The kept set is empty"):
        by_hand(np.zeros((0, 2))).weighted()
    with pytest.raises(InputError, match="GB of memory"):
        by_hand(np.zeros((10_001, 1))).weighted()
