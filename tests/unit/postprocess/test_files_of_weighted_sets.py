"""Files of weighted and ordered kept sets: nothing is lost, and weights are not mistaken for parameters."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import steinstream as ss
from steinstream.errors import InputError
from steinstream.io import open_chain, read_kept
from steinstream.result import Kept
from steinstream.validation import concatenate

SUFFIXES = [
    ".npz",
    ".csv",
    ".csv.gz",
    pytest.param(".parquet", marks=pytest.mark.skipif("not __import__('importlib').util.find_spec('pyarrow')")),
]


def gaussian(seed=0, draws=5000, dim=10):
    x = np.random.default_rng(seed).normal(size=(draws, dim))
    return x, -x


@cache
def refined():
    x, s = gaussian(draws=300, dim=2)
    return ss.thin(x, s, size=25).weighted().ordered()


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("names", [None, ("weight", "order"), ("chain", "score_weight"), ("a", "a")])
@pytest.mark.parametrize("what", ["both", "weights", "order", "neither"])
def test_a_weighted_file_is_read_as_the_same_draws(suffix, names, what, tmp_path):
    kept = replace(refined(), names=names)
    kept = replace(kept, weights=kept.weights if what in ("both", "weights") else None)
    if what not in ("both", "order"):
        kept = replace(kept, prefix_ksd=None, prefix_mmd=None)
    kept.save(tmp_path / f"kept{suffix}")
    chain = open_chain(tmp_path / f"kept{suffix}")
    draws, scores, ids, *_ = concatenate(list(chain.blocks()))
    assert chain.names == (names or ("x0", "x1"))
    assert np.array_equal(draws, kept.draws) and np.array_equal(scores, kept.scores) and np.array_equal(ids, kept.ids)


def test_a_table_has_a_column_of_weights_and_one_of_the_order(tmp_path):
    kept = refined()
    kept.save(tmp_path / "kept.csv")
    header = (tmp_path / "kept.csv").read_text().partition("\n")[0]
    assert header == "chain,draw,x0,x1,score_x0,score_x1,weight,order"
    table = np.loadtxt(tmp_path / "kept.csv", delimiter=",", skiprows=1)
    assert np.array_equal(table[:, 6], kept.weights) and np.array_equal(table[:, 7], np.arange(25))
    parquet = pytest.importorskip("pyarrow.parquet")
    kept.save(tmp_path / "kept.parquet")
    table = parquet.read_table(tmp_path / "kept.parquet")
    assert np.array_equal(table["weight"], kept.weights) and table["order"].to_pylist() == list(range(25))
    assert json.loads(table.schema.metadata[b"steinstream"])["settings"]["weights"]["effective_share"] == 0.95


def test_columns_moved_by_another_tool_still_name_no_parameter(tmp_path):
    refined().save(tmp_path / "kept.csv")
    rows = [line.split(",") for line in (tmp_path / "kept.csv").read_text().splitlines()]
    (tmp_path / "moved.csv").write_text("\n".join(",".join(row[-2:] + row[:-2]) for row in rows))
    assert open_chain(tmp_path / "moved.csv").names == ("x0", "x1")


def test_npz_gives_the_kept_set_back(tmp_path):
    x, s = gaussian(draws=500, dim=3)
    for kernel in (ss.IMQ(c=2.0, beta=-0.25), ss.RBF(), ss.RBF(h=0.5)):
        kept = replace(ss.thin(x, s, size=20, kernel=kernel).weighted().ordered(), names=("a", "b", "c"))
        kept.save(tmp_path / "kept.npz")
        again = Kept.load(tmp_path / "kept.npz")
        for name in ("draws", "scores", "ids", "weights", "prefix_ksd", "prefix_mmd", "order"):
            assert np.array_equal(getattr(again, name), getattr(kept, name)), name
        assert again.kernel == kernel and again.names == kept.names and again.settings == kept.settings
        assert np.array_equal(again.preconditioner.factor, kept.preconditioner.factor) and again.ksd == kept.ksd
        assert all(np.array_equal(a, b) for a, b in zip(again.history, kept.history, strict=True))
        assert np.array_equal(again.stream_summary.draws, kept.stream_summary.draws)
        assert np.array_equal(again.weighted().weights, kept.weighted().weights)


def test_a_damaged_summary_of_the_stream_is_rejected(tmp_path):
    kept = refined()
    for damaged in (
        replace(kept.stream_summary, weights=kept.stream_summary.weights[:-1]),
        replace(kept.stream_summary, weights=-kept.stream_summary.weights),
        replace(kept.stream_summary, draws=kept.stream_summary.draws * np.nan),
    ):
        replace(kept, stream_summary=damaged).save(tmp_path / "kept.npz")
        with pytest.raises(InputError, match=r"not a valid kept set: .*(summary of the stream|stream_summary_weights)"):
            read_kept(tmp_path / "kept.npz")


@pytest.mark.parametrize("suffix", ["npz", "nc", "zarr"])
def test_a_set_without_scores_survives_a_file(tmp_path, suffix):
    pytest.importorskip({"npz": "numpy", "nc": "h5py", "zarr": "zarr"}[suffix])
    x, _ = gaussian(draws=500, dim=3)
    kept = ss.thin(x, size=20).weighted().ordered()
    kept.save(tmp_path / f"kept.{suffix}")
    again = Kept.load(tmp_path / f"kept.{suffix}")
    assert np.array_equal(again.stream_summary.draws, kept.stream_summary.draws)
    assert np.array_equal(again.weighted().weights, kept.weighted().weights)
    assert again.scores is None and np.array_equal(again.prefix_mmd, kept.prefix_mmd) and again.mmd == kept.mmd
    assert np.array_equal(ss.merge([again], size=10).ids, ss.merge([kept], size=10).ids)


def test_npz_gives_the_variables_back_in_the_order_of_the_draws(tmp_path):
    x, s = gaussian(draws=200, dim=2)
    kept = ss.thin(x, s, size=10)
    variables = {
        "sigma": ss.Variable(np.exp(kept.draws[:, 0])),
        "a/b": ss.Variable(np.arange(40).reshape(10, 2, 2), ("school", "time"), {"school": np.array(["A", "B"])}),
    }
    ordered = replace(kept, variables=variables).ordered()
    assert np.array_equal(ordered.variables["sigma"].values, np.exp(ordered.draws[:, 0]))
    ordered.save(tmp_path / "kept.npz")
    again = Kept.load(tmp_path / "kept.npz").variables
    assert list(again) == ["sigma", "a/b"] and again["a/b"].dims == ("school", "time") and again["sigma"].dims == ()
    assert np.array_equal(again["a/b"].values, ordered.variables["a/b"].values)
    assert again["a/b"].coords["school"].tolist() == ["A", "B"] and again["sigma"].coords == {}


def test_what_is_no_kept_set_is_not_loaded(tmp_path):
    np.savez(tmp_path / "chain.npz", draws=np.ones((3, 2)), scores=np.ones((3, 2)))
    with pytest.raises(InputError, match="not a kept set: missing arrays history_ksd"):
        read_kept(tmp_path / "chain.npz")
    (tmp_path / "text.npz").write_text("no zip")
    with pytest.raises(InputError, match="cannot be read as npz"):
        read_kept(tmp_path / "text.npz")
    kept = refined()
    kept.save(tmp_path / "kept.csv")
    with pytest.raises(InputError, match="without kernel and preconditioner"):
        read_kept(tmp_path / "kept.csv")
    replace(kept, weights=kept.weights[:-1]).save(tmp_path / "kept.npz")
    with pytest.raises(InputError, match=r"weights has shape \(24,\)"):
        read_kept(tmp_path / "kept.npz")
    with pytest.raises(InputError, match="no such file"):
        read_kept(tmp_path / "kep.npz")
