"""Does every part of the stream have its share of the kept draws? Regions, and the tails of each parameter.

Two shares are as far apart as Cohen's h = 2 |arcsin sqrt p - arcsin sqrt q|, whose noise is the same for all p. What
matters begins at h = 0.1, which is 0.55 for 0.5 or 0.03 for 0.05: half of what J. Cohen, "Statistical power analysis"
(1988), calls a small effect. The share of k in n kept draws is taken as (k + 3/8) / (n + 3/4), after F. J. Anscombe
(1948), so that none in a hundred is no surprise where five are due.
"""

from __future__ import annotations

import numpy as np

from steinstream.diagnostics.context import Evidence
from steinstream.diagnostics.finding import Finding
from steinstream.diagnostics.mcse import threshold
from steinstream.diagnostics.regions import regions_of
from steinstream.validation import Array

_EFFECT = 0.1
_LEVELS = (0.05, 0.5, 0.95)


def regions(evidence: Evidence) -> Finding:
    """The region whose share differs most.

    A mode that KSD lets dwindle, or grow, is a region or several. Half of the false alarms are left to the division in
    two, where there is one comparison, a quarter to that in four, and so on.
    """
    divisions = evidence.divisions
    among = [2 ** (level + 1) * (1 if len(cells) == 2 else len(cells)) for level, cells in enumerate(divisions)]
    ours = evidence.weights @ regions_of(evidence.standardised(evidence.kept), divisions)
    members = evidence.members
    value, limit, worst = _most_apart(evidence, members, ours, np.repeat(among, list(map(len, divisions))))
    if worst < len(divisions[0]) == 2 and members[:, worst].mean() > 0.5:
        worst = 1 - worst  # of two the smaller one is told
    return Finding(
        "regions", value, limit, value > limit,
        f"the region around {evidence.place(worst)} has {members[:, worst].mean():.1%} of the stream "
        f"but {ours[worst]:.1%} of what is kept",
        "KSD hardly sees how mass is shared out: thin with an anchor (anchor=True, --anchor auto)",
        allowed=_in_words(value, limit),
    )  # fmt: skip


def quantiles(evidence: Evidence) -> Finding:
    """The largest difference in the share of draws below a quantile of the stream."""
    cuts = np.quantile(evidence.draws, _LEVELS, axis=0)  # (3, d)
    below = np.concatenate([evidence.draws <= cut for cut in cuts], axis=1).astype(np.float64)
    ours = evidence.weights @ np.concatenate([evidence.kept <= cut for cut in cuts], axis=1)
    value, limit, worst = _most_apart(evidence, below, ours, np.full(len(ours), len(ours)))
    level, name = _LEVELS[worst // cuts.shape[1]], evidence.names[worst % cuts.shape[1]]
    return Finding(
        "quantiles", value, limit, value > limit,
        f"{ours[worst]:.0%} of what is kept lies below the {level:.0%} quantile of {name}",
        "keep more draws, in fitted coordinates, or weigh them like the chain (--weights chain)",
        allowed=_in_words(value, limit),
    )  # fmt: skip


def _in_words(value: float, limit: float) -> str:
    return f"Cohen's h is {value:.2g}, up to {limit:.2g} is allowed"


def _most_apart(evidence: Evidence, members: Array, ours: Array, among: Array) -> tuple[float, float, int]:
    """Which of some sets the kept draws over- or under-represent most: h, what it may be, and which it is.

    ``members`` (n, k) tells with 0 and 1 which settled draws of the stream are in which set, ``ours`` (k,) the share
    of the kept draws in each, ``among`` (k,) the comparisons that each is one of.
    """
    count = evidence.number
    smooth = (np.minimum(ours, 1.0) * count + 0.375) / (count + 0.75)
    values = 2.0 * np.abs(np.arcsin(np.sqrt(members.mean(axis=0))) - np.arcsin(np.sqrt(smooth)))
    limits = threshold(_EFFECT, evidence.noise(members), among)
    worst = int(np.argmax(values / limits))
    return float(values[worst]), float(limits[worst]), worst
