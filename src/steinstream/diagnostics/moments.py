r"""Checks ``mean`` and ``spread``: location and width of the kept draws relative to the stream.

The spread is compared for each parameter, for all parameters together, and in the narrowest and the widest direction.

The cube root of a ratio of variances is nearly normal (E. B. Wilson and M. M. Hilferty, 1931). Its standard error is a
third of that of the ratio, which is sqrt(kurtosis - 1) times that of a mean.

In the worst of d directions, n independent normal draws appear narrower or wider by sqrt(d / n) (V. A. Marchenko and
L. A. Pastur, 1967), plus noise, which is largest for d = 1, where its standard deviation is 1 / sqrt(2 n). Both are
taken into account for the kept draws and for the stream, times sqrt((kurtosis - 1) / 2) for other tails. Half of the
false-alarm rate goes to the parameters and half to the directions.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from steinstream._typing import Array
from steinstream.diagnostics.context import DiagnosticContext
from steinstream.diagnostics.convergence import effective_sample_size
from steinstream.diagnostics.finding import Finding
from steinstream.diagnostics.mcse import threshold

_EFFECT = 0.1  # standard deviations
_REMEDY = "keep more draws, use a fitted preconditioner, or match the moments of the chain (--weights chain)"


def check_mean(context: DiagnosticContext) -> Finding:
    """Measure the largest shift of a mean, in standard deviations."""
    shifts = context.weights @ context.standardise(context.kept)
    limits = threshold(_EFFECT, context.standard_error(context.draws), len(shifts))
    worst = int(np.argmax(np.abs(shifts) / limits))
    value, limit = float(np.abs(shifts[worst])), float(limits[worst])
    return Finding(
        name="mean",
        value=value,
        threshold=limit,
        fired=value > limit,
        says=f"the mean of {context.names[worst]} differs by {shifts[worst]:+.2f} standard deviations from the stream",
        advice=_REMEDY,
        allowed=f"at most {limit:.2f}",
    )


class Ratio(NamedTuple):
    """Standard deviation of the kept draws relative to the stream.

    Attributes
    ----------
    label : str
        Name of the parameter or direction.
    value : float
        The ratio.
    lower, upper : float
        Bounds between which the check does not fire.

    """

    label: str
    value: float
    lower: float
    upper: float

    @property
    def severity(self) -> float:
        """Logarithm of the ratio relative to that of its bound; above 1 if the bound is exceeded."""
        if self.value < 1.0:
            return math.log(max(self.value, 1e-300)) / math.log(self.lower) if self.lower > 0 else 0.0
        return math.log(self.value) / math.log(self.upper)


def check_spread(context: DiagnosticContext) -> Finding:
    """Compare standard deviations of the kept draws with those of the stream, and report the worst ratio."""
    worst = max([*_parameter_ratios(context), *_direction_ratios(context)], key=lambda ratio: ratio.severity)
    narrow = worst.value < 1.0
    limit = worst.lower if narrow else worst.upper
    return Finding(
        name="spread",
        value=worst.value,
        threshold=limit,
        fired=worst.severity > 1.0,
        says=f"the standard deviation of {worst.label} is {worst.value:.2f} times that of the stream",
        advice=f"intervals would be too short: {_REMEDY}"
        if narrow
        else "intervals would be too long: look for outliers among the kept draws",
        allowed=f"{'at least' if narrow else 'at most'} {limit:.2f}",
    )


def _parameter_ratios(context: DiagnosticContext) -> list[Ratio]:
    """Return the ratio of each parameter, and of all together."""
    squares = context.standardise(context.draws) ** 2
    kept = context.weights @ _centred(context) ** 2
    squares = np.column_stack([squares, squares.mean(axis=1)])
    ratios = np.sqrt(np.append(kept, kept.mean()) / np.maximum(squares.mean(axis=0), 1e-300))
    noise = squares.std(axis=0) * context.standard_error(squares) / 3.0
    tolerance = threshold(_EFFECT * 2.0 / 3.0, noise, 2 * len(ratios))  # of cube roots of variances
    lower = np.maximum(1.0 - tolerance, 0.0) ** 1.5
    upper = (1.0 + tolerance) ** 1.5
    labels = [*context.names, "all parameters together"]
    return [Ratio(*one) for one in zip(labels, ratios.tolist(), lower.tolist(), upper.tolist(), strict=True)]


def _direction_ratios(context: DiagnosticContext) -> list[Ratio]:
    """Return the ratios of the narrowest and the widest direction; none if there are fewer draws than dimensions."""
    if context.draws.shape[1] >= len(context.kept):
        return []
    standardised = context.standardise(context.draws)
    variances, axes = np.linalg.eigh(standardised.T @ standardised / len(standardised))
    positive = variances > max(1e-10 * variances[-1], 1e-100)
    if not positive.any():
        return []
    axes = axes[:, positive] / np.sqrt(variances[positive])
    white, kept = standardised @ axes, _centred(context) @ axes
    dim, few, many = axes.shape[1], context.kept_count, float(effective_sample_size(white**2).min())
    tails = math.sqrt(max(1.0, float(((white**4).mean(axis=0).max() - 1.0) / 2.0)))
    kept_bias, stream_bias = tails * math.sqrt(dim / few), tails * math.sqrt(dim / many)
    tolerance = float(threshold(_EFFECT, tails * math.sqrt(0.5 / few + 0.5 / many), 4))
    lower = max(0.0, (1.0 - kept_bias) / (1.0 + stream_bias) - tolerance)
    upper = (1.0 + kept_bias) / (1.0 - stream_bias) + tolerance if stream_bias < 1.0 else math.inf
    squares, rotation = np.linalg.eigh((context.weights[:, None] * kept).T @ kept)
    return [
        Ratio(_direction_label(axes @ rotation[:, k], context), math.sqrt(max(0.0, float(squares[k]))), lower, upper)
        for k in (0, -1)
    ]


def _centred(context: DiagnosticContext) -> Array:
    """Return the kept draws minus their mean, in standard deviations of the stream."""
    return (context.kept - context.weights @ context.kept) / context.sd


def _direction_label(direction: Array, context: DiagnosticContext) -> str:
    """Describe a direction by its two largest components."""
    parts = direction / np.abs(direction).max()
    first, *others = np.argsort(-np.abs(parts))[:2].tolist()
    sign = "+" if others and parts[first] * parts[others[0]] > 0 else "-"
    terms = [context.names[first], *(f"{sign} {abs(parts[j]):.2g} {context.names[j]}" for j in others)]
    return f"the direction {' '.join(terms)}"
