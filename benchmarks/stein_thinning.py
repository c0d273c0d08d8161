"""Selecting 500 draws: Thinner(dim, size=500) against the package stein-thinning.

The same draws, scores, kernel (IMQ, c = 1, beta = -1/2) and coordinates for both, one thread each; KSD of both
selections by ss.ksd. The thinner selects by KSD alone, and sees each draw once. stein-thinning sees all draws at every
selection and may take one more than once. *the same ids* is baselines.stein_thinning, which selects what stein-thinning
selects.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from stein_thinning.thinning import thin

import steinstream as ss
from benchmarks.memory import hoard
from benchmarks.race import race
from benchmarks.streams import Stream, goodwin, mixture, normal
from benchmarks.table import Options, Row, at_least, at_most
from steinstream import baselines

SIZE = 500
KSD_ALONE = {"stream_weight": 0.0, "preconditioner": ss.Preconditioner.identity()}


def run(options: Options) -> list[Row]:
    hoard()
    return [measure(stream, 2 if options.quick else 5) for stream in streams(options)]


def streams(options: Options) -> Iterator[Stream]:
    yield mixture(50_000)
    yield normal(50_000, 2)
    if not options.quick:
        yield from (normal(50_000, dim) for dim in (4, 10))
        yield mixture(100_000)
        yield from (normal(100_000, dim) for dim in (2, 4, 10))
    if options.data is not None:
        yield goodwin(options.data)


def measure(stream: Stream, rounds: int) -> Row:
    name, draws, scores = stream
    chosen = {}

    def theirs() -> None:
        chosen["theirs"] = thin(draws, scores, SIZE, standardize=False, preconditioner="id")

    def ours() -> None:
        thinner = ss.Thinner(draws.shape[1], size=SIZE, **KSD_ALONE)
        thinner.extend(draws, scores)
        chosen["ours"] = thinner.kept.ids[:, 1]

    def same() -> None:
        chosen["same"] = baselines.stein_thinning(draws, scores, SIZE, preconditioner="identity")[:, 1]

    runs = {"theirs": lambda: theirs, "ours": lambda: ours, "same": lambda: same}
    best = race(runs, seconds=0, rounds=rounds)
    if not np.array_equal(chosen.pop("same"), chosen["theirs"]):
        raise ArithmeticError("baselines.stein_thinning and stein-thinning select different draws.")
    ksd = {who: ss.ksd(draws[which], scores[which]) for who, which in chosen.items()}
    speedup = best["theirs"] / best["ours"]
    alike = best["theirs"] / best["same"]
    goals = {
        (50_000, 2): f"faster {at_least(speedup, 30)}; KSD ratio {at_most(ksd['ours'] / ksd['theirs'], 1)}",
        (100_000, 4): f"the same ids faster {at_least(alike, 10)}",
    }
    return {
        "stream": name,
        "d": draws.shape[1],
        "draws": len(draws),
        "stein-thinning, s": best["theirs"],
        "steinstream, s": best["ours"],
        "times faster": speedup,
        "the same ids, s": best["same"],
        "same ids, times faster": alike,
        "their KSD": ksd["theirs"],
        "our KSD": ksd["ours"],
        "our KSD / theirs": ksd["ours"] / ksd["theirs"],
        "their distinct draws": len(np.unique(chosen["theirs"])),
        "goal": goals.get(draws.shape, ""),
    }
