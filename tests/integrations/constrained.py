"""A model with a real, a positive and a simplex parameter, in PyMC and in NumPy."""

from __future__ import annotations

from functools import cache

import numpy as np

COUNTS = np.array([5, 9, 2])
HEIGHTS = np.random.default_rng(0).normal(1.0, 2.0, size=30)


@cache
def model():
    import pymc as pm

    with pm.Model(coords={"kind": ["a", "b", "c"]}) as built:
        offset = pm.Data("offset", 0.5)
        mu = pm.Normal("mu", 0.0, 3.0)
        sigma = pm.HalfNormal("sigma", 2.0)
        share = pm.Dirichlet("share", np.ones(3), dims="kind")
        pm.Deterministic("odds", share / (1 - share), dims="kind")
        pm.Deterministic("both", pm.math.stack([mu, sigma]))
        pm.Normal("height", mu + offset, sigma, observed=HEIGHTS)
        pm.Multinomial("count", COUNTS.sum(), share, observed=COUNTS)
    return built


def constrained(x):
    """Return mu, sigma and share of an unconstrained x; the logits of PyMC's simplex sum to zero."""
    logits = np.append(x[2:], -np.sum(x[2:]))
    share = np.exp(logits)
    return x[0], np.exp(x[1]), share / np.sum(share)


def log_density(x):
    """Return the log density of an unconstrained x, Jacobian included; x may be complex."""
    mu, sigma, share = constrained(x)
    jacobian = np.diag(share[:2]) - np.outer(share[:2], share[:2])
    jacobian = jacobian @ (np.eye(2) + 1)  # the last logit is minus the sum of the others
    log_det = x[1] + np.log(np.linalg.det(jacobian))
    prior = -(mu**2) / 18 - sigma**2 / 8
    likelihood = -np.sum((HEIGHTS - mu - 0.5) ** 2) / (2 * sigma**2) - len(HEIGHTS) * np.log(sigma)
    return prior + likelihood + np.sum(COUNTS * np.log(share)) + log_det


def score(x):
    """Return the gradient by complex steps, exact up to rounding."""
    steps = 1e-100j * np.eye(len(x))
    return np.array([log_density(x + step).imag for step in steps]) / 1e-100


def scores(draws):
    return np.apply_along_axis(score, -1, draws)
