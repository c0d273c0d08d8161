"""First uses: processor seconds of compilation of each option.

The first row starts with an empty cache of machine code. Each other row is a process of its own, whose cache has what
``ss.thin(draws, scores, size=200)`` compiles. The numbers are the processor time of a use minus that of the same use
when it is repeated; the smallest of several runs. In the *slow chain*, successive draws have a correlation of 0.995:
its distribution is corrected by its scores. With *repeated states*, a chain stays where it is in two of three steps.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.table import Options, Row, at_most

FIRST = "ss.thin(draws, scores, size=200)"
GOALS = {FIRST: 4.0}
OTHER_GOAL = 2.0
USES = {
    "kernel='rbf'": "ss.thin(draws, scores, size=200, kernel='rbf')",
    "kernel=IMQ(linear=1)": "ss.thin(draws, scores, size=200, kernel=ss.IMQ(linear=1))",
    "candidates=4": "ss.thin(draws, scores, size=200, candidates=4)",
    "stream_weight=0": "ss.thin(draws, scores, size=200, stream_weight=0)",
    "without scores": "ss.thin(draws, size=200)",
    "features": "ss.thin(draws, scores, size=200, features=draws**2)",
    "log_density": "ss.thin(draws, size=200, log_density=-0.5 * (draws**2).sum(axis=1))",
    "passes='auto'": "ss.thin(draws, scores, size=200, passes='auto')",
    "costs, pinned": "ss.thin(draws, scores, size=200, cost_weight=1, costs=draws[:, 0] ** 2, pinned=draws[:, 0] > 3)",
    "growth='sqrt'": "ss.thin(draws, scores, growth='sqrt')",
    "preconditioner='streaming'": "ss.thin(draws, scores, size=200, preconditioner='streaming')",
    "storage='float32'": "ss.thin(draws, scores, size=20, storage='float32')",
    "start='sample', stream_weight=0": "ss.thin(draws, scores, size=200, start='sample', stream_weight=0)",
    "a slow chain": "ss.thin(slow, -slow, size=200)",
    "repeated states": "ss.thin(repeated, -repeated, size=200)",
    "ss.merge": "ss.merge(halves, size=200)",
    "weighted": "kept.weighted()",
    "ordered": "kept.ordered()",
    "ss.ksd": "ss.ksd(draws[:200], scores[:200])",
    "Stein thinning": "ss.baselines.stein_thinning(draws, scores, 200)",
    "reservoir": "ss.baselines.reservoir(draws, scores, 200)",
}
SCRIPT = f"""
import sys, time
import numba  # what every user of numba pays
import numpy as np
import steinstream as ss

def seconds(use):
    start = time.process_time()
    use()
    return time.process_time() - start

noise = np.random.default_rng(0).normal(size=(2000, 4))
draws, slow = noise, noise.copy()
for t in range(1, 2000):
    slow[t] = 0.995 * slow[t - 1] + 0.1 * noise[t]
repeated, scores = np.repeat(draws[:700], 3, axis=0)[:2000], -draws
first = lambda: ss.thin(draws, scores, size=200)
if sys.argv[1] == {FIRST!r}:
    print(seconds(first) - seconds(first))
else:
    kept, halves = first(), [ss.thin(half, -half, size=200) for half in (draws[:1000], draws[1000:])]
    use = eval(f"lambda: {{sys.argv[1]}}")
    print(seconds(use) - seconds(use))
"""


def run(options: Options) -> list[Row]:
    runs = [_compile_times() for _ in range(1 if options.quick else 3)]
    best = {name: min(times[name] for times in runs) for name in runs[0]}
    return [
        {"use": name, "processor time, s": value, "goal": at_most(value, GOALS.get(name, OTHER_GOAL))}
        for name, value in best.items()
    ]


def _compile_times() -> dict[str, float]:
    """Processor time of each first use."""
    with tempfile.TemporaryDirectory(prefix="steinstream-benchmarks-") as folder:
        filled, copy = Path(folder, "filled"), Path(folder, "copy")
        filled.mkdir()
        times = {FIRST: _compile_time(FIRST, filled)}
        for name, use in USES.items():
            shutil.copytree(filled, copy)
            times[name] = _compile_time(use, copy)
            shutil.rmtree(copy)
    return times


def _compile_time(use: str, cache: Path) -> float:
    """Processor time of a first use in a new process with this cache."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, use]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(ran.stdout.splitlines()[-1])
