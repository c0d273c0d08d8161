"""Trees of arrays are read without xarray, in whole chunks, to what xarray makes of them; what is written, it reads."""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest

import steinstream as ss
from steinstream.errors import InputError
from steinstream.io import chain_of_datatree, open_chain
from steinstream.io._labelled_arrays import ChunkReader, StoredArray, slab_ranges
from steinstream.io.netcdf import open_array_tree
from steinstream.io.zarr import ZarrTree
from steinstream.result import Variable

xr = pytest.importorskip("xarray", reason="xarray is not installed")
pytest.importorskip("h5netcdf", reason="h5netcdf is not installed")
zarr = pytest.importorskip("zarr", reason="zarr is not installed")

DIMS = ("chain", "draw", "unconstrained_parameter")
KINDS = {"nc": "c.nc", "zarr 2": "c.zarr", "zarr 3": "c.zarr"}


def tree_of(**posterior):
    x = np.random.default_rng(0).normal(size=(2, 300, 3))
    stats = xr.Dataset({"unconstrained_draw": (DIMS, x), "gradient": (DIMS, -x)})
    return x, xr.DataTree.from_dict({"sample_stats": stats, "posterior": xr.Dataset(posterior)})


def store(tree, path, kind, **how):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about strings in zarr 3
        if kind == "nc":
            tree.to_netcdf(path, engine="h5netcdf", **how)
        else:
            tree.to_zarr(path, zarr_format=int(kind[-1]), **how)
    return path


def opened(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return xr.open_datatree(path, engine="zarr" if path.is_dir() else "h5netcdf")


# Chunks


def reads(shape, chunks, hold, rows):
    """A pass over an array: how it was read, and how often each of its chunks."""
    values = np.arange(np.prod(shape), dtype=float).reshape(shape)
    count = np.zeros([-(-n // chunk) for n, chunk in zip(shape, chunks, strict=True)], int)

    def read(box):
        count[tuple(slice((s.start or 0) // n, None if s.stop is None else -(-s.stop // n))
                    for s, n in zip(box, chunks, strict=True))] += 1  # fmt: skip
        return values[box].copy()

    slabs = ChunkReader(StoredArray("x", DIMS, shape, values.dtype, chunks, read), DIMS[:2], hold)
    parts = [
        slabs.rows(chain, start, stop)
        for chain in range(shape[0])
        for start, stop in slab_ranges([slabs], 0, shape[1], rows)
    ]
    assert all(len(part) <= rows for part in parts)
    assert np.array_equal(np.concatenate(parts), values.reshape(-1, shape[-1]))
    return slabs, set(count.ravel().tolist())


@pytest.mark.parametrize(
    "shape, chunks, hold",
    [
        ((3, 500, 4), (1, 70, 4), 0),
        ((3, 500, 4), (1, 70, 3), 0),
        ((3, 500, 4), (3, 70, 2), 1 << 20),  # the whole array
        ((5, 500, 4), (2, 70, 4), 40_000),  # two chains at a time
        ((2, 300_000, 3), (1, 100_000, 3), 0),  # several slabs
    ],
)
def test_each_chunk_is_read_once(shape, chunks, hold):
    slabs, counts = reads(shape, chunks, hold, 97 if shape[1] < 1000 else 50_000)
    assert counts == {1} and slabs.repeats == 1


def test_chunks_of_several_long_chains_are_read_for_each_and_the_user_is_told(tmp_path):
    slabs, counts = reads((4, 500, 4), (2, 50, 4), 0, 100)
    assert counts == {2} and slabs.repeats == 2
    x = np.random.default_rng(0).normal(size=(2, 400_000, 6))
    tree = xr.DataTree.from_dict(
        {"sample_stats": xr.Dataset({"unconstrained_draw": (DIMS, x), "gradient": (DIMS, -x)})}
    )
    encoding = {"/sample_stats": {name: {"chunks": (2, 50_000, 6)} for name in ("unconstrained_draw", "gradient")}}
    chain = open_chain(store(tree, tmp_path / "c.zarr", "zarr 3", encoding=encoding))
    assert ("chunks", "contain 2 chains and are read 2 times; use chunks of one chain") in chain.notes()
    assert np.array_equal(np.concatenate([block.draws for block in chain.blocks()]), x.reshape(-1, 6))


def test_blocks_may_be_changed_and_the_next_pass_is_as_the_first(tmp_path):
    x, tree = tree_of()
    for chain in (chain_of_datatree(tree), open_chain(store(tree, tmp_path / "c.zarr", "zarr 2"))):
        for _ in range(2):
            for block in chain.blocks(64):
                assert block.draws.flags.c_contiguous and block.draws.flags.writeable
                assert np.array_equal(block.scores, -block.draws)
                block.draws[:] = 7.0
    assert np.array_equal(tree["sample_stats"]["unconstrained_draw"].values, x)


def test_dimensions_may_come_in_any_order(tmp_path):
    x, tree = tree_of()
    turned = xr.DataTree.from_dict(
        {"sample_stats": tree["sample_stats"].to_dataset().transpose("unconstrained_parameter", "draw", "chain")}
    )
    for kind, name in KINDS.items():
        chain = open_chain(store(turned, tmp_path / f"{kind[-1]}{name}", kind))
        assert np.array_equal(np.concatenate([block.draws for block in chain.blocks(50)]), x.reshape(-1, 3))


# Encodings


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_encoded_is_what_xarray_decodes(kind, tmp_path):
    values = np.random.default_rng(1).normal(size=(2, 300))
    days = np.array(["2020-01-01", "2020-01-03"], "datetime64[ns]")
    _, tree = tree_of(
        packed=(DIMS[:2], values),
        missing=(DIMS[:2], np.where(values > 1, np.nan, values)),
        whole=(DIMS[:2], np.arange(600).reshape(2, 300)),
        truth=(DIMS[:2], values > 0),
        small=(DIMS[:2], values.astype(np.float32)),
        word=((*DIMS[:2], "place"), np.full((2, 300, 2), "some text", object)),
        series=((*DIMS[:2], "day"), np.zeros((2, 300, 2))),
    )
    tree["posterior"] = tree["posterior"].to_dataset().assign_coords(day=days, place=["a", "bc"])
    encoding = {
        "packed": {"dtype": "int16", "scale_factor": 0.001, "add_offset": 1.0, "_FillValue": -9999},
        "missing": {"_FillValue": -999.0},
        "whole": {"_FillValue": 7},
    }
    path = store(tree, tmp_path / KINDS[kind], kind, encoding={"/posterior": encoding})
    ids = np.array([[1, 299], [0, 7], [0, 0], [1, 8]])
    with opened(path) as read:
        expected = {name: array.values[ids[:, 0], ids[:, 1]] for name, array in read["posterior"].data_vars.items()}
    found = open_chain(path).variables(ids)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].values.dtype.kind == (array.dtype.kind if array.dtype.kind not in "OT" else "U"), name
        assert np.array_equal(found[name].values, array, equal_nan=array.dtype.kind == "f"), name
    assert np.array_equal(found["series"].coords["day"], days)
    assert list(found["word"].coords["place"]) == ["a", "bc"]


VALUES = np.random.default_rng(0).normal(size=(2, 30))
ENCODED = {  # name: dimensions, values, encoding
    "packed": (DIMS[:2], VALUES, {"dtype": "int16", "scale_factor": 0.01, "_FillValue": -32768}),
    "unsigned": (DIMS[:2], 4 * np.arange(-30, 30, dtype="i1").reshape(2, 30), {"_Unsigned": "true"}),
    "missing32": (DIMS[:2], np.where(VALUES > 1, np.nan, VALUES).astype("f4"), {"_FillValue": np.float32(1e20)}),
    "integers": (DIMS[:2], np.arange(60).reshape(2, 30), {"dtype": "int32", "_FillValue": 7}),
    "dates": (("t",), np.array(["2020-01-01T05", "2021-07-03T07", "1800-01-01"], "M8[ns]"), {}),
    "not a time": (("t",), np.array(["2020-01-01T05", "2021-07-03T07", "NaT"], "M8[ns]"), {}),
    "fractions of days": (
        ("t",),
        np.array(["2020-01-01T05:30:00.125", "2021-07-03T07", "2022-01-01"], "M8[ns]"),
        {"dtype": "float64", "units": "days since 2019-12-31 12:00:00"},
    ),
    "text": (("t",), np.array(["a", "b\u00e9c", ""], object), {}),
    "fixed text": (("t",), np.array(["a", "bc", "d"]), {}),
    "bytes": (("t",), np.array([b"a", b"bc", b"d"]), {}),
    "booleans": (("t",), np.array([True, False, True]), {}),
    "scalar": ((), 3.5, {}),
    "packed scalar": ((), 3.5, {"dtype": "int16", "scale_factor": 0.5}),
}


@pytest.mark.parametrize("kind", [*KINDS, "classic"])
@pytest.mark.parametrize("name", ENCODED)
def test_every_encoding_is_decoded_as_xarray_does(kind, name, tmp_path):
    if kind == "classic":
        pytest.importorskip("scipy", reason="xarray reads classic NetCDF with scipy")
    dims, values, encoding = ENCODED[name]
    data = xr.Dataset({"v": (dims, values, encoding if name == "unsigned" else {})})
    encoding = {} if name == "unsigned" else encoding
    path = tmp_path / "c"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind in ("nc", "classic"):
            data.to_netcdf(path, engine="h5netcdf" if kind == "nc" else "scipy", encoding={"v": encoding})
        else:
            if kind == "zarr 3" and values is ENCODED["bytes"][1]:
                pytest.skip("xarray writes no bytes to Zarr version 3")
            data.to_zarr(path, zarr_format=int(kind[-1]), encoding={"v": encoding})
        engine = {"nc": "h5netcdf", "classic": "scipy"}.get(kind, "zarr")
        with xr.open_dataset(path, engine=engine) as read:
            expected = read["v"].values
    tree = ZarrTree(path) if kind.startswith("zarr") else open_array_tree(path)
    array = tree.group("").arrays["v"]
    found = array.values()
    assert array.dims == dims and array.shape == found.shape == expected.shape
    assert array.dtype == found.dtype
    if expected.dtype.kind in "OUST":
        assert found.tolist() == expected.tolist()
    else:
        assert found.dtype == expected.dtype
        assert np.array_equal(found, expected, equal_nan=expected.dtype.kind in "fmM")
    tree.close()


def test_a_store_of_version_2_has_its_fill_value_for_none(tmp_path):
    root = zarr.create_group(tmp_path / "c.zarr", zarr_format=2)
    x = np.random.default_rng(0).normal(size=(2, 40, 3))
    x[1, 20:] = 0.0
    for name, values in (("unconstrained_draw", x), ("gradient", -x)):
        array = root.create_array(f"sample_stats/{name}", shape=x.shape, dtype=float, fill_value=0.0)
        array.attrs["_ARRAY_DIMENSIONS"] = list(DIMS)
        array[...] = values
    draws = np.concatenate([block.draws for block in open_chain(tmp_path / "c.zarr").blocks()])
    assert np.isnan(draws[60:]).all() and np.array_equal(draws[:60], x.reshape(-1, 3)[:60])


@pytest.mark.parametrize("version", [2, 3])
def test_arrays_without_names_of_dimensions_are_refused(version, tmp_path):
    root = zarr.create_group(tmp_path / "c.zarr", zarr_format=version)
    for name in ("unconstrained_draw", "gradient"):
        root.create_array(f"sample_stats/{name}", shape=(2, 40, 3), dtype=float)
    with pytest.raises(InputError, match="missing the") as caught:
        open_chain(tmp_path / "c.zarr")
    assert "dimension_names" in caught.value.remedy


# Kept sets


@pytest.fixture(scope="module")
def kept():
    x, tree = tree_of(
        mu=(DIMS[:2], np.arange(600.0).reshape(2, 300)),
        positive=(DIMS[:2], np.arange(600).reshape(2, 300) > 300),
        p=((*DIMS[:2], "k"), np.zeros((2, 300, 2), np.float32)),
    )
    tree["posterior"] = tree["posterior"].to_dataset().assign_coords(k=["a", "b"])
    chain = chain_of_datatree(tree)
    kept = ss.thin(x, -x, size=20)
    return replace(kept, names=chain.names, variables=chain.variables(kept.ids))


@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
def test_xarray_opens_a_kept_set_as_the_tree_it_is(suffix, kept, tmp_path):
    for number, this in enumerate((kept, kept.weighted(), replace(kept, variables={}))):
        this.save(tmp_path / f"{number}{suffix}")
        with opened(tmp_path / f"{number}{suffix}") as tree:
            expected = this.to_datatree()
            tree.attrs.pop("steinstream_manifest", None)
            assert tree.attrs == expected.attrs
            for name in expected.children:
                xr.testing.assert_identical(tree[name].to_dataset().load(), expected[name].to_dataset())


@pytest.mark.parametrize("kind", KINDS)
def test_strings_need_no_pickle_in_npz(kind, tmp_path):
    _, tree = tree_of(word=((*DIMS[:2], "k"), np.full((2, 300, 2), "text", object)))
    tree["posterior"] = tree["posterior"].to_dataset().assign_coords(k=np.array(["a", "bc"], object))
    chain = open_chain(store(tree, tmp_path / KINDS[kind], kind))
    block = next(chain.blocks(300))
    kept = ss.thin(block.draws, block.scores, size=5)
    for suffix in (".npz", ".nc", ".zarr"):
        replace(kept, variables=chain.variables(kept.ids)).save(tmp_path / f"k{suffix}")
        word = ss.Kept.load(tmp_path / f"k{suffix}").variables["word"]
        assert word.values.tolist() == [["text", "text"]] * 5 and word.coords["k"].tolist() == ["a", "bc"]


@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
def test_places_that_are_dates_are_kept(suffix, kept, tmp_path):
    days = np.array(["2020-01-01", "2020-01-03"], "datetime64[ns]")
    replace(kept, variables={"a": Variable(np.zeros((20, 2)), ("day",), {"day": days})}).save(tmp_path / f"k{suffix}")
    assert np.array_equal(ss.Kept.load(tmp_path / f"k{suffix}").variables["a"].coords["day"], days)


# What is loaded, and where


PROGRAM = """
import sys
from steinstream.io import open_chain, write_kept
from steinstream.api import ChainSource, thin_source
from steinstream.thinner.config import ThinConfig
chain = open_chain(sys.argv[1])
kept = thin_source(ChainSource(chain), ThinConfig.of(size=10)).kept
chain.variables(kept.ids)
write_kept(kept, sys.argv[2])
print({"xarray", "pandas", "pyarrow"} & sys.modules.keys())
"""


@pytest.mark.parametrize("suffix, kept", [("nc", "k.npz"), ("nc", "k.nc"), ("zarr", "k.csv"), ("zarr", "k.zarr")])
def test_neither_xarray_nor_pandas_is_imported(suffix, kept, tmp_path):
    _, tree = tree_of(mu=(DIMS[:2], np.zeros((2, 300))))
    path = store(tree, tmp_path / f"c.{suffix}", "nc" if suffix == "nc" else "zarr 3")
    ran = subprocess.run([sys.executable, "-c", PROGRAM, path, tmp_path / kept], capture_output=True, text=True)
    assert ran.stdout.endswith("set()\n"), ran.stderr


@pytest.mark.parametrize("kind", ["memory", *KINDS])
def test_a_chain_can_be_sent_to_another_process(kind, tmp_path):
    x, tree = tree_of()
    chain = chain_of_datatree(tree) if kind == "memory" else open_chain(store(tree, tmp_path / KINDS[kind], kind))
    chain.negated = True
    block = next(pickle.loads(pickle.dumps(chain)).blocks(10))
    assert np.array_equal(block.draws, x[0, :10]) and np.array_equal(block.scores, x[0, :10])
