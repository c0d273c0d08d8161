"""Memory follows what is kept, not what was seen."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import steinstream as ss


def peak(work):
    """Megabytes that the work takes at its height, compilation left out."""
    work(200)
    tracemalloc.start()
    try:
        work(None)
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


def test_ksd_of_many_points_needs_no_matrix():
    x = np.random.default_rng(0).normal(size=(20_000, 3))
    assert peak(lambda count: ss.ksd(x[:count], -x[:count])) < 20  # the matrix would take 3200


def test_a_long_stream_leaves_no_trace():
    rng = np.random.default_rng(0)

    def work(blocks):
        thinner = ss.Thinner(4, size=100)
        for _ in range(blocks or 300):
            x = rng.normal(size=(1000, 4))
            thinner.extend(x, -x)

    assert peak(work) < 2


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to tell the peak of resident memory")
def test_the_command_line_never_holds_a_file_whole(tmp_path):
    """100 MB of draws and scores, against a file with a thousandth of them."""
    program = """
import sys
from pathlib import Path
from steinstream.cli import commands
commands.main(["thin", sys.argv[1], "-o", sys.argv[1] + ".kept.npz", "--size", "50"], standalone_mode=False)
print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
"""
    used = []
    for draws in (620, 620_000):
        x = np.random.default_rng(0).normal(size=(draws, 10))
        np.savez(tmp_path / f"{draws}.npz", draws=x, scores=-x)
        ran = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / f"{draws}.npz")], capture_output=True, text=True
        )
        assert ran.returncode == 0, ran.stderr
        used.append(int(ran.stdout.split()[-1]) / 1024)
    assert used[1] - used[0] < 25
