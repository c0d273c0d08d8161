r"""Is what is kept where the stream is, and as wide? Every parameter, all of them together, and the worst direction.

The cube root of a ratio of variances is nearly normal (E. B. Wilson and M. M. Hilferty, 1931), with a third of the
ratio's standard error, and this is sqrt(kurtosis - 1) times that of a mean.

In the worst of d directions n independent normal draws look narrower or wider by sqrt(d / n) (V. A. Marchenko and L. A.
Pastur, 1967) and by noise that is largest for d = 1, where its standard deviation is 1 / sqrt(2 n). Both are counted
for the kept draws and for the stream, and times sqrt((kurtosis - 1) / 2) for other tails. Parameters and directions may
each set off half of the false alarms.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from steinstream.diagnostics.context import Evidence
from steinstream.diagnostics.finding import Finding
from steinstream.diagnostics.mcse import effective, threshold
from steinstream.validation import Array

_EFFECT = 0.1  # of a standard deviation
_REMEDY = "in fitted coordinates, or weigh them like the chain (--weights chain)"


def mean(evidence: Evidence) -> Finding:
    """The largest shift of a mean, in standard deviations."""
    shifts = evidence.weights @ evidence.standardised(evidence.kept)
    limits = threshold(_EFFECT, evidence.noise(evidence.draws), len(shifts))
    worst = int(np.argmax(np.abs(shifts) / limits))
    value = float(np.abs(shifts[worst]))
    return Finding(
        "mean", value, float(limits[worst]), bool(value > limits[worst]),
        f"the mean of {evidence.names[worst]} is {shifts[worst]:+.2f} standard deviations off the stream's",
        f"keep more draws, {_REMEDY}", allowed=f"up to {limits[worst]:.2f} is allowed",
    )  # fmt: skip


class Ratio(NamedTuple):
    """The standard deviation of the kept draws over the stream's, and the least and the most that it may be."""

    label: str
    value: float
    least: float
    most: float

    @property
    def alarm(self) -> float:
        """Above 1 where it is out of bounds."""
        if self.value < 1.0:
            return math.log(max(self.value, 1e-300)) / math.log(self.least) if self.least > 0 else 0.0
        return math.log(self.value) / math.log(self.most)


def spread(evidence: Evidence) -> Finding:
    """The ratio that is most out of bounds."""
    worst = max([*_parameters(evidence), *_directions(evidence)], key=lambda ratio: ratio.alarm)
    narrow = worst.value < 1.0
    limit = worst.least if narrow else worst.most
    return Finding(
        "spread", worst.value, limit, worst.alarm > 1.0,
        f"the standard deviation of {worst.label} is {worst.value:.2f} times the stream's",
        f"intervals would be too short: keep more draws, {_REMEDY}" if narrow
        else "intervals would be too long: look for stray draws among what is kept",
        allowed=f"{'down' if narrow else 'up'} to {limit:.2f} is allowed",
    )  # fmt: skip


def _parameters(evidence: Evidence) -> list[Ratio]:
    """Each parameter, and all together."""
    squares = evidence.standardised(evidence.draws) ** 2
    ours = evidence.weights @ _centred(evidence) ** 2
    squares = np.column_stack([squares, squares.mean(axis=1)])
    ratios = np.sqrt(np.append(ours, ours.mean()) / np.maximum(squares.mean(axis=0), 1e-300))
    noise = squares.std(axis=0) * evidence.noise(squares) / 3.0
    off = threshold(_EFFECT * 2.0 / 3.0, noise, 2 * len(ratios))  # in cube roots of variances
    least = np.maximum(1.0 - off, 0.0) ** 1.5
    most = (1.0 + off) ** 1.5
    labels = [*evidence.names, "all parameters together"]
    return [Ratio(*one) for one in zip(labels, ratios.tolist(), least.tolist(), most.tolist(), strict=True)]


def _directions(evidence: Evidence) -> list[Ratio]:
    """The narrowest and the widest direction; in more dimensions than kept draws neither means anything."""
    if evidence.draws.shape[1] >= len(evidence.kept):
        return []
    white = evidence.standardised(evidence.draws)
    variances, axes = np.linalg.eigh(white.T @ white / len(white))
    real = variances > max(1e-10 * variances[-1], 1e-100)
    if not real.any():
        return []
    axes = axes[:, real] / np.sqrt(variances[real])
    ours = _centred(evidence) @ axes
    dim, few, many = axes.shape[1], evidence.number, float(effective((white @ axes) ** 2).min())
    tails = math.sqrt(max(1.0, float((((white @ axes) ** 4).mean(axis=0).max() - 1.0) / 2.0)))
    own, theirs = tails * math.sqrt(dim / few), tails * math.sqrt(dim / many)
    off = float(threshold(_EFFECT, tails * math.sqrt(0.5 / few + 0.5 / many), 4))
    least = max(0.0, (1.0 - own) / (1.0 + theirs) - off)
    most = (1.0 + own) / (1.0 - theirs) + off if theirs < 1.0 else math.inf
    squares, turns = np.linalg.eigh((evidence.weights[:, None] * ours).T @ ours)
    return [
        Ratio(
            f"the direction {_name(axes @ turns[:, k], evidence)}", math.sqrt(max(0.0, float(squares[k]))), least, most
        )
        for k in (0, -1)
    ]


def _centred(evidence: Evidence) -> Array:
    """What is kept, less its mean, in standard deviations of the stream."""
    return (evidence.kept - evidence.weights @ evidence.kept) / evidence.width


def _name(direction: Array, evidence: Evidence) -> str:
    """Its two largest parts, by name."""
    parts = direction / np.abs(direction).max()
    first, *others = np.argsort(-np.abs(parts))[:2].tolist()
    sign = "+" if others and parts[first] * parts[others[0]] > 0 else "-"
    return " ".join([evidence.names[first], *(f"{sign} {abs(parts[j]):.2g} {evidence.names[j]}" for j in others)])
