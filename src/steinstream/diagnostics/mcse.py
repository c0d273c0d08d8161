r"""How sure a mean over a chain is, and how far off one may be before it counts.

The mean of a function f over n draws of a chain has the variance of f over ESS(f) = n / tau independent draws,

.. math:: \tau = 1 + 2 \sum_{t > 0} \rho_t,

with the autocorrelations summed as far as they can be told from noise: in pairs, as long as these are positive, and
never rising. C. J. Geyer, "Practical Markov chain Monte Carlo", Statistical Science 7 (1992). Several chains are laid
end to end: where they disagree that looks like a slow chain, which it is.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from steinstream.diagnostics.finding import FALSE_ALARM
from steinstream.validation import Array


def correlation_time(series: Array) -> Array:
    """For each column (n, k) its tau, at least 1; n for a constant one."""
    count, across = len(series), np.ptp(series, axis=0)
    still = across == 0
    centred = (series - series.mean(axis=0)) / np.where(still, 1.0, across)
    length = 1 << (2 * count - 1).bit_length()
    spectrum = np.fft.rfft(centred, length, axis=0)
    covariance = np.fft.irfft(np.abs(spectrum) ** 2, length, axis=0)[: count - count % 2]
    rho = covariance / np.where(still, 1.0, covariance[0])
    pairs = rho[0::2] + rho[1::2]
    pairs = np.minimum.accumulate(np.where(np.cumsum(pairs <= 0, axis=0) > 0, 0.0, pairs), axis=0)
    tau: Array = np.where(still, count, np.clip(2.0 * pairs.sum(axis=0) - 1.0, 1.0, count))
    return tau


def effective(series: Array) -> Array:
    """ESS of each column (n, k): between 1 and n.

    >>> walk = np.cumsum(np.random.default_rng(0).normal(size=(1000, 2)), axis=0)
    >>> steps = np.diff(walk, axis=0)
    >>> [bool(ess < 20) for ess in effective(walk)], [bool(ess > 500) for ess in effective(steps)]
    ([True, True], [True, True])
    """
    return np.asarray(len(series) / correlation_time(series))


def threshold(effect: float, noise: Array | float, comparisons: Array | int) -> Array:
    """The effect that matters, or the noise that a clean run does not exceed, whichever is larger.

    ``noise`` is the standard error of a difference, one of so many ``comparisons`` that share the check's false alarms.

    >>> threshold(0.1, np.array([0.01, 0.1]), 1).round(2).tolist()
    [0.1, 0.28]
    """
    quantile = np.vectorize(NormalDist().inv_cdf, otypes=[float])
    return np.asarray(np.maximum(effect, quantile(1.0 - FALSE_ALARM / (2.0 * np.asarray(comparisons))) * noise))


def chi_square_quantile(freedom: int, comparisons: int) -> float:
    """The same for a chi square, after Wilson and Hilferty (1931)."""
    part = 2.0 / (9.0 * freedom)
    return float(freedom * (1.0 - part + NormalDist().inv_cdf(1.0 - FALSE_ALARM / comparisons) * part**0.5) ** 3)
