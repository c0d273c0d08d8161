"""Streams of kept sets: what the stream term compares, and the join of several streams.

A kept set carries a summary of its stream: few weighted draws. The streams of several sets are joined: their weighted
draws together represent all streams, without any error. If there are more than 4096, the lightest draws of equal weight
are halved, again and again, as in a stream: of every two consecutive draws one is forgotten and the other has twice the
weight. The MMD between the stream before and after a halving is known exactly, so their sum bounds the error of the
whole compression.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from steinstream._typing import Array, Integers
from steinstream.discrepancy.mmd import StreamDistance
from steinstream.kernels import Kernel, as_kernel
from steinstream.preconditioning import Preconditioner
from steinstream.result import Kept, SummarisedStream
from steinstream.thinner.chain_worth import stream_factor
from steinstream.thinner.config import ThinConfig

MOST_DRAWS = 4096  # that represent joined streams


class ObjectiveTerms(NamedTuple):
    """The objective of a kept set: draws and scores in the coordinates of the kernel, and its stream."""

    kernel: Kernel
    draws: Array
    """(n, d)"""
    scores: Array | None
    """(n, d); None without scores."""
    base: Array
    """Base vectors, (n, q)."""
    stream: StreamDistance | None
    """None without a stream term."""
    weight: float
    """Factor of the squared MMD."""

    def matrix(self) -> Array:
        """Return the matrix M for which w^T M w is the objective of weights w of sum 1."""
        from steinstream._engine.compiled_kernel import compile_kernel
        from steinstream._engine.linalg import stein_matrix  # loads numba

        matrix = np.zeros((len(self.draws), len(self.draws)))
        if self.scores is not None:
            matrix = stein_matrix(compile_kernel(self.kernel, self.draws.shape[1]), self.draws, self.scores)
        if self.stream is not None:
            matrix += self.weight * self.stream.centred_matrix(self.base)
        return matrix


class ComparedSets(NamedTuple):
    """Base vectors of several kept sets and of their joined stream."""

    base: Array
    """Base vectors of all kept draws in the coordinates of the kernel, (n, q)."""
    given: Array | None
    """What they were before, with features."""
    stream: StreamDistance
    summary: SummarisedStream
    """The joined stream; ``kept`` is None."""
    streams: list[StreamDistance]
    """The stream of each set."""
    error: float
    """Bound on the MMD between the joined stream and the streams together, due to halving."""
    stream_error: float | None
    """Estimated MMD between the joined stream and the streams before they were summarised; None if it is not known."""


def largest_stream_weight(sets: Sequence[Kept]) -> float:
    """Return the largest weight of the stream term of some kept sets; without scores it is not 0."""
    places = ("config", "merged")  # of a set that was thinned, or merged before
    weights = [kept.settings.get(place, {}).get("stream_weight", 0.0) for kept in sets for place in places]
    largest = float(max(weights, default=0.0))
    return largest if largest or sets[0].scores is not None else ThinConfig().stream_weight


def objective_terms(kept: Kept, gamma: float | None = None) -> ObjectiveTerms:
    """Return KSD and stream term of a kept set; a set without a summary of its stream stands for the stream.

    ``gamma`` replaces the weight by which the set was kept. Returns an `ObjectiveTerms`.
    """
    kernel, preconditioner = as_kernel(kept.kernel), kept.preconditioner or Preconditioner.identity()
    preconditioner.require(kept.draws.shape[1])
    x = preconditioner.apply_to_draws(np.asarray(kept.draws, dtype=np.float64))
    s = None if kept.scores is None else preconditioner.apply_to_scores(np.asarray(kept.scores, dtype=np.float64))
    gamma = largest_stream_weight([kept]) if gamma is None else gamma
    if not gamma:
        return ObjectiveTerms(kernel, x, s, x, None, 0.0)
    streams = compared([kept], np.ones(1), kernel, preconditioner)
    diagonal = None if s is None else kernel.diagonal(s, x)
    equal = np.full(len(x), 1.0 / len(x))
    trust = None if kept.settings.get("corrected_stream") else kept.settings.get("trust")
    factor = stream_factor(1.0 if trust is None else trust, kept.draws.shape[1])
    weight = streams.stream.weight(gamma * factor, diagonal, equal)
    return ObjectiveTerms(kernel, x, s, streams.base, streams.stream, weight)


def compared(sets: Sequence[Kept], mass: Array, kernel: Kernel, preconditioner: Preconditioner) -> ComparedSets:
    """Join the streams of kept sets, each with a mass; a set without a summary of its stream stands for the stream.

    Sets that were compared by features of the same kind are compared by these, in the coordinates of the first set.
    Otherwise draws are compared.

    Returns
    -------
    ComparedSets
        Base vectors of the sets and of the streams.
    """
    summaries = [_summary_of(kept, _have_common_features(sets)) for kept in sets]
    first = summaries[0]
    given = [kept.draws if one.kept is None else one.kept for kept, one in zip(sets, summaries, strict=True)]
    raw = np.concatenate([one.draws for one in summaries], dtype=np.float64)
    points = first.in_kernel_coordinates(raw, preconditioner)
    scaled = [one.weights * (m / one.weights.sum()) for one, m in zip(summaries, mass.tolist(), strict=True)]
    weights, edges = np.concatenate(scaled), np.cumsum([len(one.weights) for one in summaries])[:-1]
    streams = [StreamDistance(kernel, *pair) for pair in zip(np.split(points, edges), scaled, strict=True)]
    rows, weights, error = compress(kernel, points, weights)
    base = first.in_kernel_coordinates(np.concatenate(given, dtype=np.float64), preconditioner)
    joined = SummarisedStream(raw[rows], weights, first.features)
    return ComparedSets(
        base,
        None if first.features is None else np.concatenate(given),
        StreamDistance(kernel, points[rows], weights),
        joined,
        streams,
        error,
        _joined_error(sets, mass, error),
    )


def _joined_error(sets: Sequence[Kept], mass: Array, compression: float) -> float | None:
    """Return the estimated error of a joined stream, from the independent errors of its parts and of their halving."""
    shares, parts = (mass / mass.sum()).tolist(), []
    for kept, share in zip(sets, shares, strict=True):
        if kept.stream_error is None or kept.stream_summary is None:
            return None
        parts.append(share * kept.stream_error)
    return math.hypot(compression, *parts)


def _have_common_features(sets: Sequence[Kept]) -> bool:
    """Return whether all streams were compared by features of the same kind."""
    kinds = {
        None
        if kept.stream_summary is None or kept.stream_summary.features is None
        else (kept.stream_summary.features.width, kept.stream_summary.draws.shape[1])
        for kept in sets
    }
    return len(kinds) == 1 and None not in kinds


def _summary_of(kept: Kept, by_features: bool) -> SummarisedStream:
    """Return the summary of the stream of a set, or the set itself if it has none that can be used."""
    summary = kept.stream_summary
    if summary is not None and (by_features or summary.features is None):
        return summary
    return SummarisedStream(np.asarray(kept.draws, dtype=np.float64), kept.shares())


def compress(kernel: Kernel, points: Array, weights: Array, most: int = MOST_DRAWS) -> tuple[Integers, Array, float]:
    """Halve weighted points (k, q) until at most ``most`` are left.

    Returns
    -------
    tuple
        Rows of the points that are left, their weights, and a bound on the MMD to all points.
    """
    from steinstream._engine.base_row import base_tiles
    from steinstream._engine.compiled_kernel import compile_kernel
    from steinstream._engine.merging import halve

    rows, weights, total, error = np.arange(len(points)), weights.copy(), weights.sum(), 0.0
    compiled = compile_kernel(kernel, points.shape[1])
    while len(rows) > most:
        values, counts = np.unique(weights, return_counts=True)
        if counts.max() < 2:  # nothing can be halved
            break
        lightest = values[counts > 1][0]
        group = np.flatnonzero(weights == lightest)
        group = group[: len(group) // 2 * 2]
        some, selected = np.ascontiguousarray(points[rows[group]]), np.zeros(len(group), dtype=np.bool_)
        error += math.sqrt(halve(compiled, base_tiles(some), some, selected)) * float(lightest) / float(total)
        weights[group[selected]] *= 2.0
        stay = np.ones(len(rows), dtype=np.bool_)
        stay[group[~selected]] = False
        rows, weights = rows[stay], weights[stay]
    return rows, weights, error
