"""Combinations of options for batch use: exit codes, what is printed where; the files written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import steinstream as ss
from tests.conftest import write_chain

KEPT = "kept seen skipped parameters has_scores ksd mmd bound effective_size effective_draws burn_in chain_worth"
KEPT_SET = {*KEPT.split(), "stream_error", "findings", "settings"}
PLAN = "radius bound draws steps kept growth budget config kappa diagonal bound_for preconditioner next"
INSPECTION = "draws chains parameters has_scores negated invalid repeated left_out megabytes next"

#: Words of a command, keys of its JSON object in addition to those of every command, and the files that it writes.
COMMANDS = {
    "thin": (["thin", "chain.npz", "-o", "out.npz", "--size", 20], KEPT_SET, ["out.npz"]),
    "thin, default output": (["thin", "chain.npz", "--size", 20], KEPT_SET, ["chain.kept.npz"]),
    "thin, burn-in": (["thin", "chain.npz", "-o", "out.csv", "--burn-in", "10%"], KEPT_SET, ["out.csv"]),
    "thin, report": (
        ["thin", "chain.npz", "-o", "out.npz", "--size", 20, "--report", "r.html", "--weights", "--order"],
        KEPT_SET,
        ["out.npz", "r.html"],
    ),
    "thin, method": (["thin", "chain.npz", "--size", 20, "--method", "stride"], KEPT_SET, ["chain.kept.npz"]),
    "thin, workers": (
        ["thin", "chain.npz", "other.npz", "-o", "out.npz", "--size", 20, "--workers", 0, "--burn-in", 50],
        KEPT_SET,
        ["out.npz"],
    ),
    "thin, no scores": (["thin", "draws.csv", "--size", 20], KEPT_SET, ["draws.kept.csv"]),
    "follow": (["follow", "run.csv", "-o", "out.npz", "--until-idle", 0], KEPT_SET, ["out.npz"]),
    "merge": (["merge", "kept.npz", "kept2.npz", "-o", "out.npz", "--size", 20], KEPT_SET, ["out.npz"]),
    "refine": (["refine", "kept.npz", "-o", "out.npz", "--order"], KEPT_SET, ["out.npz"]),
    "report": (["report", "kept.npz", "--chain", "chain.npz", "-o", "r.html"], set(), ["r.html"]),
    "ksd": (
        ["ksd", "kept.npz", "--cumulative", "curve.csv"],
        {"draws", "ksd", "normalised_ksd", "weighted_ksd", "preconditioner", "kernel"},
        ["curve.csv"],
    ),
    "inspect": (["inspect", "chain.npz"], {*INSPECTION.split()}, []),
    "plan": (["plan", "chain.npz", "--radius", 0.5, "-o", "plan.npz"], {*PLAN.split()}, ["plan.npz"]),
    "compare": (
        ["compare", "chain.npz", "--sizes", "5,20", "--methods", "stride", "-o", "folder"],
        {"rows"},
        ["folder/compare.csv"],
    ),
    "scores": (
        ["scores", "draws.csv", "--score", "model.py:score", "-o", "out.npz"],
        {"draws", "parameters"},
        ["out.npz"],
    ),
}
EVERY = {"command", "paths", "warnings"}


def command(name):
    """Return a command; a report requires matplotlib."""
    if "report" in name:
        pytest.importorskip("matplotlib")
    return COMMANDS[name]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files that the commands read."""
    folder = tmp_path_factory.mktemp("files")
    for name, seed in (("chain", 0), ("other", 1)):
        with np.load(write_chain(folder / f"{name}.npz", draws=600, seed=seed)) as arrays:
            x, s = arrays["draws"], arrays["scores"]
        ss.thin(x, s, 20).save(folder / ("kept.npz" if seed == 0 else "kept2.npz"))
    np.savetxt(folder / "draws.csv", x, delimiter=",", header="a,b,c", comments="")
    header = "a,b,c,score_a,score_b,score_c"
    np.savetxt(folder / "run.csv", np.hstack([x, s]), delimiter=",", header=header, comments="")
    (folder / "model.py").write_text("def score(x):\n    return -x\n")
    return folder


@pytest.fixture
def here(files, tmp_path):
    """A folder with links to the files."""
    for file in files.iterdir():
        (tmp_path / file.name).symlink_to(file)
    return tmp_path


@pytest.mark.parametrize("name", COMMANDS)
def test_json_has_the_documented_keys_and_the_files_that_were_written(steinstream, here, name):
    words, keys, written = command(name)
    ran = steinstream(*words, "--json", "--quiet", "--strict")
    assert (ran.returncode, ran.stderr) == (0, "")
    result = json.loads(ran.stdout)
    assert {*result} == keys | EVERY and result["command"] == words[0] and result["warnings"] == []
    for file in written:
        assert (here / file).exists() and file in result["paths"].values()
    assert {*result["paths"].values()} - {"folder/compare.png"} == {*written}
    page = (Path(__file__).parents[2] / "docs/command-line.md").read_text()
    assert all(f"`{key}`" in page for key in result)


@pytest.mark.parametrize("name", COMMANDS)
def test_quiet_prints_nothing_and_writes_the_same_files(steinstream, here, name):
    words, _, written = command(name)
    ran = steinstream(*words, "--quiet")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    assert all((here / file).exists() for file in written)


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (["thin", "chain.npz", "-o", "-", "--json"], 2, "-o - and --json both write to standard output"),
        (["thin", "chain.npz", "draws.csv"], 2, "has the parameters"),
        (["thin", "chain.npz", "--burn-in", "600"], 2, "burn-in leaves no draws"),
        (["thin", "chain.npz", "--burn-in", "1.5"], 2, "--burn-in must be a number of draws or a share below 1"),
        (["thin", "chain.npz", "--workers", 0, "--burn-in", 600, "--size", 9], 2, "burn-in leaves no draws"),
        (["thin", "chain.npz", "--workers", 0, "--method", "stride", "--size", 9], 2, "cannot be used with workers"),
        (["thin", "chain.npz", "--workers", 0, "--serve"], 2, "--serve cannot be used with workers"),
        (["thin", "chain.npz", "--method", "stride"], 2, "requires the number of draws to keep"),
        (["thin", "chain.npz", "--resume"], 2, "--checkpoint"),
        (["thin", "-", "chain.npz"], 2, "cannot be read together with files"),
        (["thin", "chain.npz", "--size", 20, "--spare", 3], 2, "has no effect without --workers"),
        (["follow", "run.csv", "-o", "-", "--json"], 2, "both write to standard output"),
        (["refine", "-", "-o", "x.npz", "--order"], 2, "no such file"),
        (["compare", "chain.npz", "--sizes", "few"], 2, "--sizes must be whole numbers"),
        (["plan", "chain.npz", "--radius", 0.5, "--sizes", "5"], 2, "unknown option --sizes"),
        (["thin", "chain.npz", "--quiet", "--verbose"], 2, "unknown option --verbose"),
    ],
)
def test_options_that_contradict_each_other_are_one_error(steinstream, here, words, code, error):
    before = {path.name for path in here.iterdir()}
    ran = steinstream(*words)
    assert ran.returncode == code and ran.stdout == "" and ran.stderr.startswith("error: ")
    assert error in ran.stderr and len(ran.stderr.splitlines()) <= 2
    assert {path.name for path in here.iterdir()} == before


@pytest.mark.parametrize("option", [[], ["--json"], ["--quiet"], ["--json", "--quiet"]])
def test_strict_changes_the_exit_code_alone(steinstream, here, option):
    x = np.random.default_rng(0).normal(size=(2000, 2)) + np.linspace(0, 6, 2000)[:, None]
    np.savez(here / "drifting.npz", draws=x)
    words = ["thin", "drifting.npz", "-o", "out.npz", "--size", 40, *option]
    usual, strict = steinstream(*words), steinstream(*words, "--strict")
    assert (usual.returncode, strict.returncode) == (0, 3) and "warning: drift" in usual.stderr
    assert strict.stderr.startswith(usual.stderr)
    assert len(strict.stderr.splitlines()) == len(usual.stderr.splitlines()) + 1
    if "--json" in option:
        assert json.loads(strict.stdout)["warnings"] == json.loads(usual.stdout)["warnings"]


def test_workers_leave_out_the_burn_in(steinstream, here):
    for words, first in ((["chain.npz", "other.npz", "--burn-in", 200], 200), (["chain.npz", "--burn-in", "50%"], 300)):
        ran = steinstream("thin", *words, "-o", "out.npz", "--size", 20, "--workers", 0)
        assert ran.returncode == 0, ran.stderr
        kept = ss.Kept.load(here / "out.npz")
        assert kept.ids[:, 1].min() >= first and kept.settings["seen"] == (600 - first) * (len(words) - 2)
        for (chain, draw), point in zip(kept.ids, kept.draws, strict=True):
            with np.load(here / ("chain.npz", "other.npz")[chain]) as arrays:
                assert np.array_equal(arrays["draws"][draw], point)


def test_workers_print_the_checks(steinstream, here):
    ran = steinstream("thin", "chain.npz", "other.npz", "-o", "out.npz", "--size", 50, "--workers", 0)
    assert ran.returncode == 0 and "checks" in ran.stdout, ran.stdout
