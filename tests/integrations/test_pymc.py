"""PyMC: the callback and the trace."""

from __future__ import annotations

import doctest
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import steinstream as ss

pm = pytest.importorskip("pymc", reason="PyMC is not installed; it needs Python 3.12")

from steinstream.errors import InputError  # noqa: E402
from steinstream.integrations.pymc import Callback, Trace, with_scores  # noqa: E402
from steinstream.integrations.pymc import scores as pymc_scores  # noqa: E402
from tests.integrations.constrained import constrained, model, scores  # noqa: E402

SAMPLE = {"draws": 300, "tune": 200, "chains": 2, "cores": 1, "random_seed": 3, "progressbar": False, "quiet": True}
STORED = {**SAMPLE, "idata_kwargs": {"include_transformed": True}, "compute_convergence_checks": False}


class Draw(NamedTuple):
    """A draw as PyMC passes it to a callback."""

    chain: int
    draw_idx: int
    point: dict[str, Any]
    tuning: bool = False
    stats: tuple[Any, ...] = ()


@pytest.fixture(scope="module")
def run():
    """One run with both kinds of callbacks, and all of its draws."""
    common, each = Callback(model(), size=40), Callback(model(), per_chain=True, size=25)

    def both(trace, draw):
        common(trace, draw)
        each(trace, draw)

    with model():
        tree = pm.sample(callback=both, **STORED)
    return tree, common, each


def unconstrained(tree):
    """Return all draws (chains, n, 4) that PyMC stored."""
    posterior = tree.posterior if "sigma_log__" in tree.posterior else tree.unconstrained_posterior
    plain = tree.posterior["mu"].values[..., None]
    return np.concatenate([plain, posterior["sigma_log__"].values[..., None], posterior["share_simplex__"].values], -1)


def test_scores_are_the_gradient_of_the_log_density(run):
    _, common, _ = run
    assert common.kept.draws.shape == (40, 4)
    np.testing.assert_allclose(common.kept.scores, scores(common.kept.draws), rtol=1e-8, atol=1e-8)


def test_ids_lead_to_the_constrained_draws_that_pymc_stored(run):
    tree, common, each = run
    for kept in (common.kept, each.kept):
        chain, draw = kept.ids.T
        assert set(chain) == {0, 1}
        for name in ("mu", "sigma", "share", "odds", "both"):
            there = tree.posterior[name].values[chain, draw]
            np.testing.assert_allclose(kept.variables[name].values, there, rtol=1e-12)
        np.testing.assert_array_equal(kept.draws, unconstrained(tree)[chain, draw])
        np.testing.assert_allclose(kept.variables["share"].values, [constrained(x)[2] for x in kept.draws])


def test_variables_have_the_dimensions_and_coordinates_of_the_model(run):
    variables = run[1].kept.variables
    assert set(variables) == {"mu", "sigma", "share", "odds", "both"}
    assert variables["share"].dims == ("kind",)
    assert list(variables["share"].coords["kind"]) == ["a", "b", "c"]
    assert variables["both"].dims == ("both_dim_0",)


def test_the_chains_are_merged_to_the_size_from_a_thinner_each(run):
    tree, common, _ = run
    draws, parts = unconstrained(tree), []
    for chain, (x, s) in enumerate(zip(draws, scores(draws), strict=True)):
        part = ss.Thinner(draws.shape[2], size=80, preconditioner="streaming")
        part.extend(x, s, chain=chain)
        parts.append(part)
    kept, merged = common.kept, ss.merge(parts, size=40)
    np.testing.assert_array_equal(kept.ids, merged.ids)
    assert kept.ksd == pytest.approx(merged.ksd, rel=1e-8)
    assert kept.settings["seen"] == 600 and kept.settings["config"]["size"] == 40
    assert common.kept.ids is kept.ids  # computed once


@pytest.mark.parametrize("settings", [{"size": 200}, {}], ids=["size", "growth"])
def test_chains_that_run_one_after_another_contribute_alike(settings):
    thin = Callback(model(), **settings)
    with model():
        tree = pm.sample(callback=thin, **{**STORED, "chains": 4, "draws": 1000, "tune": 500, "random_seed": 1})
    draws = unconstrained(tree)
    kept, stored = thin.kept, ss.thin(draws, scores(draws), **settings)
    counts = np.bincount(kept.ids[:, 0], minlength=4)
    assert counts.min() >= 20 and counts.max() <= 100 and kept.weights is None  # each is 50 on average
    assert len(kept) == pytest.approx(len(stored), rel=0.1) and len(kept) == settings.get("size", len(kept))
    whole = draws.reshape(-1, 4)
    for one in (kept, stored):
        np.testing.assert_array_less(np.abs(one.draws.mean(axis=0) - whole.mean(axis=0)) / whole.std(axis=0), 0.05)
        np.testing.assert_allclose(one.draws.std(axis=0) / whole.std(axis=0), 1.0, atol=0.06)
    assert kept.ksd < 1.1 * stored.ksd


def test_chains_of_different_lengths_are_merged_with_equal_weights(run):
    thin = Callback(model(), size=60)
    for chain, length in ((0, 300), (1, 100)):
        for index, x in enumerate(unconstrained(run[0])[chain][:length]):
            thin(None, Draw(chain, index, {"mu": x[0], "sigma_log__": x[1], "share_simplex__": x[2:]}))
    first, second = np.bincount(thin.kept.ids[:, 0])
    assert first + second == 60 and thin.kept.weights is None
    assert first > 1.5 * second


def test_a_given_thinner_warns_once_of_chains_that_run_one_after_another():
    thin = Callback(model(), ss.Thinner(4, size=12))
    with pytest.warns(UserWarning, match="one after another.*Pass the settings instead") as caught, model():
        pm.sample(callback=thin, **{**STORED, "draws": 100, "chains": 3})
    assert len(caught) == 1


def test_a_thinner_per_chain_gives_the_result_of_each_stored_chain(run):
    tree, _, each = run
    assert sorted(each.thinners) == [0, 1]
    assert len(each.kept) == 50
    for chain, draws in enumerate(unconstrained(tree)):
        stored = ss.thin(draws, scores(draws), size=25, preconditioner="streaming")
        own = each.kept.ids[each.kept.ids[:, 0] == chain]
        np.testing.assert_array_equal(own[:, 1], stored.ids[:, 1])
    kept, union = each.kept, ss.merge(each.thinners.values())
    assert np.array_equal(kept.draws, union.draws) and kept.weights is None
    assert kept.ksd == pytest.approx(union.ksd, rel=1e-12)  # their masses differ by a factor
    assert np.array_equal(kept.preconditioner.factor, union.preconditioner.factor)
    assert kept.ksd == pytest.approx(ss.ksd(kept.draws, kept.scores, preconditioner=kept.preconditioner))
    assert kept.settings["seen"] == 600 and kept.settings["config"]["size"] == 25
    assert [settings["seen"] for settings in kept.settings["thinners"]] == [300, 300]


def test_draws_of_chains_with_different_lengths_have_equal_weights(run):
    thin = Callback(model(), per_chain=True)
    for chain, length in ((0, 200), (1, 60)):
        for index, x in enumerate(unconstrained(run[0])[chain][:length]):
            thin(None, Draw(chain, index, {"mu": x[0], "sigma_log__": x[1], "share_simplex__": x[2:]}))
    first, second = np.bincount(thin.kept.ids[:, 0])
    assert first > second and thin.kept.weights is None


def test_convergence_of_the_chains_is_recorded(run):
    import arviz as az

    tree, common, each = run
    assert len(common.kept.stream.draws) == len(each.kept.stream.draws) == 600
    source = common.kept.settings["source"]
    assert source["draws"] == [300, 300]
    assert source["divergences"] == int(tree.sample_stats["diverging"].sum())
    draws = az.from_dict({"posterior": {"x": unconstrained(tree)}})
    assert source["rhat"] == pytest.approx(float(az.rhat(draws, method="split")["x"].max()), abs=0.01)


def test_tuning_draws_are_not_used(run):
    assert run[1].kept.settings["seen"] == 600
    assert run[1].kept.ids[:, 1].max() < 300


def test_ids_of_chains_that_run_in_parallel_lead_to_their_draws():
    thin = Callback(model(), per_chain=True, size=20)
    with model():
        tree = pm.sample(callback=thin, **{**STORED, "cores": 2, "tune": 100, "draws": 100})
    chain, draw = thin.kept.ids.T
    assert len(thin.kept) == 40
    np.testing.assert_allclose(thin.kept.variables["share"].values, tree.posterior["share"].values[chain, draw])


def test_the_trace_returns_the_kept_draws_of_the_callback(run):
    _, common, _ = run
    trace = Trace(model(), size=40)
    with model():
        tree = pm.sample(trace=trace, compute_convergence_checks=False, **SAMPLE)
    kept = trace.kept
    np.testing.assert_array_equal(kept.ids, common.kept.ids)
    assert dict(tree.posterior.sizes) == {"chain": 1, "draw": 40, "kind": 3, "both_dim_0": 2}
    np.testing.assert_array_equal(tree.posterior["share"].values[0], common.kept.variables["share"].values)
    np.testing.assert_array_equal(tree.sample_stats["source_chain"].values[0], kept.ids[:, 0])
    np.testing.assert_array_equal(tree.sample_stats["source_draw"].values[0], kept.ids[:, 1])


def test_the_trace_keeps_the_statistics_of_the_kept_draws_only(run):
    tree, common, _ = run
    trace, most = Trace(model(), size=40), []

    def note(**_):
        most.append(trace.stored_stats)

    with model():
        thinned = pm.sample(
            trace=trace,
            callback=note,
            compute_convergence_checks=False,
            **SAMPLE,
        )
    chain, draw = common.kept.ids.T
    np.testing.assert_array_equal(thinned.sample_stats["lp"].values[0], tree.sample_stats["lp"].values[chain, draw])
    assert max(most) == 160 == trace.stored_stats  # the thinner of each chain keeps 80


def test_the_trace_works_with_parallel_chains_and_any_step_method():
    trace = Trace(model(), per_chain=True, size=15, preconditioner=ss.Warmup(draws=30))
    with model():
        tree = pm.sample(
            trace=trace, step=pm.Metropolis(), compute_convergence_checks=False, **{**SAMPLE, "cores": 2, "draws": 60}
        )
    assert dict(tree.posterior.sizes)["draw"] == 30
    np.testing.assert_allclose(trace.kept.scores, scores(trace.kept.draws), rtol=1e-8, atol=1e-8)


@pytest.mark.filterwarnings("ignore:.return_inferencedata=False. is deprecated:FutureWarning")
def test_the_trace_can_return_a_multitrace():
    trace = Trace(model(), size=10, candidates=3)
    with model():
        result = pm.sample(
            trace=trace, return_inferencedata=False, compute_convergence_checks=False, **{**SAMPLE, "draws": 40}
        )
    assert trace.stored_stats <= 2 * 22  # of kept draws, and of draws that wait for more candidates
    assert (result.nchains, len(result)) == (1, 10)
    np.testing.assert_array_equal(result["share"], trace.kept.variables["share"].values)
    assert set(result.point(3)) == set(result.varnames)


def test_tuning_draws_cannot_be_requested_from_the_trace():
    with pytest.raises(InputError, match="discard_tuned_samples"), model():
        pm.sample(trace=Trace(model(), size=10), discard_tuned_samples=False, **{**SAMPLE, "draws": 20})


def test_an_interrupted_run_returns_the_draws_kept_so_far():
    trace = Trace(model(), size=10)

    def stop(trace, draw):
        if draw.draw_idx == 120:
            raise KeyboardInterrupt

    with model():
        tree = pm.sample(
            trace=trace, callback=stop, compute_convergence_checks=False, **{**SAMPLE, "chains": 1, "tune": 100}
        )
    assert trace.kept.settings["seen"] == 21
    assert dict(tree.posterior.sizes)["draw"] == 10


@pytest.mark.parametrize("how", ["callback", "trace"])
def test_a_second_run_with_the_same_object_is_an_error(how):
    short = {**SAMPLE, "tune": 5, "draws": 10, "chains": 1, "compute_convergence_checks": False}
    thin = (Callback if how == "callback" else Trace)(model(), size=5)
    with model():
        pm.sample(**{how: thin}, **short)
        with pytest.raises(InputError, match="another run"):
            pm.sample(**{how: thin}, **short)


def test_no_draws_yet_is_an_error():
    with pytest.raises(InputError, match="No draws after tuning were received yet"):
        _ = Callback(model(), size=5).kept


def test_a_given_thinner_is_used():
    thinner = ss.Thinner(4, size=12, kernel=ss.IMQ(c=2.0))
    thin = Callback(model(), thinner)
    with model():
        pm.sample(callback=thin, **{**STORED, "draws": 50})
    assert len(thin.kept) == 12
    assert thin.thinners == {0: thinner}
    with pytest.raises(InputError, match="3 dimensions, the model has 4: mu, sigma_log__, share_simplex__"):
        Callback(model(), ss.Thinner(3))
    with pytest.raises(InputError, match="Both a thinner and settings"):
        Callback(model(), thinner, size=3)
    with pytest.raises(InputError, match="per_chain=True"):
        Callback(model(), thinner, per_chain=True)


def test_a_second_run_continues_the_indices_of_the_thinner():
    thinner = ss.Thinner(4, size=40)
    few = {**STORED, "draws": 150, "tune": 50}
    for seed in (1, 2):
        thin = Callback(model(), thinner)
        with model(), pytest.warns(UserWarning, match="one after another"):
            tree = pm.sample(callback=thin, **{**few, "random_seed": seed})
        kept = thin.kept
    assert (thinner.next_index(0), thinner.next_index(1)) == (300, 300) and len(np.unique(kept.ids, axis=0)) == 40
    late = kept.ids[:, 1] >= 150
    chain, draw = kept.ids[late].T
    assert late.any() and np.array_equal(kept.draws[late], unconstrained(tree)[chain, draw - 150])
    with pytest.raises(InputError, match="already has draws"):
        Trace(model(), thinner)


def test_discrete_parameters_are_thinned_without_scores(caplog):
    with pm.Model() as discrete, caplog.at_level("INFO", "steinstream"):
        visits = pm.Poisson("visits", 3.0, shape=2)
        pm.Normal("x", visits.sum(), 1.0)
        common, trace = Callback(size=20), Trace(size=15)
        tree = pm.sample(callback=common, **{**STORED, "draws": 100})
        pm.sample(trace=trace, compute_convergence_checks=False, **{**SAMPLE, "draws": 100})
    kept = common.kept
    chain, draw = kept.ids.T
    assert kept.scores is None and kept.names == ("visits[0]", "visits[1]", "x")
    np.testing.assert_array_equal(kept.variables["visits"].values, tree.posterior["visits"].values[chain, draw])
    assert kept.variables["visits"].values.dtype.kind == "i"
    assert len(trace.kept) == 15 and trace.kept.scores is None
    lines = [record.getMessage() for record in caplog.records if "have no scores" in record.getMessage()]
    assert len(lines) == 2 and "visits" in lines[0] and "marginalize" in lines[0]
    with pytest.raises(InputError, match=r"no scores. The discrete parameters visits"):
        pymc_scores(discrete, tree)


def test_scores_can_be_left_out(run):
    thin = Callback(model(), size=20, scores=False)
    for index, x in enumerate(unconstrained(run[0])[0]):
        thin(None, Draw(0, index, {"mu": x[0], "sigma_log__": x[1], "share_simplex__": x[2:]}))
    assert thin.kept.scores is None and len(thin.kept) == 20


@pytest.mark.filterwarnings("ignore:Numba will use object mode:UserWarning")
def test_a_model_without_a_gradient_is_thinned_without_scores():
    import pytensor.tensor as pt
    from pytensor.graph import Apply, Op

    class BlackBox(Op):
        def make_node(self, x):
            return Apply(self, [pt.as_tensor(x)], [pt.dscalar()])

        def perform(self, node, inputs, outputs):
            outputs[0][0] = np.asarray(-0.5 * float(inputs[0]) ** 2)

    with pm.Model():
        x = pm.Flat("x")
        pm.Potential("target", BlackBox()(x))
        thin = Callback(size=20)
        pm.sample(callback=thin, step=pm.Metropolis(), **{**SAMPLE, "draws": 100})
    assert thin.kept.scores is None and len(thin.kept) == 20


def test_the_model_is_that_of_the_context():
    with model():
        assert Callback(size=5)._run.space.model is model()
        assert Trace(size=5)._run.space.model is model()
    with pytest.raises(InputError, match=r"No model is given.*with model:"):
        Callback(size=5)
    with pytest.raises(InputError, match=r"Expected a pymc.Model, got int"):
        Callback(200)


@pytest.fixture(scope="module")
def fitted():
    """A finished fit with the log likelihood, without the transformed variables."""
    with model():
        tree = pm.sample(nuts_sampler="pymc", compute_convergence_checks=False, **SAMPLE)
        return pm.compute_log_likelihood(tree, progressbar=False)


def test_scores_of_a_finished_fit_are_those_of_the_sampler(run, fitted):
    for tree in (run[0], fitted):
        scored = pymc_scores(model(), tree)
        np.testing.assert_allclose(scored.draws, unconstrained(run[0]), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(scored.scores, scores(scored.draws), rtol=1e-7, atol=1e-7)
    assert scored.names == run[1].kept.names
    kept = scored.thin(size=40)
    chain, draw = kept.ids.T
    np.testing.assert_array_equal(kept.variables["share"].values, fitted.posterior["share"].values[chain, draw])
    assert kept.variables["share"].coords["kind"].tolist() == ["a", "b", "c"]


def test_bounds_that_depend_on_parameters_are_mapped_back():
    with pm.Model() as bounded:
        low = pm.Normal("low")
        pm.Uniform("x", low, low + 2.0)
        pm.Normal("ordered", [0.0, 1.0], transform=pm.distributions.transforms.ordered, initval=[0.0, 1.0])
        tree = pm.sample(**{**STORED, "draws": 50})
    scored = pymc_scores(bounded, tree)
    stored = tree.posterior if "x_interval__" in tree.posterior else tree.unconstrained_posterior
    plain = tree.copy()
    if "unconstrained_posterior" in plain.children:
        del plain["unconstrained_posterior"]
    else:
        names = [name for name in plain.posterior.data_vars if name.endswith("__")]
        plain["posterior"] = plain.posterior.to_dataset().drop_vars(names)
    again = pymc_scores(bounded, plain)
    np.testing.assert_allclose(scored.draws[..., 1], stored["x_interval__"].values)
    np.testing.assert_allclose(again.draws, scored.draws, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(again.scores, scored.scores, rtol=1e-6, atol=1e-6)


def test_a_fit_with_scores_is_thinned_with_all_of_its_groups(fitted):
    import arviz as az

    shares = []
    tree = with_scores(model(), fitted, progress=shares.append)
    assert shares[-1] == 1.0 and "gradient" not in fitted.sample_stats
    small = tree.stein.thin(size=60, stacked=False)
    chain, draw = (small.posterior[name].values[0] for name in ("source_chain", "source_draw"))
    for group, name in (("log_likelihood", "height"), ("sample_stats", "energy")):
        np.testing.assert_array_equal(small[group][name].values[0], fitted[group][name].values[chain, draw])
    np.testing.assert_allclose(
        small.sample_stats["gradient"].values[0], scores(small.sample_stats["unconstrained_draw"].values[0])
    )
    assert "observed_data" in small.children and "constant_data" in small.children
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the Pareto tail of few draws
        loo = [az.loo(each, var_name="height", reff=1.0) for each in (small, fitted)]
    assert loo[0].elpd == pytest.approx(loo[1].elpd, abs=0.5)


def test_a_fit_of_another_model_is_an_error(fitted):
    with pm.Model() as other:
        pm.Normal("theta")
    with pytest.raises(InputError, match="no theta, which are parameters of the model"):
        pymc_scores(other, fitted)


def test_a_nan_score_is_an_error_that_names_the_draw():
    with pm.Model() as broken:
        pm.Potential("wall", pm.math.sqrt(pm.Normal("x")))
    thin = Callback(broken, size=5)

    with pytest.raises(InputError, match=r"score of chain 0, draw 0 is nan"):
        thin(None, Draw(0, 0, {"x": np.array(-1.0)}))


def test_the_documentation_page():
    page = Path(__file__).parents[2] / "docs" / "integrations" / "pymc.md"
    assert doctest.testfile(str(page), module_relative=False, optionflags=doctest.ELLIPSIS).failed == 0
