"""Short MALA runs with several steps from the start: ``python experiments/goodwin-mala/steps.py --data FOLDER``.

FOLDER contains goodwin/goodwin_obs_effective.npz. Writes steps.csv to the folder of this file. Half a minute.
"""

from __future__ import annotations

import argparse
import csv
import sys
import warnings
from pathlib import Path

import numpy as np

from steinstream.samplers import MALA, SamplerWarning
from steinstream.targets import Goodwin

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from experiments.paper.goodwin import START  # noqa: E402

STEPS = (0.00003, 0.00007, 0.0001, 0.00012, 0.00015, 0.0002, 0.0003, 0.0005, 0.001, 0.002, 0.003, 0.005)
MOVES, BLOCK = 20_000, 2_000


def main() -> None:
    """Run every step and write the fractions of accepted moves and the norm of the score at the end."""
    parser = argparse.ArgumentParser(description="Short MALA runs with several steps.")
    parser.add_argument("--data", type=Path, required=True, help="folder with goodwin/goodwin_obs_effective.npz")
    with np.load(parser.parse_args().data / "goodwin" / "goodwin_obs_effective.npz") as file:
        target = Goodwin(np.asarray(file["y"], dtype=np.float64))
    lines = [["step", "accepted", "accepted at the end", "score at the start", "score at the end"]]
    for step in STEPS:
        sampler = MALA(target, step=step)
        state = sampler.init(START, 0)
        first = np.linalg.norm(state.score)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SamplerWarning)
            for _ in range(MOVES // BLOCK):
                before = state.accepted
                state, _ = sampler.sample(state, BLOCK)
        accepted, last = state.accepted / MOVES, (state.accepted - before) / BLOCK
        line = [f"{step:g}", f"{accepted:.4f}", f"{last:.4f}", f"{first:.3g}", f"{np.linalg.norm(state.score):.3g}"]
        print(*line)
        lines.append(line)
    with (HERE / "steps.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(lines)


if __name__ == "__main__":
    main()
