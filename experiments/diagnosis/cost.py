"""What the sketch costs, with 1000 kept in ten dimensions: ``python experiments/diagnosis/cost.py``.

Processor time per draw with it and without, the least of nine rounds each, in turn; and that of one ``diagnose``.
"""

from __future__ import annotations

import time

import numpy as np

import steinstream as ss
from steinstream.thinner.subsample import Subsample
from steinstream.validation import Array

KEPT, DIM, ROUNDS, DRAWS = 1000, 10, 9, 6000
ADD = Subsample.add


def main() -> None:
    """A row for each way to hand over the draws, then the comparison itself."""
    draws = np.random.default_rng(0).normal(size=(KEPT + DRAWS, DIM))
    print("| draws a call | microseconds a draw with the sketch | without | ratio |\n|---|---|---|---|")
    for block in (1, 100, 3000):
        rounds = [[microseconds(draws, block, on) for on in (True, False)] for _ in range(ROUNDS)]
        on, off = np.min(rounds, axis=0)
        print(f"| {block} | {on:.2f} | {off:.2f} | {on / off:.2f} |")
    Subsample.add = ADD  # type: ignore[method-assign]
    kept = ss.thin(draws, -draws, size=KEPT)
    began = time.process_time()
    print(f"\n{kept.diagnose()} {time.process_time() - began:.2f} s")


def microseconds(draws: Array, block: int, on: bool) -> float:
    """Per draw, once so many are kept."""
    Subsample.add = ADD if on else lambda sketch, rows: None  # type: ignore[method-assign]
    thinner = ss.Thinner(DIM, size=KEPT)
    thinner.extend(draws[:KEPT], -draws[:KEPT])
    began = time.process_time()
    for first in range(KEPT, len(draws), block):
        some = draws[first : first + block]
        thinner.extend(some, -some)
    return (time.process_time() - began) / DRAWS * 1e6


if __name__ == "__main__":
    main()
