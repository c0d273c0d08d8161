"""The accessor tree.stein, for trees from any program."""

from __future__ import annotations

import numpy as np
import pytest

import steinstream as ss

xr = pytest.importorskip("xarray", reason="xarray is not installed")

from steinstream.errors import InputError, NegatedScoresError  # noqa: E402
from steinstream.integrations.xarray import thin  # noqa: E402

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


def predicted():
    """A tree with the log likelihood of each draw, predictions, and chains that are counted from 1."""
    rng, coords = np.random.default_rng(1), {"chain": [1, 2], "draw": np.arange(500)}
    likelihood = xr.Dataset({"y": (("chain", "draw", "time"), rng.normal(size=(2, 500, 2)))}, coords)
    predictive = xr.Dataset({"y": (("time", "draw", "chain"), rng.normal(size=(2, 500, 2)))}, coords)
    tree = tree_of(log_likelihood=likelihood, posterior_predictive=predictive)
    for group in ("posterior", "sample_stats", "prior"):
        tree[group] = xr.DataTree(tree[group].to_dataset().assign_coords(chain=[1, 2]))
    return tree


@pytest.mark.parametrize("stacked", [True, False])
def test_groups_with_one_entry_per_draw_are_those_of_the_kept_draws(stacked):
    tree = predicted()
    small = tree.stein.thin(size=30, stacked=stacked)
    names = ("chain", "draw") if stacked else ("source_chain", "source_draw")
    chain, draw = (np.ravel(small.posterior[name]) for name in names)
    assert set(chain) == {1, 2}
    for group, name in (("log_likelihood", "y"), ("posterior_predictive", "y"), ("sample_stats", "diverging")):
        whole = tree[group][name].transpose("chain", "draw", ...).values[chain - 1, draw]
        array = small[group][name]
        np.testing.assert_array_equal(array.values if stacked else array.values[0], whole)
        assert array.dims[:1] == ("sample",) if stacked else array.dims[:2] == ("chain", "draw")
        np.testing.assert_array_equal(np.ravel(array[names[1]]), draw)
    assert "prior" not in small.children


def test_a_thinned_tree_can_be_thinned_again_with_its_groups():
    once = predicted().stein.thin(size=60)
    twice = once.stein.thin(size=20)
    ids = list(zip(once.posterior["chain"].values, once.posterior["draw"].values, strict=True))
    rows = [ids.index(id) for id in zip(twice.posterior["chain"].values, twice.posterior["draw"].values, strict=True)]
    np.testing.assert_array_equal(twice.log_likelihood["y"].values, once.log_likelihood["y"].values[rows])


def test_messages_of_divergences_are_text_and_other_objects_are_left_out(tmp_path):
    tree = predicted()
    messages = np.full((2, 500), None, dtype=object)  # as nutpie stores them
    messages[0, :250] = "too large"
    stats = tree["sample_stats"].to_dataset()
    extra = {"divergence_message": (("chain", "draw"), messages), "mass": (("chain", "draw"), messages == "x")}
    extra["thing"] = (("chain", "draw"), np.full((2, 500), 1j, dtype=object))
    tree["sample_stats"] = xr.DataTree(stats.assign(extra))
    kept = tree.stein.kept(size=30)
    late = kept.groups["sample_stats"]["divergence_message"].values == ""
    np.testing.assert_array_equal(late, ~((kept.ids[:, 0] == 1) & (kept.ids[:, 1] < 250)))
    assert "thing" not in kept.groups["sample_stats"] and "mass" in kept.groups["sample_stats"]
    pytest.importorskip("h5netcdf")
    kept.save(tmp_path / "kept.nc")
    again = ss.Kept.load(tmp_path / "kept.nc").groups["sample_stats"]["divergence_message"]
    np.testing.assert_array_equal(again.values, kept.groups["sample_stats"]["divergence_message"].values)


def test_any_kept_draws_select_the_groups():
    tree = predicted()
    kept = tree.stein.kept(size=30).ordered()
    small = tree.stein.select(kept)
    chain, draw = kept.ids.T
    np.testing.assert_array_equal(small.log_likelihood["y"], tree.log_likelihood["y"].values[chain - 1, draw])


def test_other_objects_are_errors():
    with pytest.raises(InputError, match=r"Expected an xarray.DataTree or an arviz.InferenceData, got dict"):
        thin({})


@pytest.mark.parametrize("workers", [[], ["--workers", "0"]])
def test_the_command_line_records_the_convergence_of_a_netcdf_file(workers, tmp_path, steinstream):
    pytest.importorskip("h5netcdf", reason="h5netcdf is not installed")
    tree = tree_of()
    expected = thin(tree, size=30).settings["source"]
    assert expected["divergences"] == (DRAWS[..., 0] > 3).sum() > 0
    tree.to_netcdf(tmp_path / "fit.nc", engine="h5netcdf")
    assert steinstream("thin", "fit.nc", "-o", "kept.nc", "--size", 30, *workers).returncode == 0
    source = ss.Kept.load(tmp_path / "kept.nc").settings["source"]
    assert source == {**expected, "tool": "parallel" if workers else "file"}
    assert steinstream("thin", "fit.nc", "-o", "late.nc", "--size", 30, "--burn-in", 250).returncode == 0
    source = ss.Kept.load(tmp_path / "late.nc").settings["source"]
    assert source["draws"] == [250, 250] and source["divergences"] == (DRAWS[:, 250:, 0] > 3).sum()


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


@pytest.mark.parametrize("gradient", ["missing", "nan"])
def test_a_tree_without_gradient_is_thinned_without_scores(gradient, caplog):
    tree = tree_of(scores=np.full_like(SCORES, np.nan)) if gradient == "nan" else tree_of()
    if gradient == "missing":
        del tree["sample_stats"]
    with caplog.at_level("INFO", "steinstream"):
        small = tree.stein.thin(size=30)
    draws = DRAWS if gradient == "nan" else np.stack([DRAWS[..., 0], np.exp(DRAWS[..., 1])], axis=-1)
    ids = ss.thin(draws, size=30).ids
    np.testing.assert_array_equal(np.stack([small.posterior["chain"], small.posterior["draw"]], axis=1), ids)
    assert "gradient" not in small.sample_stats and "observed_data" in small.children
    lines = [record.getMessage() for record in caplog.records if "have no scores" in record.getMessage()]
    assert len(lines) == 1 and "store_gradient=True" in lines[0] and "with_scores" in lines[0]
    for without in (tree, small):
        with pytest.raises(InputError, match=r"no scores, and KSD needs them.*store_gradient=True"):
            without.stein.ksd()


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
    assert source["draws"] == [500, 500] and source["divergences"] == int((DRAWS[..., 0] > 3).sum())


@pytest.mark.parametrize("settings", [{}, {"passes": 3}, {"preconditioner": ss.Preconditioner.identity()}])
def test_rhat_and_ess_of_the_chains_are_recorded(settings):
    tree = tree_of(DRAWS + np.array([[[0.0]], [[0.5]]]))
    source = tree.stein.kept(size=30, **settings).settings["source"]
    assert source["draws"] == [500, 500]  # each draw is counted once, however often the chains are read
    halves = (DRAWS[..., 1] + np.array([[0.0], [0.5]]))[:, :480].reshape(4, 240)  # complete batches
    between, within = halves.mean(axis=1).var(ddof=1), halves.var(axis=1, ddof=1).mean()
    assert source["rhat"] == pytest.approx(np.sqrt(239 / 240 + between / within), rel=1e-6)
    assert source["rhat_of"] == "scale_log__"
    assert 0 < source["ess"] < 100
