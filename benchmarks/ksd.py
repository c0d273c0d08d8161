"""KSD of many points: ss.ksd against numpy in blocks.

*numpy* works with matrix products on blocks of 20 rows (the fastest of the block sizes from 5 to 1000), on one thread.
It loses digits where points lie close together, and is not measured at 100 000 points. *memory* is a call's peak.
"""

from __future__ import annotations

from unittest.mock import patch

import numpy as np

import steinstream as ss
from benchmarks.memory import growth, hoard
from benchmarks.race import Contender, race
from benchmarks.streams import Array, Stream, normal
from benchmarks.table import Options, Row

ROWS = 20


def run(options: Options) -> list[Row]:
    hoard()
    counts = (10_000,) if options.quick else (10_000, 100_000)
    return [measure(normal(count, dim), options.quick) for count in counts for dim in (2, 10)]


def measure(stream: Stream, quick: bool) -> Row:
    _, points, scores = stream
    count, dim = points.shape

    def ours() -> float:
        return ss.ksd(points, scores)

    def on_one_thread() -> float:
        with patch("os.cpu_count", return_value=1):
            return ours()

    def numpy() -> float:
        return in_blocks(points, scores)

    runs = {"one thread": on_one_thread, "all threads": ours}
    if count <= 10_000:
        runs["numpy"] = numpy
        if not np.isclose(ours(), numpy(), rtol=1e-6):
            raise ArithmeticError(f"numpy and ss.ksd disagree: {numpy()}, {ours()}.")
    contenders: dict[str, Contender] = {name: lambda run=run: run for name, run in runs.items()}
    best = race(contenders, 1.0 if quick else 10.0, rounds=1)
    pairs = count * (count + 1) / 2
    compared = "numpy" in best
    return {
        "points": count,
        "d": dim,
        "one thread, s": best["one thread"],
        "all threads, s": best["all threads"],
        "ns per pair": best["one thread"] / pairs * 1e9,
        "one / all threads": best["one thread"] / best["all threads"],
        "numpy, s": best["numpy"] if compared else "",
        "numpy / one thread": best["numpy"] / best["one thread"] if compared else "",
        "numpy / all threads": best["numpy"] / best["all threads"] if compared else "",
        "memory, MB": growth(ours),
        "memory of numpy, MB": growth(numpy) if compared else "",
    }


def in_blocks(points: Array, scores: Array) -> float:
    dim = points.shape[1]
    norms, own = np.sum(points**2, axis=1), np.sum(points * scores, axis=1)
    total = 0.0
    for first in range(0, len(points), ROWS):
        x, s = points[first : first + ROWS], scores[first : first + ROWS]
        rows = slice(first, first + ROWS)
        u = np.maximum(norms[rows, None] + norms - 2.0 * (x @ points.T), 0.0)
        cross = own[rows, None] + own - s @ points.T - x @ scores.T
        w2 = 1.0 / (1.0 + u)
        w = np.sqrt(w2)
        total += float(np.sum(w * (s @ scores.T + w2 * (cross + dim - 3.0 * w2 * u))))
    return float(np.sqrt(total)) / len(points)
