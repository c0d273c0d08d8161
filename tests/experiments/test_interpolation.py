"""The interpolated posterior of networks against polynomials and against the network itself."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch

from experiments.network_models.exact_posterior import ExactPosterior
from experiments.network_models.interpolation import ChebyshevGrid, GaussianPrior, InterpolatedPosterior, Rectangle
from experiments.network_models.models import MLP
from experiments.paper.networks.node_logits import NodeLogits
from steinstream.integrations.torch import FlatNetwork, Subspace, SubspacePosterior

torch.set_num_threads(1)


def turned(first=1.0, second=0.5):
    """A rectangle that is not parallel to the axes."""
    points = np.array([[-first, -second], [first, second], [first, -second], [-first, second]])
    direction = np.array([0.8, 0.6])
    return Rectangle.around(points @ np.array([direction, [-0.6, 0.8]]), direction, 0.0)


def network_and_plane(classes=3):
    network = FlatNetwork.from_seed(lambda: MLP([4, 6, classes]).double(), seed=0)
    return network, Subspace.random(network.weights(), 2, seed=1)


def data(count=40, classes=3):
    generator = np.random.default_rng(0)
    inputs = torch.as_tensor(generator.normal(size=(count, 4)))
    return inputs, torch.as_tensor(generator.integers(0, classes, count))


def posteriors(tmp_path, counts=(9, 8), temperature=2.0):
    """The exact posterior and its interpolant."""
    (network, plane), (inputs, labels) = network_and_plane(), data()
    grid = ChebyshevGrid(turned(), counts)
    table = NodeLogits(tmp_path, grid, plane, inputs)
    for share in (0, 1):
        table.record(lambda: network, share, 2, lambda fraction: None)
    prior = GaussianPrior.of_weights(plane, 0.3)
    exact = SubspacePosterior(network, plane, inputs, labels, prior_variance=0.3, temperature=temperature)
    return exact, InterpolatedPosterior(grid, table.load(), labels.numpy(), prior, temperature)


def test_polynomials_are_interpolated_exactly():
    grid = ChebyshevGrid(turned(), (4, 3))
    z, steps = np.array([0.2, 0.3]), 1e-6 * np.eye(2)

    def value(p):
        s, t = grid.rectangle.local(np.atleast_2d(p)).T
        return 1 + s**3 * t**2 - 2 * s * t

    table = value(grid.nodes)
    assert grid.weights(z[None])[0] @ table == pytest.approx(value(z)[0], rel=1e-12)
    slopes = [(value(z + step) - value(z - step))[0] / 2e-6 for step in steps]
    np.testing.assert_allclose(grid.weights_and_slopes(z)[1:] @ table, slopes, rtol=1e-6)
    assert grid.weights(np.zeros((0, 2))).shape == (0, 12)


def test_a_rectangle_contains_its_points_and_the_margin():
    points = np.random.default_rng(0).normal(size=(50, 2))
    direction = np.array([1.0, 2.0])
    inside, wider = (Rectangle.around(points, direction, margin) for margin in (0.0, 0.5))
    assert np.abs(inside.local(points)).max() == pytest.approx(1.0)
    assert np.abs(wider.local(points)).max() == pytest.approx(0.5)
    assert abs(inside.axes[:, 0] @ inside.axes[:, 1]) < 1e-12
    assert np.abs(inside.excess(np.array([50.0, 0.0]))).max() > 1 and (wider.excess(points[0]) == 0).all()


def test_the_interpolant_agrees_with_the_network(tmp_path):
    exact, interpolated = posteriors(tmp_path)
    inputs = exact.inputs
    for z in np.random.default_rng(1).uniform(-0.4, 0.4, size=(5, 2)):
        assert interpolated.log_density(z) == pytest.approx(exact.log_density(z), abs=1e-3)
        np.testing.assert_allclose(interpolated.score(z), exact.score(z), atol=1e-2)
        np.testing.assert_allclose(interpolated.control_variates(z), exact.control_variates(z), atol=1e-3)
        np.testing.assert_allclose(interpolated.predict(z, interpolated.logits), exact.predict(z, inputs), atol=1e-4)
        many = interpolated.predict_many(np.array([z, z]), interpolated.logits)
        np.testing.assert_allclose(many[1], interpolated.predict(z, interpolated.logits), atol=1e-6)


def test_minibatch_scores_are_unbiased_and_exact_with_all_data(tmp_path):
    _, posterior = posteriors(tmp_path)
    z, generator = np.array([0.1, -0.2]), np.random.default_rng(2)
    variates = posterior.control_variates(np.zeros(2))
    for given in (None, variates):
        np.testing.assert_allclose(posterior.minibatch(40, given)(z, generator), posterior.score(z), rtol=1e-9)
        noisy = np.array([posterior.minibatch(10, given)(z, generator) for _ in range(400)])
        error = noisy.std(axis=0) / 20
        assert (np.abs(noisy.mean(axis=0) - posterior.score(z)) < 5 * error).all()


@pytest.mark.parametrize("z", [(0.2, 0.1), (3.0, 0.0), (1.0, 3.0), (-0.5, 1.2)])
def test_the_score_is_the_gradient_inside_and_outside_of_the_rectangle(tmp_path, z):
    _, posterior = posteriors(tmp_path, (5, 4))
    posterior.logits = posterior.logits.astype(np.float64)
    z, steps = np.array(z), 1e-3 * np.eye(2)
    slopes = [(posterior.log_density(z + step) - posterior.log_density(z - step)) / 2e-3 for step in steps]
    np.testing.assert_allclose(posterior.score(z), slopes, rtol=1e-3, atol=0.05)
    outside = posterior.grid.rectangle.excess(z)
    if np.abs(outside).max() > 0.5:
        assert posterior.log_density(z) < posterior.log_density(0 * z) - 10


def test_nodes_that_exist_are_not_computed_again(tmp_path):
    _, first = posteriors(tmp_path, (3, 3))
    times = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    _, second = posteriors(tmp_path, (3, 3))
    assert times == {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} and len(times) == 9
    assert np.array_equal(first.logits, second.logits)


def test_an_exact_posterior_with_the_prior_of_the_weights_is_a_subspace_posterior():
    (network, plane), (inputs, labels) = network_and_plane(), data()
    weights = SubspacePosterior(network, plane, inputs, labels, prior_variance=0.3, temperature=2.0)
    exact = ExactPosterior(network, plane, inputs, labels, GaussianPrior.of_weights(plane, 0.3), 2.0)
    z = np.array([0.3, -0.2])
    assert exact.log_density(z) - exact.log_density(0 * z) == pytest.approx(
        weights.log_density(z) - weights.log_density(0 * z), rel=1e-6
    )
    np.testing.assert_allclose(exact.score(z), weights.score(z), rtol=1e-6)
    one, other = (p.minibatch(10)(z, np.random.default_rng(0)) for p in (exact, weights))
    np.testing.assert_allclose(one, other, rtol=1e-6)


def test_the_prior_of_the_coordinates_is_a_gaussian():
    prior, z = GaussianPrior.of_coordinates(2, 10.0), np.array([1.0, -2.0])
    assert prior.log_density(z) == pytest.approx(-5 / 20)
    np.testing.assert_allclose(prior.score(z), -z / 10)
