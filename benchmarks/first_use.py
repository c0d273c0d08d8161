"""First uses: processor seconds of compilation, with an empty cache of machine code.

Every row is a use in the same process after the rows above it: its processor time minus that of the same use when it is
repeated. The best of several processes, each with an empty cache.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

from benchmarks.table import Options, Row, at_most

GOALS = {"ss.thin(draws, scores, size=200)": 4.0}
OTHER_GOAL = 2.0
SCRIPT = """
import json, time
import numpy as np
import steinstream as ss

draws = np.random.default_rng(0).normal(size=(2000, 4))
log_densities = -0.5 * (draws**2).sum(axis=1)
costs, pinned = draws[:, 0] ** 2, np.arange(2000) < 2
uses = {
    "ss.thin(draws, scores, size=200)": lambda: ss.thin(draws, -draws, size=200),
    "kernel='rbf'": lambda: ss.thin(draws, -draws, size=200, kernel="rbf"),
    "candidates=4": lambda: ss.thin(draws, -draws, size=200, candidates=4),
    "stream_weight=0": lambda: ss.thin(draws, -draws, size=200, stream_weight=0),
    "without scores": lambda: ss.thin(draws, size=200),
    "features": lambda: ss.thin(draws, size=200, features=draws**2),
    "log_density": lambda: ss.thin(draws, size=200, log_density=log_densities),
    "passes='auto'": lambda: ss.thin(draws, -draws, size=200, passes="auto"),
    "ss.ksd": lambda: ss.ksd(draws[:200], -draws[:200]),
    "kernel=IMQ(linear=1)": lambda: ss.thin(draws, -draws, size=200, kernel=ss.IMQ(linear=1)),
    "costs, pinned": lambda: ss.thin(draws, -draws, size=200, cost_weight=1, costs=costs, pinned=pinned),
    "storage='float32'": lambda: ss.thin(draws, -draws, size=200, storage="float32"),
    "start='sample', stream_weight=0": lambda: ss.thin(draws, -draws, size=200, start="sample", stream_weight=0),
    "ss.merge": lambda: ss.merge([ss.thin(half, -half, size=200) for half in (draws[:1000], draws[1000:])], size=200),
}

def seconds(use):
    start = time.process_time()
    use()
    return time.process_time() - start

import numba  # what every user of numba pays
print(json.dumps({name: seconds(use) - seconds(use) for name, use in uses.items()}))
"""


def run(options: Options) -> list[Row]:
    runs = [_compile_times() for _ in range(1 if options.quick else 3)]
    best = {name: min(times[name] for times in runs) for name in runs[0]}
    return [
        {"use": name, "processor time, s": value, "goal": at_most(value, GOALS.get(name, OTHER_GOAL))}
        for name, value in best.items()
    ]


def _compile_times() -> dict[str, float]:
    """Processor time of the first uses in a new process with an empty cache."""
    with tempfile.TemporaryDirectory(prefix="steinstream-benchmarks-") as folder:
        environment = {**os.environ, "XDG_CACHE_HOME": folder}
        command = [sys.executable, "-W", "ignore", "-c", SCRIPT]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return found
