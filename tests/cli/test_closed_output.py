"""A command whose output cannot be written, or that is interrupted while it starts, prints no traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs signals, /dev/full and descriptors of POSIX")

FULL = Path("/dev/full")
START = [sys.executable, "-m", "steinstream"]


def test_an_interrupt_during_the_imports_prints_no_traceback(tmp_path):
    (tmp_path / "click.py").write_text("import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run([*START, "--help"], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (130, "stopped\n")


def test_a_closed_pipe_ends_a_command_with_code_141(chain, tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run([*START, "inspect", chain], stdout=writer, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writer)
    assert ended.returncode == 141
    assert "Traceback" not in ended.stderr


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
def test_an_error_that_cannot_be_printed_ends_with_code_2(tmp_path):
    with FULL.open("w") as full:
        assert subprocess.run([*START, "inspect", "missing.npz"], cwd=tmp_path, stderr=full).returncode == 2


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
def test_draws_that_cannot_be_printed_end_with_code_2(chain):
    with FULL.open("w") as full:
        ended = subprocess.run([*START, "thin", chain, "-o", "-"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert ended.returncode == 2
    assert ended.stderr.count("error: ") == 1 and "Traceback" not in ended.stderr and "ignored" not in ended.stderr


def test_draws_for_a_closed_standard_output_end_with_code_2(chain):
    command = ["sh", "-c", 'exec "$@" >&-', "sh", *START, "thin", str(chain), "-o", "-"]
    ended = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    assert ended.returncode == 2
    assert "error: standard output is closed" in ended.stderr
