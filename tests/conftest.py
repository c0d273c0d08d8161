"""What tests share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

settings.register_profile("house", deadline=None)  # a busy machine is no mistake
settings.register_profile("ci", derandomize=True, deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "house")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell: tests of Ctrl-C would wait
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def steinstream(tmp_path):
    """Run the command in a folder of its own; returns the finished process."""

    def run(*arguments, **options):
        command = [sys.executable, "-m", "steinstream", *map(str, arguments)]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, **options)

    return run


@pytest.fixture
def chain(tmp_path):
    """A chain of 3000 independent normal draws in three widths, as chain.npz."""
    return write_chain(tmp_path / "chain.npz")


def write_chain(path: Path, draws: int = 3000, seed: int = 0, sign: float = 1.0) -> Path:
    scales = np.array([1.0, 0.1, 10.0])
    x = np.random.default_rng(seed).normal(size=(draws, 3)) * scales
    np.savez(path, draws=x, scores=-sign * x / scales**2)
    return path
