r"""Do parts of the stream agree? The quarters of each chain, and the chains. Split R-hat on normal scores,

.. math:: \hat R^2 = \frac{n - 1}{n} + \frac{B}{W}

with B the variance of the parts' means and W the variance within them. For m parts of n correlated draws that do agree,
B / W is about tau / n times a chi square over its m - 1 degrees of freedom; R-hat^2 may exceed 1.1 (R-hat 1.05, the
effect that matters) by that much. They are added up, not the larger taken: of a part of few effective draws tau is not
well known either.

A. Gelman and D. B. Rubin (1992); A. Vehtari et al., Bayesian Analysis 16 (2021).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from steinstream.diagnostics.context import Evidence
from steinstream.diagnostics.finding import Finding
from steinstream.diagnostics.mcse import chi_square_quantile, correlation_time
from steinstream.validation import Array

_EFFECT = 0.1  # of R-hat^2
_LEAST = 10  # draws of a part
_ORDER = ("first", "second", "third", "last")


def drift(evidence: Evidence) -> Finding | None:
    """Does a chain still move on as a whole? R-hat of the quarters of the chain that drifts most."""
    owners, quarters = _cut(evidence, 4)
    if not owners:
        return None
    found = []
    for k, chain in enumerate(owners):
        mine = list(range(4 * k, 4 * k + 4))
        values, thresholds = r_hat(quarters, mine, len(owners) * quarters.means.shape[1])
        worst = int(np.argmax(values / thresholds))
        means = quarters.means[mine, worst]
        off = int(np.argmax(np.abs(means - np.median(means))))
        found.append((values[worst], thresholds[worst], chain, worst, off))
    value, threshold, chain, worst, off = max(found, key=lambda one: one[0] / one[1])
    return Finding(
        "drift", float(value), float(threshold), bool(value > threshold),
        f"the {_ORDER[off]} quarter of chain {chain} lies elsewhere in {evidence.names[worst]}, R-hat {value:.2f}",
        "drop it as burn-in" if off == 0 else "the chain has not settled: run it longer, and from several starts",
        allowed=f"up to {threshold:.2f} is allowed",
    )  # fmt: skip


def chains(evidence: Evidence) -> Finding | None:
    """Do several chains agree? R-hat of the halves of all."""
    owners, halves = _cut(evidence, 2)
    if len(owners) < 2:
        return None
    values, thresholds = r_hat(halves, list(range(len(halves.means))), halves.means.shape[1])
    worst = int(np.argmax(values / thresholds))
    return Finding(
        "chains", float(values[worst]), float(thresholds[worst]), bool(values[worst] > thresholds[worst]),
        f"the {len(owners)} chains disagree about {evidence.names[worst]}, R-hat {values[worst]:.2f}",
        "they are in different modes or not yet settled: what is kept mixes them as they came",
        allowed=f"up to {thresholds[worst]:.2f} is allowed",
    )  # fmt: skip


class Parts(NamedTuple):
    """Means (m, d) and lengths (m,) of parts of a stream, variance (d,) and correlation time (d,) within them."""

    means: Array
    lengths: Array
    within: Array
    tau: Array


def parts(pieces: list[Array]) -> Parts:
    """Parts of a stream, each (n, d)."""
    means = np.array([piece.mean(axis=0) for piece in pieces])
    lengths = np.array([float(len(piece)) for piece in pieces])
    centred = np.concatenate([piece - mean for piece, mean in zip(pieces, means, strict=True)])
    within = (centred**2).sum(axis=0) / (lengths - 1.0).sum()
    length = lengths.mean()
    tau = correlation_time(centred)
    tau = tau / np.maximum(1.0 - tau / length, 0.1)  # a part's own mean hides some of its correlation
    return Parts(means, lengths, np.where(within > 0, within, 1e-12), np.minimum(tau, length))


def r_hat(some: Parts, which: list[int], comparisons: int) -> tuple[Array, Array]:
    """R-hat of some of the parts for each parameter, and what it may be."""
    length = float(some.lengths[which].mean())
    between = some.means[which].var(axis=0, ddof=1)
    freedom = len(which) - 1
    allowed = some.tau / length * chi_square_quantile(freedom, comparisons) / freedom
    return np.sqrt((length - 1.0) / length + between / some.within), np.sqrt(1.0 + _EFFECT + allowed)


def _cut(evidence: Evidence, number: int) -> tuple[list[int], Parts]:
    """Each chain, once settled, in so many parts; which chains are long enough for that."""
    owners, pieces, begin = [], [], 0
    for chain, rows in evidence.settled.items():
        if len(rows) >= number * _LEAST:
            pieces += np.array_split(evidence.normal_scores[begin : begin + len(rows)], number)
            owners.append(chain)
        begin += len(rows)
    return owners, parts(pieces or [evidence.normal_scores])
