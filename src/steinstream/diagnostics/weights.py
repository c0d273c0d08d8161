"""Did its weights take what is kept away from the stream?

Weights that only make KSD least share its blind spots: between modes far apart they move mass as they please. So a
weighted set is judged like n draws whatever its weights are worth, and is compared with itself without weights.
"""

from __future__ import annotations

import math

from steinstream.diagnostics import moments, proportions
from steinstream.diagnostics.context import Evidence
from steinstream.diagnostics.finding import Finding

_CLEARLY = 1.5  # times as far off as without weights
_PART, _FEWEST = 0.25, 8.0  # of the draws, or draws: sound weights in one dimension are worth 15 of 300
_REMEDY = (
    "weigh them like the chain (weighted(like=draws), --weights chain), or thin with an anchor and leave weights out"
)


def check(evidence: Evidence) -> Finding | None:
    """What weights made worse, or that they are worth few draws; None where there are none."""
    if not evidence.weighted:
        return None
    moved = _moved(evidence)
    if moved is not None:
        return moved
    worth, count = float(1.0 / (evidence.weights**2).sum()), evidence.number
    needed = min(_PART * count, _FEWEST)
    return Finding(
        "weights", needed / worth, 1.0, worth < needed, f"they make {count} draws worth {worth:.1f}", _REMEDY,
        allowed=f"{needed:.3g} are needed",
    )  # fmt: skip


def _moved(evidence: Evidence) -> Finding | None:
    """What is clearly further from the stream than without weights, if anything is."""
    plain = evidence.unweighted()
    for one in (proportions.regions, moments.mean, moments.spread):
        ours, theirs = one(evidence), one(plain)
        value, before = _alarm(ours), _alarm(theirs)
        if ours.fired and value > _CLEARLY * before:
            return Finding(
                "weights", value, max(1.0, _CLEARLY * before), True, f"they move mass where it is not: {ours.says}",
                _REMEDY, allowed=f"{value:.2g} times as far off as is allowed, without weights {before:.2g} times",
            )  # fmt: skip
    return None


def _alarm(finding: Finding) -> float:
    """Above 1 where it fires."""
    if finding.name == "spread":
        return math.log(max(finding.value, 1e-300)) / math.log(finding.threshold) if 0 < finding.threshold != 1 else 0.0
    return finding.value / finding.threshold
