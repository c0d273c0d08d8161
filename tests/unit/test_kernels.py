"""Kernels: the Stein kernel belongs to the base kernel and has mean zero under the target; settings are validated."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import steinstream as ss
from steinstream.errors import InputError
from steinstream.kernels import as_kernel

KERNELS = [
    ss.IMQ(),
    ss.IMQ(c=2.0),
    ss.IMQ(c=0.5, beta=-0.3),
    ss.RBF(),
    ss.RBF(h=0.7),
    ss.IMQ(linear=0.3),
    ss.RBF(linear=2),
]
each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=repr)


def base(kernel, x, y):
    """The base kernel itself, from its definition."""
    u = np.sum((x - y) ** 2)
    if isinstance(kernel, ss.IMQ):
        radial = (kernel.c**2 + u) ** kernel.beta
    else:
        radial = np.exp(-u / (2 * (kernel.h or len(x))))
    return radial + kernel.linear * (1 + x @ y)


def stein(kernel, x, sx, y, sy, step=1e-4):
    """The Stein kernel by central differences: (s_x + grad_x) . (s_y + grad_y) k."""
    total = sx @ sy * base(kernel, x, y)
    for e in step * np.eye(len(x)):
        total += sx @ e / step * (base(kernel, x, y + e) - base(kernel, x, y - e)) / (2 * step)
        total += sy @ e / step * (base(kernel, x + e, y) - base(kernel, x - e, y)) / (2 * step)
        mixed = base(kernel, x + e, y + e) - base(kernel, x + e, y - e)
        total += (mixed - base(kernel, x - e, y + e) + base(kernel, x - e, y - e)) / (4 * step**2)
    return total


@each_kernel
@pytest.mark.parametrize("dim", [1, 3])
def test_the_stein_kernel_is_that_of_the_base_kernel(kernel, dim):
    rng = np.random.default_rng(dim)
    x, sx, y, sy = rng.normal(size=(4, 5, dim))
    expected = [[stein(kernel, *one, *other) for other in zip(y, sy, strict=True)] for one in zip(x, sx, strict=True)]
    np.testing.assert_allclose(kernel.matrix(x, sx, y, sy), expected, rtol=1e-5, atol=1e-5)


@each_kernel
def test_the_matrix_is_symmetric_and_positive_semidefinite_and_has_the_diagonal(kernel):
    x, s = np.random.default_rng(0).normal(size=(2, 40, 3))
    matrix = kernel.matrix(x, s, x, s)
    np.testing.assert_allclose(matrix, matrix.T, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(kernel.diagonal(s, x), matrix.diagonal(), rtol=1e-12)
    assert np.linalg.eigvalsh(matrix).min() > -1e-9 * matrix.diagonal().max()


@each_kernel
def test_the_mean_under_the_target_is_zero(kernel):
    x = np.linspace(-12.0, 12.0, 4001)[:, None]  # a standard normal, by the trapezoidal rule
    weights = np.exp(-0.5 * x[:, 0] ** 2)
    mean = weights @ kernel.matrix(x, -x, np.array([[0.0], [1.5]]), np.array([[0.0], [-1.5]])) / weights.sum()
    np.testing.assert_allclose(mean, 0.0, atol=1e-10)


@each_kernel
def test_ksd_is_the_mean_of_the_matrix(kernel):
    x = np.random.default_rng(1).normal(size=(30, 2))
    matrix = kernel.matrix(x, -x, x, -x)
    assert ss.ksd(x, -x, kernel=kernel) == pytest.approx(np.sqrt(matrix.mean()), rel=1e-12)


@given(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3))
def test_a_radial_kernel_depends_on_differences_only(x, shift):
    one, other, s = np.array([[x]]), np.array([[0.0]]), np.array([[1.0]])
    for kernel in (ss.IMQ(), ss.RBF()):
        value = kernel.matrix(one, s, other, -s)
        moved = kernel.matrix(one + shift, s, other + shift, -s)
        np.testing.assert_allclose(moved, value, rtol=1e-6, atol=1e-9)


def test_the_paper_takes_the_dimension_as_bandwidth():
    x = np.random.default_rng(2).normal(size=(6, 4))
    np.testing.assert_array_equal(ss.RBF().matrix(x, -x, x, -x), ss.RBF(h=4.0).matrix(x, -x, x, -x))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ss.IMQ(c=0.0), "c must be positive, got 0"),
        (lambda: ss.IMQ(c="wide"), "c must be positive, got nan"),
        (lambda: ss.IMQ(beta=0.0), "beta must be between -1 and 0"),
        (lambda: ss.IMQ(beta=-1.0), "beta must be between -1 and 0"),
        (lambda: ss.RBF(h=-1.0), "h must be positive, got -1"),
        (lambda: ss.RBF(h=np.inf), "h must be positive, got inf"),
        (lambda: ss.IMQ(linear=-0.1), "at least 0, got -0.1"),
        (lambda: ss.RBF(linear=np.nan), "at least 0, got nan"),
        (lambda: ss.IMQ(linear=1.0).diagonal(np.zeros((2, 1))), "depends on the draws"),
    ],
)
def test_invalid_settings_are_refused(make, words):
    with pytest.raises(InputError, match=words):
        make()


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_kernels_are_values(kernel):
    assert (
        eval(repr(kernel), {"IMQ": ss.IMQ, "RBF": ss.RBF}) == kernel
        and len({kernel, type(kernel)(**vars(kernel))}) == 1
    )


def test_strings_name_kernels():
    assert as_kernel(None) == as_kernel("imq") == ss.IMQ()
    assert as_kernel("imq:c=2,beta=-0.3,linear=0.1") == ss.IMQ(c=2.0, beta=-0.3, linear=0.1)
    assert as_kernel("rbf") == ss.RBF() and as_kernel("rbf:h=2") == ss.RBF(h=2.0)
    for wrong in ("imq:c", "imq:width=2", "gauss", 3, ss.IMQ):
        with pytest.raises(InputError, match=r"kernel|imq"):
            as_kernel(wrong)
