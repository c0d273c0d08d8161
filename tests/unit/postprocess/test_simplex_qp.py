"""Minimisation over the simplex: the certificate holds, and scipy finds nothing better."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import steinstream as ss
from steinstream.postprocess._simplex_qp import minimise_on_simplex

optimize = pytest.importorskip("scipy.optimize", reason="compares with scipy")


def gaussian(seed=0, draws=5000, dim=10):
    x = np.random.default_rng(seed).normal(size=(draws, dim))
    return x, -x


def by_scipy(matrix):
    """w^T K w of the weights that scipy's non-negative least squares finds, on a root of K."""
    values, vectors = np.linalg.eigh(matrix)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))).T
    heavy = 1e4 * np.sqrt(max(values.max(), 1e-300))
    w, _ = optimize.nnls(np.vstack([root, np.full(len(matrix), heavy)]), np.append(np.zeros(len(matrix)), heavy))
    w /= w.sum()
    return w @ matrix @ w


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
    found = minimise_on_simplex(matrix)
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
    slsqp = optimize.minimize(
        lambda w: w @ matrix @ w, start, jac=lambda w: 2.0 * matrix @ w, bounds=[(0.0, 1.0)] * 40, method="SLSQP",
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1.0, "jac": lambda w: np.ones(40)},
        options={"ftol": 1e-15, "maxiter": 500},
    )  # fmt: skip
    found = minimise_on_simplex(matrix)
    assert found.value <= slsqp.fun * (1.0 + 1e-9)
    assert found.weights == pytest.approx(slsqp.x, abs=1e-5)
    assert found.gap < 1e-9 and 10 < np.count_nonzero(found.weights) < 40


def test_scores_of_a_hundred_thousand_do_not_spoil_the_proof():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 4))
    s = -x.copy()
    s[:25] *= 10.0 ** rng.uniform(0, 5, size=(25, 1))
    found = minimise_on_simplex(ss.IMQ().matrix(x, s, x, s))
    alone = minimise_on_simplex(ss.IMQ().matrix(x[25:], s[25:], x[25:], s[25:]))
    assert found.gap < 1e-8
    assert found.value <= alone.value * (1.0 + 1e-8)  # more points to choose from cannot hurt
    assert found.weights[np.abs(s).max(axis=1) > 1e3].sum() < 1e-2


def test_singular_matrices_and_zeros():
    assert minimise_on_simplex(np.ones((7, 7))).value == pytest.approx(1.0)
    assert minimise_on_simplex(np.zeros((3, 3))).weights == pytest.approx(np.full(3, 1 / 3))
    assert minimise_on_simplex(np.diag([1.0, 0.0, 2.0])).weights.tolist() == [0.0, 1.0, 0.0]
    assert minimise_on_simplex(np.array([[5.0]])).weights.tolist() == [1.0]
    plus_minus = np.array([[1.0, -1.0], [-1.0, 1.0]])
    assert minimise_on_simplex(plus_minus).weights == pytest.approx([0.5, 0.5], abs=1e-6)
