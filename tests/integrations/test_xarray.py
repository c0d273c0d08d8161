"""The accessor tree.stein, for trees from any program."""

from __future__ import annotations

import numpy as np
import pytest

import steinstream as ss

xr = pytest.importorskip("xarray", reason="xarray is not installed")

import steinstream.integrations.xarray  # noqa: E402
from steinstream.errors import InputError, NegatedScoresError  # noqa: E402

DRAWS = np.random.default_rng(0).normal(size=(2, 500, 3)) * [1.0, 0.1, 10.0]
SCORES = -DRAWS / [1.0, 0.01, 100.0]
NAMES = ["level", "scale_log__", "slope"]


def tree_of(draws=DRAWS, scores=SCORES, **groups):
    dims = ("chain", "draw", "unconstrained_parameter")
    coords = {"chain": np.arange(len(draws)), "draw": np.arange(draws.shape[1])}
    posterior = {"level": (dims[:2], draws[..., 0]), "scale": (dims[:2], np.exp(draws[..., 1]))}
    stats = {
        "gradient": (dims, scores),
        "unconstrained_draw": (dims, draws),
        "diverging": (dims[:2], draws[..., 0] > 3),
    }
    return xr.DataTree.from_dict(
        {
            "posterior": xr.Dataset(posterior, coords),
            "sample_stats": xr.Dataset(stats, {**coords, "unconstrained_parameter": NAMES}),
            "observed_data": xr.Dataset({"y": ("time", [1.0, 2.0])}),
            "prior": xr.Dataset(posterior, coords),
            **groups,
        }
    )


def test_the_result_is_that_of_thinning_the_arrays():
    small, arrays = tree_of().stein.thin(size=30), ss.thin(DRAWS, SCORES, size=30)
    assert small.posterior.sizes == {"sample": 30}
    np.testing.assert_array_equal(np.stack([small.posterior["chain"], small.posterior["draw"]], axis=1), arrays.ids)
    assert small.attrs["ksd"] == arrays.ksd


def test_ids_lead_back_to_the_constrained_draws():
    small = tree_of().stein.thin(size=30)
    chain, draw = small.posterior["chain"].values, small.posterior["draw"].values
    np.testing.assert_array_equal(small.posterior["scale"], np.exp(DRAWS[chain, draw, 1]))
    np.testing.assert_array_equal(small.sample_stats["gradient"], SCORES[chain, draw])
    assert small.sample_stats["unconstrained_parameter"].values.tolist() == NAMES


def test_data_of_the_model_are_copied_and_other_draws_are_not():
    small = tree_of().stein.thin(size=30)
    assert small.observed_data["y"].values.tolist() == [1.0, 2.0]
    assert "prior" not in small.children


def test_settings_of_thin_are_accepted():
    small = tree_of().stein.thin(size=30, passes=3, kernel=ss.RBF(h=1.0))
    arrays = ss.thin(DRAWS, SCORES, size=30, passes=3, kernel=ss.RBF(h=1.0))
    assert small.attrs["ksd"] == arrays.ksd
    assert len(tree_of().stein.kept()) == len(ss.thin(DRAWS, SCORES))
    config = ss.ThinConfig(size=30, passes=3, kernel=ss.RBF(h=1.0))
    assert ss.integrations.xarray.thin(tree_of(), config=config).ksd == arrays.ksd


def test_the_result_can_be_one_chain():
    small = tree_of().stein.thin(size=30, stacked=False)
    assert dict(small.posterior.sizes) == {"chain": 1, "draw": 30}
    np.testing.assert_array_equal(
        small.posterior["source_draw"].values[0], tree_of().stein.thin(size=30).posterior["draw"].values
    )


def test_ksd_of_a_tree_is_that_of_its_draws():
    x, s = DRAWS.reshape(-1, 3), SCORES.reshape(-1, 3)
    estimated = ss.Preconditioner.estimate("auto", x)
    assert tree_of().stein.ksd() == pytest.approx(ss.ksd(x, s, preconditioner=estimated), rel=1e-12)
    plain = ss.Preconditioner.identity()
    assert tree_of().stein.ksd(preconditioner=plain) == pytest.approx(ss.ksd(x, s), rel=1e-12)


@pytest.mark.parametrize("stacked", [True, False])
def test_ksd_of_a_thinned_tree_is_its_ksd_attribute(stacked):
    small = tree_of().stein.thin(size=30, kernel=ss.IMQ(c=2.0), stacked=stacked)
    assert small.stein.ksd() == pytest.approx(small.attrs["ksd"], rel=1e-12)
    weighted = tree_of().stein.kept(size=30).weighted()
    assert weighted.to_datatree(stacked=stacked).stein.ksd() == pytest.approx(weighted.ksd, rel=1e-9)


def test_draws_and_scores_can_have_any_name():
    tree = tree_of()
    dims = ("chain", "draw", "parameter")
    tree["mine"] = xr.DataTree(xr.Dataset({"position": (dims, DRAWS), "minus_score": (dims, -SCORES)}))
    del tree["sample_stats"]
    named = {"draws": "mine/position", "scores": "mine/minus_score", "negate_scores": True}
    small = tree.stein.thin(size=30, **named)
    assert small.attrs["ksd"] == ss.thin(DRAWS, SCORES, size=30).ksd
    assert tree.stein.ksd(**named) == pytest.approx(tree_of().stein.ksd(), rel=1e-12)


def test_a_negated_gradient_is_an_error_with_the_remedy():
    with pytest.raises(NegatedScoresError, match=r"look negated.*-scores"):
        tree_of(scores=-SCORES).stein.thin(size=30)


def test_a_gradient_that_is_all_nan_is_an_error_with_the_remedy():
    for use in ("thin", "ksd"):
        with pytest.raises(InputError, match=r"is NaN throughout.*store_gradient=True"):
            getattr(tree_of(scores=np.full_like(SCORES, np.nan)).stein, use)()


def test_a_tree_without_scores_is_an_error_with_the_remedy():
    tree = tree_of()
    del tree["sample_stats"]
    with pytest.raises(InputError, match=r"no scores.*store_gradient=True"):
        tree.stein.thin(size=30)


def test_an_invalid_draw_is_an_error_or_skipped():
    scores = SCORES.copy()
    scores[1, 7, 2] = np.nan
    with pytest.raises(InputError, match="chain 1, draw 7 is nan"):
        tree_of(scores=scores).stein.thin(size=30)
    assert tree_of(scores=scores).stein.kept(size=30, on_bad="skip").settings["skipped"] == 1


def test_a_tree_opened_from_a_file_gives_the_same_result(tmp_path):
    pytest.importorskip("h5netcdf", reason="h5netcdf is not installed")
    tree_of().to_netcdf(tmp_path / "fit.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "fit.nc", engine="h5netcdf") as opened:
        xr.testing.assert_equal(opened.stein.thin(size=30).posterior, tree_of().stein.thin(size=30).posterior)


def test_length_and_divergences_of_the_chains_are_recorded():
    source = tree_of().stein.kept(size=30).settings["source"]
    assert source == {"draws": [500, 500], "divergences": int((DRAWS[..., 0] > 3).sum())}


def test_rhat_and_ess_of_the_chains_can_be_recorded():
    arviz = pytest.importorskip("arviz_stats", reason="ArviZ 1 is not installed; it needs Python 3.12")
    tree = tree_of(DRAWS + np.array([[[0.0]], [[0.5]]]))
    source = tree.stein.kept(size=30, convergence=True).settings["source"]
    assert source["rhat"] == pytest.approx(float(arviz.rhat(tree.posterior.dataset)["scale"]))
    assert source["rhat_of"] == "scale"
    assert 0 < source["ess"] < 100
