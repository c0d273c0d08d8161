"""Input validation: shapes, ids, finite values, the sign of the scores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steinstream import validation
from steinstream.errors import InputError, NegatedScoresError
from steinstream.validation import Block, SteinIdentity


def block(draws, scores=None):
    draws = np.asarray(draws, dtype=float)
    scores = -draws if scores is None else np.asarray(scores, dtype=float)
    return Block(draws, scores, validation.consecutive_ids(2, 5, len(draws)))


@pytest.mark.parametrize(
    ("draws", "scores", "message"),
    [
        (np.zeros(3), np.zeros(3), r"shape \(draws, dimensions\), got shape \(3,\)"),
        (np.zeros((2, 3, 4)), np.zeros((2, 3, 4)), "several chains"),
        (np.zeros((4, 2)), np.zeros((3, 2)), r"shape \(4, 2\) and scores have shape \(3, 2\)"),
        (np.zeros((4, 0)), np.zeros((4, 0)), "no dimensions"),
        ([["a"]], [["b"]], "array of real numbers"),
        (np.zeros((2, 2), dtype=complex), np.zeros((2, 2)), "array of real numbers"),
        ([[1.0], [1.0, 2.0]], [[1.0], [1.0]], "array of real numbers"),
        ("chain.npz", np.zeros((2, 2)), "must be an array, got 'chain.npz'"),
        (Path("chain.npz"), np.zeros((2, 2)), "must be an array"),
    ],
)
def test_what_is_not_a_block_of_draws_is_rejected(draws, scores, message):
    with pytest.raises(InputError, match=message):
        validation.as_draws_and_scores(draws, scores)


def test_the_expected_number_of_dimensions_is_required():
    with pytest.raises(InputError, match="Expected draws with 3 dimensions, got 2"):
        validation.as_draws_and_scores(np.zeros((4, 2)), np.zeros((4, 2)), 3)


def test_the_first_invalid_row_is_named_and_all_are_masked():
    draws = np.zeros((6, 2))
    draws[2, 1], draws[4, 0] = np.nan, np.inf
    with pytest.raises(InputError, match=r"draw of chain 2, draw 7 is nan in coordinate 1"):
        validation.finite_rows(block(draws), "raise")
    assert validation.finite_rows(block(draws), "skip").tolist() == [True, True, False, True, False, True]
    with pytest.raises(InputError, match="score of chain 2, draw 5"):
        validation.finite_rows(block(np.zeros((1, 2)), [[0.0, -np.inf]]), "raise")


@pytest.mark.parametrize(
    ("value", "linear", "storage", "valid"),
    [
        (1e99, False, "float64", True),
        (1e101, False, "float64", False),
        (1e49, True, "float64", True),
        (1e51, True, "float64", False),
        (1e37, False, "float32", True),
        (1e39, False, "float32", False),
    ],
)
def test_the_overflow_limit_depends_on_kernel_and_storage(value, linear, storage, valid):
    assert validation.finite_rows(block([[value]]), "skip", linear, storage).tolist() == [valid]


def test_ids_are_pairs_of_whole_numbers():
    assert validation.as_ids([(0, 1), (2, 3)], 2).dtype == np.int64
    for wrong in ([(0, 1)], [(0.5, 1.0), (1.0, 2.0)], [[0], [1]], [(0, 1), (2,)]):
        with pytest.raises(InputError, match="pairs of whole numbers"):
            validation.as_ids(wrong, 2)
    assert validation.as_id_pairs([]).shape == (0, 2)
    for wrong in (3, [0, 1], [(0, 1), (2,)]):
        with pytest.raises(InputError, match="pairs of whole numbers"):
            validation.as_id_pairs(wrong)


def test_chains_become_blocks_with_their_numbers():
    x = np.random.default_rng(0).normal(size=(3, 4, 2))
    blocks = validation.as_chains(x, -x)
    assert [one.ids[:, 0].tolist() for one in blocks] == [[0] * 4, [1] * 4, [2] * 4]
    assert len(validation.as_chains(x[0], -x[0])) == 1
    with pytest.raises(InputError, match="no draws"):
        validation.as_chains(x[:, :0], x[:, :0])
    with pytest.raises(InputError, match="scores have shape"):
        validation.as_chains(x, x[:2])


@given(st.integers(1, 60), st.integers(1, 5), st.integers(0, 10_000))
def test_steins_identity_does_not_depend_on_the_blocks(cut, dim, seed):
    x = np.random.default_rng(seed).normal(size=(120, dim)) + 100.0
    s = -(x - 100.0)
    whole = SteinIdentity(dim).updated(x, s)
    parts = SteinIdentity(dim).updated(x[:cut], s[:cut]).updated(x[cut:], s[cut:])
    assert parts.count == whole.count and parts.value == pytest.approx(whole.value, rel=1e-9)


def test_a_wrong_sign_is_reported_after_a_hundred_draws():
    x = np.random.default_rng(0).normal(size=(100, 4))
    SteinIdentity(4).updated(x, -x).require_plausible()
    SteinIdentity(4).updated(x[:99], x[:99]).require_plausible()
    with pytest.raises(NegatedScoresError, match=r"look negated.*--negate-scores"):
        SteinIdentity(4).updated(x, x).require_plausible()
