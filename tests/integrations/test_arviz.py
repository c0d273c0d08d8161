"""ArviZ and posterior prediction accept the kept draws."""

from __future__ import annotations

import doctest
from pathlib import Path

import numpy as np
import pytest

az = pytest.importorskip("arviz", minversion="1.0", reason="ArviZ 1 is not installed; it needs Python 3.12")
pm = pytest.importorskip("pymc", reason="PyMC is not installed; it needs Python 3.12")
pyplot = pytest.importorskip("matplotlib.pyplot")
pyplot.switch_backend("Agg")

from steinstream.integrations.pymc import Callback  # noqa: E402
from steinstream.io import kept_of_datatree  # noqa: E402
from tests.integrations.constrained import COUNTS, model  # noqa: E402

SILENT = {"progressbar": False, "random_seed": 1}


@pytest.fixture(scope="module")
def thinned():
    thin = Callback(model(), size=60)
    with model():
        pm.sample(callback=thin, draws=400, tune=300, chains=2, cores=1, quiet=True, **SILENT)
    return thin


@pytest.fixture(scope="module")
def tree(thinned):
    return thinned.datatree()


@pytest.fixture(scope="module")
def one_chain(thinned):
    return thinned.datatree(stacked=False)


def test_summary_gives_the_means_of_the_kept_draws(tree, one_chain):
    stacked = az.summary(tree, sample_dims="sample", kind="stats", round_to="none")
    single = az.summary(one_chain, kind="stats", round_to="none")
    mean = float(tree.posterior["mu"].mean())
    assert float(stacked.loc["mu", "mean"]) == float(single.loc["mu", "mean"]) == pytest.approx(mean)
    assert "share[b]" in stacked.index


@pytest.mark.parametrize("suffix", ["nc", "zarr"])
def test_arviz_reads_the_file(suffix, thinned, tree, tmp_path):
    thinned.kept.save(tmp_path / f"kept.{suffix}")
    read = getattr(az, f"from_{'netcdf' if suffix == 'nc' else 'zarr'}")(str(tmp_path / f"kept.{suffix}"))
    summary, same = (az.summary(each, sample_dims="sample", kind="stats", round_to="none") for each in (read, tree))
    assert summary.sort_index().equals(same.sort_index())


def test_rhat_of_a_thinned_set_is_an_error(tree):
    with pytest.raises(ValueError, match="rhat"):
        az.summary(tree, sample_dims="sample")


@pytest.mark.parametrize("plot", ["plot_dist", "plot_forest", "plot_pair", "plot_parallel", "plot_ridge"])
def test_plots_accept_thinned_trees(plot, tree, one_chain):
    for data, dims in ((tree, {"sample_dims": "sample"}), (one_chain, {})):
        drawn = getattr(az, plot)(data, var_names=["mu", "sigma", "share"], backend="matplotlib", **dims)
        assert "mu" in str(drawn.viz)
        pyplot.close("all")


def test_extract_returns_some_of_the_draws(tree):
    assert az.extract(tree, sample_dims="sample", num_samples=10).sizes["sample"] == 10


def test_posterior_prediction_runs_once_for_each_kept_draw(tree):
    with model():
        predicted = pm.sample_posterior_predictive(tree, sample_dims=["sample"], **SILENT).posterior_predictive
    assert predicted.sizes["sample"] == 60
    assert (predicted["count"].sum("count_dim_0") == COUNTS.sum()).all()
    share = predicted["count"].mean("sample").values / COUNTS.sum()
    np.testing.assert_allclose(share, tree.posterior["share"].mean("sample"), atol=0.06)


def test_posterior_prediction_and_its_plot_accept_a_single_chain(one_chain):
    with model():
        both = pm.sample_posterior_predictive(one_chain.copy(), extend_inferencedata=True, **SILENT)
    assert dict(both.posterior_predictive.sizes)["draw"] == 60
    drawn = az.plot_ppc_dist(both, var_names=["height"], num_samples=20, backend="matplotlib")
    assert "height" in str(drawn.viz)


def test_log_likelihood_of_the_kept_draws(tree):
    with model():
        found = pm.compute_log_likelihood(
            tree.copy(), sample_dims=["sample"], extend_inferencedata=False, progressbar=False
        )
    residual = (tree.observed_data["height"] - tree.posterior["mu"] - 0.5) / tree.posterior["sigma"]
    by_hand = -(residual**2) / 2 - np.log(tree.posterior["sigma"] * np.sqrt(2 * np.pi))
    np.testing.assert_allclose(found["height"], by_hand.transpose("sample", ...), rtol=1e-10)


def test_a_tree_can_be_converted_back_to_the_kept_set(thinned, tree):
    kept, back = thinned.kept, kept_of_datatree(tree)
    np.testing.assert_array_equal(back.ids, kept.ids)
    np.testing.assert_array_equal(back.variables["share"].values, kept.variables["share"].values)
    assert back.settings["source"] == kept.settings["source"]


def test_the_data_of_the_model_are_in_the_tree(tree):
    assert tree.observed_data["count"].values.tolist() == COUNTS.tolist()
    assert float(tree.constant_data["offset"]) == 0.5


def test_the_documentation_page():
    page = Path(__file__).parents[2] / "docs" / "integrations" / "arviz.md"
    assert doctest.testfile(str(page), module_relative=False, optionflags=doctest.ELLIPSIS).failed == 0
