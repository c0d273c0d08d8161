"""Cost of the stream subsample with 1000 kept draws in ten dimensions: ``python experiments/diagnosis/cost.py``.

Measures the processor time per draw with and without the subsample (alternating, the shortest of nine rounds each), and
that of ``diagnose``.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import steinstream as ss
from steinstream._typing import Array
from steinstream.thinner.subsample import Subsample

KEPT, DIM, ROUNDS, DRAWS = 1000, 10, 9, 6000
ADD = Subsample.add


def main() -> None:
    """Print one row per block size, then the diagnosis and its time."""
    argparse.ArgumentParser(description="Cost of the stream subsample with 1000 kept draws.").parse_args()
    draws = np.random.default_rng(0).normal(size=(KEPT + DRAWS, DIM))
    print("| draws per call | microseconds per draw with the subsample | without | ratio |\n|---|---|---|---|")
    for block in (1, 100, 3000):
        rounds = [[microseconds(draws, block, on) for on in (True, False)] for _ in range(ROUNDS)]
        on, off = np.min(rounds, axis=0)
        print(f"| {block} | {on:.2f} | {off:.2f} | {on / off:.2f} |")
    Subsample.add = ADD  # type: ignore[method-assign]
    kept = ss.thin(draws, -draws, size=KEPT)
    start = time.process_time()
    print(f"\n{kept.diagnose()} {time.process_time() - start:.2f} s")


def microseconds(draws: Array, block: int, on: bool) -> float:
    """Return the time per draw once KEPT draws are kept."""
    Subsample.add = ADD if on else lambda subsample, rows: None  # type: ignore[method-assign]
    thinner = ss.Thinner(DIM, size=KEPT)
    thinner.extend(draws[:KEPT], -draws[:KEPT])
    start = time.process_time()
    for first in range(KEPT, len(draws), block):
        some = draws[first : first + block]
        thinner.extend(some, -some)
    return (time.process_time() - start) / DRAWS * 1e6


if __name__ == "__main__":
    main()
