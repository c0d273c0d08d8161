"""Check ``scores``: Stein's identity E[(x_j - mean_j) score_j] = -1 for every parameter.

Input validation tests the sum over all parameters, which one parameter with a wrong sign does not change enough.
"""

from __future__ import annotations

import numpy as np

from steinstream._typing import Array
from steinstream.diagnostics.context import DiagnosticContext
from steinstream.diagnostics.convergence import effective_sample_size
from steinstream.diagnostics.finding import Finding
from steinstream.diagnostics.mcse import sensitivity, threshold

_EFFECT = 0.4  # a temperature of 2 gives a difference of 0.5
_SUSPICIOUS = 0.3  # difference from which the full check is worth its time
_MEAN_LOSS = 0.2  # values closer to zero are not explained by a temperature
_NEAR_BOUND = 2.0  # a bounded parameter has draws within this many standard deviations of the bound


def check_scores(context: DiagnosticContext) -> Finding | None:
    """Measure how far the identity is off for the worst parameter; None without scores."""
    if not context.stream.has_scores:
        return None
    products = (context.draws - context.mean) * context.scores
    found = products.mean(axis=0)
    values = np.abs(found + 1.0)
    noise = products.std(axis=0) / np.sqrt(effective_sample_size(products))
    limits = threshold(_EFFECT, noise, len(found))
    worst = int(np.argmax(values / limits))
    value, limit = float(values[worst]), float(limits[worst])
    uncertainty = float(threshold(0.0, noise[worst], len(found)))
    shortfall = np.minimum(sensitivity(0.0, noise), 0.9)  # the noise is proportional to the scores
    least = float(((limits + shortfall) / (1.0 - shortfall)).max())
    affected = f"{int((values > limits).sum())} of {len(found)} parameters affected"
    return Finding(
        name="scores",
        value=value,
        threshold=limit,
        fired=value > limit,
        says=f"for {context.names[worst]}, the mean of (x - mean) * score is {found[worst]:+.2g}, expected -1",
        advice=_likely_cause(float(found[worst]), uncertainty, context.draws[:, worst]),
        allowed=f"tolerance {limit:.3g}; {affected}",
        sensitivity=least,
        detects=f"errors of Stein's identity above {least:.2f}",
        found=f"largest found {value:.2f} ({context.names[worst]})",
    )


def is_suspicious(draws: Array, scores: Array) -> bool:
    """Return whether the identity is off by enough, for draws (n, d) after burn-in, to justify the full check."""
    found = np.einsum("nd,nd->d", draws - draws.mean(axis=0), scores) / len(draws)
    return bool((np.abs(found + 1.0) > _SUSPICIOUS).any())


def _likely_cause(found: float, uncertainty: float, draws: Array) -> str:
    """Describe the most likely cause if the identity gives ``found``, within ``uncertainty``."""
    if found > 0.5:
        return "the sign of this score is probably wrong"
    if transform := _unconstraining_transform(draws):
        return f"the draws look constrained: thin {transform} and include the Jacobian in the score"
    if uncertainty < -found < _MEAN_LOSS:
        return "the scores look like gradients of a mean loss: multiply them by the number of data"
    if abs(found) <= uncertainty:
        return "draws and scores are probably in different order, of rows or of columns"
    return "the scores belong to another density (a temperature, a missing prior), or the chain has not converged"


def _unconstraining_transform(draws: Array) -> str:
    """Return the transform that removes the bounds of a parameter; empty if it does not look bounded."""
    least, most, sd = float(draws.min()), float(draws.max()), float(draws.std())
    if least <= 0 or min(least, 1.0 - most if most < 1 else least) > _NEAR_BOUND * sd:
        return ""
    return "logit(x)" if most < 1 else "log(x)"
