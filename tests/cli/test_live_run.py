"""A live run: a sampler writes csv, ``follow`` is stopped and resumed, and gives the answer of the whole chain."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import numpy as np

import steinstream as ss

DRAWS = 6000
SAMPLER = f"""
import pathlib, time
import numpy as np

rng = np.random.default_rng(0)
score = lambda x: -(x - [3.0, -1.0]) / [4.0, 0.25]
log_density = lambda x: 0.5 * score(x) @ (x - [3.0, -1.0])
x, steps = np.array([3.0, -1.0]), np.array([3.4, 0.85])
with open("run.csv", "w", buffering=1) as file:
    file.write("a,b,score_a,score_b\\n")
    for draw in range({DRAWS}):
        while draw == {DRAWS // 2} and not pathlib.Path("go").exists():
            time.sleep(0.01)
        proposal = x + steps * rng.normal(size=2)
        if np.log(rng.uniform()) < log_density(proposal) - log_density(x):
            x = proposal
        file.write(",".join(map(repr, [*x.tolist(), *score(x).tolist()])) + "\\n")
"""


def follow(folder, *more):
    """Start the command, which writes after every block."""
    words = ["follow", "run.csv", "-o", "kept.npz", "--size", "100", "--every", "0", "--checkpoint", "state.npz", *more]
    return subprocess.Popen(
        [sys.executable, "-m", "steinstream", *words], cwd=folder, stderr=subprocess.PIPE, text=True
    )


def stop_after(process, path, draws):
    """Stop the command when its result represents ``draws`` draws, and return the result."""
    end = time.monotonic() + 600  # a busy machine does not need that long
    while not path.exists() or ss.Kept.load(path).settings["seen"] < draws:
        assert process.poll() is None and time.monotonic() < end, process.communicate()[1]
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, messages = process.communicate(timeout=600)
    assert process.returncode == 130, messages
    return ss.Kept.load(path)


def test_a_live_run_is_stopped_and_resumed_and_agrees_with_the_chain(tmp_path):
    with subprocess.Popen([sys.executable, "-c", SAMPLER], cwd=tmp_path) as sampler:
        first = stop_after(follow(tmp_path), tmp_path / "kept.npz", DRAWS // 2)
        assert len(first) == 100 and first.settings["seen"] == DRAWS // 2 and sampler.poll() is None
        (tmp_path / "go").touch()
        kept = stop_after(follow(tmp_path, "--resume"), tmp_path / "kept.npz", DRAWS)
    assert sampler.returncode == 0 and kept.settings["seen"] == DRAWS and kept.names == ("a", "b")
    chain = np.loadtxt(tmp_path / "run.csv", delimiter=",", skiprows=1)
    thinner = ss.Thinner(2, size=100)
    thinner.extend(chain[:, :2], chain[:, 2:])
    assert np.array_equal(kept.ids, thinner.kept.ids)  # as if it had never been stopped
    draws, sds = chain[:, :2], chain[:, :2].std(axis=0)
    assert np.all(np.abs(kept.mean() - draws.mean(axis=0)) < 0.15 * sds)
    assert np.all(np.abs(np.sqrt(np.diag(kept.cov())) / sds - 1) < 0.15)
    for share in (0.05, 0.5, 0.95):
        assert np.all(np.abs(kept.quantile(share) - np.quantile(draws, share, axis=0)) < 0.3 * sds)
