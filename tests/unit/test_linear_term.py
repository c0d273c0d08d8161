"""A linear term in the base kernel: the formula, in every place where the kernel is computed, and its effect."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings

import steinstream as ss
from steinstream._engine.compiled_kernel import compile_kernel
from steinstream._engine.linalg import stein_matrix
from steinstream.baselines import kernel_thinning, stein_thinning
from steinstream.discrepancy.ksd import squared_ksd_debiased
from steinstream.kernels import PROFILES
from tests.streams import kernels, streams
from tests.thinners import ksd_thinner, thin_by_ksd


def stein_kernel(base, gradients, mixed, sx, sy):
    """<s_x, s_y> k + <s_x, grad_y k> + <s_y, grad_x k> + trace of the mixed derivatives."""
    grad_x, grad_y = gradients
    return sx @ sy * base + sx @ grad_y + sy @ grad_x + mixed


@settings(max_examples=40, deadline=None)
@given(streams(max_dim=8, max_length=6, min_length=2))
def test_the_linear_part_is_the_stein_kernel_of_its_base_kernel(stream):
    x, s = stream
    b, dim = 0.7, x.shape[1]
    part = ss.IMQ(linear=b).matrix(x, s, x, s) - ss.IMQ().matrix(x, s, x, s)
    for i in range(len(x)):
        for j in range(len(x)):
            expected = stein_kernel(b * (1 + x[i] @ x[j]), (b * x[j], b * x[i]), b * dim, s[i], s[j])
            terms = b * np.abs(s[i]) @ np.abs(s[j]) * (1 + np.abs(x[i]) @ np.abs(x[j])) + b * dim
            assert part[i, j] == pytest.approx(expected, abs=1e-13 * dim * (terms + np.abs(s).max() * np.abs(x).max()))


@settings(max_examples=40, deadline=None)
@given(streams(max_dim=10, max_length=20), kernels)
def test_the_diagonal_is_the_matrix_diagonal(stream, kernel):
    x, s = stream
    matrix = kernel.matrix(x, s, x, s)
    assert kernel.diagonal(s, x) == pytest.approx(np.diag(matrix), rel=1e-11)
    if kernel.linear:
        with pytest.raises(ss.SteinstreamError, match="depends on the draws"):
            kernel.diagonal(s)


def test_a_small_set_is_as_wide_as_the_target():
    """The second moment of 200 draws in ten dimensions, which the plain kernel lets shrink by a fifth."""
    x = np.random.default_rng(0).normal(size=(10_000, 10))
    errors = {}
    for linear in (0.0, 1.0):
        thinner = ksd_thinner(10, size=200, kernel=ss.IMQ(linear=linear))
        thinner.extend(x, -x)
        errors[linear] = abs((thinner.kept.draws**2).mean() - 1.0)
    assert errors[0.0] > 0.15 and errors[1.0] < 0.01


def test_coordinates_of_any_kind_and_ksd_of_arrays_know_the_term():
    x = np.random.default_rng(1).normal(size=(400, 3)) * [1.0, 10.0, 0.1]
    s = -x / np.array([1.0, 100.0, 0.01])
    kernel = ss.IMQ(linear=0.5)
    preconditioner = ss.Preconditioner.estimate("covariance", x)
    thinner = ksd_thinner(3, size=40, kernel=kernel, preconditioner=preconditioner)
    thinner.extend(x, s)
    kept = thinner.kept
    y, t = preconditioner.apply(kept.draws, kept.scores)
    square = math.fsum(kernel.matrix(y, t, y, t).ravel()) / len(y) ** 2
    assert kept.ksd == ss.ksd(kept.draws, kept.scores, kernel=kernel, preconditioner=preconditioner)
    assert kept.ksd**2 == pytest.approx(square, rel=1e-10)


def test_a_checkpoint_keeps_the_term(tmp_path):
    x = np.random.default_rng(2).normal(size=(200, 2))
    for kernel in (ss.IMQ(linear=0.25), ss.RBF(h=2.0, linear=0.25)):
        thinner = ksd_thinner(2, kernel=kernel)
        thinner.extend(x[:100], -x[:100])
        thinner.save(tmp_path / "run.npz")
        loaded = ss.Thinner.load(tmp_path / "run.npz")
        assert loaded.kernel == kernel and repr(kernel).endswith("linear=0.25)")
        for one in (thinner, loaded):
            one.extend(x[100:], -x[100:])
        assert np.array_equal(thinner.kept.ids, loaded.kept.ids) and thinner.ksd == loaded.ksd


def test_the_bound_knows_the_term():
    """The recursion's kappa is the mean of k0(x, x), and the mean over many streams is below it."""
    kernel, squares, bounds = ss.IMQ(linear=0.5), [], []
    for seed in range(20):
        x = np.random.default_rng(seed).normal(size=(400, 3))
        thinner = ksd_thinner(3, kernel=kernel, growth="none")
        thinner.extend(x, -x)
        squares.append(thinner.ksd**2)
        bounds.append(thinner.bound**2)
        late = kernel.diagonal(-x[127:], x[127:]).mean()  # between half and three quarters of all
        assert thinner.bound**2 == pytest.approx(late / 400, rel=0.2)
    assert np.mean(squares) < 1.2 * np.mean(bounds)


def test_second_scores_go_with_it():
    """Unbiased: noise raises k0(x, x) by its mean square times phi(0) + b (1 + |x|^2)."""
    kernel, preconditioner = ss.IMQ(c=2.0, linear=0.7), ss.Preconditioner.scales([2.0, 0.5])
    x = np.array([[3.0, 1.0], [-3.0, 0.5], [0.0, 1.0]])
    rng = np.random.default_rng(0)
    excess = (0.5 + 0.7) * 0.25 * (4.0 + 0.25)  # noise of variance 1/4 in scores that are scaled by 2 and 1/2
    noise = 0.5 * rng.normal(size=(2000, *x.shape))  # about scores of 0
    estimates = [squared_ksd_debiased(x, check, excess, kernel, preconditioner) for check in noise]
    true, error = (
        ss.ksd(x, 0.0 * x, kernel=kernel, preconditioner=preconditioner) ** 2,
        np.std(estimates) / np.sqrt(2000),
    )
    assert abs(np.mean(estimates) - true) < 4.0 * error < 0.2 * excess

    y = rng.normal(size=(20_000, 2))
    thinner = ksd_thinner(2, kernel=kernel, size=5, preconditioner=preconditioner)
    thinner.extend(y, -y + 0.5 * rng.normal(size=y.shape), second_scores=-y + 0.5 * rng.normal(size=y.shape))
    assert thinner.kept.settings["second_scores_noise"] == pytest.approx(excess, rel=0.05)


def test_estimated_coordinates_have_a_centre(steinstream, tmp_path):
    x = np.random.default_rng(4).normal(size=(1000, 3)) + 100.0
    s = 100.0 - x
    kernel = ss.IMQ(linear=1.0)
    kept = thin_by_ksd(x, s, size=50, kernel=kernel)
    assert kept.preconditioner.centre == pytest.approx([100.0] * 3, abs=0.2)
    assert abs(((kept.draws - 100.0) ** 2).mean() - 1.0) < 0.05
    np.savez(tmp_path / "chain.npz", draws=x, scores=s)
    options = ("--size", 50, "--kernel", "imq:linear=1", "--stream-weight", 0)
    ran = steinstream("thin", "chain.npz", "-o", "kept.npz", *options)
    assert ran.returncode == 0, ran.stderr
    read = ss.Kept.load(tmp_path / "kept.npz")
    assert read.kernel == kernel and np.array_equal(read.ids, kept.ids) and read.ksd == kept.ksd
    live = thin_by_ksd(x, s, size=50, kernel=kernel, preconditioner="streaming")
    assert live.preconditioner.centre == pytest.approx([100.0] * 3, abs=0.3)


def test_other_methods_use_it_or_say_no():
    x = np.random.default_rng(3).normal(size=(60, 2))
    kernel = ss.IMQ(linear=0.3)
    ids = stein_thinning(x, -x, 10, kernel=kernel, preconditioner="identity")
    matrix, chosen = kernel.matrix(x, -x, x, -x), []
    for _ in range(10):
        sums = [matrix[i, i] / 2 + math.fsum(matrix[i, chosen]) for i in range(len(x))]
        chosen.append(int(np.argmin(sums)))
    assert ids[:, 1].tolist() == chosen
    pytest.importorskip("goodpoints")
    assert len(kernel_thinning(x, -x, 15, kernel=kernel)) == 15


def test_numbers_that_would_overflow_are_refused():
    """The term multiplies squares of scores and draws."""
    x = np.array([[1.0], [1e60]])
    kernel = ss.IMQ(linear=1.0)
    for refused in (
        lambda: ksd_thinner(1, kernel=kernel).extend(x, -x),
        lambda: ksd_thinner(1, kernel=kernel, initial=(x, -x)),
        lambda: ss.ksd(x, -x, kernel=kernel),
    ):
        with pytest.raises(ss.SteinstreamError, match="draw 1 is 1e\\+60, above the limit of 1e\\+50, in coordinate 0"):
            refused()
    thinner = ksd_thinner(1, kernel=kernel, on_bad="skip")
    thinner.extend(x, -x)
    assert thinner.skipped == 1 and np.isfinite(thinner.ksd) and np.isfinite(ss.ksd(x, -x))


@settings(max_examples=40, deadline=None)
@given(streams(max_dim=8, max_length=24), kernels)
def test_the_numpy_reference_gives_equal_rows_equal_values(stream, kernel):
    x, s = (np.repeat(part, 3, axis=0)[: 3 * len(part) - 1] for part in stream)
    matrix = kernel.matrix(x, s, x, s)
    assert np.array_equal(matrix, matrix.T)
    assert np.array_equal(matrix[::3][: len(x) // 3], matrix[1::3][: len(x) // 3])


@settings(max_examples=20, deadline=None)
@given(streams(max_dim=4, max_length=12, min_length=4), kernels)
def test_weights_and_their_ksd_know_the_term(stream, kernel):
    x, s = stream
    matrix = stein_matrix(compile_kernel(kernel, x.shape[1]), x, s)
    assert matrix == pytest.approx(kernel.matrix(x, s, x, s), rel=1e-9, abs=1e-9 * np.abs(matrix).max())
    assert np.array_equal(matrix, matrix.T)
    w = np.arange(1.0, len(x) + 1)
    w /= w.sum()
    assert ss.ksd(x, s, kernel=kernel, weights=w) ** 2 == pytest.approx(w @ matrix @ w, abs=1e-9 * np.abs(matrix).max())


def test_no_negative_term():
    for make in (lambda: ss.IMQ(linear=-0.1), lambda: ss.RBF(linear=float("nan"))):
        with pytest.raises(ss.SteinstreamError, match="linear term"):
            make()
    assert repr(ss.IMQ()) == "IMQ(c=1.0, beta=-0.5)" and repr(ss.RBF(h=2.0)) == "RBF(h=2.0)"


def test_a_kernel_profile_is_untouched_by_it():
    compiled = compile_kernel(ss.IMQ(linear=2.0), 3)
    assert compiled.linear == 2.0 and ss.IMQ().parameters(3).linear == 0.0
    assert PROFILES[compiled.profile](0.0, compiled.first, compiled.second)[0] == 1.0
