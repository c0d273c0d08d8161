"""Check ``weights``: whether weights move a kept set away from the stream.

Weights that minimise KSD alone have the same limitations as KSD: they can move mass between separate modes. A weighted
set is therefore judged as n draws, whatever its effective size, and compared with the same set under equal weights.
"""

from __future__ import annotations

import math

from steinstream.diagnostics.context import DiagnosticContext
from steinstream.diagnostics.finding import Finding, skipped
from steinstream.diagnostics.moments import check_mean, check_spread
from steinstream.diagnostics.proportions import check_ranges, check_regions

_WORSE = 1.5  # times as far off as with equal weights
_MIN_FRACTION, _MIN_SIZE = 0.25, 8.0  # of the effective size; sound weights in one dimension have 15 of 300
_REMEDY = "use no weights, or compute them with the chain: weighted(like=draws)"


def check_weights(context: DiagnosticContext) -> Finding:
    """Compare the set with and without its weights, and measure their effective size; skipped for equal weights."""
    if not context.is_weighted:
        return skipped("weights", "equal weights")
    worse = _worse_than_equal(context)
    if worse is not None:
        return worse
    size, count = float(1.0 / (context.weights**2).sum()), context.kept_count
    required = min(_MIN_FRACTION * count, _MIN_SIZE)
    return Finding(
        name="weights",
        value=required / size,
        threshold=1.0,
        fired=size < required,
        says=f"the effective size of the weights is {size:.1f} for {count} draws",
        advice=_REMEDY,
        allowed=f"at least {required:.3g}",
        sensitivity=1.0,
        detects=f"an effective size below {required:.3g}, or a fired check that is {_WORSE:g} times as far off as with "
        "equal weights,",
        found=f"effective size {size:.1f}",
    )


def _worse_than_equal(context: DiagnosticContext) -> Finding | None:
    """Return a finding if a check fires that is clearly farther off than with equal weights."""
    unweighted = context.unweighted()
    for check in (check_regions, check_mean, check_spread, check_ranges):
        finding = check(context)
        value, before = _severity(finding), _severity(check(unweighted))
        if finding.fired and value > _WORSE * before:
            return Finding(
                name="weights",
                value=value,
                threshold=max(1.0, _WORSE * before),
                fired=True,
                says=f"the weights move the set away from the stream: {finding.says}",
                advice=_REMEDY,
                allowed=f"{value:.2g} times the tolerance, {before:.2g} times with equal weights",
            )
    return None


def _severity(finding: Finding) -> float:
    """Return the value relative to the threshold; above 1 if the check fires, 0 if it was skipped."""
    if finding.skipped:
        return 0.0
    if finding.name == "spread":
        return math.log(max(finding.value, 1e-300)) / math.log(finding.threshold) if 0 < finding.threshold != 1 else 0.0
    return finding.value / finding.threshold
