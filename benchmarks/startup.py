"""Cold starts: how long a new process takes, as a ratio to an interpreter that does nothing.

*thin* reduces a file of 1000 draws in two dimensions to a file of kept draws. Its machine code comes from a cache that
starts empty: the first run fills it, the others find it there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.race import elapsed, race
from benchmarks.table import Options, Row, at_most

COMMAND = str(Path(sys.executable).with_name("steinstream"))


def run(options: Options) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="steinstream-benchmarks-") as folder:
        draws = np.random.default_rng(0).normal(size=(1000, 2))
        np.savez(Path(folder, "draws.npz"), draws=draws, scores=-draws)

        def command(*words: str) -> Callable[[], object]:
            return lambda: subprocess.run(
                words, cwd=folder, env={**os.environ, "XDG_CACHE_HOME": folder}, capture_output=True, check=True
            )

        commands = {
            "python": command(sys.executable, "-c", ""),
            "import numpy": command(sys.executable, "-c", "import numpy"),
            "import numba": command(sys.executable, "-c", "import numba"),
            "steinstream --help": command(COMMAND, "--help"),
            "steinstream thin": command(COMMAND, "thin", "draws.npz", "-o", "kept.npz"),
        }
        first = elapsed(commands["steinstream thin"])
        best = race({name: lambda run=run: run for name, run in commands.items()}, 0, 3 if options.quick else 15)
    best["steinstream thin, first run"] = first
    goals = {"steinstream --help": 0.3, "steinstream thin": 1.5}
    return [
        {
            "process": name,
            "s": seconds,
            "/ python": seconds / best["python"],
            "goal": at_most(seconds, goals[name]) if name in goals else "",
        }
        for name, seconds in best.items()
    ]
