"""Kept sets in the layout of ArviZ, written and read again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import steinstream as ss
from steinstream.errors import InputError, OutputError
from steinstream.io import chain_of_datatree, check_output, open_chain, read_kept, write_kept
from steinstream.result import Variable
from tests.arviz_trees import model, store, whole


@pytest.fixture(scope="module")
def kept():
    u, tree = model()
    chain = chain_of_datatree(tree)
    kept = ss.thin(u, -u, size=30)
    return replace(kept, names=chain.names, variables=chain.variables(kept.ids))


def same(a, b):
    for name in ("draws", "scores", "second_scores", "ids", "weights", "prefix_ksd"):
        x, y = getattr(a, name), getattr(b, name)
        assert (x is None) == (y is None) and (x is None or (x.dtype == y.dtype and np.array_equal(x, y))), name
    assert (a.ksd, a.settings, a.names, a.kernel) == (b.ksd, b.settings, b.names, b.kernel)
    assert all(np.array_equal(x, y) for x, y in zip(a.history, b.history, strict=True))
    assert np.array_equal(a.preconditioner.factor, b.preconditioner.factor)
    assert list(a.variables) == list(b.variables)
    for name, (values, dims, coords) in a.variables.items():
        assert np.array_equal(values, b.variables[name].values) and dims == b.variables[name].dims
        assert {k: list(v) for k, v in coords.items()} == {k: list(v) for k, v in b.variables[name].coords.items()}


@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
def test_a_kept_set_comes_back_whole(suffix, kept, tmp_path):
    for number, this in enumerate((kept, kept.weighted(), kept.ordered(), replace(kept, variables={}))):
        path = tmp_path / f"kept{number}{suffix}"
        this.save(path)
        same(ss.Kept.load(path), this)
        chain = open_chain(path)
        draws, scores, ids = whole(chain, rows=7)
        assert np.array_equal(draws, this.draws) and np.array_equal(scores, this.scores)
        assert np.array_equal(ids, this.ids) and chain.names == this.names
        assert np.array_equal(chain.variables(this.ids)["mu"].values, this.draws[:, 0])


def test_a_tree_that_is_not_a_kept_set_is_refused(kept, tmp_path):
    with pytest.raises(InputError, match="is not a kept set"):
        read_kept(store(model(draws=10)[1], tmp_path / "c.nc", "nc"))
    for group, name in (("sample_stats", "unconstrained_draw"), ("steinstream", "history_ksd"), ("posterior", "p")):
        tree = kept.to_datatree()
        tree[group] = tree[group].to_dataset().drop_vars(name)
        with pytest.raises(InputError, match=f"is not a kept set, or it is damaged: '{name}'"):
            ss.io.kept_of_datatree(tree)


def test_the_tree_has_one_sample_dimension_or_one_chain(kept):
    tree = kept.to_datatree()
    assert tree["posterior"].dataset.sizes == {"sample": 30, "k": 3}
    assert np.array_equal(tree["posterior"]["draw"].values, kept.ids[:, 1])
    assert np.array_equal(tree["sample_stats"]["gradient"].values, kept.scores)
    assert tree.attrs["ksd"] == kept.ksd
    flat = kept.to_datatree(stacked=False)
    assert flat["posterior"]["p"].dims == ("chain", "draw", "k") and flat["posterior"].sizes["chain"] == 1
    for each in (tree, flat):
        assert np.array_equal(whole(chain_of_datatree(each))[2], kept.ids)
        same(ss.io.kept_of_datatree(each), kept)


def test_dimensions_that_share_a_name_but_not_their_places_are_told_apart(kept):
    more = {
        "a": Variable(np.zeros((30, 2)), ("k",), {"k": np.array([1, 2])}),
        "b": Variable(np.zeros((30, 3)), ("k",), {"k": np.array([1, 2, 3])}),
        "c": Variable(np.zeros((30, 2)), ("chain",)),
    }
    posterior = replace(kept, variables=more).to_datatree()["posterior"]
    assert [posterior[name].dims[1] for name in "abc"] == ["k", "b_k", "c_chain"]


@pytest.mark.parametrize("names", [("chain", "draw", "c", "d"), ("a/b", "", "c", "d"), ("a", "a", "b", "b")])
@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
def test_a_parameter_may_bear_any_name(suffix, names, kept, tmp_path):
    replace(kept, names=names, variables={}).save(tmp_path / f"k{suffix}")
    assert open_chain(tmp_path / f"k{suffix}").names == names
    assert ss.Kept.load(tmp_path / f"k{suffix}").names == names


def test_a_store_takes_the_place_of_an_older_one_and_of_nothing_else(kept, tmp_path, monkeypatch):
    path = tmp_path / "kept.zarr"
    kept.save(path)
    smaller = kept.ordered().prefix(5)
    smaller.save(path)
    assert len(read_kept(path)) == 5 and [p.name for p in tmp_path.iterdir()] == ["kept.zarr"]

    def fail(kept, folder):
        (folder / "half").write_text("")
        raise OSError(28, "No space left on device")

    form = ss.io.FORMATS["zarr"]
    monkeypatch.setitem(ss.io.FORMATS, "zarr", form._replace(write_folder=fail))
    with pytest.raises(OutputError, match="no space left"):
        write_kept(kept, path)
    monkeypatch.undo()
    assert len(read_kept(path)) == 5 and [p.name for p in tmp_path.iterdir()] == ["kept.zarr"]
    (tmp_path / "mine.zarr").mkdir()
    (tmp_path / "mine.zarr" / "thesis.tex").write_text("x")
    for act in (check_output, kept.save):
        with pytest.raises(OutputError):
            act(tmp_path / "mine.zarr")
    assert (tmp_path / "mine.zarr" / "thesis.tex").exists()
