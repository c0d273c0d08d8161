"""A posterior with a positive and a simplex parameter, for tests of the integrations.

sigma ~ LogNormal(0, 1), w ~ Dirichlet(2, 3, 4), mu ~ Normal(0, 5), y ~ Normal(mu + w_1 - w_3, sigma). A position is
(mu, log sigma, log w_1/w_3, log w_2/w_3), and the log density includes the Jacobian.
"""

from __future__ import annotations

import doctest
from pathlib import Path

import numpy as np

Y = np.random.default_rng(0).normal(1.0, 2.0, size=30)
ALPHA = np.array([2.0, 3.0, 4.0])
DIM = 4


def simplex(z, xp=np):
    e = xp.exp(xp.concatenate([z, xp.zeros(1)]))
    return e / e.sum()


def log_density(x, xp=np):
    """Return the log density, with numpy or with jax.numpy as ``xp``."""
    mu, log_sigma, w = x[0], x[1], simplex(x[2:], xp)
    residuals = (Y - (mu + w[0] - w[2])) / xp.exp(log_sigma)
    prior = -0.5 * (mu / 5.0) ** 2 - 0.5 * log_sigma**2 + xp.sum(ALPHA * xp.log(w))
    return prior - len(Y) * log_sigma - 0.5 * xp.sum(residuals**2)


def score(x):
    """Return the gradient of the log density, derived by hand."""
    mu, log_sigma, w = x[0], x[1], simplex(x[2:])
    sigma = np.exp(log_sigma)
    residuals = (Y - (mu + w[0] - w[2])) / sigma
    pull = residuals.sum() / sigma
    slope = np.array([1.0, 0.0, -1.0])
    along_w = ALPHA - ALPHA.sum() * w + pull * w * (slope - slope @ w)
    return np.array([-mu / 25.0 + pull, -log_sigma - len(Y) + residuals @ residuals, *along_w[:2]])


def constrained(x, xp=np):
    """Return the constrained parameters."""
    return {"mu": x[0], "sigma": xp.exp(x[1]), "w": simplex(x[2:], xp)}


def run_page(name: str) -> None:
    """Run the examples of a documentation page."""
    page = Path(__file__).parents[2] / "docs" / "integrations" / name
    failed, tried = doctest.testfile(str(page), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert tried
    assert failed == 0


def assert_same(kept, again):
    """Require the same draws and scores, to the last bit."""
    np.testing.assert_array_equal(kept.ids, again.ids)
    np.testing.assert_array_equal(kept.draws, again.draws)
    np.testing.assert_array_equal(kept.scores, again.scores)
    assert kept.ksd == again.ksd
