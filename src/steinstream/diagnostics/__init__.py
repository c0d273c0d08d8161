"""Diagnostic checks of a kept set: comparisons that KSD cannot make.

KSD measures how well draws fit the scores. Scores contain no information about the mass of separate modes, and a chain
that does not move can have perfect scores. The checks therefore compare the kept draws with a subsample of the stream
(at most 4096 evenly spaced draws), and parts of the stream with each other. Scores are not required; without them,
only the check of the scores is skipped.

Each check has a value and a threshold. The threshold is the effect that matters or the noise of a clean run, whichever
is larger (for R-hat^2 their sum). The noise has two sources. The stream is autocorrelated, so a mean of f over it has
the variance of ESS(f) independent draws, estimated for each f. The kept draws have at most the noise of independent
draws, so that a random subset of the stream passes; if the other parameters show that they have less, a single
parameter is judged more strictly (:mod:`steinstream.diagnostics.mcse`). If a check makes several comparisons, they
share its false-alarm rate of 0.1 % (Bonferroni).

Each check also has a sensitivity: the smallest fault that it finds with a probability of 90 %, which is the threshold
plus 1.28 standard errors. A check that did not fire excludes only faults that are larger. experiments/diagnosis
measures the false-alarm rates, which faults are detected, and whether faults as large as the sensitivity are.

A clean run is a chain that has converged, has an effective sample size of at least 100 and the scores of its own
target, thinned to at least 20 draws that resemble the stream at least as well as a random subset.

Cost: O(4096 d log 4096) and O(4096 d^2), about 0.1 s at d = 10 and 0.6 s at d = 50.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from steinstream._typing import Array, Integers
from steinstream.diagnostics.burn_in import check_burn_in
from steinstream.diagnostics.context import DiagnosticContext
from steinstream.diagnostics.convergence import check_chains, check_drift
from steinstream.diagnostics.directions import check_directions
from steinstream.diagnostics.finding import FALSE_ALARM, POWER, Diagnosis, Finding, skipped
from steinstream.diagnostics.mixing import check_constant, check_size, check_slow, check_stuck
from steinstream.diagnostics.moments import check_mean, check_spread
from steinstream.diagnostics.notes import notes_of_data, notes_of_settings
from steinstream.diagnostics.proportions import check_quantiles, check_ranges, check_regions
from steinstream.diagnostics.stein_identity import check_scores
from steinstream.diagnostics.weights import check_weights
from steinstream.validation import Block

__all__ = ["CHECKS", "FALSE_ALARM", "MIN_DRAWS", "POWER", "Diagnosis", "Finding", "diagnose", "diagnose_scores"]

#: Smallest number of draws of the stream that can be checked.
MIN_DRAWS = 100

#: Checks of the kept draws or of the stream alone.
_SEPARATE = {"size": check_size, "stuck": check_stuck, "drift": check_drift, "chains": check_chains}

#: Checks that need a stream with enough effective draws.
_COMPARISONS = {
    "scores": check_scores,
    "burn-in": check_burn_in,
    "weights": check_weights,
    "regions": check_regions,
    "mean": check_mean,
    "quantiles": check_quantiles,
    "spread": check_spread,
    "ranges": check_ranges,
    "directions": check_directions,
}

#: Names of all checks, in the order of the findings.
CHECKS = ("constant", "slow", *_SEPARATE, *_COMPARISONS)

#: Checks that also fire because of wrong scores or weights, and the advice in this case.
_CONSEQUENCES = ("regions", "mean", "quantiles", "spread", "ranges", "directions")
_CAUSES = {
    "scores": "probably caused by the scores: correct them first",
    "weights": "probably caused by the weights: correct them first",
}


def diagnose(
    draws: Array,
    ids: Integers,
    stream: Block,
    names: Sequence[str] | None = None,
    weights: Array | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Diagnosis:
    """Compare kept draws with a subsample of their stream.

    Parameters
    ----------
    draws : array
        Kept draws, (n, d).
    ids : array
        Their identifiers (chain, index), (n, 2).
    stream : Block
        Evenly spaced draws of the stream. Its scores may have no columns.
    names : sequence of str, optional
        Parameter names. Default: x0, x1, ...
    weights : array, optional
        Weights of the kept draws, (n,). Default: equal.
    settings : mapping, optional
        Settings of the kept set, which tell whether the scores are those of the target. Default: they are.

    Returns
    -------
    Diagnosis
        One finding per check. All checks are skipped if the stream has fewer than 100 draws.

    Examples
    --------
    >>> import numpy as np, steinstream as ss
    >>> draws = np.random.default_rng(0).normal(size=(5000, 2))
    >>> kept = ss.thin(draws, -draws, size=400)
    >>> print(diagnose(kept.draws, kept.ids, kept.stream)["mean"])
    mean: differences above 0.25 sd would have been found; largest found -0.01 sd (x0)
    >>> left = kept.draws[:, 0] < 0
    >>> [finding.name for finding in diagnose(kept.draws[left], kept.ids[left], kept.stream).fired]
    ['regions', 'mean', 'quantiles', 'spread', 'directions']

    """
    proxy, notes = notes_of_settings(settings or {})
    if len(draws) == 0:
        return _nothing_checked("the kept set is empty", notes)
    if len(stream.draws) < MIN_DRAWS:
        return _nothing_checked(f"the stream has {len(stream.draws)} draws, at least {MIN_DRAWS} are required", notes)
    with np.errstate(all="ignore"):  # values that overflow do not fire
        context, constant = DiagnosticContext(draws, ids, stream, names, weights).without_constants()
        slow = check_slow(context)
        findings = [check_constant(constant), slow, *(check(context) for check in _SEPARATE.values())]
        for name, check in _COMPARISONS.items():
            reason = _reason_to_skip(name, slow, context, proxy)
            found = skipped(name, reason) if reason else check(context)
            findings += [] if found is None else [found]
        notes += notes_of_data(context, slow.value, has_scores=context.has_scores and not proxy)
    return Diagnosis(_with_common_cause(findings), notes, len(draws), len(context.draws), slow.value)


def diagnose_scores(stream: Block) -> Finding | None:
    """Run the check of the scores alone; return None without scores or with too few effective draws."""
    with np.errstate(all="ignore"):
        context, _ = DiagnosticContext(stream.draws, stream.ids, stream).without_constants()
        return check_scores(context) if context.has_scores and not check_slow(context).fired else None


def _nothing_checked(reason: str, notes: tuple[str, ...]) -> Diagnosis:
    return Diagnosis(tuple(skipped(name, reason) for name in CHECKS), notes)


def _reason_to_skip(name: str, slow: Finding, context: DiagnosticContext, proxy: bool) -> str:
    """Return why a comparison cannot be made; empty if it can."""
    if name == "scores" and proxy:
        return "the scores are not those of the target"
    if name == "scores" and not context.has_scores:
        return "no scores"
    return "the stream has too few effective draws" if slow.fired else ""


def _with_common_cause(findings: list[Finding]) -> tuple[Finding, ...]:
    """Replace the advice of findings that are probably consequences of another one."""
    fired = {finding.name for finding in findings if finding.fired}
    advice = next((advice for cause, advice in _CAUSES.items() if cause in fired), None)
    if advice is None:
        return tuple(findings)
    return tuple(replace(one, advice=advice) if one.name in _CONSEQUENCES and one.fired else one for one in findings)
