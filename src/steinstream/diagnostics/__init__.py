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

Findings that fired have an order: a fault explains others, which are its consequences. Wrong scores explain a wrong
mean; a lost mode explains a wrong spread.

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
CHECKS = ("constant", "slow", *_SEPARATE, "scores", *_COMPARISONS)

#: Differences between kept draws and stream; the first one that fired explains the others.
_DIFFERENCES = ("regions", "spread", "ranges", "mean", "quantiles", "directions")

#: Checks that explain others if they fired, causes first.
_EXPLAINS = {
    "stuck": ("chains", "drift", "slow"),
    "chains": ("slow",),
    "drift": ("slow",),
    "scores": _DIFFERENCES,
    "weights": _DIFFERENCES,
    "size": _DIFFERENCES,
}


def diagnose(
    draws: Array,
    ids: Integers,
    stream: Block,
    names: Sequence[str] | None = None,
    weights: Array | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Diagnosis:
    """Compare kept draws (n, d) with evenly spaced draws of their stream, whose scores may have no columns.

    Of the settings of the kept set three are used: whether its draws have scores, whether these are those of the
    target, and where burn-in ends. By default scores are those of the target, and the end of the burn-in is estimated
    from the stream.

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
    ['spread', 'regions', 'mean', 'quantiles', 'directions']
    """
    proxy, notes = notes_of_settings(settings or {})
    if len(draws) == 0:
        return _nothing_checked("the kept set is empty", notes)
    if len(stream.draws) < MIN_DRAWS:
        return _nothing_checked(f"the stream has {len(stream.draws)} draws, at least {MIN_DRAWS} are required", notes)
    with np.errstate(all="ignore"):  # values that overflow do not fire
        ends = dict((settings or {}).get("burn_in_ends", ()))
        context, constant = DiagnosticContext(draws, ids, stream, names, weights, ends).without_constants()
        slow = check_slow(context)
        findings = [check_constant(constant), slow, *(check(context) for check in _SEPARATE.values())]
        kept_only = not proxy and not context.has_scores and bool((settings or {}).get("has_scores"))
        if proxy or kept_only:
            reason = "only kept draws have scores" if kept_only else "the scores are not those of the target"
            findings.append(skipped("scores", reason))
        else:
            findings.append(check_scores(context, is_slow=slow.fired))
        for name, check in _COMPARISONS.items():
            too_few = "the stream has too few effective draws"
            findings.append(skipped(name, too_few) if slow.fired else check(context))
        notes += notes_of_data(context, slow.value, has_scores=kept_only or (context.has_scores and not proxy))
        findings = _with_causes(findings, context)
    return Diagnosis(tuple(findings), notes, len(draws), len(context.draws), slow.value)


def diagnose_scores(stream: Block) -> Finding:
    """Run the check of the scores alone."""
    with np.errstate(all="ignore"):
        context, _ = DiagnosticContext(stream.draws, stream.ids, stream).without_constants()
        return check_scores(context, is_slow=check_slow(context).fired)


def _nothing_checked(reason: str, notes: tuple[str, ...]) -> Diagnosis:
    return Diagnosis(tuple(skipped(name, reason) for name in CHECKS), notes)


def _with_causes(findings: list[Finding], context: DiagnosticContext) -> list[Finding]:
    """Name the cause of each finding that another one probably explains, and replace its advice."""
    fired = [one.name for one in findings if one.fired]
    causes: dict[str, str] = {}
    for cause, explained in {**_EXPLAINS, _main_difference(fired, context): _DIFFERENCES}.items():
        if cause in fired:
            causes |= {name: cause for name in explained if name in fired and name not in (cause, *causes)}
    return [
        replace(one, cause=causes[one.name], advice=f"probably a consequence of {causes[one.name]}")
        if one.name in causes
        else one
        for one in findings
    ]


def _main_difference(fired: list[str], context: DiagnosticContext) -> str:
    """Return the difference that explains the others; empty if there is none.

    Wrong proportions may be a consequence themselves: a set that is too wide has wrong proportions in all regions.
    """
    found = [name for name in _DIFFERENCES if name in fired]
    if found[:1] == ["regions"] and len(found) > 1 and not _proportions_explain(context):
        return found[1]
    return found[0] if found else ""


def _proportions_explain(context: DiagnosticContext) -> bool:
    """Return whether mean and spread of the kept draws are right for their proportions in two or four regions."""
    similar = [context.with_proportions_of_kept(centres) for centres in context.partitions[:2]]
    return any(not check_mean(one).fired and not check_spread(one).fired for one in similar)
