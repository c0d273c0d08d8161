"""``steinstream inspect`` describes a chain, its problems, and the next command."""

from __future__ import annotations

import shlex

import numpy as np

from tests.conftest import write_chain


def test_shape_sign_repeats_and_memory_are_printed(steinstream, tmp_path):
    x = np.random.default_rng(0).normal(size=(4, 500, 2))
    x[:, 1::2] = x[:, ::2]
    np.savez(tmp_path / "c.npz", draws=x, scores=-x)
    ran = steinstream("inspect", "c.npz")
    assert ran.returncode == 0, ran.stderr
    assert "4 chains x 500 draws, 2 parameters" in ran.stdout
    assert "sign as expected" in ran.stdout and "50% of draws repeat" in ran.stdout
    assert "all values are finite" in ran.stdout and "MB for" in ran.stdout
    assert "steinstream thin c.npz -o kept.npz" in ran.stdout


def test_problems_are_printed(steinstream, tmp_path):
    write_chain(tmp_path / "c.npz", sign=-1.0)
    assert "negated" in steinstream("inspect", "c.npz").stdout
    x = np.zeros((50, 2))
    x[7, 1] = np.nan
    np.savez(tmp_path / "c.npz", draws=x, scores=-x)
    ran = steinstream("inspect", "c.npz").stdout
    assert "1 of 50 draws" in ran and "chain 0, draw 7" in ran


def test_the_next_command_thins_the_chain(steinstream, tmp_path):
    x = np.random.default_rng(0).normal(size=(400, 2))
    x[7, 1] = np.nan
    np.savez(tmp_path / "my chain.npz", a=x, b=x)
    ran = steinstream("inspect", "my chain.npz", "--draws-name", "a", "--scores-name", "b", "--no-validate-scores")
    words = shlex.split(next(line for line in ran.stdout.splitlines() if line.startswith("next")))[2:]
    assert words[:2] == ["thin", "my chain.npz"] and words[-2:] == ["-o", "kept.npz"]
    assert {"--negate-scores", "--on-bad", "--no-validate-scores", "--draws-name"} <= set(words)
    ran = steinstream(*words)
    assert ran.returncode == 0 and "1 invalid draw skipped" in ran.stdout, ran.stderr
