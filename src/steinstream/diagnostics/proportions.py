"""Checks ``regions``, ``quantiles`` and ``ranges``: proportions of the kept draws in parts of the stream.

Two proportions p and q are compared by Cohen's h = 2 |arcsin sqrt p - arcsin sqrt q|, whose noise is the same for all
p. The effect that matters is h = 0.1, which is 0.55 instead of 0.5 or 0.03 instead of 0.05: half of what J. Cohen,
"Statistical power analysis" (1988), calls a small effect. The proportion of k of n kept draws is estimated by
(k + 3/8) / (n + 3/4), after F. J. Anscombe (1948), so that 0 of 100 is not significant if 5 are expected.

``ranges`` judges the width of each parameter by the proportions within the 25-75 % and the 5-95 % range of the stream.
The noise of a proportion does not depend on the tails, so that a funnel or a Student t distribution is judged as
strictly as a normal distribution.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from steinstream._typing import Array
from steinstream.diagnostics.context import DiagnosticContext
from steinstream.diagnostics.finding import Finding, skipped
from steinstream.diagnostics.mcse import relative_noise, sensitivity, threshold
from steinstream.diagnostics.moments import REMEDY, describe_bounds
from steinstream.diagnostics.regions import region_membership

_EFFECT = 0.1
_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
_RANGES = ((0.25, 0.75), (0.05, 0.95))
_CONTINUOUS = 50  # different values of a parameter from which it is treated as continuous
_RATIOS = np.append(
    np.arange(1, 200) / 100.0, np.geomspace(2.0, 100.0, 80)
)  # widths for which the sensitivity is found


class Proportions(NamedTuple):
    """Proportions of kept draws and stream in k sets, and their differences.

    ``values`` are Cohen's h of each set, ``limits`` their thresholds, and ``found`` the sensitivity: the smallest
    differences that are found with a probability of 90 %.
    """

    kept: Array
    stream: Array
    values: Array
    limits: Array
    found: Array
    kept_count: int

    @property
    def worst(self) -> int:
        """Index of the set whose proportion differs most, relative to its threshold."""
        return int(np.argmax(self.values / self.limits))

    @property
    def smallest_lost(self) -> float:
        """The smallest proportion whose complete loss would have been found; 1 if none."""
        angle = 0.5 * float(self.limits.max()) + math.asin(math.sqrt(0.375 / (self.kept_count + 0.75)))
        return math.sin(min(angle, 0.5 * math.pi)) ** 2

    @property
    def half(self) -> float:
        """The proportion that would have been found, with a probability of 90 %, instead of one half."""
        return _shifted(0.5, -float(self.found.max()))

    def finding(self, name: str, says: str, found: str, advice: str, detects: str) -> Finding:
        """Return the finding about the worst set."""
        value, limit = float(self.values[self.worst]), float(self.limits[self.worst])
        return Finding(
            name=name,
            value=value,
            threshold=limit,
            fired=value > limit,
            says=says,
            advice=advice,
            allowed=f"Cohen's h {value:.2g}, at most {limit:.2g}",
            sensitivity=float(self.found.max()),
            detects=detects,
            found=found,
        )


def check_regions(context: DiagnosticContext) -> Finding:
    """Compare the proportions of all regions, and report the one that differs most.

    A mode whose mass changes under KSD is one region or several. Half of the false-alarm rate goes to the partition in
    two regions, which is a single comparison, a quarter to that in four, and so on.

    Returns
    -------
    Finding
        The check ``regions``.
    """
    partitions, membership = context.partitions, context.membership
    comparisons = [2 ** (level + 1) * (1 if len(cells) == 2 else len(cells)) for level, cells in enumerate(partitions)]
    kept = context.weights @ region_membership(context.standardise(context.kept), partitions)
    found = _compare(context, membership, kept, np.repeat(comparisons, [*map(len, partitions)]))
    if found.half <= 0.0 and found.smallest_lost >= 1.0:
        return skipped("regions", f"{context.kept_count} kept draws are too few")
    worst = found.worst
    if worst < len(partitions[0]) == 2 and found.stream[worst] > 0.5:
        worst = 1 - worst  # report the smaller one of two
    return found.finding(
        name="regions",
        says=f"the region around {context.describe_region(worst)} holds {found.stream[worst]:.1%} of the "
        f"stream and {kept[worst]:.1%} of the kept draws",
        found=f"most different {found.stream[worst]:.0%} and {kept[worst]:.0%} (near {context.describe_region(worst)})",
        advice=f"KSD is insensitive to the proportions of separate modes: {REMEDY}",
        detects=f"a region of 50% that holds {found.half:.0%}, or a lost region of {100.0 * found.smallest_lost:.2g}%,",
    )


def check_quantiles(context: DiagnosticContext) -> Finding:
    """Compare the proportions of draws below the quantiles of the stream, and report the largest difference."""
    dim, cuts = context.draws.shape[1], np.quantile(context.draws, _LEVELS, axis=0)  # (levels, d)
    below = np.concatenate([context.draws <= cut for cut in cuts], axis=1).astype(np.float64)
    kept = context.weights @ np.concatenate([context.kept <= cut for cut in cuts], axis=1)
    found = _compare(context, below, kept, np.full(len(kept), len(kept)), dim)
    if found.half <= 0.0:
        return skipped("quantiles", f"{context.kept_count} kept draws are too few")
    level, name = _LEVELS[found.worst // dim], context.names[found.worst % dim]
    tail = min(_LEVELS)
    is_tail_found = found.smallest_lost <= tail
    missed = "" if is_tail_found else f"; a lost tail of {tail:.0%} would be missed"
    return found.finding(
        name="quantiles",
        says=f"{kept[found.worst]:.0%} of the kept draws lie below the {level:.0%} quantile of {name} in the stream",
        found=f"most different {kept[found.worst]:.0%} below the {level:.0%} quantile of {name}{missed}",
        advice=REMEDY,
        detects=f"{found.half:.0%} below the median{f', or a lost tail of {tail:.0%},' if is_tail_found else ''}",
    )


def check_ranges(context: DiagnosticContext) -> Finding:
    """Compare the proportions of draws within ranges between quantiles of the stream."""
    dim = context.draws.shape[1]
    cuts = [np.quantile(context.draws, ends, axis=0) for ends in _RANGES]
    inside = np.concatenate([_within(context.draws, *cut) for cut in cuts], axis=1)
    kept = context.weights @ np.concatenate([_within(context.kept, *cut) for cut in cuts], axis=1)
    found = _compare(context, inside, kept, np.full(len(kept), len(kept)), dim)
    if found.half <= 0.0:
        return skipped("ranges", f"{context.kept_count} kept draws are too few")
    worst = found.worst
    low, high = _RANGES[worst // dim]
    label, name = f"{100 * low:.0f}-{100 * high:.0f}% range", context.names[worst % dim]
    is_narrow = kept[worst] > found.stream[worst]
    fault = f": the set is too {'narrow' if is_narrow else 'wide'}" if found.values[worst] > found.limits[worst] else ""
    return found.finding(
        name="ranges",
        says=f"{kept[worst]:.0%} of the kept draws lie in the {label} of {name} in the stream, which holds "
        f"{found.stream[worst]:.0%}{fault}",
        found=f"most different {kept[worst]:.0%} in the {label} of {name}",
        advice=f"intervals would be too {'short' if is_narrow else 'long'}: {REMEDY}",
        detects=_detectable_widths(context, found),
    )


def _compare(
    context: DiagnosticContext, membership: Array, kept: Array, comparisons: Array, group: int | None = None
) -> Proportions:
    """Compare the proportions of kept draws and stream in k sets.

    ``membership`` (n, k) has the draws of the stream in each of k sets as 0 and 1, ``kept`` (k,) the proportions of the
    kept draws, and ``comparisons`` (k,) the number of comparisons that share the false-alarm rate of each. If the sets
    are the same for several parameters, ``group`` is the number of parameters.
    """
    count, stream = context.kept_count, membership.mean(axis=0)
    signed = _signed_h(kept, stream, count)
    varies = (stream > 0.0) & (stream < 1.0)  # not in discrete parameters, if a quantile is the largest value
    noise = np.where(varies, context.standard_error(membership), 1.0 / math.sqrt(count))
    if group is not None:
        noise *= np.concatenate([relative_noise(part) for part in np.split(signed / noise, len(kept) // group)])
    limits = threshold(_EFFECT, noise, comparisons)
    return Proportions(kept, stream, np.abs(signed), limits, sensitivity(limits, noise), count)


def _detectable_widths(context: DiagnosticContext, found: Proportions) -> str:
    """Return which changes of the scale of a parameter would have been found, for the least sensitive one.

    If the distances of all draws from the median are multiplied by r, a range around the median holds the proportion
    that the range divided by r held before. It is evaluated for a grid of ratios r. Parameters with few values are left
    out.
    """
    centred = np.sort(context.draws - np.median(context.draws, axis=0), axis=0)
    dim = centred.shape[1]
    narrow, wide = np.zeros(dim), np.full(dim, math.inf)
    continuous = np.array([len(np.unique(column)) >= _CONTINUOUS for column in context.draws.T])
    if not continuous.any():  # the proportions of few values do not change continuously with the width
        return "proportions of values that differ"
    for k, ends in enumerate(_RANGES):
        for j, (low, high) in enumerate(np.quantile(centred, ends, axis=0).T):
            column = slice(k * dim + j, k * dim + j + 1)
            inside = np.searchsorted(centred[:, j], high / _RATIOS, "right")
            inside -= np.searchsorted(centred[:, j], low / _RATIOS, "left")
            changes = _signed_h(inside / len(centred), found.stream[column], found.kept_count)
            narrow[j] = max(narrow[j], _RATIOS[changes > found.found[column]].max(initial=0.0))
            wide[j] = min(wide[j], _RATIOS[changes < -found.found[column]].min(initial=math.inf))
    return describe_bounds("widths", float(narrow[continuous].min()), float(wide[continuous].max()))


def _signed_h(kept: Array, stream: Array, count: int) -> Array:
    """Return Cohen's h of proportions of ``count`` kept draws; positive if the kept draws have more."""
    smoothed = (np.minimum(kept, 1.0) * count + 0.375) / (count + 0.75)
    return np.asarray(2.0 * (np.arcsin(np.sqrt(smoothed)) - np.arcsin(np.sqrt(stream))))


def _within(draws: Array, low: Array, high: Array) -> Array:
    return ((draws >= low) & (draws <= high)).astype(np.float64)


def _shifted(proportion: float, h: float) -> float:
    """Return the proportion that differs by Cohen's h, at least 0 and at most 1."""
    angle = math.asin(math.sqrt(proportion)) + 0.5 * h
    return math.sin(min(max(angle, 0.0), 0.5 * math.pi)) ** 2
