"""Selecting 500 draws: Thinner(dim, size=500) against the package stein-thinning.

The same draws, scores, kernel (IMQ, c = 1, beta = -1/2) and coordinates for both, one thread each; KSD of both
selections by ss.ksd. stein-thinning sees all draws at every selection and may take one more than once; the thinner sees
each draw once.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from benchmarks.memory import hoard
from benchmarks.race import race
from benchmarks.streams import Stream, goodwin, mixture, normal
from benchmarks.table import Options, Row, at_least, at_most
from stein_thinning.thinning import thin

import steinstream as ss

SIZE = 500


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
        thinner = ss.Thinner(draws.shape[1], size=SIZE)
        thinner.extend(draws, scores)
        chosen["ours"] = thinner.kept.ids[:, 1]

    best = race({"theirs": lambda: theirs, "ours": lambda: ours}, seconds=0, rounds=rounds)
    ksd = {who: ss.ksd(draws[which], scores[which]) for who, which in chosen.items()}
    speedup = best["theirs"] / best["ours"]
    goal = f"faster {at_least(speedup, 30)}; KSD ratio {at_most(ksd['ours'] / ksd['theirs'], 1)}"
    return {
        "stream": name,
        "d": draws.shape[1],
        "draws": len(draws),
        "stein-thinning, s": best["theirs"],
        "steinstream, s": best["ours"],
        "times faster": speedup,
        "their KSD": ksd["theirs"],
        "our KSD": ksd["ours"],
        "our KSD / theirs": ksd["ours"] / ksd["theirs"],
        "their distinct draws": len(np.unique(chosen["theirs"])),
        "goal": goal if draws.shape == (50_000, 2) else "",
    }
