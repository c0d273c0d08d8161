"""Monte Carlo standard errors, and the thresholds that follow from them."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from steinstream._typing import Array
from steinstream.diagnostics.convergence import effective_sample_size
from steinstream.diagnostics.finding import FALSE_ALARM


def standard_error(stream_values: Array, kept_count: int) -> Array:
    """Return the standard error of the difference between a stream mean and a mean over the kept draws.

    Parameters
    ----------
    stream_values : array
        Values of k functions on the draws of the stream, (n, k).
    kept_count : int
        Number of kept draws, which are treated as independent.

    Returns
    -------
    array
        Standard errors (k,), in standard deviations of the functions.

    """
    return np.asarray(np.sqrt(1.0 / effective_sample_size(stream_values) + 1.0 / kept_count))


def threshold(effect: float, noise: Array | float, comparisons: Array | int) -> Array:
    """Return the larger of the effect size that matters and the noise level of a clean run.

    Parameters
    ----------
    effect : float
        Smallest effect that matters.
    noise : array or float
        Standard error of the compared difference.
    comparisons : array or int
        Number of comparisons that share the false-alarm rate of the check (Bonferroni).

    Returns
    -------
    array
        Thresholds, broadcast over ``noise`` and ``comparisons``.

    Examples
    --------
    >>> threshold(0.1, np.array([0.01, 0.1]), 1).round(2).tolist()
    [0.1, 0.28]

    """
    quantile = np.vectorize(NormalDist().inv_cdf, otypes=[float])
    return np.asarray(np.maximum(effect, quantile(1.0 - FALSE_ALARM / (2.0 * np.asarray(comparisons))) * noise))
