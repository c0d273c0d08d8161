"""``steinstream plan`` gives the plan of the library, and prints a command that carries it out."""

from __future__ import annotations

import re
import shlex

import numpy as np
import pytest

import steinstream as ss
from steinstream.thinner.config import PLAN, settings_of
from tests.conftest import write_chain


def gaussian(draws, dim, seed):
    x = np.random.default_rng(seed).normal(size=(draws, dim))
    return x, -x


@pytest.mark.parametrize(
    "options",
    [
        ["-o", "my preconditioner.npz"],
        [
            "-o",
            "c.npz",
            "--growth",
            "power:1.3",
            "--candidates",
            "2",
            "--preconditioner",
            "scales",
            "--kernel",
            "imq:c=2",
        ],
        ["--preconditioner", "1", "--budget", "share", "--growth", "linear", "--no-validate-scores"],
    ],
)
def test_the_command_that_plan_prints_carries_it_out(steinstream, tmp_path, options):
    write_chain(tmp_path / "chain.npz", 1000)
    planned = steinstream("plan", "chain.npz", "--radius", 1.2, *options)
    assert planned.returncode == 0, planned.stderr
    (line,) = (line for line in planned.stdout.splitlines() if line.startswith("next"))
    draws, kept = (
        int(re.search(rf"^{what} +([0-9 ]+)", planned.stdout, re.M)[1].replace(" ", "")) for what in ("draws", "kept")
    )

    write_chain(tmp_path / "chain.npz", draws, seed=1)
    ran = steinstream(*shlex.split(line)[2:])
    assert ran.returncode == 0, ran.stderr
    with np.load(tmp_path / "kept.npz") as written:
        assert len(written["draws"]) == kept and written["ksd"] <= 1.2
        if "--preconditioner" in options and "-o" not in options:
            assert written["preconditioner"] == 1.0
        if "-o" in options:
            with np.load(tmp_path / options[1]) as preconditioner:
                assert np.array_equal(written["preconditioner"], preconditioner["preconditioner"])


#: Every setting of a plan, as a user types it.
TYPED = {
    "candidates": ["--candidates", "2"],
    "kernel": ["--kernel", "imq:c=2"],
    "preconditioner": ["--preconditioner", "scales"],
    "validate_scores": ["--no-validate-scores"],
}


def test_the_command_that_plan_prints_has_every_setting_that_was_given(steinstream, tmp_path):
    assert set(TYPED) == set(settings_of(PLAN))
    write_chain(tmp_path / "chain.npz", 1000)
    planned = steinstream("plan", "chain.npz", "--radius", 1.2, *(word for words in TYPED.values() for word in words))
    (line,) = (line for line in planned.stdout.splitlines() if line.startswith("next"))
    for words in TYPED.values():
        assert shlex.join(words) in line


def test_the_preconditioner_of_a_plan_has_its_centre(steinstream, tmp_path):
    x, s = gaussian(1000, 2, 0)
    np.savez(tmp_path / "warmup.npz", draws=x + 5.0, scores=s)
    how = ["--radius", 0.5, "--kernel", "imq:linear=1", "--preconditioner", "covariance"]
    ran = steinstream("plan", "warmup.npz", *how, "-o", "c.npz")
    assert ran.returncode == 0, ran.stderr
    with np.load(tmp_path / "c.npz") as written:
        assert np.abs(written["centre"] - 5.0).max() < 0.2
    measured = [
        steinstream("ksd", "warmup.npz", "--kernel", "imq:linear=1", "--preconditioner", name).stdout.split("·")[1]
        for name in ("c.npz", "covariance")
    ]
    assert measured[0] == measured[1] and "KSD" in measured[0]


def test_the_command_plans_what_the_library_plans(steinstream, tmp_path):
    x, s = (part.reshape(2, 500, 2) for part in gaussian(1000, 2, 0))
    np.savez(tmp_path / "warmup.npz", a=x, b=-s)
    names = ["--draws-name", "a", "--scores-name", "b", "--negate-scores"]
    ran = steinstream("plan", "warmup.npz", "--radius", 0.1, *names)
    assert ran.returncode == 0, ran.stderr
    assert str(ss.plan(0.1, x, s)) in ran.stdout
    assert " ".join(names) in ran.stdout
    assert (
        "draws in warmup.npz, which has 1 000 now" in ran.stdout and "estimates the preconditioner again" in ran.stdout
    )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--radius", "0"], "above 0, got 0.0"),
        (["--radius", "1e-12"], "10^6 draws reach"),
        (["--radius", "1", "--growth", "power:2.5"], "2.5"),
        (["--radius", "1", "--growth", "power:0.5"], "between 1 and 2"),
        (["--radius", "1", "--preconditioner", "streaming"], "streaming can only be used"),
        (["--radius", "1", "-o", "preconditioner.npy"], "ends in .npz"),
    ],
)
def test_mistakes_on_the_command_line(steinstream, chain, options, says):
    ran = steinstream("plan", chain, *options)
    assert ran.returncode == 2 and says in ran.stderr and "Traceback" not in ran.stderr
