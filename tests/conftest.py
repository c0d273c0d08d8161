"""What tests share."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import warnings
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

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
    """Run the command in a folder of its own; returns what a finished process would.

    Within this process, which saves a second each time; with options of ``subprocess.run`` in one of its own.
    """

    def run(*arguments, **options):
        words = [*map(str, arguments)]
        if not options:
            return _within(words, tmp_path)
        command = [sys.executable, "-m", "steinstream", *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, **options)

    return run


def _within(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    from steinstream.cli import main

    out, err = io.StringIO(), io.StringIO()
    with (
        chdir(folder), redirect_stdout(out), redirect_stderr(err), warnings.catch_warnings(),
        patch.object(sys, "argv", ["steinstream", *words]), pytest.raises(SystemExit) as ended,
    ):  # fmt: skip
        warnings.simplefilter("default")
        main()
    return subprocess.CompletedProcess(words, ended.value.code or 0, out.getvalue(), err.getvalue())


@pytest.fixture
def chain(tmp_path):
    """A chain of 3000 independent normal draws in three widths, as chain.npz."""
    return write_chain(tmp_path / "chain.npz")


def write_chain(path: Path, draws: int = 3000, seed: int = 0, sign: float = 1.0) -> Path:
    scales = np.array([1.0, 0.1, 10.0])
    x = np.random.default_rng(seed).normal(size=(draws, 3)) * scales
    np.savez(path, draws=x, scores=-sign * x / scales**2)
    return path
