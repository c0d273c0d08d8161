"""What KSD does not see: the kept draws against the stream they come from, and the stream against itself.

KSD measures how well draws fit the scores. Scores know nothing of how much mass a mode far from the others has, and a
chain that is stuck has perfect scores. The stream knows the one, and shows the other. Here a sketch of it (at most 4096
evenly spaced draws) is compared with what is kept.

Each check has a number and a threshold: the effect that would matter, or the noise that a clean run has, whichever is
larger (for R-hat^2 their sum). Noise is counted for both sides. The stream is autocorrelated, so a mean of f over it
has the variance of ESS(f) independent draws, estimated for each f; kept draws are better spread than independent ones,
and are given the noise of independent ones all the same: a random subset of the stream passes. Each check may fire on
0.5 % of clean runs, so that all ten together stay silent on 95 %; where a check makes several comparisons they share
that (Bonferroni), and the normal quantile follows. experiments/diagnosis measures it, and what faults are found.

A clean run is a chain that has settled, moves (100 effective draws or more) and has the scores of its own target,
thinned to a set that resembles the stream as well as a random subset does.

Cost: O(4096 d log 4096) and O(4096 d^2), about 0.1 s at d = 10 and 0.4 s at d = 50.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from steinstream.diagnostics import burn_in, convergence, mixing, moments, proportions, stein_identity, weights
from steinstream.diagnostics.context import Evidence
from steinstream.diagnostics.finding import FALSE_ALARM, Diagnosis, Finding
from steinstream.validation import Array, Block, Integers

__all__ = ["FALSE_ALARM", "FEWEST", "Diagnosis", "Finding", "diagnose", "of_scores"]

#: With fewer draws nothing can be told.
FEWEST = 100

#: The stream against itself.
OF_THE_STREAM = (mixing.stuck, convergence.drift, convergence.chains)

#: The stream, if it can be trusted, against its scores and what is kept.
AGAINST_THE_STREAM = (
    stein_identity.check, burn_in.check, weights.check, proportions.regions, moments.mean, proportions.quantiles, moments.spread,
)  # fmt: skip

#: What wrong scores, or else weights, set off besides, and what to do about it then.
CONSEQUENCES = ("regions", "mean", "quantiles", "spread")
CAUSES = {
    "scores": "follows from the scores: repair them first",
    "weights": "may come from the weights: repair them first",
}


def diagnose(
    points: Array, ids: Integers, stream: Block, names: Sequence[str] | None = None, weights: Array | None = None
) -> Diagnosis:
    """Compare kept draws (n, d), with their ids (n, 2) and weights (n,), to evenly spaced draws of the stream.

    >>> import numpy as np, steinstream as ss
    >>> draws = np.random.default_rng(0).normal(size=(5000, 2))
    >>> kept = ss.thin(draws, -draws, size=100)
    >>> diagnose(kept.draws, kept.ids, kept.stream)
    All 9 checks passed: nothing found that KSD would miss.
    >>> left = kept.draws[:, 0] < 0
    >>> [finding.name for finding in diagnose(kept.draws[left], kept.ids[left], kept.stream).fired]
    ['regions', 'mean', 'quantiles', 'spread']
    """
    if len(stream.draws) < FEWEST or len(points) == 0:
        return Diagnosis((), f"too few draws to tell: {len(stream.draws)} came, and it takes {FEWEST}")
    with np.errstate(all="ignore"):  # numbers beyond all bounds set no check off
        evidence, still = Evidence(points, ids, stream, names, weights).without_constants()
        slow = mixing.slow(evidence)
        checks = OF_THE_STREAM if slow.fired else (*OF_THE_STREAM, *AGAINST_THE_STREAM)
        first = (mixing.constant(still), slow) if still else (slow,)
        found = (*first, *(finding for check in checks if (finding := check(evidence)) is not None))
    return Diagnosis(_with_consequences(found))


def of_scores(stream: Block) -> Finding | None:
    """The check of the scores alone; None if the stream is too slow to tell."""
    with np.errstate(all="ignore"):
        evidence, _ = Evidence(stream.draws, stream.ids, stream).without_constants()
        return None if mixing.slow(evidence).fired else stein_identity.check(evidence)


def _with_consequences(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """The same, where one cause is behind several of them with the advice to see to that."""
    fired = {finding.name for finding in findings if finding.fired}
    advice = next((advice for cause, advice in CAUSES.items() if cause in fired), None)
    if advice is None:
        return findings
    return tuple(replace(one, advice=advice) if one.name in CONSEQUENCES and one.fired else one for one in findings)
