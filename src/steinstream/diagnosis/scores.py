"""Are the scores those of these draws? Stein's identity says E (x_j - mean_j) score_j = -1, for every parameter.

The door looks at the sum over all parameters, which one of them with a wrong sign does not spoil.
"""

from __future__ import annotations

import numpy as np

from steinstream.diagnosis.evidence import Evidence
from steinstream.diagnosis.finding import Finding
from steinstream.diagnosis.noise import effective, threshold

_EFFECT = 0.5


def check(evidence: Evidence) -> Finding:
    """How far the identity is off for the worst parameter."""
    products = (evidence.draws - evidence.centre) * evidence.scores
    found = products.mean(axis=0)
    values = np.abs(found + 1.0)
    noise = products.std(axis=0) / np.sqrt(effective(products))
    limits = threshold(_EFFECT, noise, len(found))
    worst = int(np.argmax(values / limits))
    return Finding(
        "scores", float(values[worst]), float(limits[worst]), bool(values[worst] > limits[worst]),
        f"Stein's identity gives {found[worst]:+.2g} for -1 in {evidence.names[worst]}",
        "its sign is wrong" if found[worst] > 0.5 else "they belong to another density, or the chain has not settled",
    )  # fmt: skip
