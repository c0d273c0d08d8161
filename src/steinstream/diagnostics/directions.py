r"""Check ``directions``: the narrowest and the widest linear combination of the parameters, relative to the stream.

It detects wrong correlations, where each parameter has the right width.

In the worst of d directions, n independent normal draws appear narrower or wider by sqrt(d / n) (V. A. Marchenko and
L. A. Pastur, 1967), plus noise, which is largest for d = 1, where its standard deviation is 1 / sqrt(2 n). Both are
taken into account for the kept draws and for the stream, times sqrt((kurtosis - 1) / 2) for other tails.
"""

from __future__ import annotations

import math

import numpy as np

from steinstream._typing import Array
from steinstream.diagnostics.context import DiagnosticContext
from steinstream.diagnostics.convergence import effective_sample_size
from steinstream.diagnostics.finding import Finding, skipped
from steinstream.diagnostics.mcse import sensitivity, threshold
from steinstream.diagnostics.moments import EFFECT, Ratio, ratio_finding


def check_directions(context: DiagnosticContext) -> Finding:
    """Compare the standard deviations of the narrowest and the widest direction with those of the stream."""
    name, (count, dim) = "directions", context.kept.shape
    if dim == 1:
        return skipped(name, "a single parameter")
    if dim >= count:
        return skipped(name, f"{count} kept draws for {dim} parameters")
    standardised = context.standardise(context.draws)
    variances, axes = np.linalg.eigh(standardised.T @ standardised / len(standardised))
    positive = variances > max(1e-10 * variances[-1], 1e-100)
    if not positive.any():
        return skipped(name, "the stream does not vary")
    axes = axes[:, positive] / np.sqrt(variances[positive])
    ratios = _ratios(context, axes, standardised @ axes)
    if ratios[0].lower <= 0.0 and ratios[0].upper == math.inf:
        return skipped(name, "too few draws or too heavy tails to find anything")
    return ratio_finding(name, max(ratios, key=lambda ratio: ratio.severity), ratios)


def _ratios(context: DiagnosticContext, axes: Array, white: Array) -> list[Ratio]:
    """Return the ratios of the narrowest and of the widest direction; ``white`` is the stream in whitened axes."""
    dim, few, many = axes.shape[1], context.kept_count, float(effective_sample_size(white**2).min())
    tails = math.sqrt(max(1.0, float(((white**4).mean(axis=0).max() - 1.0) / 2.0)))
    kept_bias, stream_bias = tails * math.sqrt(dim / few), tails * math.sqrt(dim / many)
    noise = tails * math.sqrt(0.5 / few + 0.5 / many)
    tolerance = float(threshold(EFFECT, noise, 2))
    lower = (1.0 - kept_bias) / (1.0 + stream_bias)
    upper = (1.0 + kept_bias) / (1.0 - stream_bias) if stream_bias < 1.0 else math.inf
    found = float(sensitivity(tolerance, noise))
    bounds = max(0.0, lower - tolerance), upper + tolerance, max(0.0, lower - found), upper + found
    kept = context.centred_kept @ axes
    squares, rotation = np.linalg.eigh((context.weights[:, None] * kept).T @ kept)
    return [
        Ratio(_label(axes @ rotation[:, k], context), math.sqrt(max(0.0, float(squares[k]))), *bounds) for k in (0, -1)
    ]


def _label(direction: Array, context: DiagnosticContext) -> str:
    """Describe a direction by its two largest components."""
    parts = direction / np.abs(direction).max()
    first, *others = np.argsort(-np.abs(parts))[:2].tolist()
    sign = "+" if others and parts[first] * parts[others[0]] > 0 else "-"
    terms = [context.names[first], *(f"{sign} {abs(parts[j]):.2g} {context.names[j]}" for j in others)]
    return f"sd of the direction {' '.join(terms)}"
