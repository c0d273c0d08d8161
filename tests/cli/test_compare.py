"""``steinstream compare`` writes a table and a picture, refuses bad requests, and can be stopped."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from steinstream.baselines.comparison import ComparisonRow
from steinstream.cli import commands
from steinstream.cli.compare import _table
from steinstream.errors import InputError, OutputError
from tests.conftest import write_chain


def run(*arguments):
    commands.main(list(map(str, arguments)), standalone_mode=False)


def test_bad_requests_are_refused_before_anything_runs(chain, tmp_path):
    with pytest.raises(InputError, match="Did you mean stein_thinning"):
        run("compare", chain, "--methods", "ksdt,stein_thining")
    with pytest.raises(InputError, match="whole numbers with commas"):
        run("compare", chain, "--sizes", "50;100")
    with pytest.raises(InputError, match="at least 1, got -3"):
        run("compare", chain, "--sizes", "-3")
    with pytest.raises(InputError, match="size is 3001, but the chain has only 3000"):
        run("compare", chain, "--sizes", "3001,5000")
    with pytest.raises(InputError, match="no such file"):
        run("compare", tmp_path / "none.npz")
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(OutputError, match="is a file"):
        run("compare", chain, "-o", tmp_path / "taken")
    assert (tmp_path / "taken").read_text() == "mine"
    path = write_chain(tmp_path / "bad.npz", draws=200)
    with np.load(path) as arrays:
        x, s = arrays["draws"].copy(), arrays["scores"]
    x[9, 0] = np.inf
    np.savez(path, draws=x, scores=s)
    with pytest.raises(InputError, match="draw 9 is inf"):
        run("compare", path)


def test_the_command_writes_a_table_and_a_picture_and_touches_nothing_else(steinstream, chain, tmp_path):
    pytest.importorskip("matplotlib")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    (tmp_path / "out" / "compare.csv").write_text("old")
    ran = steinstream("compare", chain, "--sizes", "10,30", "--methods", "stride,spmcmc", "-o", "out")
    assert ran.returncode == 0, ran.stderr
    assert (
        "quantiles" in ran.stdout and "spmcmc" in ran.stdout and "wrote out/compare.csv, out/compare.png" in ran.stdout
    )
    with (tmp_path / "out" / "compare.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["method"], int(row["size"])) for row in rows] == [
        ("stride", 10),
        ("stride", 30),
        ("spmcmc", 10),
        ("spmcmc", 30),
    ]
    assert set(rows[0]) == set(ComparisonRow.__dataclass_fields__) and all(float(row["ksd"]) > 0 for row in rows)
    assert (tmp_path / "out" / "compare.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"


def test_cells_of_the_table_are_not_cut_in_a_narrow_window(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    row = ComparisonRow("minibatch_stein_thinning", 500, 0.5, 0.5, 0.5, 0.0123, 0.3, 500, 0.1417, 0.0543, 1024.0)
    lines = _table([row]).splitlines()
    assert "quantiles" in lines[0] and "distinct" in lines[0]
    assert lines[1].split()[-6:] == ["141.7", "ms", "54.3", "ms", "1024.0", "MB"]


def test_a_csv_file_with_scores_is_compared(steinstream, tmp_path):
    x = np.random.default_rng(0).normal(size=(200, 2))
    header = "a,b,score_a,score_b"
    np.savetxt(tmp_path / "chain.csv", np.hstack([x, -x]), delimiter=",", header=header, comments="")
    ran = steinstream("compare", "chain.csv", "--sizes", "10", "--methods", "stride")
    assert ran.returncode == 0 and "stride" in ran.stdout, ran.stderr


def test_methods_that_require_scores_are_named_in_one_sentence(steinstream, tmp_path):
    np.savez(tmp_path / "chain.npz", draws=np.random.default_rng(0).normal(size=(200, 2)))
    ran = steinstream("compare", "chain.npz", "--sizes", "10", "--methods", "stride,spmcmc,stein_thinning")
    assert ran.returncode == 0, ran.stderr
    assert "The methods spmcmc, stein_thinning require scores" in ran.stdout and ran.stdout.count("scores") == 1


def child_has_loaded_compiler(process):
    """Whether the process of a method, a child of this one, is about to run compiled code; True without /proc."""
    children = Path(f"/proc/{process}/task/{process}/children")
    try:
        maps = [Path(f"/proc/{child}/maps") for child in children.read_text().split()]
        return any("llvmlite" in each.read_text() for each in maps)
    except OSError:  # no /proc, or the child has just ended
        return not Path("/proc").exists()


def test_ctrl_c_ends_the_comparison_and_its_process(tmp_path):
    x = np.random.default_rng(1).normal(size=(150_000, 3))
    np.savez(tmp_path / "long.npz", draws=x, scores=-x)
    command = [sys.executable, "-m", "steinstream", "compare", "long.npz", "--methods", "reservoir", "-o", "out"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    limit = time.monotonic() + 600
    while process.poll() is None and not child_has_loaded_compiler(process.pid):
        assert time.monotonic() < limit
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole group
    try:
        _, error = process.communicate(timeout=600)  # compilation may have to end first
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130 and "stopped" in error and "Traceback" not in error
    with pytest.raises(ProcessLookupError):
        for _ in range(6000):  # no process of the group is left, at most ten minutes later
            os.killpg(process.pid, 0)
            time.sleep(0.1)
    assert not list((tmp_path / "out").iterdir())
