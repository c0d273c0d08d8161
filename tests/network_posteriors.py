"""Checks of the posterior of a network in a subspace, with 24 examples."""

from __future__ import annotations

import numpy as np
import pytest
import torch


def assert_score_is_the_gradient(target):
    """The score agrees with automatic differentiation and with finite differences."""
    z = np.random.default_rng(5).normal(size=target.subspace.dim) * 0.3
    variable = torch.tensor(z, requires_grad=True)
    weights = target.subspace.base + variable @ target.subspace.directions
    log_likelihood = torch.log_softmax(target.network(weights, target.inputs), 1)[torch.arange(24), target.labels].sum()
    value = (log_likelihood - weights.square().sum() / (2 * target.prior_variance)) / target.temperature
    (gradient,) = torch.autograd.grad(value, variable)
    assert target.log_density(z) == pytest.approx(value.item(), rel=1e-10)
    np.testing.assert_allclose(target.score(z), gradient.numpy(), rtol=1e-8, atol=1e-8)
    steps = 1e-5 * np.eye(len(z))
    slopes = [(target.log_density(z + step) - target.log_density(z - step)) / 2e-5 for step in steps]
    np.testing.assert_allclose(target.score(z), slopes, rtol=1e-5, atol=1e-4)


def assert_batch_size_has_no_effect(create):
    """Log density, score and predictions are the same for batches of 7 examples and for all at once."""
    whole, parts, z = create(batch=100), create(batch=7), np.full(create().subspace.dim, 0.2)
    assert parts.log_density(z) == pytest.approx(whole.log_density(z), rel=1e-12)
    np.testing.assert_allclose(parts.score(z), whole.score(z), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(parts.predict(z, whole.inputs), whole.predict(z, whole.inputs), atol=1e-12)
    everything = parts.minibatch(24)(z, np.random.default_rng(0))
    np.testing.assert_allclose(everything, whole.score(z), rtol=1e-9, atol=1e-9)
