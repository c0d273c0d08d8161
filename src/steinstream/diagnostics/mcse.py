"""Monte Carlo standard errors, and the thresholds and sensitivities that follow from them.

A check fires if a difference exceeds a *threshold*: the effect that matters, or z standard errors, whichever is larger,
where z is a quantile of the normal distribution at the false-alarm rate of the check, divided by the number of
comparisons (Bonferroni). Its *sensitivity* is the threshold plus 1.28 standard errors: a fault of this size is found
with a probability of 90 %, because the measured difference falls short of the fault by more than 1.28 standard errors
in one of ten sets.

The standard error is that of independent draws. A kept set is usually closer to its stream, by a factor that depends on
the target, the number of dimensions and the method. `relative_noise` estimates this factor for each parameter from the
differences of all other parameters, so that a single parameter that is off stands out.
"""

from __future__ import annotations

import numpy as np

from steinstream._typing import Array
from steinstream.diagnostics.convergence import effective_sample_size
from steinstream.diagnostics.finding import FALSE_ALARM, POWER, normal_quantile

_PRIOR = 10.0  # parameters with the noise of independent draws that are added to the estimate of the relative noise


def standard_error(stream_values: Array, kept_count: int) -> Array:
    """Return the standard error of each difference between stream and kept mean, in sds; kept draws are independent."""
    return np.asarray(np.sqrt(1.0 / effective_sample_size(stream_values) + 1.0 / kept_count))


def relative_noise(differences: Array) -> Array:
    """Estimate the noise of each parameter, relative to independent draws, from all other parameters.

    The estimate is the root mean square of the differences of the other parameters, to which ten parameters with the
    noise of independent draws are added, and at most 1. With few parameters it is therefore close to 1.

    Returns
    -------
    array
        Relative noise, (d,), between 0 and 1.

    Examples
    --------
    >>> relative_noise(np.array([3.0] + 67 * [0.3])).round(2).tolist()[:2]
    [0.46, 0.57]
    >>> relative_noise(np.array([3.0, 0.3])).round(2).tolist()
    [0.96, 1.0]
    """
    squares = np.where(np.isfinite(differences), differences, 1.0) ** 2
    others = squares.sum() - squares
    return np.asarray(np.minimum(np.sqrt((others + _PRIOR) / (len(squares) - 1 + _PRIOR)), 1.0))


def threshold(effect: float, noise: Array | float, comparisons: Array | int, skewness: Array | float = 0.0) -> Array:
    """Return the larger of the effect size that matters and the noise level of a clean run.

    The comparisons share the false-alarm rate of the check (Bonferroni). A skewness of the compared difference
    increases its upper quantiles (E. A. Cornish and R. A. Fisher, 1938).

    Returns
    -------
    array
        Thresholds, broadcast over the arguments.

    Examples
    --------
    >>> threshold(0.1, np.array([0.01, 0.1]), 1).round(2).tolist()
    [0.1, 0.33]
    """
    quantile = np.vectorize(normal_quantile, otypes=[float])
    z = quantile(1.0 - FALSE_ALARM / (2.0 * np.asarray(comparisons)))
    return np.asarray(np.maximum(effect, (z + (z**2 - 1.0) / 6.0 * skewness) * noise))


def sensitivity(limit: Array | float, noise: Array | float) -> Array:
    """Return the smallest fault that exceeds a threshold with a probability of 90 %.

    Returns
    -------
    array
        Threshold plus 1.28 standard errors.

    Examples
    --------
    >>> float(sensitivity(0.3, 0.1).round(2))
    0.43
    """
    return np.asarray(limit + normal_quantile(POWER) * np.asarray(noise))


def as_normal(difference: Array, skewness: Array | float) -> Array:
    """Return the difference that is as unlikely for a normal distribution, in standard errors.

    This inverts the expansion that `threshold` uses: if the compared quantity has a skewness, its upper differences are
    larger. Differences below one standard error are not changed.

    Returns
    -------
    array
        Differences in standard errors of a normal distribution.

    Examples
    --------
    >>> as_normal(np.array([4.0, 4.0, -4.0]), np.array([0.0, 1.2, 1.2])).round(2).tolist()
    [4.0, 2.72, -4.0]
    """
    slope = np.asarray(skewness) / 6.0
    root = 2.0 * (difference + slope) / (1.0 + np.sqrt(np.maximum(1.0 + 4.0 * slope * (difference + slope), 0.0)))
    return np.where(difference > 1.0, root, difference)
