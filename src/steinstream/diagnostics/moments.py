r"""Checks ``mean`` and ``spread``: means and standard deviations of the kept draws relative to the stream.

The cube root of a ratio of variances is nearly normal (E. B. Wilson and M. M. Hilferty, 1931). Its standard error is a
third of that of the ratio, which is sqrt(kurtosis - 1) times that of a mean. A parameter with heavy tails therefore has
wide tolerances, in particular upwards, because one draw from far out in the tails can double its standard deviation;
the check ``ranges`` judges its width by quantiles.

For all parameters together, the mean absolute deviation is compared instead, which heavy tails affect little. Its noise
is small in many dimensions, where a set can be too narrow or too wide by the same factor in all parameters.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from steinstream._typing import Array
from steinstream.diagnostics.context import DiagnosticContext
from steinstream.diagnostics.finding import Finding
from steinstream.diagnostics.mcse import as_normal, relative_noise, sensitivity, threshold

EFFECT = 0.1  # standard deviations
REMEDY = "keep more draws, or (with scores) thin with a larger stream_weight"


def check_mean(context: DiagnosticContext) -> Finding:
    """Measure the largest shift of a mean, in standard deviations."""
    shifts = context.weights @ context.standardise(context.kept)
    noise = context.standard_error(context.draws)
    noise *= relative_noise(shifts / noise)
    limits = threshold(EFFECT, noise, len(shifts))
    worst = int(np.argmax(np.abs(shifts) / limits))
    value, limit, least = float(np.abs(shifts[worst])), float(limits[worst]), float(sensitivity(limits, noise).max())
    return Finding(
        name="mean",
        value=value,
        threshold=limit,
        fired=value > limit,
        says=f"the mean of {context.names[worst]} differs by {shifts[worst]:+.2f} sd from the stream",
        advice=REMEDY,
        allowed=f"at most {limit:.2f}",
        sensitivity=least,
        detects=f"differences above {least:.2f} sd",
        found=f"largest found {shifts[worst]:+.2f} sd ({context.names[worst]})",
    )


class Ratio(NamedTuple):
    """Width of the kept draws relative to the stream.

    The check fires outside of ``lower`` to ``upper``, and with a probability of 90 % outside of ``narrow`` to ``wide``.
    """

    label: str
    value: float
    lower: float
    upper: float
    narrow: float
    wide: float

    @property
    def severity(self) -> float:
        """Logarithm of the ratio relative to that of its bound; above 1 if the bound is exceeded."""
        if self.value < 1.0:
            return math.log(max(self.value, 1e-300)) / math.log(self.lower) if self.lower > 0 else 0.0
        return math.log(self.value) / math.log(self.upper) if self.upper < math.inf else 0.0


def check_spread(context: DiagnosticContext) -> Finding:
    """Compare standard deviations of the kept draws with those of the stream, and report the worst ratio."""
    parameters = _parameter_ratios(context)
    worst = max([*parameters, _joint_ratio(context)], key=lambda ratio: ratio.severity)
    return ratio_finding("spread", worst, parameters)


def ratio_finding(name: str, worst: Ratio, ratios: list[Ratio]) -> Finding:
    """Return the finding about the worst of several ratios, with the sensitivity to all of ``ratios``."""
    is_narrow = worst.value < 1.0
    limit = worst.lower if is_narrow else worst.upper
    narrow, wide = min(ratio.narrow for ratio in ratios), max(ratio.wide for ratio in ratios)
    return Finding(
        name=name,
        value=worst.value,
        threshold=limit,
        fired=worst.severity > 1.0,
        says=f"the {worst.label} is {worst.value:.2f} times that of the stream",
        advice=f"intervals would be too short: {REMEDY}" if is_narrow else f"intervals would be too long: {REMEDY}",
        allowed=f"{'at least' if is_narrow else 'at most'} {limit:.2f}",
        sensitivity=narrow if is_narrow else wide,
        detects=describe_bounds("sds", narrow, wide),
        found=f"most different {worst.value:.2f} ({worst.label})",
    )


def describe_bounds(what: str, narrow: float, wide: float) -> str:
    """Return "sds below 0.80 or above 1.20 times the stream's"; only the sides that can be detected."""
    parts = [f"below {narrow:.2f}"] if narrow > 0.005 else []
    parts += [f"above {wide:.2f}"] if wide < 100 else []
    return f"{what} {' or '.join(parts)} times the stream's" if parts else f"no differences of {what}"


def _parameter_ratios(context: DiagnosticContext) -> list[Ratio]:
    squares = context.standardise(context.draws) ** 2
    return _with_bounds([f"sd of {name}" for name in context.names], sd_ratios(context), squares, 1.0 / 3.0, context)


def sd_ratios(context: DiagnosticContext) -> Array:
    """Return the standard deviation of each parameter, relative to the stream, (d,)."""
    squares = context.standardise(context.draws) ** 2
    return np.asarray(np.sqrt(context.weights @ context.centred_kept**2 / np.maximum(squares.mean(axis=0), 1e-300)))


def sd_differences(context: DiagnosticContext) -> Array:
    """Return the difference of each standard deviation from the stream, in standard errors of independent draws, (d,).

    The ratios of the standard deviations are compared to the power of 2/3, which is nearly normal; what is left of its
    skewness is removed.

    Returns
    -------
    array
        Differences, nearly normal for independent draws.
    """
    noise, skewness = _noise(context.standardise(context.draws) ** 2, 1.0 / 3.0, context)
    differences = np.where(noise > 0, np.cbrt(sd_ratios(context) ** 2) - 1.0, 0.0)  # a constant has no noise
    return as_normal(differences / np.where(noise > 0, noise, 1.0), skewness)


def _joint_ratio(context: DiagnosticContext) -> Ratio:
    """Return the ratio of the mean absolute deviation, averaged over all parameters."""
    deviations = np.abs(context.standardise(context.draws)).mean(axis=1, keepdims=True)
    ratio = (context.weights @ np.abs(context.centred_kept)).mean(keepdims=True)
    label = "mean absolute deviation of all parameters together"
    return _with_bounds([label], ratio / np.maximum(deviations.mean(axis=0), 1e-300), deviations, 2.0 / 3.0, context)[0]


def _with_bounds(
    labels: list[str], ratios: Array, values: Array, power: float, context: DiagnosticContext
) -> list[Ratio]:
    """Add bounds and sensitivities to ratios of widths; half of the false-alarm rate is shared by these ratios.

    ``values`` and ``power`` as in `_noise`.
    """
    noise, skewness = _noise(values, power, context)
    noise *= relative_noise((np.cbrt(ratios**2) - 1.0) / noise)
    effect, comparisons = EFFECT * 2.0 / 3.0, 2 * len(ratios)
    lower = np.maximum(1.0 - threshold(effect, noise, comparisons), 0.0)
    upper = 1.0 + threshold(effect, noise, comparisons, skewness)
    shortfall = sensitivity(0.0, noise)  # the noise of a ratio is proportional to the ratio
    narrow, wide = lower / (1.0 + shortfall), upper / np.where(shortfall < 1.0, 1.0 - shortfall, 0.0)
    columns = [ratios, *(bound**1.5 for bound in (lower, upper, narrow, wide))]
    return [Ratio(*one) for one in zip(labels, *(column.tolist() for column in columns), strict=True)]


def _noise(values: Array, power: float, context: DiagnosticContext) -> tuple[Array, Array]:
    """Return standard error and skewness of ratios of widths to the power of 2/3.

    ``values`` (n, k) are the squares (``power`` 1/3) or absolute deviations (2/3) of the stream, whose means are
    compared. The ratios to the power of 2/3 are nearly normal if the values have the skewness of a gamma distribution,
    which is twice their coefficient of variation. The skewness is what exceeds it.
    """
    mean, sd = np.maximum(values.mean(axis=0), 1e-300), values.std(axis=0)
    noise = power * sd / mean * context.standard_error(values)
    skewness = (((values - mean) / np.maximum(sd, 1e-300)) ** 3).mean(axis=0) - 2.0 * sd / mean
    return noise, np.maximum(skewness, 0.0) / math.sqrt(context.kept_count)
