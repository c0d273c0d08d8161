"""``steinstream merge``, and ``steinstream thin`` with workers, do what the library does."""

from __future__ import annotations

import os
import re
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
def parts(tmp_path):
    """Three kept sets."""
    x, s = chains(3)
    kept = [ss.thin(x[number], s[number], size=30) for number in range(3)]
    for number, part in enumerate(kept):
        part.save(tmp_path / f"part-{number}.npz")
    return kept


@pytest.fixture
def files(tmp_path):
    """Twelve chains in a folder."""
    folder = tmp_path / "chains"
    folder.mkdir()
    x, s = chains(12)
    for number in range(12):
        np.savez(folder / f"chain-{number}.npz", draws=x[number], scores=s[number])
    return folder


def same(path, kept):
    written = ss.Kept.load(path)
    return np.array_equal(written.ids, kept.ids) and written.ksd == kept.ksd


def test_merge_equals_the_library(steinstream, parts, tmp_path):
    names = [f"part-{number}.npz" for number in range(3)]
    ran = steinstream("merge", *names, "-o", "all.npz")
    assert ran.returncode == 0, ran.stderr
    assert same(tmp_path / "all.npz", ss.merge(parts))
    ran = steinstream("merge", *names, "-o", "kept.npz", "--size", 20, "--masses", "1,2,3", "--anchor", "auto")
    kept = ss.merge(parts, size=20, masses=[1, 2, 3], anchor=True)
    assert same(tmp_path / "kept.npz", kept)
    head, *lines = ran.stdout.splitlines()
    assert "kept 20 of 90 draws in 3 sets, which stand for 1 500" in head
    assert f"KSD {kept.ksd:.3g} (at most {kept.settings['merged']['bound']:.3g})" in head
    assert [line.split()[0] for line in lines] == names
    assert sum(int(line.split()[1]) for line in lines) == 20
    assert sum(float(re.search(r"([\d.]+) %", line)[1]) for line in lines) == pytest.approx(100, abs=0.2)
    ran = steinstream("merge", *names, "-o", "tree.npz", "--budget", "1e-3,1e-4", "--fan-in", 2)
    tree = ss.merge(parts, merge_budget=[1e-3, 1e-4], fan_in=2)
    assert same(tmp_path / "tree.npz", tree)
    assert f"promised {tree.settings['merged']['promised']:.3g}" in ran.stdout


def test_what_cannot_be_merged(steinstream, parts, tmp_path):
    np.savez(tmp_path / "chain.npz", draws=np.ones((3, 3)), scores=np.ones((3, 3)))
    for arguments, message in (
        (["part-0.npz", "missing.npz"], "missing.npz: there is no such file"),
        (["part-0.npz", "chain.npz"], "chain.npz is no kept set"),
        (["part-0.npz", "--masses", "length"], "unknown masses 'length'"),
        (["part-0.npz", "--budget", "-1"], "budget must be"),
        (["part-0.npz", "--masses", "1,2"], "masses must be 1 positive numbers"),
    ):
        ran = steinstream("merge", *arguments, "-o", "out.npz")
        assert ran.returncode == 2 and message in ran.stderr and "Traceback" not in ran.stderr
    assert not (tmp_path / "out.npz").exists()


def test_workers_equal_the_library(steinstream, files, tmp_path):
    pytest.importorskip("distributed")
    names = [f"chains/chain-{number}.npz" for number in range(12)]
    arguments = ["thin", *names, "--size", 25, "--fan-in", 4, "--checkpoint", "work"]
    ran = steinstream(*arguments, "-o", "kept.npz", "--workers", 2)
    assert ran.returncode == 0, ran.stderr
    x, s = chains(12)
    kept = ss.parallel.thin((x, s), size=25, fan_in=4, workers=0, kernel=ss.IMQ())
    assert same(tmp_path / "kept.npz", kept)
    assert "kept 25 of 6 000 draws in 12 chains" in ran.stdout and not (tmp_path / "work").exists()


def test_ctrl_c_with_workers_ends_at_once_and_can_go_on(steinstream, tmp_path):
    pytest.importorskip("distributed")
    for number in range(3):
        x = np.random.default_rng(number).normal(size=(60_000, 3))
        np.savez(tmp_path / f"{number}.npz", draws=x, scores=-x)
    arguments = ["thin", *(f"{number}.npz" for number in range(3)), "-o", "kept.npz", "--size", "1000"]
    arguments += ["--workers", "1", "--checkpoint", "work"]
    command = [sys.executable, "-m", "steinstream", *arguments]
    run = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True)
    end = time.monotonic() + 240
    while not list(tmp_path.glob("work/leaf-*.checkpoint")):
        assert time.monotonic() < end and run.poll() is None
        time.sleep(0.02)
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does: to all of them
    _, told = run.communicate(timeout=240)
    assert run.returncode == 130 and "Traceback" not in told
    assert told.endswith("stopped; the same command with --resume goes on\n")
    assert steinstream(*arguments, "--resume").returncode == 0


def test_workers_say_what_they_left_out_and_go_on(steinstream, files, tmp_path):
    bad = files / "chain-3.npz"
    bad.write_bytes(bad.read_bytes()[:100])
    arguments = ["thin", "chains/*", "-o", "kept.npz", "--size", 25, "--workers", 0, "--checkpoint", "work"]
    ran = steinstream(*arguments)
    assert ran.returncode == 2 and "chain-3.npz" in ran.stderr and "--skip-corrupt" in ran.stderr
    assert not (tmp_path / "kept.npz").exists()
    ran = steinstream(*arguments, "--skip-corrupt", "--order")
    assert ran.returncode == 0 and "left out: " in ran.stderr and "chain-3.npz" in ran.stderr
    assert set(ss.Kept.load(tmp_path / "kept.npz").ids[:, 0]) <= {0, 1, 2, *range(4, 12)}  # 0, 1, 2, ..., 10, 11
    assert "in 11 chains" in ran.stdout and ss.Kept.load(tmp_path / "kept.npz").prefix_ksd is not None


def test_what_does_not_go_with_workers(steinstream, files, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "stopped").mkdir()
    (tmp_path / "stopped" / "leaf-00000.npz").touch()
    for arguments, message in (
        (["--checkpoint", "stopped"], "stopped holds leaves of a run that was stopped"),
        (["--weights", "chain"], "reads all chains in one place"),
        (["--initial", "chains/chain-0.npz"], "--initial does not go with workers"),
        (["--method", "reservoir"], "--method reservoir does not go with workers"),
        (["--checkpoint", "file"], "file is a file"),
        (["--growth", "wrong"], "wrong"),
    ):
        ran = steinstream("thin", "chains/*", "-o", "kept.npz", "--size", 25, "--workers", 0, *arguments)
        assert ran.returncode == 2 and message in ran.stderr and "Traceback" not in ran.stderr, ran.stderr
    assert "no file matches" in steinstream("thin", "none/*", "-o", "kept.npz", "--workers", 0).stderr
