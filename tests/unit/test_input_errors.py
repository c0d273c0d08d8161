"""Mistakes in the use of the library: one error that says what was received and what to do, and no state is changed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import steinstream as ss
from steinstream.errors import InputError, NegatedScoresError
from steinstream.inspection import Inspection
from steinstream.validation import Block, consecutive_ids

X = np.random.default_rng(0).normal(size=(300, 3))


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (lambda: ss.thin("chain.npz"), ["'chain.npz'", "Load the file"]),
        (lambda: ss.thin(Path("chain.npz"), -X), ["'chain.npz'", "Load the file"]),
        (lambda: ss.thin(X, stream_weight=0), ["without scores", "Pass scores"]),
        (lambda: ss.thin(X, lambda x: -x), ["scores must be an array", "got function"]),
        (lambda: ss.thin(X, 200), ["The scores are 200", "size=200"]),
        (lambda: ss.thin(np.cumsum(X, axis=0)[:, None]), ["300 chains of one draw", "(draws, chains, dimensions)"]),
        (lambda: ss.thin({"a": X}, -X), ["draws must be an array", "got dict"]),
        (lambda: ss.thin(X + 1j, -X), ["draws must be an array of real numbers"]),
        (lambda: ss.thin([[1, 2], [3]], [[1, 2], [3]]), ["real numbers", "same number of entries"]),
        (lambda: ss.thin(X, -X[:, :2]), ["(300, 3)", "(300, 2)"]),
        (lambda: ss.thin(X[:, 0], -X[:, 0]), ["(300,)"]),
        (lambda: ss.thin(X, X), ["look negated"]),
        (lambda: ss.thin(np.where(X > 2, np.nan, X), -X), ["is nan in coordinate", "on_bad"]),
        (lambda: ss.thin(X, -X, size=-3), ["size", "-3", "at least 1"]),
        (lambda: ss.thin(X, -X, size=2.5), ["size", "2.5", "whole number"]),
        (lambda: ss.thin(X, -X, kernel="gauss"), ["'gauss'", "ss.IMQ()"]),
        (lambda: ss.Thinner(3, kernel=ss.IMQ), ["kernel", "ss.IMQ()"]),
        (lambda: ss.ksd(X, -X, kernel="rfb"), ["'rfb'", "ss.RBF()"]),
        (lambda: ss.thin(X, -X, growth="cubic"), ["'cubic'", "sqrt"]),
        (lambda: ss.thin(X, -X, preconditioner="wide"), ["'wide'", "covariance"]),
        (lambda: ss.Thinner(X), ["dim", "whole number"]),
        (lambda: ss.Thinner(3).push(X, -X), ["(300, 3)", "extend"]),
        (lambda: ss.Thinner(3).push("a", "b"), ["draw must be an array"]),
        (lambda: ss.Thinner(3).push([1, 2, "b"], [1, 2, 3]), ["draw must be an array of real numbers"]),
        (lambda: ss.Thinner(2).extend(X, -X), ["2 dimensions, got 3"]),
        (lambda: ss.merge([X, X]), ["ndarray", "ss.thin"]),
        (lambda: ss.merge([]), ["nothing to merge"]),
        (lambda: ss.thin(X, -X, size=5).save("kept.xyz"), ["kept.xyz", ".npz"]),
    ],
)
def test_an_error_says_what_was_received_and_what_to_do(mistake, words):
    with pytest.raises(InputError) as raised:
        mistake()
    assert len(str(raised.value)) < 300
    for word in words:
        assert word in str(raised.value)


def test_a_misspelt_name_is_corrected():
    program = "import steinstream as ss; ss.thinn"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "has no attribute 'thinn'. Did you mean: 'thin'?" in ran.stderr


def test_bad_draws_and_settings_are_refused_without_changing_the_thinner():
    good = np.ones((5, 2))
    bad = good.copy()
    bad[3, 1] = np.nan
    thinner = ss.Thinner(2)
    for draws, scores, words in (
        (bad, good, r"draw of chain 0, draw 3 is nan in coordinate 1"),
        (good, bad, r"score of chain 0, draw 3"),
        (good, np.ones((4, 2)), r"shape \(5, 2\).*\(4, 2\)"),
        (np.ones((5, 3)), np.ones((5, 3)), r"Expected draws with 2 dimensions, got 3"),
        (np.ones(2), np.ones(2), r"Pass a single draw to push"),
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
        with pytest.raises(InputError, match=r"No draws|no draws|at least one"):
            call()
    with pytest.raises(InputError, match="no expectation"):
        thinner.kept.expect(lambda x: x)


def test_numbers_that_are_not_whole_and_invalid_ids_are_refused():
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
    thinner.unpin(thinner.pinned)  # no draw is pinned
    assert thinner.pinned == ()


def test_an_error_names_the_shapes_that_were_received():
    x = np.zeros((4, 100, 3))
    for draws, scores, words in (
        (x, x[:, :50], r"shape \(4, 100, 3\) and scores have shape \(4, 50, 3\)"),
        (x, x[..., 0], r"shape \(4, 100, 3\) and scores have shape \(4, 100\)"),
        (x[0, :, 0], x[0, :, 0], r"draws\[:, None\]"),
    ):
        with pytest.raises(InputError, match=words):
            ss.thin(draws, scores)


def test_a_checkpoint_is_not_read_as_a_kept_set(tmp_path):
    ss.Thinner(2).save(tmp_path / "run.npz")
    with pytest.raises(InputError, match=r"run\.npz is"):
        ss.Kept.load(tmp_path / "run.npz")


def test_the_thinner_itself_notices_negated_scores():
    x = np.random.default_rng(0).normal(size=(400, 3))
    thinner = ss.Thinner(3)
    with pytest.raises(NegatedScoresError, match="look negated"):
        for draw in x:
            thinner.push(draw, draw)
    ss.Thinner(3, validate_scores=False).extend(x, x)
    ss.Thinner(3).extend(x, -x)


def test_the_sign_of_scores_is_checked_in_many_dimensions():
    x = np.random.default_rng(0).normal(size=(50, 25_000))
    for sign, words in ((1.0, "look negated"), (-1.0, "sign as expected")):
        inspection = Inspection(25_000)
        inspection.add(Block(x, sign * x, consecutive_ids(0, 0, 50)))
        assert inspection.negated == (sign > 0) and inspection.sign().startswith(words)
