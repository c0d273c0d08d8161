"""Weights: they lower the objective, match the moments of a chain, and are used by KSD and by expectations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import steinstream as ss
from steinstream.errors import InputError
from steinstream.postprocess.weighting import linear_term
from steinstream.result import History, Kept

DATA = Path(__file__).resolve().parents[4] / "shared" / "data" / "posteriordb"


def gaussian(seed=0, draws=5000, dim=10):
    x = np.random.default_rng(seed).normal(size=(draws, dim))
    return x, -x


def by_hand(points, scores=None, **more):
    empty = History(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    ids = np.column_stack([np.zeros(len(points), np.int64), np.arange(len(points))])
    return Kept(points, -points if scores is None else scores, ids, 0.5, empty, **more)


# -- weights of kept draws -----------------------------------------------------------------------------------------


def test_weights_lower_ksd_and_never_more_than_proven():
    x, s = gaussian()
    kept = ss.thin(x, s, size=60)
    weighted = kept.weighted(linear=0.0)
    assert weighted.weights.min() >= 0 and weighted.weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert weighted.ksd < kept.ksd
    assert weighted.ksd == ss.ksd(
        kept.draws, kept.scores, kernel=kept.kernel, preconditioner=kept.preconditioner, weights=weighted.weights
    )
    assert 0 <= weighted.settings["weights"]["gap"] < 1e-8
    assert 1.0 <= weighted.effective_size < 60 and "effective size" in repr(weighted)
    assert kept.weights is None and kept.effective_size == 60.0


def test_a_perfect_set_keeps_equal_weights():
    corners = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    for linear in (0.0, 30.0):
        assert by_hand(corners).weighted(linear=linear).weights == pytest.approx(np.full(4, 0.25), abs=1e-9)


def test_copies_share_what_one_would_get():
    x, s = gaussian(draws=30, dim=3)
    rows = np.append(np.arange(30), [4, 4, 11])
    once, twice = by_hand(x, s).weighted(), by_hand(x[rows], s[rows]).weighted(linear=30.0)
    together = np.bincount(rows, weights=twice.weights)
    assert together == pytest.approx(once.weights, abs=1e-8)
    assert len({twice.weights[4], twice.weights[30], twice.weights[31]}) == 1
    assert twice.ksd == pytest.approx(once.ksd, rel=1e-9)


def test_the_linear_term_is_the_stein_kernel_of_a_linear_base_kernel():
    rng = np.random.default_rng(0)
    x, s = rng.normal(size=(5, 3)), rng.normal(size=(5, 3))
    matrix, step = linear_term(x, s), 1e-5

    def base(a, b):
        return 1.0 + a @ b

    for i in range(5):
        for j in range(5):
            value = base(x[i], x[j]) * (s[i] @ s[j])
            for e in np.eye(3) * step:
                value += s[i] @ (e / step) * (base(x[i], x[j] + e) - base(x[i], x[j] - e)) / (2 * step)
                value += s[j] @ (e / step) * (base(x[i] + e, x[j]) - base(x[i] - e, x[j])) / (2 * step)
                mixed = base(x[i] + e, x[j] + e) - base(x[i] + e, x[j] - e) - base(x[i] - e, x[j] + e)
                value += (mixed + base(x[i] - e, x[j] - e)) / (4 * step**2)
            assert matrix[i, j] == pytest.approx(value, rel=1e-4, abs=1e-4)


def test_a_gaussian_gets_its_second_moments_back():
    x, s = gaussian(seed=1, draws=10_000)
    kept = ss.thin(x, s, size=100)
    weighted = kept.weighted()
    before, after = (np.abs(k.expect(lambda z: z**2) - 1.0) for k in (kept, weighted))
    assert before.mean() > 0.04  # too narrow: there is something to repair
    assert after.max() < 0.02
    assert np.abs(weighted.expect(lambda z: z)).max() < 0.001


@pytest.mark.skipif(not DATA.is_dir(), reason=f"the reference draws are not in {DATA}")
@pytest.mark.parametrize("path", sorted(DATA.glob("*.npz")), ids=lambda path: path.stem.partition("-")[2])
@pytest.mark.parametrize(("kernel", "seed"), [(ss.IMQ(), None), (ss.IMQ(linear=1.0), None), (ss.IMQ(linear=1.0), 4)])
def test_like_the_chain_means_its_moments(path, kernel, seed):
    with np.load(path) as file:
        draws, scores = file["draws"], file["scores"]
    if seed is not None:  # an order in which diamonds kept without the linear term would fail
        order = np.random.default_rng(seed).permutation(len(draws))
        draws, scores = draws[order], scores[order]
    weighted = ss.thin(draws, scores, size=100, kernel=kernel).weighted(like=draws)
    chain = draws.reshape(-1, draws.shape[-1])
    mean, variance = chain.mean(axis=0), chain.var(axis=0)
    assert np.abs((weighted.expect(lambda z: z) - mean) / np.sqrt(variance)).max() < 0.02
    assert np.abs(weighted.expect(lambda z: (z - mean) ** 2) / variance - 1.0).max() < 0.02
    assert weighted.settings["weights"]["gap"] < 1e-8


def test_weights_alone_do_not_repair_the_proportions_of_modes():
    from steinstream.targets import Mixture

    draws, scores = Mixture([[0.0, 0.0], [6.0, 0.0]], covariances=1.0, weights=[0.2, 0.8]).sample(10_000, seed=0)
    kept = ss.thin(draws, scores, size=100)
    share = {
        name: float(weighted.expect(lambda x: float(x[0] < 3.0)))
        for name, weighted in (("stein", kept.weighted()), ("like", kept.weighted(like=draws)))
    }
    assert share["stein"] < 0.1 < 0.18 < share["like"] < 0.22


def test_a_coordinate_that_never_moves_does_no_harm():
    x, s = gaussian(draws=500, dim=2)
    x[:, 1], s[:, 1] = 3.0, 0.0
    kept = ss.thin(x, s, size=30)
    assert kept.weighted(like=x).expect(lambda z: z[0] ** 2) == pytest.approx(
        x[:, 0].var() + x[:, 0].mean() ** 2, rel=1e-2
    )


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


def test_weights_make_what_they_say_small_and_bring_no_bound():
    x, s = gaussian(draws=3000, dim=2)
    kept = ss.thin(x, s, size=20)
    assert kept.bound is not None
    plain, default = kept.weighted(linear=0.0), kept.weighted()
    assert plain.ksd < kept.ksd < default.ksd  # the linear term has its price in KSD
    for weighted in (plain, default, kept.weighted(like=x)):
        assert weighted.bound is None and "bound" not in weighted.settings


@pytest.mark.parametrize("wrong", [[np.inf] * 10, [1.0] * 9 + [np.nan], [-1.0] + [1.0] * 9, ["a"] * 10, [1.0] * 9])
def test_expectations_refuse_weights_that_are_none(wrong):
    x, s = gaussian(draws=50, dim=2)
    with pytest.raises(InputError, match="10 non-negative numbers"):
        ss.thin(x, s, size=10).expect(lambda point: point, weights=wrong)


def test_what_cannot_be_weighed_is_refused():
    x, s = gaussian(draws=50, dim=2)
    kept = ss.thin(x, s, size=10)
    with pytest.raises(InputError, match="at least 0"):
        kept.weighted(linear=-1.0)
    with pytest.raises(InputError, match="5 dimensions, the kept draws 2"):
        kept.weighted(like=np.ones((9, 5)))
    with pytest.raises(InputError, match=r"shape \(9,\)"):
        kept.weighted(like=np.ones(9))
    with pytest.raises(InputError, match="must be finite"):
        kept.weighted(like=[[np.nan, 1.0]])
    with pytest.raises(InputError, match="no draws"):
        kept.weighted(like=ss.Moments(2))
    with pytest.raises(InputError, match="The kept set is empty"):
        by_hand(np.zeros((0, 2))).weighted()
    with pytest.raises(InputError, match="GB of memory"):
        by_hand(np.zeros((10_001, 1))).weighted()
