"""``steinstream thin`` with workers gives the results of the library, and can be stopped and continued."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import steinstream as ss


def chains(count, draws=500):
    x = np.random.default_rng(0).normal(size=(count, draws, 3)) * [1.0, 2.0, 3.0]
    return x, -x / np.array([1.0, 4.0, 9.0])


@pytest.fixture
def files(tmp_path):
    """A folder with twelve chains."""
    folder = tmp_path / "chains"
    folder.mkdir()
    x, s = chains(12)
    for number in range(12):
        np.savez(folder / f"chain-{number}.npz", draws=x[number], scores=s[number])
    return folder


def test_workers_equal_the_library(steinstream, files, tmp_path):
    pytest.importorskip("distributed")
    names = [f"chains/chain-{number}.npz" for number in range(12)]
    arguments = ["thin", *names, "--size", 25, "--fan-in", 4, "--checkpoint", "work"]
    ran = steinstream(*arguments, "-o", "kept.npz", "--workers", 2)
    assert ran.returncode == 0, ran.stderr
    x, s = chains(12)
    kept = ss.parallel.thin((x, s), size=25, fan_in=4, workers=0)
    written = ss.Kept.load(tmp_path / "kept.npz")
    assert np.array_equal(written.ids, kept.ids) and written.ksd == kept.ksd
    assert "kept 25 of 6 000 draws in 12 chains" in ran.stdout and not (tmp_path / "work").exists()


def test_ctrl_c_with_workers_ends_at_once_and_the_run_can_be_continued(steinstream, tmp_path):
    pytest.importorskip("distributed")
    for number in range(3):
        x = np.random.default_rng(number).normal(size=(60_000, 3))
        np.savez(tmp_path / f"{number}.npz", draws=x, scores=-x)
    arguments = ["thin", *(f"{number}.npz" for number in range(3)), "-o", "kept.npz", "--size", "1000"]
    arguments += ["--workers", "1", "--checkpoint", "work"]
    command = [sys.executable, "-m", "steinstream", *arguments]
    run = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True)
    end = time.monotonic() + 600
    while not list(tmp_path.glob("work/leaf-*.checkpoint")):
        assert time.monotonic() < end and run.poll() is None
        time.sleep(0.02)
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does: to the whole group
    _, said = run.communicate(timeout=600)
    assert run.returncode == 130 and "Traceback" not in said
    assert said.endswith("stopped; add --resume to the same command to continue\n")
    assert steinstream(*arguments, "--resume").returncode == 0


def test_chains_that_cannot_be_read_are_skipped_and_listed(steinstream, files, tmp_path):
    bad = files / "chain-3.npz"
    bad.write_bytes(bad.read_bytes()[:100])
    arguments = ["thin", "chains/*", "-o", "kept.npz", "--size", 25, "--workers", 0, "--checkpoint", "work"]
    ran = steinstream(*arguments)
    assert ran.returncode == 2 and "chain-3.npz" in ran.stderr and "on_corrupt" in ran.stderr.replace("-", "_")
    assert not (tmp_path / "kept.npz").exists()
    ran = steinstream(*arguments, "--on-corrupt", "skip", "--order")
    assert ran.returncode == 0 and "skipped: " in ran.stderr and "chain-3.npz" in ran.stderr
    assert set(ss.Kept.load(tmp_path / "kept.npz").ids[:, 0]) <= {0, 1, 2, *range(4, 12)}  # 0, 1, 2, ..., 10, 11
    assert "in 11 chains" in ran.stdout and ss.Kept.load(tmp_path / "kept.npz").prefix_ksd is not None


def test_options_that_cannot_be_used_with_workers_are_refused(steinstream, files, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "stopped").mkdir()
    (tmp_path / "stopped" / "leaf-00000.npz").touch()
    for arguments, message in (
        (["--checkpoint", "stopped"], "stopped contains checkpoints of a run that was stopped"),
        (["--initial", "chains/chain-0.npz"], "--initial cannot be used with workers"),
        (["--method", "reservoir"], "--method reservoir cannot be used with workers"),
        (["--checkpoint", "file"], "file is a file"),
        (["--growth", "wrong"], "wrong"),
    ):
        ran = steinstream("thin", "chains/*", "-o", "kept.npz", "--size", 25, "--workers", 0, *arguments)
        assert ran.returncode == 2 and message in ran.stderr and "Traceback" not in ran.stderr, ran.stderr
    assert "no file matches" in steinstream("thin", "none/*", "-o", "kept.npz", "--workers", 0).stderr


def test_options_of_the_file_reach_the_workers(steinstream, tmp_path):
    x = np.random.default_rng(1).normal(size=(100, 8))
    np.savez(tmp_path / "chain.npz", x=x, gradient=x)
    options = [
        "--draws-name",
        "x",
        "--scores-name",
        "gradient",
        "--negate-scores",
        "--workers",
        "0",
        "--size",
        "3",
        "--preconditioner",
        "identity",
    ]
    ran = steinstream("thin", "chain.npz", "-o", "kept.npz", *options)
    assert ran.returncode == 0, ran.stderr
    kept = ss.Kept.load(tmp_path / "kept.npz")
    assert np.array_equal(kept.draws, -kept.scores)


@pytest.mark.parametrize("address", ["head", "head:", "http://head:8786"])
def test_an_invalid_address_of_a_scheduler_ends_at_once(steinstream, files, address):
    pytest.importorskip("distributed")
    ran = steinstream("thin", "chains/chain-0.npz", "-o", "kept.npz", "--client", address, env={**os.environ})
    assert ran.returncode == 2 and "error: no Dask scheduler answers at" in ran.stderr
    assert len(ran.stderr.splitlines()) == 2


def test_an_invalid_draw_in_a_worker_is_one_message(steinstream, files, tmp_path):
    pytest.importorskip("distributed")
    x, s = chains(2)
    x[1, 5] = np.nan
    np.savez(tmp_path / "bad.npz", draws=x, scores=s)
    ran = steinstream("thin", "bad.npz", "-o", "kept.npz", "--size", 20, "--workers", 2, env={**os.environ})
    assert ran.returncode == 2 and "chain 1, draw 5 is nan" in ran.stderr
    assert next(line for line in ran.stderr.splitlines() if "ompil" not in line).startswith("error: ")
