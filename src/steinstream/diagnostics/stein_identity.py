"""Are the scores those of these draws? Stein's identity says E (x_j - mean_j) score_j = -1, for every parameter.

The door looks at the sum over all parameters, which one of them with a wrong sign does not spoil.
"""

from __future__ import annotations

import numpy as np

from steinstream.diagnostics.context import Evidence
from steinstream.diagnostics.finding import Finding
from steinstream.diagnostics.mcse import effective, threshold
from steinstream.validation import Array

_EFFECT = 0.4  # a temperature of 2 is off by 0.5
_GLANCE = 0.3  # and what calls for a closer look
_TINY = 0.2  # a part of what is expected that is no temperature any more
_NEAR = 2.0  # widths from a bound, within which some draws of a bounded parameter are


def check(evidence: Evidence) -> Finding:
    """How far the identity is off for the worst parameter."""
    products = (evidence.draws - evidence.centre) * evidence.scores
    found = products.mean(axis=0)
    values = np.abs(found + 1.0)
    noise = products.std(axis=0) / np.sqrt(effective(products))
    limits = threshold(_EFFECT, noise, len(found))
    worst = int(np.argmax(values / limits))
    others = int((values > limits).sum()) - 1
    more = f" and {others} more" if others > 0 else ""
    surely = float(threshold(0.0, noise[worst], len(found)))
    return Finding(
        "scores", float(values[worst]), float(limits[worst]), bool(values[worst] > limits[worst]),
        f"Stein's identity gives {found[worst]:+.2g} for -1 in {evidence.names[worst]}{more}",
        _cause(float(found[worst]), surely, evidence.draws[:, worst]),
        allowed=f"off by {values[worst]:.3g} of what is expected, {limits[worst]:.3g} is allowed",
    )  # fmt: skip


def doubtful(draws: Array, scores: Array) -> bool:
    """Whether a closer look is worth its time, by draws that have settled, one hopes. Noise may explain it all."""
    found = np.einsum("nd,nd->d", draws - draws.mean(axis=0), scores) / len(draws)
    return bool((np.abs(found + 1.0) > _GLANCE).any())


def _cause(found: float, surely: float, draws: Array) -> str:
    """What most likely happened, if the identity gives ``found``, give or take ``surely``."""
    if found > 0.5:
        return "its sign is wrong"
    if bound := _bound(draws):
        return f"the draws look constrained: thin {bound}, with the Jacobian in the score"
    if surely < -found < _TINY:
        return "the gradient of a mean loss? Multiply it by the number of data"
    if abs(found) <= surely:
        return "are draws and scores in different order, of rows or of columns?"
    return "they are of another density (a temperature, a missing prior?), or the chain has not settled"


def _bound(draws: Array) -> str:
    """How to free a parameter of its bounds, if it seems to have any."""
    least, most, width = float(draws.min()), float(draws.max()), float(draws.std())
    if least <= 0 or min(least, 1.0 - most if most < 1 else least) > _NEAR * width:
        return ""
    return "logit(x)" if most < 1 else "log(x)"
