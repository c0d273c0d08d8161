"""What is written is read again bit for bit, with ids and names, in every format."""

import json
import string

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from steinstream.errors import InputError
from steinstream.io import open_chain, write_kept
from steinstream.kept import History, Kept

SUFFIXES = [
    ".npz",
    ".csv",
    ".csv.gz",
    pytest.param(".parquet", marks=pytest.mark.skipif("not __import__('importlib').util.find_spec('pyarrow')")),
    pytest.param(".nc", marks=pytest.mark.skipif("not __import__('importlib').util.find_spec('h5netcdf')")),
]
ZARR = pytest.param(".zarr", marks=pytest.mark.skipif("not __import__('importlib').util.find_spec('zarr')"))
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8).map(lambda name: name.rstrip("\0"))


def make(points, ids, names=None):
    history = History(np.arange(3), np.arange(3) + 1, np.array([0.5, 0.25, 1 / 3]))
    scores = np.nextafter(-points, 0.0)
    settings = {"version": "0.1.0", "kernel": {"c": 1 / 3}}
    return Kept(points, scores, ids, 0.125, history, settings=settings, names=names)


def whole(chain, **how):
    blocks = list(chain.blocks(**how))
    return [np.concatenate(part) for part in zip(*blocks, strict=True)]


def same(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_kept_draws_come_back_bit_for_bit(suffix, data, tmp_path_factory):
    n, d = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 4))
    points = data.draw(arrays(np.float64, (n, d), elements=st.floats(allow_nan=False)))
    ids = data.draw(arrays(np.int64, (n, 2), elements=st.integers(0, 2**53)))
    names = data.draw(st.none() | st.tuples(*[NAMES] * d))
    kept = make(points, ids, names)
    path = tmp_path_factory.mktemp("round") / f"kept{suffix}"
    if suffix == ".nc" and any("\0" in name for name in names or ()):
        with pytest.raises(InputError, match="NetCDF cannot hold the name"):
            write_kept(kept, path)
        return
    write_kept(kept, path)
    chain = open_chain(path)
    draws, scores, read_ids = whole(chain, rows=5)
    assert same(draws, kept.points)
    assert same(scores, kept.scores)
    assert same(read_ids, kept.ids)
    assert chain.names == (names or tuple(f"x{i}" for i in range(d)))
    assert chain.dim == d


@pytest.mark.parametrize("suffix", [*SUFFIXES, ZARR])
@pytest.mark.parametrize(
    "names", [("chain", "draw"), ("a", "score_a"), ("a", "a"), ("", "beta[1,2]"), ("draws", "scores")]
)
def test_a_parameter_may_bear_any_name(suffix, names, tmp_path):
    kept = make(np.arange(6.0).reshape(3, 2), np.array([[0, 5], [1, 2], [1, 9]]), names)
    write_kept(kept, tmp_path / f"kept{suffix}")
    chain = open_chain(tmp_path / f"kept{suffix}")
    draws, scores, ids = whole(chain)
    assert chain.names == names
    assert same(draws, kept.points) and same(scores, kept.scores) and same(ids, kept.ids)


@pytest.mark.parametrize("suffix", [*SUFFIXES, ZARR])
def test_values_that_are_not_finite_pass_through(suffix, tmp_path):
    kept = make(np.array([[np.nan, np.inf], [-np.inf, -0.0]]), np.zeros((2, 2), np.int64))
    write_kept(kept, tmp_path / f"kept{suffix}")
    draws, _, _ = whole(open_chain(tmp_path / f"kept{suffix}"))
    assert same(draws, kept.points)


def test_npz_says_how_to_get_the_result_again(tmp_path):
    kept = make(np.ones((2, 3)), np.zeros((2, 2), np.int64), ("a", "b", "c"))
    write_kept(kept, tmp_path / "kept.npz")
    with np.load(tmp_path / "kept.npz", allow_pickle=False) as file:
        assert json.loads(str(file["settings"])) == kept.settings
        assert file["ksd"] == kept.ksd
        assert file["names"].tolist() == ["a", "b", "c"]
        for name, expected in kept.history._asdict().items():
            assert same(file[f"history_{name}"], expected)


def test_parquet_says_how_to_get_the_result_again(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    kept = make(np.ones((2, 1)), np.zeros((2, 2), np.int64), ("a",))
    write_kept(kept, tmp_path / "kept.parquet")
    table = parquet.read_table(tmp_path / "kept.parquet")
    assert table.column_names == ["chain", "draw", "a", "score_a"]
    about = json.loads(table.schema.metadata[b"steinstream"])
    assert about == {"ksd": kept.ksd, "settings": kept.settings}


def test_csv_is_plain_for_any_other_tool(tmp_path):
    kept = make(np.array([[0.1, 2.0]]), np.array([[3, 17]]), ("mu", "beta[1,2]"))
    write_kept(kept, tmp_path / "kept.csv")
    lines = (tmp_path / "kept.csv").read_text().splitlines()
    assert lines[0] == 'chain,draw,mu,"beta[1,2]",score_mu,"score_beta[1,2]"'
    assert lines[1].startswith("3,17,0.10000000000000001,2,-0.0")
    assert len(lines) == 2


def test_the_same_set_gives_the_same_bytes(tmp_path):
    kept = make(np.ones((2, 3)), np.zeros((2, 2), np.int64), tuple(string.ascii_lowercase[:3]))
    for suffix in (".npz", ".csv", ".csv.gz"):
        for name in ("a", "b"):
            write_kept(kept, tmp_path / f"{name}{suffix}")
        assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()
