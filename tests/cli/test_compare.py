"""The commands ``compare`` and ``thin --method``: numbers equal those of the library, and failures are reported."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import steinstream as ss
from steinstream import baselines
from steinstream.baselines import METHODS
from steinstream.baselines.comparison import ComparisonRow
from steinstream.cli import commands
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
    with pytest.raises(InputError, match="size is 3001, but the chain has only 3000 draws"):
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
        "normalised" in ran.stdout and "spmcmc" in ran.stdout and "wrote out/compare.csv, out/compare.png" in ran.stdout
    )
    with (tmp_path / "out" / "compare.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["method"], int(row["size"])) for row in rows] == [
        ("stride", 10), ("stride", 30), ("spmcmc", 10), ("spmcmc", 30)
    ]  # fmt: skip
    assert set(rows[0]) == set(ComparisonRow.__dataclass_fields__) and all(float(row["ksd"]) > 0 for row in rows)
    assert (tmp_path / "out" / "compare.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"


def test_the_picture_has_a_line_for_every_method_that_worked(tmp_path):
    pytest.importorskip("matplotlib")
    from steinstream.report import plots

    axes = plots.pyplot().figure().subplots()
    plots.by_size(axes, {"stride": ([10, 20], [0.9, 0.8]), "ksdt": ([10, 20], [0.5, 0.4])}, "KSD")
    stride, ours = axes.get_lines()
    assert ours.get_label() == "ksdt" and ours.get_ydata().tolist() == [0.5, 0.4]
    assert ours.get_linewidth() > stride.get_linewidth() and ours.get_color() != stride.get_color()
    rows = [ComparisonRow("ksdt", 10, ksd=0.5, normalised_ksd=1.0), ComparisonRow("reservoir", 10, problem="no")]
    for some in (rows, rows[1:]):
        plots.comparison(tmp_path / "c.png", some)
        assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")


def test_ctrl_c_ends_the_comparison_and_its_process(tmp_path):
    x = np.random.default_rng(1).normal(size=(150_000, 3))
    np.savez(tmp_path / "long.npz", draws=x, scores=-x)
    command = [sys.executable, "-m", "steinstream", "compare", "long.npz", "--methods", "reservoir", "-o", "out"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    limit = time.monotonic() + 240
    while time.monotonic() < limit and len(children.read_text().split() if children.exists() else "12") < 2:
        time.sleep(0.1)  # until the method's process runs, beside multiprocessing's own helper
    time.sleep(1.0)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to everyone
    try:
        _, error = process.communicate(timeout=240)  # compiling may have to end first, on a busy machine
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130 and "stopped" in error and "Traceback" not in error
    with pytest.raises(ProcessLookupError):
        for _ in range(50):  # nobody of the group is left behind
            os.killpg(process.pid, 0)
            time.sleep(0.1)
    assert not list((tmp_path / "out").iterdir())


# -- thin --method -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
def test_every_method_runs_on_the_command_line(name, chain, tmp_path, capsys):
    if name == "kernel_thinning":
        pytest.importorskip("goodpoints")
    run("thin", chain, "--method", name.replace("_", "-"), "--size", 30, "--seed", 4, "-o", tmp_path / "kept.npz")
    assert "kept 30 of 3 000 draws" in capsys.readouterr().out
    with np.load(chain) as arrays, np.load(tmp_path / "kept.npz") as kept:
        ids = getattr(baselines, name)(arrays["draws"], arrays["scores"], 30, seed=4)
        assert np.array_equal(kept["ids"], ids[np.lexsort((ids[:, 1], ids[:, 0]))])
        assert np.array_equal(kept["draws"], arrays["draws"][kept["ids"][:, 1]])
        assert np.array_equal(kept["scores"], arrays["scores"][kept["ids"][:, 1]])
        preconditioner = ss.Preconditioner(kept["preconditioner"])
        assert float(kept["ksd"]) == ss.ksd(kept["draws"], kept["scores"], preconditioner=preconditioner)
        settings = json.loads(str(kept["settings"]))
    assert settings["size"] == 30 and settings["seen"] == 3000
    assert settings.get("method", "ksdt") == name
    run("ksd", tmp_path / "kept.npz")
    assert f"KSD {float(np.load(tmp_path / 'kept.npz')['ksd']):.6g}" in capsys.readouterr().out


def test_bad_draws_can_be_skipped_and_are_counted(tmp_path, capsys):
    path = write_chain(tmp_path / "c.npz", draws=400)
    with np.load(path) as arrays:
        x, s = arrays["draws"].copy(), arrays["scores"].copy()
    x[3, 1], s[100, 2] = np.nan, np.inf
    np.savez(path, draws=x, scores=s)
    how = ["thin", path, "-o", tmp_path / "k.npz", "--method", "stein_thinning", "--size", 20]
    with pytest.raises(InputError, match="draw 3 is nan"):
        run(*how)
    run(*how, "--on-bad", "skip")
    assert "2 bad ones skipped" in capsys.readouterr().out
    with np.load(tmp_path / "k.npz") as kept:
        assert not {3, 100} & set(kept["ids"][:, 1]) and np.array_equal(kept["draws"], x[kept["ids"][:, 1]])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--method", "spmcm", "--size", 5], "Did you mean spmcmc"),
        (["--method", "stride"], "has to be told how many"),
        (["--method", "stride", "--size", 3001], "size is 3001, but the chain has only 3000 draws"),
        (["--method", "stride", "--size", 5, "--growth", "sqrt"], "--growth means nothing to stride"),
        (["--method", "stride", "--size", 5, "--candidates", 3], "--candidates means nothing"),
        (["--method", "stride", "--size", 5, "--checkpoint", "c.npz"], "--checkpoint means nothing"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, words, chain, tmp_path):
    with pytest.raises(InputError, match=words):
        run("thin", chain, "-o", tmp_path / "kept.npz", *options)
    assert not (tmp_path / "kept.npz").exists()
