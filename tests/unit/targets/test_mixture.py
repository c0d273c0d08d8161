"""Gaussians and mixtures: density, score and draws against what is known of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from steinstream.errors import InputError
from steinstream.targets import Gaussian, Mixture

RNG = np.random.default_rng(7)
MATRICES = np.array([a @ a.T + 0.1 * np.eye(3) for a in RNG.normal(size=(4, 3, 3))])
MEANS = 3 * RNG.normal(size=(4, 3))
WEIGHTS = np.array([0.1, 0.2, 0.3, 0.4])

TARGETS = {
    "isotropic": Gaussian([1.0, 2.0, 3.0], 0.5),
    "diagonal": Gaussian([1.0, 2.0, 3.0], [0.5, 1.0, 4.0]),
    "full": Gaussian(MEANS[0], MATRICES[0]),
    "line": Gaussian([2.0], [[3.0]]),
    "mixture, one variance": Mixture(MEANS, 0.5, WEIGHTS),
    "mixture, variances": Mixture(MEANS, [0.5, 1.0, 2.0, 3.0], WEIGHTS),
    "mixture, diagonal": Mixture(MEANS, 0.2 + RNG.random((4, 3)), WEIGHTS),
    "mixture, full": Mixture(MEANS, MATRICES, WEIGHTS),
    "mixture, equal weights": Mixture(MEANS, MATRICES),
}


def dimension_of(name: str) -> int:
    return 1 if name == "line" else 3


def components(target: Gaussian | Mixture) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights, means and covariance matrices, spelt out."""
    if isinstance(target, Gaussian):
        mean = np.asarray(target.mean)
        c = np.asarray(target.covariance)
        matrix = c if c.ndim == 2 else np.diag(np.broadcast_to(c, mean.shape))
        return np.ones(1), mean[None], matrix[None]
    k, d = target.means.shape
    c = target.covariances
    if c.ndim < 3:
        c = np.array([np.diag(np.broadcast_to(v, d)) for v in np.broadcast_to(c, k if c.ndim < 2 else (k, d))])
    return target.weights, target.means, c


@pytest.mark.parametrize("name", TARGETS)
def test_score_is_the_gradient_of_the_log_density(name: str) -> None:
    target, d = TARGETS[name], dimension_of(name)
    for x in np.random.default_rng(1).normal(size=(5, d)) * 2.0:
        differences = [(target.log_density(x + h) - target.log_density(x - h)) / 2e-5 for h in 1e-5 * np.eye(d)]
        score = target.score(x)
        np.testing.assert_allclose(score, differences, rtol=0, atol=1e-6 * max(1.0, np.abs(score).max()))


@pytest.mark.parametrize("name", TARGETS)
def test_log_density_is_the_textbook_formula(name: str) -> None:
    stats = pytest.importorskip("scipy.stats")
    target = TARGETS[name]
    x = np.random.default_rng(2).normal(size=(20, dimension_of(name))) * 2
    density = sum(w * stats.multivariate_normal(m, c).pdf(x) for w, m, c in zip(*components(target), strict=True))
    np.testing.assert_allclose(target.log_densities(x), np.log(density), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", TARGETS)
def test_draws_have_the_moments_of_the_target(name: str) -> None:
    target, n = TARGETS[name], 200_000
    draws, scores = target.sample(n, seed=3)
    weights, means, covariances = components(target)
    mean = weights @ means
    covariance = np.einsum("k,kij", weights, covariances) + np.einsum("k,ki,kj", weights, means - mean, means - mean)
    sd = np.sqrt(np.diag(covariance))
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 4 * sd / np.sqrt(n))
    products = np.einsum("ni,nj->nij", draws - mean, draws - mean)
    error = products.std(axis=0) / np.sqrt(n)
    assert np.all(np.abs(products.mean(axis=0) - covariance) < 4.5 * error)
    assert np.all(np.abs(scores.mean(axis=0)) < 4.5 * scores.std(axis=0) / np.sqrt(n))
    # Stein's identity: E x s^T = -1
    identity = np.einsum("ni,nj->nij", draws - mean, scores)
    assert np.all(np.abs(identity.mean(axis=0) + np.eye(len(mean))) < 4.5 * identity.std(axis=0) / np.sqrt(n))


def test_draws_have_the_proportions_of_the_weights() -> None:
    far = Mixture(100.0 * np.arange(4)[:, None], [1.0, 4.0, 0.25, 1.0], [1, 2, 3, 4])
    draws, _ = far.sample(100_000, seed=0)
    nearest = np.rint(draws[:, 0] / 100).astype(int)
    share = np.bincount(nearest) / len(draws)
    assert np.all(np.abs(share - WEIGHTS) < 4 * np.sqrt(WEIGHTS / len(draws)))
    for k, sd in enumerate((1.0, 2.0, 0.5, 1.0)):
        assert draws[nearest == k].std() == pytest.approx(sd, rel=0.03)


def test_covariances_are_variances_not_standard_deviations() -> None:
    assert Gaussian([0.0], 0.25).sample(100_000, seed=0).draws.std() == pytest.approx(0.5, rel=0.01)
    assert Mixture([[0.0]], 0.25).sample(100_000, seed=0).draws.std() == pytest.approx(0.5, rel=0.01)
    assert Gaussian([0.0], 0.25).score(np.ones(1)) == pytest.approx(-4.0)


def test_the_same_seed_gives_the_same_draws_and_each_its_score() -> None:
    target = TARGETS["mixture, full"]
    draws, scores = target.sample(50, seed=1)
    np.testing.assert_array_equal(draws, target.sample(50, seed=1).draws)
    assert not np.any(draws == target.sample(50, seed=2).draws)
    np.testing.assert_array_equal(scores, [target.score(x) for x in draws])
    assert target.sample(0, seed=1).draws.shape == (0, 3)


@pytest.mark.parametrize("far", [1e3, 1e6, 1e100])
def test_far_out_the_nearest_component_is_all_there_is(far: float) -> None:
    target = Mixture([[0.0, 0.0], [5.0, 0.0]], 1.0, [1, 3])
    x = np.array([far, 0.0])
    assert target.log_density(x) == pytest.approx(math.log(0.75) - math.log(2 * math.pi) - 0.5 * (far - 5) ** 2)
    np.testing.assert_allclose(target.score(x), [5 - far, 0.0], rtol=1e-12)


def test_far_out_to_the_side_both_components_count() -> None:
    target = Mixture([[0.0, 0.0], [5.0, 0.0]], 1.0, [1, 3])
    np.testing.assert_allclose(target.score(np.array([2.5, 1e3])), [0.75 * 5 - 2.5, -1e3], rtol=1e-9)


def test_too_far_for_floating_point_is_no_density() -> None:
    for name in TARGETS:
        assert TARGETS[name].log_density(np.full(dimension_of(name), 1e200)) == -np.inf


@pytest.mark.parametrize("name", TARGETS)
def test_one_point_many_points_and_machine_code_agree_to_the_bit(name: str) -> None:
    target, d = TARGETS[name], dimension_of(name)
    x = np.random.default_rng(5).normal(size=(6, d)) * 3
    functions, out, score = target.compiled(), np.empty(6), np.empty(d)
    functions.log_densities(functions.parameters, np.ascontiguousarray(x.T), out)
    np.testing.assert_array_equal(out, target.log_densities(x))
    for point, log_density, expected in zip(x, out, target.scores(x), strict=True):
        assert functions.log_density_and_score(functions.parameters, point, score) == log_density
        assert target.log_density(point) == log_density
        np.testing.assert_array_equal(score, expected)
        np.testing.assert_array_equal(target.score(point), expected)


def test_many_dimensions_need_no_matrix_where_it_is_diagonal() -> None:
    target = Gaussian(np.zeros(100_000), 2.0)
    assert target.score(np.ones(100_000))[-1] == pytest.approx(-0.5)


def test_a_gaussian_is_a_mixture_of_one() -> None:
    x = RNG.normal(size=(5, 3))
    one = Mixture(MEANS[:1], MATRICES[:1])
    np.testing.assert_array_equal(TARGETS["full"].log_densities(x), one.log_densities(x))
    halves = Mixture(np.repeat(MEANS[:1], 2, axis=0), np.repeat(MATRICES[:1], 2, axis=0))
    np.testing.assert_allclose(halves.scores(x), one.scores(x), rtol=1e-12)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Gaussian(0.0, 1.0), r"mean must have shape \(d,\), got shape \(\)"),
        (lambda: Gaussian(np.zeros((1, 2)), 1.0), r"mean must have shape \(d,\), got shape \(1, 2\)"),
        (lambda: Gaussian([0.0, np.nan], 1.0), "must be finite, got nan"),
        (lambda: Gaussian([0.0, 0.0], [1.0, 2.0, 3.0]), r"covariance must .* got shape \(3,\)"),
        (lambda: Gaussian([0.0, 0.0], [1.0, -2.0]), "must be positive, got -2.0"),
        (lambda: Gaussian([0.0, 0.0], 0.0), "must be positive, got 0.0"),
        (lambda: Gaussian([0.0, 0.0], [[1.0, 2.0], [2.0, 1.0]]), "not positive definite"),
        (lambda: Gaussian([0.0, 0.0], [[1.0, 0.5], [0.4, 1.0]]), "not symmetric"),
        (lambda: Gaussian([0.0], [[-1.0]]), "must be positive, got -1.0"),
        (lambda: Mixture([0.0, 1.0], 1.0), r"means must .* got shape \(2,\)"),
        (lambda: Mixture(np.zeros((0, 2)), 1.0), r"means must .* got shape \(0, 2\)"),
        (lambda: Mixture("four", 1.0), "means must be an array of numbers, got 'four'"),
        (lambda: Mixture(MEANS, np.ones(3)), r"covariances must .* got shape \(3,\)"),
        (lambda: Mixture(MEANS, MATRICES[0]), r"covariances must .* got shape \(3, 3\)"),
        (lambda: Mixture(MEANS, -MATRICES), "matrix of component 0 is not positive definite"),
        (lambda: Mixture(MEANS, 1.0, [1, 1, 1]), "weights must be 4 positive numbers"),
        (lambda: Mixture(MEANS, 1.0, [1, 1, 1, 0]), "weights must be 4 positive numbers"),
        (lambda: TARGETS["full"].log_density(np.zeros(2)), r"shape \(1, 2\)"),
        (lambda: TARGETS["full"].scores(np.zeros(3)), r"shape \(3,\)"),
        (lambda: TARGETS["full"].sample(-1, seed=0), "n must be an integer of at least 0, got -1"),
        (lambda: TARGETS["full"].sample(1, seed=-1), "seed must be an integer of at least 0, got -1"),
        (lambda: TARGETS["full"].sample(1, seed=0.5), "seed must be an integer of at least 0, got 0.5"),
    ],
)
def test_what_makes_no_target_is_refused(make: Any, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        make()


def test_a_target_does_not_change_with_the_arrays_it_was_made_of() -> None:
    means, weights = np.zeros((2, 1)), np.ones(2)
    target = Mixture(means, 1.0, weights)
    means += 5
    assert target.score(np.zeros(1)) == 0
    np.testing.assert_array_equal(weights, np.ones(2))
