"""nutpie, alone and as the sampler of PyMC: finished trees, and a store that is being written."""

from __future__ import annotations

import doctest
import shutil
import threading
import time
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import steinstream as ss

nutpie = pytest.importorskip("nutpie", reason="nutpie is not installed; it needs Python 3.12")
pm = pytest.importorskip("pymc", reason="PyMC is not installed; it needs Python 3.12")
xarray = pytest.importorskip("xarray", reason="xarray is not installed")

from steinstream.errors import InputError, NegatedScoresError  # noqa: E402
from steinstream.integrations.nutpie import thin  # noqa: E402
from steinstream.integrations.pymc import with_scores  # noqa: E402
from tests.integrations.constrained import model, scores  # noqa: E402

SAMPLE = {"draws": 300, "tune": 200, "chains": 2, "cores": 1, "seed": 5, "progress_bar": False}
STORED = {**SAMPLE, "store_gradient": True, "store_unconstrained": True}


@cache
def compiled():
    return nutpie.compile_pymc_model(model())


@pytest.fixture(scope="module")
def tree():
    return nutpie.sample(compiled(), **STORED)


@pytest.fixture(scope="module")
def pymc_tree():
    """A tree from PyMC with nutpie: it has a group of transformed variables instead of unconstrained_draw."""
    with model():
        return pm.sample(
            draws=300,
            tune=200,
            chains=2,
            cores=1,
            random_seed=5,
            progressbar=False,
            quiet=True,
            nuts_sampler="nutpie",
            nuts={"store_gradient": True},
            idata_kwargs={"include_transformed": True},
        )


def assert_subset(small, whole):
    chain, draw = small.posterior["chain"].values, small.posterior["draw"].values
    for name in ("mu", "sigma", "share", "odds", "both"):
        np.testing.assert_array_equal(small.posterior[name].values, whole.posterior[name].values[chain, draw])
    assert small.posterior["share"].dims == ("sample", "kind")
    assert small.posterior["kind"].values.tolist() == ["a", "b", "c"]
    points = small.sample_stats["unconstrained_draw"].values
    np.testing.assert_array_equal(points[:, 0], small.posterior["mu"].values)
    np.testing.assert_allclose(np.exp(points[:, 1]), small.posterior["sigma"].values, rtol=1e-12)
    np.testing.assert_allclose(small.sample_stats["gradient"].values, scores(points), rtol=1e-8, atol=1e-8)


def test_a_finished_tree_is_thinned_with_the_right_scores_and_draws(tree):
    small = tree.stein.thin(size=40)
    assert small.posterior.sizes["sample"] == 40
    assert_subset(small, tree)


def test_the_result_is_that_of_thinning_the_arrays(tree):
    stats = tree.sample_stats
    stored = ss.thin(stats["unconstrained_draw"].values, stats["gradient"].values, size=40)
    kept, small = thin(tree, size=40), tree.stein.thin(size=40)
    np.testing.assert_array_equal(kept.ids, stored.ids)
    np.testing.assert_array_equal(small.posterior["draw"].values, stored.ids[:, 1])
    assert small.attrs["ksd"] == kept.ksd == stored.ksd
    with pytest.raises(InputError, match="finished tree"):
        thin(tree, thinner=ss.Thinner(4))


def test_pymc_through_nutpie_is_thinned_with_the_right_scores_and_draws(pymc_tree):
    small = pymc_tree.stein.thin(size=40)
    assert_subset(small, pymc_tree)
    np.testing.assert_array_equal(small.observed_data["count"].values, [5, 9, 2])
    assert float(small.constant_data["offset"]) == 0.5


@pytest.mark.filterwarnings("ignore:Left out as functions of other variables:UserWarning")
def test_a_tree_without_gradient_is_thinned_without_scores(tmp_path, caplog):
    store = nutpie.zarr_store.LocalStore(str(tmp_path / "run.zarr"), mkdir=True)
    bare = nutpie.sample(compiled(), **SAMPLE)
    nan = nutpie.sample(compiled(), zarr_store=store, **{**SAMPLE, "store_unconstrained": True})
    assert np.isnan(nan.sample_stats["gradient"].values).all()
    for tree in (bare, nan):
        caplog.clear()
        with caplog.at_level("INFO", "steinstream"):
            kept = thin(tree, size=20)
        chain, draw = kept.ids.T
        assert kept.scores is None and len(kept) == 20
        np.testing.assert_array_equal(kept.variables["share"].values, tree.posterior["share"].values[chain, draw])
        assert sum("have no scores" in record.getMessage() for record in caplog.records) == 1
    nan.close()


def test_scores_of_a_fit_without_gradient_are_those_of_nutpie(tree):
    bare = tree.copy()
    bare["sample_stats"] = tree["sample_stats"].to_dataset().drop_vars(["gradient", "unconstrained_draw"])
    stats, scored = tree.sample_stats, with_scores(model(), bare)
    for name in ("unconstrained_draw", "gradient"):
        np.testing.assert_allclose(scored.sample_stats[name].values, stats[name].values, rtol=1e-7, atol=1e-7)
    assert_subset(scored.stein.thin(size=40), tree)


def test_a_negated_gradient_is_an_error(tree):
    wrong = tree.copy()
    wrong["sample_stats"] = tree["sample_stats"].copy()
    wrong["sample_stats/gradient"] = -tree["sample_stats/gradient"]
    with pytest.raises(NegatedScoresError, match="look negated"):
        thin(wrong, size=10)
    np.testing.assert_array_equal(thin(wrong, size=10, negate_scores=True).ids, thin(tree, size=10).ids)


def running(path, **settings):
    store = nutpie.zarr_store.LocalStore(str(path), mkdir=True)
    return nutpie.sample(compiled(), zarr_store=store, blocking=False, **{**STORED, **settings})


def wait_until(condition, seconds=600):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition was never met"
        time.sleep(0.01)


def test_a_running_sampler_is_thinned_to_its_end(tmp_path, monkeypatch):
    order, extend = [], ss.Thinner.extend

    def recording(self, draws, scores, *, ids, **more):
        order.append(ids)
        return extend(self, draws, scores, ids=ids, **more)

    monkeypatch.setattr(ss.Thinner, "extend", recording)
    sampler = running(tmp_path / "run.zarr", draws=1000)
    kept = thin(sampler, size=40, pause=0.01)
    monkeypatch.undo()
    whole = sampler.wait()
    stats = whole.sample_stats
    assert kept.settings["seen"] == 2000
    source = kept.settings["source"]
    assert source["tool"] == "nutpie" and source["draws"] == [1000, 1000] and source["rhat"] < 1.1
    chain, draw = kept.ids.T
    for name in ("mu", "sigma", "share", "odds", "both"):
        np.testing.assert_array_equal(kept.variables[name].values, whole.posterior[name].values[chain, draw])
    np.testing.assert_allclose(kept.scores, scores(kept.draws), rtol=1e-8, atol=1e-8)
    # the result is that of one draw of each chain in turn, whatever was written first
    ids = np.array([(chain, draw) for draw in range(1000) for chain in range(2)])
    assert len(order) >= 2
    np.testing.assert_array_equal(np.concatenate(order), ids)
    draws, gradient = (stats[name].values[*ids.T] for name in ("unconstrained_draw", "gradient"))
    again = ss.Thinner(4, size=40)
    again.extend(draws, gradient, ids=ids)
    np.testing.assert_array_equal(kept.ids, again.kept.ids)
    assert kept.ksd == again.kept.ksd
    whole.close()


def stopped(sampler):
    while True:
        try:
            return sampler.abort()
        except RuntimeError as problem:  # nutpie raises this while another thread queries it
            assert "borrowed" in str(problem)


def test_an_aborted_sampler_leaves_the_draws_so_far(tmp_path):
    path = tmp_path / "run.zarr"
    sampler = running(path, draws=20_000, chains=1)
    found = []
    reader = threading.Thread(target=lambda: found.append(thin(sampler, size=20, pause=0.01)))
    reader.start()
    wait_until(lambda: (path / "sample_stats" / "gradient" / "c" / "0" / "3").exists())
    whole = stopped(sampler)
    reader.join(timeout=600)
    there = int(np.isfinite(whole.sample_stats["gradient"].values[0, :, 0]).sum())
    assert 0 < found[0].settings["seen"] == there < 20_000
    assert len(found[0]) == min(20, there)
    whole.close()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A complete store whose number of draws is not a multiple of the chunk length."""
    path = tmp_path_factory.mktemp("nutpie") / "run.zarr"
    running(path).wait().close()
    return path


def test_a_complete_folder_is_thinned_at_once_with_its_chains_in_turns(finished):
    kept, thinner = thin(finished, size=50), ss.Thinner(4, size=50)
    assert kept.settings["seen"] == 600
    with xarray.open_datatree(finished, engine="zarr", consolidated=False) as tree:
        draws, gradient = (
            tree.sample_stats[name].values.transpose(1, 0, 2).reshape(600, 4)
            for name in ("unconstrained_draw", "gradient")
        )
    thinner.extend(draws, gradient, ids=[(chain, draw) for draw in range(300) for chain in range(2)])
    np.testing.assert_array_equal(kept.ids, thinner.kept.ids)
    assert np.bincount(kept.ids[:, 0], minlength=2).min() >= 15


@pytest.fixture
def unfinished(finished, tmp_path):
    """A copy in which chunks of one variable of the second chain are missing, and the missing chunks."""
    copy, late = tmp_path / "copy.zarr", tmp_path / "late"
    shutil.copytree(finished, copy)
    late.mkdir()
    chunks = copy / "posterior" / "share" / "c" / "1"
    for chunk in list(chunks.iterdir()):
        if int(chunk.name) >= 5:
            chunk.rename(late / chunk.name)
    return copy, chunks, late


def test_a_folder_whose_writer_ended_gives_the_draws_that_were_written(unfinished):
    began = time.monotonic()
    thinned = thin(unfinished[0], size=25, timeout=0.5, pause=0.05)
    assert time.monotonic() - began > 0.5
    assert thinned.settings["seen"] == 300 + 5 * 16
    assert thinned.settings["source"]["draws"] == [300, 80]
    assert (thinned.ids[:, 0] == 1).sum() >= 2
    assert np.isfinite(thinned.variables["share"].values).all()


def test_a_folder_whose_writer_pauses_is_thinned_to_the_end(unfinished):
    copy, chunks, late = unfinished
    thinner, found = ss.Thinner(4, size=25), []
    reader = threading.Thread(target=lambda: found.append(thin(copy, thinner=thinner, pause=0.01)))
    reader.start()
    wait_until(lambda: thinner.seen == 2 * 5 * 16)  # the draws that both chains have
    for chunk in sorted(late.iterdir(), key=lambda chunk: int(chunk.name)):
        chunk.rename(chunks / chunk.name)
    reader.join(timeout=600)
    assert found[0].settings["seen"] == 600
    assert found[0].settings["source"]["draws"] == [300, 300]


def test_a_thinner_continues_with_the_same_folder_only(unfinished, finished):
    copy, chunks, late = unfinished
    thinner = ss.Thinner(4, size=25)
    before = thin(copy, thinner=thinner, timeout=0.3, pause=0.05).settings["seen"]
    for chunk in late.iterdir():
        chunk.rename(chunks / chunk.name)
    kept = thin(copy, thinner=thinner, pause=0.01)
    assert before == 380 and kept.settings["seen"] == 600 and kept.settings["source"]["draws"] == [300, 300]
    assert len(np.unique(kept.ids, axis=0)) == 25
    with pytest.raises(InputError, match="thinner has draws from another source"):
        thin(finished, thinner=thinner)


def test_a_chain_that_enters_a_thinner_after_the_other_is_reported(unfinished):
    copy, chunks, late = unfinished
    thinner = ss.Thinner(4, size=25)
    for chunk in list(chunks.iterdir()):
        chunk.rename(late / chunk.name)
    assert thin(copy, thinner=thinner, timeout=0.3, pause=0.05).settings["source"]["draws"] == [300]
    for chunk in list(late.iterdir()):
        chunk.rename(chunks / chunk.name)
    with pytest.warns(UserWarning, match="one after another.*Use a new thinner") as caught:
        assert thin(copy, thinner=thinner).settings["seen"] == 600
    assert [warning.filename for warning in caught] == [__file__]


def test_a_missing_folder_is_an_error_after_the_timeout(tmp_path):
    with pytest.raises(InputError, match="no draws were written"):
        thin(tmp_path / "nothing.zarr", size=5, timeout=0.2)


def test_a_wrong_setting_is_an_error_before_the_first_draw(tmp_path):
    with pytest.raises(InputError, match="Unknown setting 'sise'"):
        thin(tmp_path / "nothing.zarr", sise=5)


def test_a_store_without_gradient_is_thinned_without_scores(tmp_path, caplog):
    sampler = running(tmp_path / "run.zarr", store_gradient=False)
    with caplog.at_level("INFO", "steinstream"):
        kept = thin(sampler, size=20)
    whole = sampler.wait()
    chain, draw = kept.ids.T
    assert kept.scores is None and len(kept) == 20 and kept.settings["seen"] == 600
    np.testing.assert_array_equal(kept.variables["share"].values, whole.posterior["share"].values[chain, draw])
    whole.close()
    lines = [record.getMessage() for record in caplog.records if "have no scores" in record.getMessage()]
    assert len(lines) == 1 and "store_gradient=True" in lines[0]


def test_a_store_without_unconstrained_draws_is_an_error(tmp_path):
    sampler = running(tmp_path / "run.zarr", store_unconstrained=False)
    with pytest.raises(InputError, match=r"unconstrained_draw is not stored.*store_unconstrained=True"):
        thin(sampler, size=5, timeout=600)
    sampler.wait().close()


def test_a_sampler_that_writes_to_memory_is_an_error():
    sampler = nutpie.sample(compiled(), blocking=False, **STORED)
    with pytest.raises(InputError, match=r"memory.*LocalStore"):
        thin(sampler, size=5)
    sampler.wait()


def test_the_documentation_page():
    page = Path(__file__).parents[2] / "docs" / "integrations" / "nutpie.md"
    assert doctest.testfile(str(page), module_relative=False, optionflags=doctest.ELLIPSIS).failed == 0
