r"""Effective sample size and R-hat, and the checks ``drift`` and ``chains``, which use R-hat.

*Effective sample size.* The mean of a function f over n draws of a chain has the variance of a mean over
ESS(f) = n / tau independent draws, where tau is the autocorrelation time

.. math:: \tau = 1 + 2 \sum_{t > 0} \rho_t.

The sum ends where the autocorrelations cannot be distinguished from noise: they are added in pairs while the pairs are
positive and do not increase. C. J. Geyer, "Practical Markov chain Monte Carlo", Statistical Science 7 (1992). Several
chains are concatenated; if they disagree, the ESS is small, like that of a slowly mixing chain.

*R-hat.* For m parts of n draws,

.. math:: \hat R^2 = \frac{n - 1}{n} + \frac{B}{W}

where B is the variance of the means of the parts and W is the variance within the parts. If the parts agree, B / W is
approximately tau / n times a chi-square variable over its m - 1 degrees of freedom. The checks add a quantile of it to
1.1, the square of R-hat 1.05, which is the effect that matters. They add instead of taking the maximum because tau is
itself uncertain for parts of few effective draws. The checks use rank-normalised draws.

The sensitivity of the checks is stated as a shift, in standard deviations: of one quarter of a chain against the other
three, or of one chain against all others. The shift for which R-hat equals its threshold is increased by 1.28 standard
errors of the difference of the means, so that it is found with a probability of 90 %.

A. Gelman and D. B. Rubin (1992); A. Vehtari et al., Bayesian Analysis 16 (2021).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from steinstream._typing import Array
from steinstream.diagnostics.finding import FALSE_ALARM, POWER, Finding, normal_quantile, skipped

if TYPE_CHECKING:
    from steinstream.diagnostics.context import DiagnosticContext

_EFFECT = 0.1  # excess of R-hat^2 that matters
_MIN_LENGTH = 10  # draws of a part
_COLUMNS = 32  # that are transformed at a time, which bounds the memory
_QUARTERS = ("first", "second", "third", "last")


def autocorrelation_time(series: Array) -> Array:
    """Return the autocorrelation time (k,) of each column of ``series`` (n, k): at least 1, and n for a constant."""
    parts = [series[:, first : first + _COLUMNS] for first in range(0, series.shape[1], _COLUMNS)]
    return np.concatenate([_autocorrelation_time(part) for part in parts]) if parts else np.zeros(0)


def _autocorrelation_time(series: Array) -> Array:
    """Return the autocorrelation time of a few columns."""
    count, value_range = len(series), np.ptp(series, axis=0)
    constant = value_range == 0
    centred = (series - series.mean(axis=0)) / np.where(constant, 1.0, value_range)
    length = 1 << (2 * count - 1).bit_length()
    spectrum = np.fft.rfft(centred, length, axis=0)
    covariance = np.fft.irfft(np.abs(spectrum) ** 2, length, axis=0)[: count - count % 2]
    rho = covariance / np.where(constant, 1.0, covariance[0])
    pairs = rho[0::2] + rho[1::2]
    pairs = np.minimum.accumulate(np.where(np.cumsum(pairs <= 0, axis=0) > 0, 0.0, pairs), axis=0)
    tau: Array = np.where(constant, count, np.clip(2.0 * pairs.sum(axis=0) - 1.0, 1.0, count))
    return tau


def effective_sample_size(series: Array) -> Array:
    """Return the effective sample size of each column.

    Returns
    -------
    array
        Effective sample sizes (k,), between 1 and n.

    Examples
    --------
    >>> walk = np.cumsum(np.random.default_rng(0).normal(size=(1000, 2)), axis=0)
    >>> steps = np.diff(walk, axis=0)
    >>> [bool(ess < 20) for ess in effective_sample_size(walk)]
    [True, True]
    >>> [bool(ess > 500) for ess in effective_sample_size(steps)]
    [True, True]
    """
    return np.asarray(len(series) / autocorrelation_time(series))


def r_hat(means: Array, lengths: Array, variance: Array) -> Array:
    """Return R-hat of each parameter from means (m, d) and lengths (m,) of m parts, and the variance (d,) within.

    Returns
    -------
    array
        R-hat (d,). If a parameter is constant within the parts, it is 1 if the parts agree and infinite otherwise.

    Examples
    --------
    >>> r_hat(np.array([[0.0], [1.0]]), np.array([10.0, 10.0]), np.array([1.0])).round(2)
    array([1.18])
    """
    length, between = float(np.mean(lengths)), np.var(means, axis=0, ddof=1)
    ratio = np.divide(between, variance, out=np.where(between > 0, np.inf, 1.0 / length), where=variance > 0)
    return np.asarray(np.sqrt((length - 1.0) / length + ratio))


class Parts(NamedTuple):
    """Means (m, d) and lengths (m,) of m parts of a stream; variance and autocorrelation time within the parts (d,)."""

    means: Array
    lengths: Array
    variance: Array
    tau: Array

    @classmethod
    def from_arrays(cls, pieces: list[Array]) -> Parts:
        """Compute the statistics of pieces (n, d)."""
        means = np.array([piece.mean(axis=0) for piece in pieces])
        lengths = np.array([float(len(piece)) for piece in pieces])
        centred = np.concatenate([piece - mean for piece, mean in zip(pieces, means, strict=True)])
        variance = (centred**2).sum(axis=0) / (lengths - 1.0).sum()
        tau, length = autocorrelation_time(centred), lengths.mean()
        tau = tau / np.maximum(1.0 - tau / length, 0.1)  # subtracting the mean of a part hides some correlation
        return cls(means, lengths, variance, np.minimum(tau, length))

    def take(self, rows: slice) -> Parts:
        """Select some of the parts. Variance and autocorrelation time remain those of all."""
        return self._replace(means=self.means[rows], lengths=self.lengths[rows])

    @property
    def r_hat(self) -> Array:
        """R-hat of each parameter, (d,)."""
        return r_hat(self.means, self.lengths, self.variance)

    def tolerance(self, comparisons: int) -> Array:
        """Return the largest R-hat (d,) that is expected of parts that agree, in one of ``comparisons``."""
        freedom = len(self.means) - 1
        noise = self.tau / float(self.lengths.mean()) * _chi_square_quantile(freedom, comparisons) / freedom
        return np.asarray(np.sqrt(1.0 + _EFFECT + noise))

    def detectable_shift(self, limits: Array, number: int) -> float:
        """Return the shift of ``number`` parts, in standard deviations, that is found with a probability of 90 %.

        ``limits`` are the largest R-hat that do not fire, (d,).

        Returns
        -------
        float
            The shift, for the least sensitive parameter.
        """
        total = len(self.means)
        share = number / total
        per_shift = share * (1.0 - share) * total / (total - 1)  # B for a shift of one standard deviation
        noise = np.sqrt(self.tau / float(self.lengths.mean()) * (1.0 / number + 1.0 / (total - number)))
        shift = np.sqrt((limits**2 - 1.0) / per_shift) + normal_quantile(POWER) * noise
        return float(shift.max())


def check_drift(context: DiagnosticContext) -> Finding:
    """Compare the four quarters of each chain by R-hat; skipped if all chains are too short."""
    owners, quarters = _split_chains(context, 4)
    if not owners:
        return skipped("drift", f"chains of fewer than {4 * _MIN_LENGTH} draws")
    found, shifts = [], []
    for k, chain in enumerate(owners):
        own = quarters.take(slice(4 * k, 4 * k + 4))
        values, limits = own.r_hat, own.tolerance(len(owners) * own.means.shape[1])
        worst = int(np.argmax(values / limits))
        means = own.means[:, worst]
        quarter = int(np.argmax(np.abs(means - np.median(means))))
        found.append((float(values[worst]), float(limits[worst]), chain, worst, quarter))
        shifts.append(own.detectable_shift(limits, 1))
    value, limit, chain, worst, quarter = max(found, key=lambda one: one[0] / one[1])
    return Finding(
        name="drift",
        value=value,
        threshold=limit,
        fired=value > limit,
        says=f"for {context.names[worst]}, R-hat over the quarters of chain {chain} is {value:.2f}, and the "
        f"{_QUARTERS[quarter]} quarter differs most",
        advice=f"discard the first quarter of chain {chain} as burn-in"
        if quarter == 0
        else "the chain has not converged: run it longer, and from several starting points",
        allowed=f"at most {limit:.2f}",
        sensitivity=limit,
        detects=f"a quarter of a chain shifted by {max(shifts):.2f} sd",
        found=f"largest R-hat over quarters {value:.2f} ({context.names[worst]}, chain {chain}; at most {limit:.2f})",
    )


def check_chains(context: DiagnosticContext) -> Finding:
    """Compare the halves of all chains by R-hat; skipped if there is only one chain."""
    owners, halves = _split_chains(context, 2)
    if len(context.settled_rows) < 2:
        return skipped("chains", "a single chain")
    if len(owners) < 2:
        return skipped("chains", f"chains of fewer than {2 * _MIN_LENGTH} draws")
    values, limits = halves.r_hat, halves.tolerance(halves.means.shape[1])
    worst = int(np.argmax(values / limits))
    value, limit = float(values[worst]), float(limits[worst])
    return Finding(
        name="chains",
        value=value,
        threshold=limit,
        fired=value > limit,
        says=f"for {context.names[worst]}, split R-hat over {len(owners)} chains is {value:.2f}",
        advice="the chains are in different modes or have not converged; the kept set mixes them in the proportions "
        "of the stream",
        allowed=f"at most {limit:.2f}",
        sensitivity=limit,
        detects=f"one of {len(owners)} chains shifted by {halves.detectable_shift(limits, 2):.2f} sd",
        found=f"largest split R-hat {value:.2f} ({context.names[worst]}; at most {limit:.2f})",
    )


def _split_chains(context: DiagnosticContext, number: int) -> tuple[list[int], Parts]:
    """Split each chain after its burn-in; return the chains that are long enough, and their parts."""
    owners, pieces, begin = [], [], 0
    for chain, rows in context.settled_rows.items():
        if len(rows) >= number * _MIN_LENGTH:
            pieces += np.array_split(context.rank_normalised[begin : begin + len(rows)], number)
            owners.append(chain)
        begin += len(rows)
    return owners, Parts.from_arrays(pieces or [context.rank_normalised])


def _chi_square_quantile(freedom: int, comparisons: int) -> float:
    """Approximate the chi-square quantile at the false-alarm rate per comparison (Wilson and Hilferty, 1931)."""
    part = 2.0 / (9.0 * freedom)
    return float(freedom * (1.0 - part + normal_quantile(1.0 - FALSE_ALARM / comparisons) * part**0.5) ** 3)
