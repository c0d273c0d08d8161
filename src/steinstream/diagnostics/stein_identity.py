"""Check ``scores``: Stein's identity E[(x_j - mean_j) score_j] = -1 for every parameter.

Input validation tests the sum over all parameters, which one parameter with a wrong sign does not change enough.

A slow stream has not explored most directions, and the products of such directions are close to zero although the
scores are right. The identity holds along every direction v, as E[v.(x - mean) v.score] = -1 for a unit vector, and the
direction in which the scores vary most is the one that a Langevin sampler explores fastest. In a slow stream this
direction is checked, and only for scores that are much too small: step sizes and minibatches of such samplers change
the identity there by a factor of up to 4.

Before, the mean over all parameters is checked, because many slow parameters together are precise. Its value is about
-1 times the explored part of the target, which is known without the scores: the covariance of the draws of a random
walk of n steps is n/6 times that of its steps, and that of a stationary chain is much smaller. The ratio of both, the
mean over all directions, does not depend on coordinates. If it is below a half, more than half of the target is
explored.
"""

from __future__ import annotations

import numpy as np

from steinstream._typing import Array
from steinstream.diagnostics.context import DiagnosticContext
from steinstream.diagnostics.convergence import effective_sample_size
from steinstream.diagnostics.finding import Finding, skipped
from steinstream.diagnostics.mcse import sensitivity, threshold

_EFFECT = 0.4  # a temperature of 2 gives a difference of 0.5
_SUSPICIOUS = 0.3  # difference from which the full check is worth its time
_MEAN_LOSS = 0.2  # values closer to zero are not explained by a temperature
_NEAR_BOUND = 2.0  # a bounded parameter has draws within this many standard deviations of the bound
_MIN_ESS = 12.0  # of the leading direction; random walks have estimates up to 11
_EXPLORED = 0.5  # largest covariance of an explored target, relative to a random walk with the same steps
_EXPLORED_NOISE = 6.0  # standard deviations of that ratio for one direction of a random walk
_LEADING = 256  # parameters from which the leading direction is computed

_TOO_SMALL = "the scores look like gradients of a mean loss: multiply them by the number of data"
_OTHER_ORDER = "draws and scores are probably in different order, of rows or of columns"


def check_scores(context: DiagnosticContext, *, is_slow: bool = False) -> Finding:
    """Measure how far the identity is off for the worst parameter; in a slow stream, along the leading direction.

    Returns
    -------
    Finding
        Skipped without scores, or if the stream is too slow in all directions.
    """
    if not context.has_scores:
        return skipped("scores", "no scores")
    if not is_slow:
        return _check_parameters(context)
    return _check_all_together(context) or _check_leading_direction(context)


def _check_parameters(context: DiagnosticContext) -> Finding:
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
        says=f"for {context.names[worst]}, the mean of (x - mean) * score is {found[worst]:+.3g}, expected -1",
        advice=_likely_cause(float(found[worst]), uncertainty, context.draws[:, worst]),
        allowed=f"tolerance {limit:.3g}; {affected}",
        sensitivity=least,
        detects=f"errors of Stein's identity above {least:.2f}",
        found=f"largest found {value:.2f} ({context.names[worst]})",
    )


def _check_leading_direction(context: DiagnosticContext) -> Finding:
    scores = context.scores - context.scores.mean(axis=0)
    columns = np.argsort(scores.var(axis=0))[-_LEADING:]
    direction = np.linalg.eigh(scores[:, columns].T @ scores[:, columns])[1][:, -1]
    position = (context.draws - context.mean)[:, columns] @ direction
    moves = bool(np.ptp(context.draws, axis=0).any())
    if not moves or float(effective_sample_size(position[:, None])[0]) < _MIN_ESS:
        return skipped("scores", "the stream has too few effective draws")
    products = (position * (context.scores[:, columns] @ direction))[:, None]
    found = float(products.mean())
    noise = float(products.std() / np.sqrt(effective_sample_size(products)[0]))
    uncertainty = float(threshold(0.0, noise, 1))
    limit = max(1.0 - _MEAN_LOSS, uncertainty)
    return Finding(
        name="scores",
        value=1.0 + found,
        threshold=limit,
        fired=1.0 + found > limit,
        says="along the direction in which the scores vary most, the mean of (x - mean) * score is "
        f"{found:+.3g}, expected -1",
        advice=_TOO_SMALL if found < -uncertainty else _OTHER_ORDER,
        allowed=f"tolerance {limit:.3g}",
        sensitivity=float(sensitivity(limit, noise)),
        detects=f"scores less than {_MEAN_LOSS:g} times as large as they should be",
        found=f"Stein's identity gives {found:+.2g} in the direction in which the scores vary most; the stream is too "
        "slow to check single parameters",
    )


def _check_all_together(context: DiagnosticContext) -> Finding | None:
    """Check the mean over all parameters; None if too small a part of the target is explored."""
    if not _is_explored(context):
        return None
    products = ((context.draws - context.mean) * context.scores).mean(axis=1)[:, None]
    found = float(products.mean())
    noise = float(products.std() / np.sqrt(effective_sample_size(products)[0]))
    uncertainty = float(threshold(0.0, noise, 1))
    limit = 1.0 - _MEAN_LOSS + uncertainty
    if not np.isfinite(limit) or 1.0 + found <= limit:
        return None
    return Finding(
        name="scores",
        value=1.0 + found,
        threshold=limit,
        fired=True,
        says=f"the mean of (x - mean) * score over all parameters is {found:+.3g}, expected -1",
        advice=_TOO_SMALL if found < -uncertainty else _OTHER_ORDER,
        allowed=f"tolerance {limit:.3g}",
        sensitivity=float(sensitivity(limit, noise)),
        detects=f"scores less than {_MEAN_LOSS:g} times as large as they should be",
        found=f"Stein's identity gives {found:+.2g} on average over all parameters",
    )


def _is_explored(context: DiagnosticContext) -> bool:
    """Return whether the draws vary less than a random walk with the same steps, so that they are not on their way."""
    columns = np.argsort(context.scores.var(axis=0))[-_LEADING:]
    draws, lengths = (context.draws - context.mean)[:, columns], [len(rows) for rows in context.settled_rows.values()]
    steps = [np.diff(part, axis=0) for part in np.split(draws, np.cumsum(lengths)[:-1])]
    count, dim = sum(map(len, steps)), draws.shape[1]
    if count < 4 * dim:
        return False
    of_steps = sum(part.T @ part for part in steps) / count
    scale = np.sqrt(np.diag(of_steps))
    if not (scale > 0).all():
        return False
    values, vectors = np.linalg.eigh(of_steps / np.outer(scale, scale))
    if values[0] <= 1e-10 * values[-1]:
        return False
    whitened = (draws / scale) @ vectors / np.sqrt(values)
    ratio = 6.0 * float((whitened**2).mean()) / (count / len(steps))
    return bool(ratio < min(_EXPLORED, 1.0 / (1.0 + _EXPLORED_NOISE / np.sqrt(dim))))


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
        return _TOO_SMALL
    if abs(found) <= uncertainty:
        return _OTHER_ORDER
    return "the scores belong to another density (a temperature, a missing prior), or the chain has not converged"


def _unconstraining_transform(draws: Array) -> str:
    """Return the transform that removes the bounds of a parameter; empty if it does not look bounded."""
    least, most, sd = float(draws.min()), float(draws.max()), float(draws.std())
    if least <= 0 or min(least, 1.0 - most if most < 1 else least) > _NEAR_BOUND * sd:
        return ""
    return "logit(x)" if most < 1 else "log(x)"
