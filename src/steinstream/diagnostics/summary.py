"""Table of mean, standard deviation and quantiles of the kept draws and of their stream."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from steinstream._formatting import aligned, rounded
from steinstream._typing import Array, Integers
from steinstream.diagnostics.context import DiagnosticContext
from steinstream.validation import Block

_MIN_STREAM = 3  # draws: the second half of two is a single one
_ROUNDING = 1e-12  # of a distribution function


@dataclass(frozen=True, eq=False, repr=False)
class Summary:
    """Mean, standard deviation and quantiles of each parameter, of the kept draws and of the stream.

    Printing it shows a table. Numbers are rounded to at most 1/200 of the standard deviation, so that differences are
    visible.

    Attributes
    ----------
    names : tuple of str
        Parameter names.
    mean : array
        Weighted means of the kept draws, (d,).
    sd : array
        Weighted standard deviations of the kept draws, (d,).
    quantiles : dict
        Probability -> weighted quantiles of the kept draws, (d,).
    stream : Summary or None
        The same numbers for the stream without its burn-in; None if the stream is not known.
    standard_error : array or None
        Standard error of the difference of the means if the kept draws were independent, in standard deviations of
        the stream, (d,). If only weighted draws of the stream are known, without the error of the stream itself. None
        without a stream.
    count : int
        Number of draws.

    Examples
    --------
    >>> import steinstream as ss
    >>> draws = np.random.default_rng(0).normal(size=(1000, 1))
    >>> summary = ss.thin(draws, -draws, size=50).summary()
    >>> summary.columns
    ('parameter', 'set', 'mean', 'sd', '5%', '50%', '95%')
    >>> summary.to_dict()["x0"]["difference"]["mean"] == float(summary.difference["mean"][0])
    True
    """

    names: tuple[str, ...]
    mean: Array
    sd: Array
    quantiles: dict[float, Array]
    stream: Summary | None = None
    standard_error: Array | None = None
    count: int = 0

    @property
    def statistics(self) -> dict[str, Array]:
        """Name of each statistic, and its values (d,)."""
        return {"mean": self.mean, "sd": self.sd, **{f"{100 * q:g}%": v for q, v in self.quantiles.items()}}

    @property
    def difference(self) -> dict[str, Array]:
        """Kept minus stream for each statistic, in standard deviations of the stream; empty without a stream."""
        if self.stream is None:
            return {}
        own, other = self.statistics, self.stream.statistics
        scale = np.where(self.stream.sd > 0, self.stream.sd, np.nan)
        return {name: np.where(own[name] == other[name], 0.0, (own[name] - other[name]) / scale) for name in own}

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of the table."""
        return ("parameter", "set", *self.statistics)

    def rows(self) -> list[tuple[str | float, ...]]:
        """Return the rows of the table, with the columns ``columns``.

        Returns
        -------
        list of tuple
            For each parameter, the rows "kept", "stream" and "difference" (in standard deviations of the stream);
            only "kept" without a stream.
        """
        sets = {"kept": self.statistics}
        if self.stream is not None:
            sets |= {"stream": self.stream.statistics, "difference": self.difference}
        return [
            (name, label, *(float(values[i]) for values in statistics.values()))
            for i, name in enumerate(self.names)
            for label, statistics in sets.items()
        ]

    def to_dict(self) -> dict[str, dict[str, dict[str, float]]]:
        """Return the table as ``{parameter: {set: {statistic: value}}}``.

        Returns
        -------
        dict
            With a stream, the entry "standard error" of each parameter holds that of the difference of the means.
        """
        result: dict[str, dict[str, dict[str, float]]] = {name: {} for name in self.names}
        for name, label, *values in self.rows():
            result[str(name)][str(label)] = {key: float(v) for key, v in zip(self.columns[2:], values, strict=True)}
        if self.standard_error is not None:
            for name, error in zip(self.names, self.standard_error, strict=True):
                result[name]["standard error"] = {"mean": float(error)}
        return result

    def __str__(self) -> str:
        with_stream, statistics = self.stream is not None, tuple(self.statistics)
        head = ["", "", *statistics] if with_stream else ["", *statistics]
        lines = [head + (["se of mean"] if with_stream else [])]
        for i, name in enumerate(self.names):
            scale = float(self.sd[i] if self.stream is None else self.stream.sd[i])
            own = [rounded(float(v[i]), scale) for v in self.statistics.values()]
            if self.stream is None or self.standard_error is None:
                lines.append([name, *own])
                continue
            other = [rounded(float(v[i]), scale) for v in self.stream.statistics.values()]
            away = [_signed(float(v[i])) for v in self.difference.values()]
            lines += [[name, "kept", *own, ""], ["", "stream", *other, ""]]
            lines += [["", "difference", *away, f"{self.standard_error[i]:.3f}"]]
        text = aligned(lines, left=2 if with_stream else 1)
        if self.stream is not None:
            text += [
                f"{self.count} kept draws, {self.stream.count} draws of the stream; differences in sds of the stream;",
                "se of mean: standard error of its difference if the kept draws were independent",
            ]
        return "\n".join(text)

    __repr__ = __str__


def summarise(
    draws: Array,
    weights: Array,
    names: Sequence[str],
    quantiles: Sequence[float],
    ids: Integers,
    stream: Block | None,
    weighted_stream: tuple[Array, Array] | None = None,
    burn_in_ends: Mapping[int, int] | None = None,
) -> Summary:
    """Summarise kept draws (n, d), whose weights have sum 1, and their stream.

    Without ``stream``, ``weighted_stream`` has draws (k, d) and how many draws of the stream each of them represents.
    ``burn_in_ends`` has the index of the first draw after the burn-in that the thinner detected, by chain.

    Returns
    -------
    Summary
        The table.
    """
    own = _statistics(draws, weights, names, quantiles)
    if (stream is None or len(stream.draws) < _MIN_STREAM) and weighted_stream is not None:
        points, masses = weighted_stream
        total = float(masses.sum())
        other = Summary(*_statistics(points, masses / total, names, quantiles), count=round(total))
        return Summary(*own, other, np.full(draws.shape[1], 1.0 / math.sqrt(len(draws))), len(draws))
    if stream is None or len(stream.draws) < _MIN_STREAM:
        return Summary(*own, count=len(draws))
    with np.errstate(all="ignore"):
        context = DiagnosticContext(draws, ids, stream, burn_in_ends=burn_in_ends)
        settled = context.draws
        error = context.standard_error(settled)
        equal = np.full(len(settled), 1.0 / len(settled))
        other = Summary(*_statistics(settled, equal, names, quantiles), count=len(settled))
        return Summary(*own, other, error, len(draws))


def weighted_quantiles(draws: Array, weights: Array, probabilities: Array) -> Array:
    """Return the weighted quantiles of each column of draws (n, d), for weights of sum 1.

    Returns
    -------
    array
        Quantiles, (..., d): linear interpolation between the midpoints of the weighted distribution function. For
        columns of integers, the smallest value whose distribution function reaches the probability.

    Examples
    --------
    >>> draws = np.array([[0.0, 0.5], [1.0, 1.5], [2.0, 2.5], [3.0, 3.5]])
    >>> weighted_quantiles(draws, np.full(4, 0.25), np.array([0.5]))
    array([[1., 2.]])
    """
    columns = []
    for values in draws.T:
        order = np.argsort(values, kind="stable")
        mass, ordered = weights[order], values[order]
        total = np.cumsum(mass)
        if np.array_equal(ordered, np.round(ordered)):
            rows = np.searchsorted(total, np.asarray(probabilities) * (1.0 - _ROUNDING))
            columns.append(ordered[np.minimum(rows, len(ordered) - 1)])
        else:
            columns.append(np.interp(probabilities, total - 0.5 * mass, ordered))
    return np.stack(columns, axis=-1)


def _statistics(
    draws: Array, weights: Array, names: Sequence[str], quantiles: Sequence[float]
) -> tuple[tuple[str, ...], Array, Array, dict[float, Array]]:
    constant = np.ptp(draws, axis=0) == 0  # without rounding errors
    mean = np.where(constant, draws[0], weights @ draws)
    sd = np.where(constant, 0.0, np.sqrt(weights @ (draws - mean) ** 2))
    found = weighted_quantiles(draws, weights, np.asarray(quantiles, dtype=np.float64))
    return tuple(names), mean, sd, {float(q): found[k] for k, q in enumerate(quantiles)}


def _signed(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:+.3f}"
