"""Chains with known properties, and blocks made of them."""

from __future__ import annotations

import numpy as np

from steinstream.validation import Block, consecutive_ids


def autoregression(count, dim, rho, seed):
    """Return a stationary chain with standard normal marginals and autocorrelation time (1 + rho) / (1 - rho)."""
    noise = np.random.default_rng(seed).normal(size=(count, dim))
    x = noise.copy()
    for t in range(1, count):
        x[t] = rho * x[t - 1] + np.sqrt(1 - rho**2) * noise[t]
    return x


def as_stream(x, s=None, ids=None):
    """Return one chain as a block; the scores are those of a standard normal distribution unless given."""
    return Block(x, -x if s is None else s, consecutive_ids(0, 0, len(x)) if ids is None else ids)


def fired(diagnosis):
    """Return the names of the checks that fired."""
    return {finding.name for finding in diagnosis.fired}
