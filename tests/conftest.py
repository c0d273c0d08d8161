"""Fixtures that several test modules share."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import warnings
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

# Tests run in several processes: threads of BLAS would compete for the same cores. Read when numpy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads of numba wait without using a core

import numpy as np
import pytest
from hypothesis import settings

settings.register_profile("local", deadline=None)  # tests do not depend on the speed of the machine
settings.register_profile("ci", derandomize=True, deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "local")

# This process caches bytecode, its child processes do not: under a limit of file sizes Python writes truncated files.
sys.dont_write_bytecode = False
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"

os.environ["STEINSTREAM_LOG_INTERVAL"] = "inf"  # lines of progress depend on the speed of the machine

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # in the background of a shell, tests of Ctrl-C would wait forever
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def axe(tmp_path_factory):
    """The script of axe-core: the package from npm, or a file named by the variable AXE_CORE."""
    pytest.importorskip("selenium", reason="browser tests require selenium")
    if given := os.environ.get("AXE_CORE"):
        return Path(given).read_text()
    if not (npm := shutil.which("npm")):
        pytest.skip("axe-core is not available: install npm, or set AXE_CORE to the path of axe.min.js")
    folder = tmp_path_factory.mktemp("axe")
    call = [npm, "pack", "axe-core@4", "--silent", "--pack-destination", str(folder), "--cache", str(folder / "cache")]
    if subprocess.run(call, cwd=folder, capture_output=True, timeout=300).returncode:
        pytest.skip("npm cannot download axe-core")
    (archive,) = folder.glob("*.tgz")
    with tarfile.open(archive) as package:
        return package.extractfile("package/axe.min.js").read().decode()


@pytest.fixture
def steinstream(tmp_path):
    """Return a function that runs the command in a temporary folder and returns a `CompletedProcess`.

    It runs in this process, which saves a second per call, or in a new one if options of ``subprocess.run`` are given.
    """

    def run(*arguments, **options):
        words = [*map(str, arguments)]
        if not options:
            return _run_in_process(words, tmp_path)
        command = [sys.executable, "-m", "steinstream", *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, **options)

    return run


def _run_in_process(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    from steinstream.cli import main

    out, err = io.StringIO(), io.StringIO()
    with (
        chdir(folder),
        redirect_stdout(out),
        redirect_stderr(err),
        warnings.catch_warnings(),
        patch.object(sys, "argv", ["steinstream", *words]),
        pytest.raises(SystemExit) as ended,
    ):
        warnings.simplefilter("default")
        main()
    return subprocess.CompletedProcess(words, ended.value.code or 0, out.getvalue(), err.getvalue())


@pytest.fixture
def chain(tmp_path):
    """Return the file chain.npz: 3000 independent normal draws with three different standard deviations."""
    return write_chain(tmp_path / "chain.npz")


def write_chain(path: Path, draws: int = 3000, seed: int = 0, sign: float = 1.0) -> Path:
    """Write independent normal draws with three different standard deviations, and ``sign`` times their scores."""
    scales = np.array([1.0, 0.1, 10.0])
    x = np.random.default_rng(seed).normal(size=(draws, 3)) * scales
    np.savez(path, draws=x, scores=-sign * x / scales**2)
    return path
