"""Bad input ends with one message, its remedy and exit code 2, and changes no existing file."""

from __future__ import annotations

import resource

import numpy as np
import pytest

import steinstream as ss
from steinstream.errors import CheckpointError
from tests.conftest import write_chain


def refused(ran, *words):
    """Check that one message with its remedy was printed, and nothing else."""
    assert ran.returncode == 2, (ran.stdout, ran.stderr)
    assert ran.stderr.startswith("error: ") and ran.stdout == ""
    assert "Traceback" not in ran.stderr and len(ran.stderr.strip().splitlines()) == 2
    for word in words:
        assert word in ran.stderr


@pytest.fixture
def precious(tmp_path):
    """An output and a checkpoint that exist and must survive every failure."""
    for name in ("kept.npz", "run.npz"):
        (tmp_path / name).write_bytes(b"precious")
    yield
    for name in ("kept.npz", "run.npz"):
        assert (tmp_path / name).read_bytes() == b"precious"
    assert not list(tmp_path.glob("*.tmp")) and not list(tmp_path.glob(".*.tmp"))


def spoilt(tmp_path, **changes):
    """Write chain.npz with some values changed: array=(row, column, value)."""
    path = write_chain(tmp_path / "chain.npz")
    with np.load(path) as arrays:
        both = {name: arrays[name].copy() for name in ("draws", "scores")}
    for name, (row, column, value) in changes.items():
        both[name][row, column] = value
    np.savez(path, **both)
    return path


def test_nan_in_a_draw(steinstream, tmp_path, precious):
    path = spoilt(tmp_path, draws=(2900, 1, np.nan))
    refused(steinstream("thin", path, "-o", "kept.npz"), "draw 2900 is nan in coordinate 1", "--on-bad skip")


def test_infinite_score(steinstream, tmp_path, precious):
    path = spoilt(tmp_path, scores=(5, 2, -np.inf))
    refused(steinstream("thin", path, "-o", "kept.npz", "--paper"), "score of chain 0, draw 5 is -inf", "--on-bad skip")


@pytest.mark.parametrize("scale", ["1e200", "1e-200"])
def test_a_preconditioner_that_overflows(scale, steinstream, chain, precious):
    refused(steinstream("thin", chain, "-o", "kept.npz", "--preconditioner", scale), "length scale")


def test_wrong_shape(steinstream, tmp_path, precious):
    np.savez(tmp_path / "chain.npz", draws=np.zeros((2, 3, 4, 5)), scores=np.zeros((2, 3, 4, 5)))
    refused(steinstream("thin", "chain.npz", "-o", "kept.npz"), "(2, 3, 4, 5)")


def test_scores_of_another_length(steinstream, tmp_path, precious):
    np.save(tmp_path / "x.npy", np.zeros((10, 2)))
    np.save(tmp_path / "s.npy", np.zeros((9, 2)))
    refused(steinstream("thin", "x.npy", "--scores", "s.npy", "-o", "kept.npz"), "9", "10")


def test_dimension_that_changes_midway(steinstream, tmp_path, precious):
    rows = "\n".join(["a,b,score_a,score_b", *["1,2,-1,-2"] * 5000, "1,2,3,-1,-2,-3", *["1,2,-1,-2"] * 10])
    (tmp_path / "chain.csv").write_text(rows + "\n")
    refused(steinstream("thin", "chain.csv", "-o", "kept.npz"), "line 5002", "6 fields, expected 4")


def test_empty_stream(steinstream, tmp_path, precious):
    np.savez(tmp_path / "chain.npz", draws=np.zeros((0, 2)), scores=np.zeros((0, 2)))
    refused(steinstream("thin", "chain.npz", "-o", "kept.npz"), "empty")


def test_unknown_column(steinstream, tmp_path, precious):
    (tmp_path / "chain.csv").write_text("alpha,beta,score_alpha,score_beta\n1,2,-1,-2\n")
    ran = steinstream("thin", "chain.csv", "--draws-name", "alhpa", "--scores-name", "score_alpha", "-o", "kept.npz")
    refused(ran, "alhpa", "alpha")


def test_negated_scores(steinstream, tmp_path, precious):
    path = write_chain(tmp_path / "chain.npz", sign=-1.0)
    for options in ([], ["--paper"]):
        refused(steinstream("thin", path, "-o", "kept.npz", *options), "look negated", "--negate-scores")


@pytest.mark.parametrize("damage", ["truncated", "foreign", "text", "flipped"])
def test_damaged_checkpoint(steinstream, tmp_path, chain, damage):
    thinner = ss.Thinner(3)
    thinner.extend(np.ones((5, 3)), -np.ones((5, 3)))
    path = tmp_path / "run.npz"
    thinner.save(path)
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:-200])
    elif damage == "foreign":
        np.savez(path, something=np.ones(3))
    elif damage == "text":
        path.write_text("not an archive")
    else:
        with np.load(path) as arrays:
            contents = {name: arrays[name].copy() for name in arrays.files}
        contents["state.pending.draws"] = np.ones((1, 3))
        np.savez(path, **contents)
    before = path.read_bytes()
    ran = steinstream("thin", chain, "-o", "kept.npz", "--checkpoint", "run.npz", "--resume")
    assert ran.returncode == 2 and "run.npz" in ran.stderr and "Traceback" not in ran.stderr
    assert path.read_bytes() == before and not (tmp_path / "kept.npz").exists()
    with pytest.raises(CheckpointError):
        ss.Thinner.load(path)


def test_checkpoint_of_other_settings_or_another_chain(steinstream, tmp_path, chain):
    thinner = ss.Thinner(2)
    thinner.save(tmp_path / "run.npz")
    options = ["-o", "kept.npz", "--checkpoint", "run.npz", "--resume"]
    refused(steinstream("thin", chain, *options), "run.npz was written by a program", "another file name")


def full_disk():
    """Limit the size of files in this process to one block, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


def test_full_disk_while_writing_the_output(steinstream, tmp_path, precious):
    path = write_chain(tmp_path / "chain.npz")
    ran = steinstream("thin", path, "-o", "kept.npz", "--size", 2000, preexec_fn=full_disk)
    refused(ran, "cannot write kept.npz")


def test_output_that_cannot_be_is_refused_before_any_work(steinstream, chain, tmp_path):
    refused(steinstream("thin", chain, "-o", "nowhere/kept.npz"), "nowhere", "-o")
    refused(steinstream("thin", chain, "-o", "kept.xlsx"), "kept.xlsx", ".npz")
    refused(steinstream("thin", chain, "-o", "a.npz", "--checkpoint", "a.npz"), "same file")
    refused(steinstream("thin", chain, "-o", "a.npz", "--resume"), "--checkpoint")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--kernel", "linear"], ["linear", "imq"]),
        (["--kernel", "imq:c=-1"], ["positive"]),
        (["--growth", "cubic"], ["cubic", "sqrt"]),
        (["--budget", "much"], ["much", "decaying"]),
        (["--preconditioner", "wide"], ["wide", "covariance"]),
        (["--preconditioner", "-1"], ["above 0"]),
        (["--preconditioner", "missing.npy"], ["missing.npy"]),
    ],
)
def test_unknown_settings(steinstream, chain, options, words):
    ran = steinstream("thin", chain, "-o", "kept.npz", *options)
    assert ran.returncode == 2 and "Traceback" not in ran.stderr
    assert all(word in ran.stderr for word in words)


def test_missing_file_and_unknown_format(steinstream, tmp_path):
    refused(steinstream("inspect", "missing.npz"), "missing.npz")
    (tmp_path / "chain.sas").write_text("x")
    refused(steinstream("ksd", "chain.sas"), "chain.sas", ".npz")


@pytest.mark.parametrize("name", ["chain.npz", "chain.npy"])
@pytest.mark.parametrize("case", ["swapped", "transposed"])
def test_axes_in_another_order(name, case, steinstream, tmp_path):
    rng = np.random.default_rng(0)
    walk = np.zeros((800, 4, 3))
    for step in range(1, 800):
        walk[step] = 0.95 * walk[step - 1] + rng.normal(size=(4, 3))
    draws = walk if case == "swapped" else walk.reshape(-1, 3).T
    np.savez(tmp_path / name, draws=draws) if name == "chain.npz" else np.save(tmp_path / name, draws)
    question = "(draws, chains, dimensions)?" if case == "swapped" else "(dimensions, draws)?"
    right = "np.swapaxes(draws, 0, 1)" if case == "swapped" else "draws.T"
    ran = steinstream("thin", name, "-o", "kept.npz", "--size", 100)
    refused(ran, question, right)
    described = steinstream("inspect", name).stderr
    assert question in described and right in described
    if case == "transposed":
        assert steinstream("thin", name, "-o", "kept.npz", "--size", 2).returncode == 0
        return
    refused(steinstream("thin", name, "-o", "kept.npz", "--size", 100, "--workers", 0), question)
    refused(steinstream("compare", name, "--sizes", "50"), question)
    np.save(tmp_path / "right.npy", np.swapaxes(walk, 0, 1))
    ran = steinstream("thin", "right.npy", "-o", "kept.npz", "--size", 100)
    assert ran.returncode == 0, ran.stderr
