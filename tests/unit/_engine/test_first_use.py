"""A first use compiles functions of the package alone: numba's own functions of arrays take seconds to compile."""

from __future__ import annotations

import os
import subprocess
import sys

SCRIPT = """
import numpy as np
from numba.core import event
import steinstream as ss

compiled = set()

class Compilations(event.Listener):
    def on_start(self, event):
        compiled.add(event.data["dispatcher"].py_func.__module__)

    def on_end(self, event):
        pass

event.register("numba:compile", Compilations())
noise = np.random.default_rng(0).normal(size=(2000, 2))
slow = noise.copy()
for t in range(1, 2000):
    slow[t] = 0.995 * slow[t - 1] + 0.1 * noise[t]
kept = ss.thin(slow, -slow, size=50)
halves = [ss.thin(half, -half, size=50) for half in (noise[:1000], noise[1000:])]
ss.thin(noise, -noise, size=50, start="sample", stream_weight=0)
ss.thin(noise, size=50, log_density=-0.5 * (noise**2).sum(axis=1))
ss.thin(noise, -noise, size=50, candidates=4)
ss.merge(halves, size=50).weighted()
kept.ordered()
ss.ksd(noise, -noise)
ss.baselines.reservoir(noise, -noise, 50)
ss.baselines.minibatch_stein_thinning(noise, -noise, 50)
print(*sorted(compiled), sep="\\n")
"""


def test_a_first_use_compiles_functions_of_the_package_alone(tmp_path):
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    environment.pop("NUMBA_CACHE_DIR", None)
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    modules = ran.stdout.split()
    assert "steinstream._engine.local_search" in modules
    assert [name for name in modules if not name.startswith("steinstream.")] == []
