"""Headers of npy files are checked before the data are read, and ids follow the order of the chains."""

from __future__ import annotations

import io

import numpy as np
import pytest

import steinstream as ss
from steinstream.errors import InputError
from steinstream.io.npy import ChainShape, NpyHeader
from steinstream.validation import concatenate


def header(array, **how):
    file = io.BytesIO()
    np.save(file, array, **how)
    size = file.tell()
    file.seek(0)
    return NpyHeader.read(file, "draws.npy"), size - file.tell()


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f8", ">f4", "<i2"])
def test_a_header_describes_the_array_and_leaves_the_file_at_the_data(dtype, order):
    array = np.asarray(np.arange(12).reshape(4, 3), dtype=dtype, order=order)
    found, rest = header(array)
    assert (found.shape, found.dtype, found.nbytes) == ((4, 3), np.dtype(dtype), rest)
    assert found.fortran == (order == "F")


def test_python_objects_are_refused():
    with pytest.raises(InputError, match="never unpickled"):
        header(np.array([[{}]], dtype=object), allow_pickle=True)


def test_ids_count_draws_within_chains():
    shape = ChainShape(chains=2, draws=3, dim=1)
    assert shape.total == 6 and shape.ids(2, 5).tolist() == [[0, 2], [1, 0], [1, 1]]


@pytest.mark.parametrize(
    ("draws", "scores", "problem"),
    [
        (np.zeros(4), None, r"shape \(4,\), expected"),
        (np.zeros((4, 0)), None, r"shape \(4, 0\), expected"),
        (np.zeros((4, 2), dtype=complex), None, "dtype complex128"),
        (np.zeros((4, 2)), np.zeros((4, 3)), r"scores.npy has shape \(4, 3\), but draws.npy has shape \(4, 2\)"),
    ],
)
def test_shapes_that_are_not_a_chain_are_refused(draws, scores, problem):
    own = None if scores is None else header(scores)[0]
    with pytest.raises(InputError, match=problem):
        ChainShape.of(header(draws)[0], own, "draws.npy", "scores.npy")


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(7, 2), (3, 7, 2)])
def test_blocks_are_the_rows_of_the_file(shape, order, tmp_path):
    draws = np.asarray(np.random.default_rng(0).normal(size=shape), order=order)
    np.save(tmp_path / "x.npy", draws)
    np.save(tmp_path / "s.npy", -draws)
    chain = ss.io.open_chain(tmp_path / "x.npy", scores=tmp_path / "s.npy")
    whole = concatenate(list(chain.blocks(4)))
    assert np.array_equal(whole.draws, draws.reshape(-1, 2)) and np.array_equal(whole.scores, -whole.draws)
    assert np.array_equal(concatenate(list(chain.blocks(4, skip=5))).ids, whole.ids[5:])


def test_a_file_that_ends_early_is_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((50, 2)))
    data = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(data[:-1])
    with pytest.raises(InputError, match=r"x\.npy"):
        ss.io.open_chain(tmp_path / "x.npy")
