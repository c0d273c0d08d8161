"""Diagnostic checks of a kept set: comparisons that KSD cannot make.

KSD measures how well draws fit the scores. Scores contain no information about the mass of separate modes, and a chain
that does not move can have perfect scores. The checks therefore compare the kept draws with a subsample of the stream
(at most 4096 evenly spaced draws), and parts of the stream with each other.

Each check has a value and a threshold. The threshold is the effect that matters or the noise of a clean run, whichever
is larger (for R-hat^2 their sum). The noise has two sources. The stream is autocorrelated, so a mean of f over it has
the variance of ESS(f) independent draws, estimated for each f. Kept draws are better spread than independent ones, but
are given the noise of independent draws, so that a random subset of the stream passes. Each check may fire on 0.5 % of
clean runs, so that all ten together pass on 95 %. If a check makes several comparisons, they share this rate
(Bonferroni). experiments/diagnosis measures the false-alarm rates, and which faults are detected.

A clean run is a chain that has converged, has an effective sample size of at least 100 and the scores of its own
target, thinned to a set that resembles the stream at least as well as a random subset.

Cost: O(4096 d log 4096) and O(4096 d^2), about 0.1 s at d = 10 and 0.4 s at d = 50.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from steinstream._typing import Array, Integers
from steinstream.diagnostics.burn_in import check_burn_in
from steinstream.diagnostics.context import DiagnosticContext
from steinstream.diagnostics.convergence import check_chains, check_drift
from steinstream.diagnostics.finding import FALSE_ALARM, Diagnosis, Finding
from steinstream.diagnostics.mixing import check_constant, check_slow, check_stuck
from steinstream.diagnostics.moments import check_mean, check_spread
from steinstream.diagnostics.proportions import check_quantiles, check_regions
from steinstream.diagnostics.stein_identity import check_scores
from steinstream.diagnostics.weights import check_weights
from steinstream.validation import Block

__all__ = ["FALSE_ALARM", "MIN_DRAWS", "Diagnosis", "Finding", "diagnose", "diagnose_scores"]

#: Smallest number of draws of the stream that can be checked.
MIN_DRAWS = 100

#: Checks of the stream alone.
_STREAM_CHECKS = (check_stuck, check_drift, check_chains)

#: Checks that need a stream with enough effective draws.
_COMPARISONS = (
    check_scores,
    check_burn_in,
    check_weights,
    check_regions,
    check_mean,
    check_quantiles,
    check_spread,
)

#: Checks that also fire because of wrong scores or weights, and the advice in this case.
_CONSEQUENCES = ("regions", "mean", "quantiles", "spread")
_CAUSES = {
    "scores": "probably caused by the scores: correct them first",
    "weights": "probably caused by the weights: correct them first",
}


def diagnose(
    draws: Array, ids: Integers, stream: Block, names: Sequence[str] | None = None, weights: Array | None = None
) -> Diagnosis:
    """Compare kept draws with a subsample of their stream.

    Parameters
    ----------
    draws : array
        Kept draws, (n, d).
    ids : array
        Their identifiers (chain, index), (n, 2).
    stream : Block
        Evenly spaced draws of the stream.
    names : sequence of str, optional
        Parameter names. Default: x0, x1, ...
    weights : array, optional
        Weights of the kept draws, (n,). Default: equal.

    Returns
    -------
    Diagnosis
        One finding per check. It is empty, with a note, if the stream has fewer than 100 draws.

    Examples
    --------
    >>> import numpy as np, steinstream as ss
    >>> draws = np.random.default_rng(0).normal(size=(5000, 2))
    >>> kept = ss.thin(draws, -draws, size=100)
    >>> diagnose(kept.draws, kept.ids, kept.stream)
    All 9 checks passed.
    >>> left = kept.draws[:, 0] < 0
    >>> [finding.name for finding in diagnose(kept.draws[left], kept.ids[left], kept.stream).fired]
    ['regions', 'mean', 'quantiles', 'spread']

    """
    if len(stream.draws) < MIN_DRAWS or len(draws) == 0:
        return Diagnosis(
            (), f"Not checked: the stream has {len(stream.draws)} draws, at least {MIN_DRAWS} are required."
        )
    with np.errstate(all="ignore"):  # values that overflow do not fire
        context, constant = DiagnosticContext(draws, ids, stream, names, weights).without_constants()
        slow = check_slow(context)
        checks = _STREAM_CHECKS if slow.fired else (*_STREAM_CHECKS, *_COMPARISONS)
        first = (check_constant(constant), slow) if constant else (slow,)
        findings = (*first, *(finding for check in checks if (finding := check(context)) is not None))
    return Diagnosis(_with_common_cause(findings))


def diagnose_scores(stream: Block) -> Finding | None:
    """Run the check of the scores alone; return None if the effective sample size of the stream is too small."""
    with np.errstate(all="ignore"):
        context, _ = DiagnosticContext(stream.draws, stream.ids, stream).without_constants()
        return None if check_slow(context).fired else check_scores(context)


def _with_common_cause(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Replace the advice of findings that are probably consequences of another one."""
    fired = {finding.name for finding in findings if finding.fired}
    advice = next((advice for cause, advice in _CAUSES.items() if cause in fired), None)
    if advice is None:
        return findings
    return tuple(replace(one, advice=advice) if one.name in _CONSEQUENCES and one.fired else one for one in findings)
