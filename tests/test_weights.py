"""Weights: proven optimal, right for what they promise, and kept by every file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize, nnls

import steinstream as ss
from steinstream.errors import InputError
from steinstream.io import open_chain, read_kept
from steinstream.postprocess._simplex_qp import least
from steinstream.postprocess.weighting import linear_term
from steinstream.result import History, Kept

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "posteriordb"
SUFFIXES = [
    ".npz",
    ".csv",
    ".csv.gz",
    pytest.param(".parquet", marks=pytest.mark.skipif("not __import__('importlib').util.find_spec('pyarrow')")),
]


def gaussian(seed=0, draws=5000, dim=10):
    x = np.random.default_rng(seed).normal(size=(draws, dim))
    return x, -x


def by_hand(points, scores=None, **more):
    empty = History(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    ids = np.column_stack([np.zeros(len(points), np.int64), np.arange(len(points))])
    return Kept(points, -points if scores is None else scores, ids, 0.5, empty, **more)


def by_scipy(matrix):
    """w^T K w of the weights that scipy's non-negative least squares finds, on a root of K."""
    values, vectors = np.linalg.eigh(matrix)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))).T
    heavy = 1e4 * np.sqrt(max(values.max(), 1e-300))
    w, _ = nnls(np.vstack([root, np.full(len(matrix), heavy)]), np.append(np.zeros(len(matrix)), heavy))
    w /= w.sum()
    return w @ matrix @ w


# -- the quadratic programme ---------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(
    count=st.integers(1, 25),
    rank=st.integers(1, 40),
    shift=st.sampled_from([0.0, 0.5, 3.0]),
    seed=st.integers(0, 2**32),
)
def test_no_weights_are_better_than_proven(count, rank, shift, seed):
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(count, rank)) + shift
    matrix = factor @ factor.T
    found = least(matrix)
    w, scale = found.weights, np.diag(matrix).max()
    assert w.min() >= 0 and abs(w.sum() - 1.0) < 1e-12
    assert found.value == pytest.approx(max(w @ matrix @ w, 0.0), rel=1e-9, abs=1e-13 * scale)
    if found.value > 1e-11 * scale:  # below that the gap is a matter of rounding
        assert found.gap < 1e-7
    lower = found.value * (1.0 - found.gap) ** 2
    tried = rng.dirichlet(np.full(count, 0.3), size=200)
    assert (np.einsum("ri,ij,rj->r", tried, matrix, tried) >= lower - 1e-12 * scale).all()
    assert found.value <= by_scipy(matrix) + 1e-9 * scale


def test_scipy_finds_the_same_weights():
    x, s = gaussian(draws=40, dim=2)
    matrix = ss.IMQ().matrix(x, s, x, s)
    start = np.full(40, 1.0 / 40)
    slsqp = minimize(
        lambda w: w @ matrix @ w, start, jac=lambda w: 2.0 * matrix @ w, bounds=[(0.0, 1.0)] * 40, method="SLSQP",
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1.0, "jac": lambda w: np.ones(40)},
        options={"ftol": 1e-15, "maxiter": 500},
    )  # fmt: skip
    found = least(matrix)
    assert found.value <= slsqp.fun * (1.0 + 1e-9)
    assert found.weights == pytest.approx(slsqp.x, abs=1e-5)
    assert found.gap < 1e-9 and 10 < np.count_nonzero(found.weights) < 40


def test_scores_of_a_hundred_thousand_do_not_spoil_the_proof():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 4))
    s = -x.copy()
    s[:25] *= 10.0 ** rng.uniform(0, 5, size=(25, 1))
    found = least(ss.IMQ().matrix(x, s, x, s))
    alone = least(ss.IMQ().matrix(x[25:], s[25:], x[25:], s[25:]))
    assert found.gap < 1e-8
    assert found.value <= alone.value * (1.0 + 1e-8)  # more points to choose from cannot hurt
    assert found.weights[np.abs(s).max(axis=1) > 1e3].sum() < 1e-2


def test_singular_matrices_and_zeros():
    assert least(np.ones((7, 7))).value == pytest.approx(1.0)
    assert least(np.zeros((3, 3))).weights == pytest.approx(np.full(3, 1 / 3))
    assert least(np.diag([1.0, 0.0, 2.0])).weights.tolist() == [0.0, 1.0, 0.0]
    assert least(np.array([[5.0]])).weights.tolist() == [1.0]
    plus_minus = np.array([[1.0, -1.0], [-1.0, 1.0]])
    assert least(plus_minus).weights == pytest.approx([0.5, 0.5], abs=1e-6)


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


def test_moments_in_blocks_are_moments_of_all():
    x = np.random.default_rng(0).normal(size=(3, 40, 2)) * [1.0, 1e3] + [1e6, 0.0]
    whole, parts = ss.Moments.of(x), ss.Moments.of(x[0, :7])
    for block in (x[0, 7:], x[1], x[2, :1], x[2, 1:]):
        parts.add(block)
    assert parts.count == whole.count == 120
    assert parts.mean == pytest.approx(whole.mean, rel=1e-12)
    assert parts.variances == pytest.approx(x.reshape(-1, 2).var(axis=0), rel=1e-9)


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
    with pytest.raises(InputError, match="5 dimensions, what is kept has 2"):
        kept.weighted(like=np.ones((9, 5)))
    with pytest.raises(InputError, match=r"shape \(9,\)"):
        kept.weighted(like=np.ones(9))
    with pytest.raises(InputError, match="not finite"):
        kept.weighted(like=[[np.nan, 1.0]])
    with pytest.raises(InputError, match="no draws"):
        kept.weighted(like=ss.Moments(2))
    with pytest.raises(InputError, match="Nothing is kept"):
        by_hand(np.zeros((0, 2))).weighted()
    with pytest.raises(InputError, match="GB of memory"):
        by_hand(np.zeros((10_001, 1))).weighted()


# -- files ---------------------------------------------------------------------------------------------------------


def refined(dim=2):
    x, s = gaussian(draws=300, dim=dim)
    return ss.thin(x, s, size=25).weighted().ordered()


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("names", [None, ("weight", "order"), ("chain", "score_weight"), ("a", "a")])
@pytest.mark.parametrize("what", ["both", "weights", "order", "neither"])
def test_a_weighted_file_is_read_as_the_same_draws(suffix, names, what, tmp_path):
    kept = replace(refined(), names=names)
    kept = replace(kept, weights=kept.weights if what in ("both", "weights") else None)
    kept = replace(kept, prefix_ksd=kept.prefix_ksd if what in ("both", "order") else None)
    kept.save(tmp_path / f"kept{suffix}")
    chain = open_chain(tmp_path / f"kept{suffix}")
    draws, scores, ids = (np.concatenate(part) for part in zip(*chain.blocks(), strict=True))
    assert chain.names == (names or ("x0", "x1"))
    assert np.array_equal(draws, kept.draws) and np.array_equal(scores, kept.scores) and np.array_equal(ids, kept.ids)


def test_a_table_has_a_column_of_weights_and_one_of_the_order(tmp_path):
    kept = refined()
    kept.save(tmp_path / "kept.csv")
    header = (tmp_path / "kept.csv").read_text().partition("\n")[0]
    assert header == "chain,draw,x0,x1,score_x0,score_x1,weight,order"
    table = np.loadtxt(tmp_path / "kept.csv", delimiter=",", skiprows=1)
    assert np.array_equal(table[:, 6], kept.weights) and np.array_equal(table[:, 7], np.arange(25))
    parquet = pytest.importorskip("pyarrow.parquet")
    kept.save(tmp_path / "kept.parquet")
    table = parquet.read_table(tmp_path / "kept.parquet")
    assert np.array_equal(table["weight"], kept.weights) and table["order"].to_pylist() == list(range(25))
    assert json.loads(table.schema.metadata[b"steinstream"])["settings"]["weights"]["linear"] == 30.0


def test_columns_moved_by_another_tool_still_name_no_parameter(tmp_path):
    refined().save(tmp_path / "kept.csv")
    rows = [line.split(",") for line in (tmp_path / "kept.csv").read_text().splitlines()]
    (tmp_path / "moved.csv").write_text("\n".join(",".join(row[-2:] + row[:-2]) for row in rows))
    assert open_chain(tmp_path / "moved.csv").names == ("x0", "x1")


def test_npz_gives_the_kept_set_back(tmp_path):
    x, s = gaussian(draws=500, dim=3)
    for kernel in (ss.IMQ(c=2.0, beta=-0.25), ss.RBF(), ss.RBF(h=0.5)):
        kept = replace(ss.thin(x, s, size=20, kernel=kernel).weighted().ordered(), names=("a", "b", "c"))
        kept.save(tmp_path / "kept.npz")
        again = Kept.load(tmp_path / "kept.npz")
        for name in ("points", "scores", "ids", "weights", "prefix_ksd", "order"):
            assert np.array_equal(getattr(again, name), getattr(kept, name)), name
        assert again.kernel == kernel and again.names == kept.names and again.settings == kept.settings
        assert np.array_equal(again.preconditioner.factor, kept.preconditioner.factor) and again.ksd == kept.ksd
        assert all(np.array_equal(a, b) for a, b in zip(again.history, kept.history, strict=True))
        assert np.array_equal(again.weighted().weights, kept.weighted().weights)


def test_npz_gives_the_variables_back_in_the_order_of_the_draws(tmp_path):
    x, s = gaussian(draws=200, dim=2)
    kept = ss.thin(x, s, size=10)
    variables = {
        "sigma": ss.Variable(np.exp(kept.draws[:, 0])),
        "a/b": ss.Variable(np.arange(40).reshape(10, 2, 2), ("school", "time"), {"school": np.array(["A", "B"])}),
    }
    ordered = replace(kept, variables=variables).ordered()
    assert np.array_equal(ordered.variables["sigma"].values, np.exp(ordered.draws[:, 0]))
    ordered.save(tmp_path / "kept.npz")
    again = Kept.load(tmp_path / "kept.npz").variables
    assert list(again) == ["sigma", "a/b"] and again["a/b"].dims == ("school", "time") and again["sigma"].dims == ()
    assert np.array_equal(again["a/b"].values, ordered.variables["a/b"].values)
    assert again["a/b"].coords["school"].tolist() == ["A", "B"] and again["sigma"].coords == {}


def test_what_is_no_kept_set_is_not_loaded(tmp_path):
    np.savez(tmp_path / "chain.npz", draws=np.ones((3, 2)), scores=np.ones((3, 2)))
    with pytest.raises(InputError, match="no kept set: it has no history_ksd"):
        read_kept(tmp_path / "chain.npz")
    (tmp_path / "text.npz").write_text("no zip")
    with pytest.raises(InputError, match="cannot be read as npz"):
        read_kept(tmp_path / "text.npz")
    kept = refined()
    kept.save(tmp_path / "kept.csv")
    with pytest.raises(InputError, match="does not remember kernel"):
        read_kept(tmp_path / "kept.csv")
    replace(kept, weights=kept.weights[:-1]).save(tmp_path / "kept.npz")
    with pytest.raises(InputError, match=r"weights has shape \(24,\), expected \(25,\)"):
        read_kept(tmp_path / "kept.npz")
    with pytest.raises(InputError, match="no such file"):
        read_kept(tmp_path / "kep.npz")
