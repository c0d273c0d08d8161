"""Each mistake gets one clear message with its remedy and exit code 2, no traceback, and touches no existing file."""

from __future__ import annotations

import resource

import numpy as np
import pytest
from conftest import write_chain

import steinstream as ss
from steinstream.errors import CheckpointError, InputError, NegatedScoresError, OutputError
from steinstream.inspection import Inspection
from steinstream.validation import Block, consecutive_ids


def refused(ran, *words):
    """One message, remedy included, nothing else."""
    assert ran.returncode == 2, (ran.stdout, ran.stderr)
    assert ran.stderr.startswith("error: ") and ran.stdout == ""
    assert "Traceback" not in ran.stderr and len(ran.stderr.strip().splitlines()) == 2
    for word in words:
        assert word in ran.stderr


@pytest.fixture
def precious(tmp_path):
    """An output and a checkpoint that were there before and must survive every failure."""
    for name in ("kept.npz", "run.npz"):
        (tmp_path / name).write_bytes(b"precious")
    yield
    for name in ("kept.npz", "run.npz"):
        assert (tmp_path / name).read_bytes() == b"precious"
    assert not list(tmp_path.glob("*.tmp")) and not list(tmp_path.glob(".*.tmp"))


def spoilt(tmp_path, **changes):
    """chain.npz with some values changed: array=(row, column, value)."""
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


def test_negated_scores_can_be_negated_or_trusted(steinstream, tmp_path):
    write_chain(tmp_path / "minus.npz", sign=-1.0)
    write_chain(tmp_path / "plus.npz")
    for source, option in (("minus.npz", "--negate-scores"), ("plus.npz", "--no-validate-scores")):
        assert steinstream("thin", source, "-o", f"kept-{source}", option, "--size", 30).returncode == 0
    with np.load(tmp_path / "kept-minus.npz") as one, np.load(tmp_path / "kept-plus.npz") as two:
        assert np.array_equal(one["draws"], two["draws"])
    assert steinstream("thin", "minus.npz", "-o", "wrong.npz", "--no-validate-scores", "--size", 30).returncode == 0


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
        contents["kept_influence"][0, 0] += 1.0
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
    refused(steinstream("thin", chain, *options), "run.npz was saved by a program", "another name")


def test_checkpoint_from_the_future(tmp_path):
    from steinstream.io import checkpoint

    checkpoint.write(tmp_path / "run.npz", {"format": 99, "steinstream": "9.9"}, {})
    with pytest.raises(CheckpointError, match=r"format 99.*9\.9"):
        ss.Thinner.load(tmp_path / "run.npz")


def full_disk():
    """No file may grow beyond one block: what a full disk feels like, for this process only."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


def test_full_disk_while_writing_the_output(steinstream, tmp_path, precious):
    path = write_chain(tmp_path / "chain.npz")
    ran = steinstream("thin", path, "-o", "kept.npz", "--size", 2000, preexec_fn=full_disk)
    refused(ran, "cannot write kept.npz")


def test_full_disk_while_saving_a_checkpoint(tmp_path, monkeypatch, precious):
    thinner = ss.Thinner(2)
    thinner.push([1.0, 2.0], [-1.0, -2.0])

    def no_space(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", no_space)
    with pytest.raises(OutputError, match=r"no space left.*Free some space"):
        thinner.save(tmp_path / "run.npz")


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
        (["--scale", "wide"], ["wide", "covariance"]),
        (["--scale", "-1"], ["above 0"]),
        (["--scale", "missing.npy"], ["missing.npy"]),
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


def test_the_library_refuses_the_same_mistakes():
    good = np.ones((5, 2))
    bad = good.copy()
    bad[3, 1] = np.nan
    thinner = ss.Thinner(2)
    for draws, scores, words in (
        (bad, good, r"draw of chain 0, draw 3 is nan in coordinate 1"),
        (good, bad, r"score of chain 0, draw 3"),
        (good, np.ones((4, 2)), r"shape \(5, 2\).*\(4, 2\)"),
        (np.ones((5, 3)), np.ones((5, 3)), r"Expected draws with 2 dimensions, got 3"),
        (np.ones(2), np.ones(2), r"A single draw goes to push"),
        ([["a", "b"]], [["c", "d"]], r"real numbers"),
        (good, 1e200 * good, r"1e\+200"),
    ):
        with pytest.raises(InputError, match=words):
            thinner.extend(draws, scores)
    assert (len(thinner), thinner.seen, thinner.steps) == (0, 0, 0)
    for settings, words in (
        ({"dim": 0}, "dim must be"),
        ({"size": 0}, "size must be"),
        ({"candidates": 1.5}, "candidates must be"),
        ({"on_bad": "ignore"}, "on_bad"),
        ({"history": "some"}, "history"),
        ({"preconditioner": ss.Preconditioner.scales([1.0, 2.0, 3.0])}, "3 dimensions"),
        ({"growth": "power:3"}, "between 0 and 2"),
        ({"budget": -1.0}, "negative"),
        ({"initial": (bad, good)}, "nan"),
        ({"initial": (good, good), "size": 4}, "5 initial draws.*size=4"),
    ):
        with pytest.raises(InputError, match=words):
            ss.Thinner(**{"dim": 2, **settings})
    for call in (lambda: ss.thin(good[:0], good[:0]), lambda: ss.ksd(good[:0], good[:0])):
        with pytest.raises(InputError, match=r"no draws|at least one"):
            call()
    with pytest.raises(InputError, match="no expectation"):
        thinner.kept.expect(lambda x: x)


def test_what_is_no_whole_number_or_no_id_is_refused():
    x = np.random.default_rng(0).normal(size=(200, 2))
    for wrong in ("3", 2.5, 0, True):
        with pytest.raises(InputError, match="candidates must be a whole number"):
            ss.thin(x, -x, candidates=wrong)
    assert len(ss.thin(x, -x, candidates=np.int64(2), size=10)) == 10
    thinner = ss.Thinner(2, size=10)
    thinner.extend(x, -x)
    for wrong in (3, "a", [3], [[1, 2, 3]], [[0.5, 1.5]], [[0, 1], [2]], None):
        for change in (thinner.pin, thinner.unpin):
            with pytest.raises(InputError, match=r"ids must be .*pairs of whole numbers"):
                change(wrong)
    thinner.pin(thinner.kept.ids[:2])
    thinner.unpin(thinner.pinned)
    thinner.unpin(thinner.pinned)  # which are none
    assert thinner.pinned == ()


def test_shapes_are_told_as_they_are():
    x = np.zeros((4, 100, 3))
    for draws, scores, words in (
        (x, x[:, :50], r"shape \(4, 100, 3\) and scores have shape \(4, 50, 3\)"),
        (x, x[..., 0], r"shape \(4, 100, 3\) and scores have shape \(4, 100\)"),
        (x[0, :, 0], x[0, :, 0], r"draws\[:, None\]"),
    ):
        with pytest.raises(InputError, match=words):
            ss.thin(draws, scores)


def test_a_checkpoint_is_not_taken_for_a_kept_set_and_says_what_it_cannot_hold(tmp_path):
    thinner = ss.Thinner(2)
    thinner.save(tmp_path / "run.npz")
    with pytest.raises(InputError, match=r"run\.npz is the checkpoint of a run.*ss\.Thinner\.load"):
        ss.Kept.load(tmp_path / "run.npz")
    thinner.note["state"] = np.zeros(3)
    with pytest.raises(InputError, match=r"thinner\.note is none.*tolist"):
        thinner.save(tmp_path / "run.npz")


def test_the_thinner_itself_notices_negated_scores():
    x = np.random.default_rng(0).normal(size=(400, 3))
    thinner = ss.Thinner(3)
    with pytest.raises(NegatedScoresError, match="look negated"):
        for draw in x:
            thinner.push(draw, draw)
    ss.Thinner(3, validate_scores=False).extend(x, x)
    ss.Thinner(3).extend(x, -x)


def test_the_sign_of_wide_scores_is_judged_by_the_coordinates_that_are_looked_at():
    x = np.random.default_rng(0).normal(size=(50, 25_000))
    for sign, words in ((1.0, "look negated"), (-1.0, "sign as expected")):
        survey = Inspection(25_000)
        survey.add(Block(x, sign * x, consecutive_ids(0, 0, 50)))
        assert survey.negated == (sign > 0) and survey.sign().startswith(words)


def test_a_chain_that_makes_no_step_is_refused(steinstream, tmp_path):
    x = np.random.default_rng(0).normal(size=(50, 2))
    with pytest.raises(ss.SteinstreamError, match="has 50 draws, and one step takes 100"):
        ss.thin(x, -x, candidates=100)
    np.savez(tmp_path / "short.npz", draws=x, scores=-x)
    ran = steinstream("thin", "short.npz", "-o", "kept.npz", "--candidates", 100)
    assert ran.returncode == 2 and "has 50 draws, and one step takes 100" in ran.stderr
    assert not (tmp_path / "kept.npz").exists()
