"""npz files are read row by row: any block size, compression, storage order and starting point give the same draws."""

from __future__ import annotations

import numpy as np
import pytest

import steinstream as ss
from steinstream.errors import InputError
from steinstream.validation import concatenate


def chain(shape, order="C"):
    draws = np.asarray(np.random.default_rng(0).normal(size=shape), order=order)
    return draws, -draws


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(11, 3), (2, 11, 3)])
def test_blocks_are_the_rows_of_the_file(shape, order, save, tmp_path):
    draws, scores = chain(shape, order)
    save(tmp_path / "c.npz", draws=draws, scores=scores)
    opened = ss.io.open_chain(tmp_path / "c.npz")
    for rows, skip in ((1, 0), (4, 3), (100, 10)):
        whole = concatenate(list(opened.blocks(rows, skip=skip)))
        assert np.array_equal(whole.draws, draws.reshape(-1, 3)[skip:])
        assert np.array_equal(whole.scores, -whole.draws)


def test_ids_of_the_file_are_used(tmp_path):
    draws, scores = chain((4, 2))
    ids = np.array([[3, 1], [3, 5], [0, 0], [0, 2]])
    np.savez(tmp_path / "c.npz", draws=draws, scores=scores, ids=ids)
    assert np.array_equal(concatenate(list(ss.io.open_chain(tmp_path / "c.npz").blocks())).ids, ids)


def test_scores_are_optional_and_log_densities_are_read(tmp_path):
    draws, _ = chain((6, 2))
    np.savez(tmp_path / "c.npz", draws=draws, log_density=np.arange(6.0))
    opened = ss.io.open_chain(tmp_path / "c.npz")
    assert not opened.has_scores and opened.log_density().tolist() == [0, 1, 2, 3, 4, 5]


def test_a_misspelt_array_of_scores_is_not_taken_for_a_chain_without(tmp_path):
    draws, scores = chain((6, 2))
    np.savez(tmp_path / "c.npz", draws=draws, score=scores)
    with pytest.raises(InputError, match="scores"):
        ss.io.open_chain(tmp_path / "c.npz")
    assert ss.io.open_chain(tmp_path / "c.npz", scores_name="score").has_scores


def test_a_missing_array_of_draws_is_named(tmp_path):
    np.savez(tmp_path / "c.npz", points=np.zeros((4, 2)))
    with pytest.raises(InputError, match="draws"):
        ss.io.open_chain(tmp_path / "c.npz")
