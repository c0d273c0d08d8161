"""Kernels for compiled functions."""

from __future__ import annotations

import subprocess
import sys

CODE = """
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from steinstream._engine.compiled_kernel import compile_kernel
from steinstream.kernels import IMQ
barrier = Barrier(4)
def rows(_):
    barrier.wait()
    return compile_kernel(IMQ(), 2).rows
with ThreadPoolExecutor(4) as threads:
    print(len(set(threads.map(rows, range(4)))))
"""


def test_threads_that_use_a_kernel_first_at_the_same_time_share_its_table():
    """A second table would be released while compiled code still reads it."""
    for _ in range(3):
        ran = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=600)
        assert (ran.returncode, ran.stdout) == (0, "1\n"), ran.stderr
