"""Fixtures of the tests of the experiments."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import pytest

from steinstream.cli import main

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def run_experiment(tmp_path):
    """Run ``python -m experiments`` within this process, in a temporary folder; returns a completed process."""
    from experiments.__main__ import reproduce

    def run(*arguments):
        words = [*map(str, arguments)]
        out, err = io.StringIO(), io.StringIO()
        with (
            chdir(tmp_path),
            redirect_stdout(out),
            redirect_stderr(err),
            patch.object(sys, "argv", ["experiments", *words]),
            pytest.raises(SystemExit) as exit_info,
        ):
            main(reproduce, "python -m experiments")
        return subprocess.CompletedProcess(words, exit_info.value.code or 0, out.getvalue(), err.getvalue())

    return run


@pytest.fixture
def environment():
    """Environment variables with which a subprocess in any folder can import the experiments."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return {**os.environ, "PYTHONPATH": path}
