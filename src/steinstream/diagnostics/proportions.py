"""Checks ``regions`` and ``quantiles``: proportions of the kept draws in parts of the stream.

Two proportions p and q are compared by Cohen's h = 2 |arcsin sqrt p - arcsin sqrt q|, whose noise is the same for all
p. The effect that matters is h = 0.1, which is 0.55 instead of 0.5 or 0.03 instead of 0.05: half of what J. Cohen,
"Statistical power analysis" (1988), calls a small effect. The proportion of k of n kept draws is estimated by
(k + 3/8) / (n + 3/4), after F. J. Anscombe (1948), so that 0 of 100 is not significant if 5 are expected.
"""

from __future__ import annotations

import numpy as np

from steinstream._typing import Array
from steinstream.diagnostics.context import DiagnosticContext
from steinstream.diagnostics.finding import Finding
from steinstream.diagnostics.mcse import threshold
from steinstream.diagnostics.regions import region_membership

_EFFECT = 0.1
_LEVELS = (0.05, 0.5, 0.95)


def check_regions(context: DiagnosticContext) -> Finding:
    """Compare the proportions of all regions, and report the one that differs most.

    A mode whose mass changes under KSD is one region or several. Half of the false-alarm rate goes to the partition in
    two regions, which is a single comparison, a quarter to that in four, and so on.

    Parameters
    ----------
    context : DiagnosticContext
        Kept draws and stream.

    Returns
    -------
    Finding
        The region whose proportion differs most.

    """
    partitions, membership = context.partitions, context.membership
    comparisons = [2 ** (level + 1) * (1 if len(cells) == 2 else len(cells)) for level, cells in enumerate(partitions)]
    kept = context.weights @ region_membership(context.standardise(context.kept), partitions)
    value, limit, worst = _most_different(context, membership, kept, np.repeat(comparisons, [*map(len, partitions)]))
    if worst < len(partitions[0]) == 2 and membership[:, worst].mean() > 0.5:
        worst = 1 - worst  # report the smaller one of two
    return Finding(
        name="regions",
        value=value,
        threshold=limit,
        fired=value > limit,
        says=f"the region around {context.describe_region(worst)} holds {membership[:, worst].mean():.1%} of the "
        f"stream and {kept[worst]:.1%} of the kept draws",
        advice="KSD is insensitive to the proportions of separate modes: use a stream term (stream_weight=1, "
        "--stream-weight 1)",
        allowed=_tolerance(value, limit),
    )


def check_quantiles(context: DiagnosticContext) -> Finding:
    """Compare the proportions of draws below the quantiles of the stream, and report the largest difference."""
    cuts = np.quantile(context.draws, _LEVELS, axis=0)  # (3, d)
    below = np.concatenate([context.draws <= cut for cut in cuts], axis=1).astype(np.float64)
    kept = context.weights @ np.concatenate([context.kept <= cut for cut in cuts], axis=1)
    value, limit, worst = _most_different(context, below, kept, np.full(len(kept), len(kept)))
    level, name = _LEVELS[worst // cuts.shape[1]], context.names[worst % cuts.shape[1]]
    return Finding(
        name="quantiles",
        value=value,
        threshold=limit,
        fired=value > limit,
        says=f"{kept[worst]:.0%} of the kept draws lie below the {level:.0%} quantile of {name} in the stream",
        advice="keep more draws, use a fitted preconditioner, or match the moments of the chain (--weights chain)",
        allowed=_tolerance(value, limit),
    )


def _tolerance(value: float, limit: float) -> str:
    return f"Cohen's h {value:.2g}, at most {limit:.2g}"


def _most_different(
    context: DiagnosticContext, membership: Array, kept: Array, comparisons: Array
) -> tuple[float, float, int]:
    """Return h, its threshold and the index of the set whose proportion differs most.

    ``membership`` (n, k) has the draws of the stream in each of k sets as 0 and 1, ``kept`` (k,) the proportions of the
    kept draws, and ``comparisons`` (k,) the number of comparisons that share the false-alarm rate of each.
    """
    count = context.kept_count
    smoothed = (np.minimum(kept, 1.0) * count + 0.375) / (count + 0.75)
    values = 2.0 * np.abs(np.arcsin(np.sqrt(membership.mean(axis=0))) - np.arcsin(np.sqrt(smoothed)))
    limits = threshold(_EFFECT, context.standard_error(membership), comparisons)
    worst = int(np.argmax(values / limits))
    return float(values[worst]), float(limits[worst]), worst
