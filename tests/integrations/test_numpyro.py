"""NumPyro: the draws are those of its own MCMC, thinned without being stored."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

import steinstream as ss
from steinstream.errors import InputError, NegatedScoresError
from tests.integrations.posterior import DIM, Y, assert_same, log_density, run_page, score

jax = pytest.importorskip("jax")
numpyro = pytest.importorskip("numpyro")
dist = pytest.importorskip("numpyro.distributions")
infer = pytest.importorskip("numpyro.infer")

SIZE = 30
SHAPES = {"mu": (), "shift": (2,), "sigma": (), "w": (2,)}  # unconstrained, in the order of a tree


@pytest.fixture(autouse=True, scope="module")
def double_precision():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def model(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    sigma = numpyro.sample("sigma", dist.LogNormal(0.0, 1.0))
    w = numpyro.sample("w", dist.Dirichlet(np.array([2.0, 3.0, 4.0])))
    numpyro.deterministic("centre", mu + w[0] - w[2])
    with numpyro.plate("group", 2):
        shift = numpyro.sample("shift", dist.Normal(0.0, 1.0))
        numpyro.deterministic("level", mu + shift)
    numpyro.sample("y", dist.Normal(mu + w[0] - w[2], sigma), obs=y)


def nuts(samples=400):
    return infer.MCMC(infer.NUTS(model), num_warmup=100, num_samples=samples, progress_bar=False)


def potential(z):
    return -log_density(z, jax.numpy)


def hmc(**options):
    kernel = infer.HMC(
        potential_fn=potential,
        num_steps=2,
        trajectory_length=None,
        step_size=0.2,
        adapt_step_size=False,
        adapt_mass_matrix=False,
    )
    return infer.MCMC(kernel, num_warmup=20, num_samples=200, num_chains=2, progress_bar=False, **options)


@pytest.mark.parametrize("method", ["sequential", "vectorized"])
def test_a_second_run_continues_the_indices_of_the_thinner(method):
    thinner = ss.Thinner(DIM, size=SIZE)
    mcmc, run = hmc(chain_method=method), ss.integrations.numpyro.sample
    for key in (0, 1):
        kept = run(mcmc, jax.random.key(key), init_params=np.zeros((2, DIM)), thinner=thinner, chunk=64)
    assert (thinner.next_index(0), thinner.next_index(1)) == (400, 400)
    assert len(np.unique(kept.ids, axis=0)) == SIZE
    assert kept.ids[:, 1].max() >= 200


@pytest.fixture(scope="module")
def whole(double_precision):
    """Unconstrained draws and scores (n, d), and constrained draws, of ``MCMC.run``."""
    mcmc = nuts()
    mcmc.run(jax.random.key(1), Y, extra_fields=("z_grad", *(f"z.{name}" for name in SHAPES)))
    fields = mcmc.get_extra_fields()
    draws = np.column_stack([fields[f"z.{name}"] for name in SHAPES])
    scores = -np.column_stack([fields["z_grad"][name] for name in SHAPES])
    return draws, scores, {name: np.asarray(values) for name, values in mcmc.get_samples().items()}


@pytest.fixture(scope="module")
def kept(double_precision):
    coords = {"group": ["a", "b"]}
    return ss.integrations.numpyro.sample(nuts(), jax.random.key(1), Y, size=SIZE, chunk=150, coords=coords)


def test_the_result_is_that_of_the_stored_chain(kept, whole):
    draws, scores, _ = whole
    thinner = ss.Thinner(draws.shape[-1], size=SIZE, preconditioner=ss.Streaming())
    thinner.extend(draws, scores)
    assert_same(kept, thinner.kept)
    assert kept.settings["seen"] == 400  # without the warm-up


def test_ids_lead_to_the_constrained_draws(kept, whole):
    assert set(kept.variables) == {"mu", "sigma", "w", "centre", "shift", "level"}
    for name, values in whole[2].items():
        np.testing.assert_array_equal(kept.variables[name].values, values[kept.ids[:, 1]])
    assert (kept.variables["sigma"].values > 0).all()
    np.testing.assert_allclose(kept.variables["w"].values.sum(axis=1), 1.0)


def test_scores_are_the_gradient_of_the_log_density(kept):
    def log_joint(x):
        parts = jax.numpy.split(x, np.cumsum([np.prod(shape, dtype=int) for shape in SHAPES.values()])[:-1])
        z = {name: part.reshape(shape) for (name, shape), part in zip(SHAPES.items(), parts, strict=True)}
        return -infer.util.potential_energy(model, (Y,), {}, z)

    exact = jax.jit(jax.vmap(jax.grad(log_joint)))(kept.draws)
    np.testing.assert_allclose(kept.scores, exact, rtol=1e-8, atol=1e-8)


def test_plates_name_the_dimensions(kept):
    assert kept.names == ("mu", "shift[0]", "shift[1]", "sigma", "w[0]", "w[1]")
    assert kept.variables["shift"].dims == kept.variables["level"].dims == ("group",)
    assert kept.variables["shift"].coords["group"].tolist() == ["a", "b"]
    assert kept.variables["w"].dims == ("w_dim_0",)
    assert kept.variables["mu"].dims == ()


@pytest.mark.parametrize("method", ["sequential", "vectorized"])
def test_several_chains_share_a_thinner(method):
    key, start = jax.random.key(2), jax.numpy.array([[1.0, 0.5, 0.0, 0.0], [0.5, 0.5, 0.1, 0.0]])
    mcmc = hmc(chain_method=method)
    mcmc.run(key, init_params=start, extra_fields=("z_grad",))
    draws, scores = mcmc.get_samples(True), -mcmc.get_extra_fields(True)["z_grad"]
    run = ss.integrations.numpyro.sample
    kept = run(mcmc, key, init_params=start, dims={"x": ["part"]}, size=SIZE, chunk=77)
    ids = np.stack(np.meshgrid(range(2), range(200), indexing="ij"), axis=-1)
    draws, scores, ids = (np.transpose(each, (1, 0, 2)).reshape(400, -1) for each in (draws, scores, ids))
    thinner = ss.Thinner(DIM, size=SIZE, preconditioner=ss.Streaming())
    thinner.extend(draws, scores, ids=ids)
    assert_same(kept, thinner.kept)
    assert np.bincount(kept.ids[:, 0]).min() >= SIZE // 4  # no chain is favoured
    assert kept.variables["x"].dims == ("part",)


class Drawn(NamedTuple):
    z: object
    z_grad: object
    rng_key: object


class Independent(infer.mcmc.MCMCKernel):
    """Independent normal draws whose gradient is that of the potential times a factor."""

    sample_field = "z"

    def __init__(self, factor):
        self.factor = factor

    def init(self, rng_key, num_warmup, init_params, model_args, model_kwargs):
        return self.sample(Drawn(None, None, rng_key), (), {})

    def sample(self, state, model_args, model_kwargs):
        key, now = jax.random.split(state.rng_key)
        z = jax.random.normal(now, (3,))
        return Drawn(z, self.factor * z, key)


def thinned(factor, **settings):
    mcmc = infer.MCMC(Independent(factor), num_warmup=0, num_samples=300, progress_bar=False)
    return ss.integrations.numpyro.sample(mcmc, jax.random.key(0), size=10, **settings)


def test_a_kernel_without_a_model_can_be_used():
    kept = thinned(1.0)
    assert kept.names == ("x[0]", "x[1]", "x[2]")
    np.testing.assert_array_equal(kept.variables["x"].values, kept.draws)


def test_single_precision_can_be_used():
    with jax.enable_x64(False):
        kept = thinned(1.0)
    assert kept.draws.dtype == kept.scores.dtype == np.float64
    assert kept.variables["x"].values.dtype == np.float32
    np.testing.assert_array_equal(kept.variables["x"].values, kept.draws)


def test_negated_gradients_are_errors():
    with pytest.raises(NegatedScoresError, match=r"look negated.*-scores"):
        thinned(-1.0)


@pytest.mark.parametrize(("on_bad", "message"), [("raise", "is nan.*Correct"), ("skip", "All 300 draws.*Check")])
def test_gradients_that_are_all_nan_are_errors(on_bad, message):
    with pytest.raises(InputError, match=message):
        thinned(np.nan, on_bad=on_bad)


def test_the_potential_of_a_kernel_without_gradient_is_differentiated():
    kernel = infer.SA(potential_fn=potential, adapt_state_size=8)
    mcmc = infer.MCMC(kernel, num_warmup=200, num_samples=300, progress_bar=False)
    run = ss.integrations.numpyro.sample
    kept = run(mcmc, jax.random.key(0), init_params=jax.numpy.zeros(DIM), size=10)
    np.testing.assert_allclose(kept.scores, [score(x) for x in kept.draws], rtol=1e-8, atol=1e-8)


def test_the_potential_of_an_ensemble_kernel_is_differentiated():
    kernel = infer.AIES(potential_fn=potential)
    mcmc = infer.MCMC(
        kernel, num_warmup=50, num_samples=100, num_chains=8, chain_method="vectorized", progress_bar=False
    )
    start = 0.1 * np.random.default_rng(0).normal(size=(8, DIM))
    kept = ss.integrations.numpyro.sample(mcmc, jax.random.key(0), init_params=start, size=10)
    assert kept.settings["source"]["draws"] == [100] * 8
    np.testing.assert_allclose(kept.scores, [score(x) for x in kept.draws], rtol=1e-8, atol=1e-8)


def mixture(y):
    centre = numpyro.sample("centre", dist.Normal(0.0, 5.0))
    group = numpyro.sample("group", dist.Bernoulli(0.3))
    numpyro.sample("y", dist.Normal(centre + 2.0 * group, 1.0), obs=y)


def test_discrete_sites_are_thinned_without_scores(caplog):
    kernel = infer.DiscreteHMCGibbs(infer.NUTS(mixture), modified=True)
    mcmc = infer.MCMC(kernel, num_warmup=50, num_samples=200, progress_bar=False)
    with caplog.at_level("INFO", "steinstream"):
        kept = ss.integrations.numpyro.sample(mcmc, jax.random.key(0), Y, size=20)
    mcmc.run(jax.random.key(0), Y)
    assert kept.scores is None and kept.names == ("centre", "group")
    for name, values in mcmc.get_samples().items():
        np.testing.assert_array_equal(kept.variables[name].values, np.asarray(values)[kept.ids[:, 1]])
    assert kept.variables["group"].values.dtype.kind == "i" and kept.settings["source"]["divergences"] < 20
    lines = [record.getMessage() for record in caplog.records if "have no scores" in record.getMessage()]
    assert len(lines) == 1 and "DiscreteHMCGibbs" in lines[0]


def test_a_warm_up_that_was_run_is_not_repeated(whole):
    mcmc, later = nuts(), nuts()
    for each in (mcmc, later):
        each.warmup(jax.random.key(1), Y)
    kept = ss.integrations.numpyro.sample(mcmc, jax.random.key(2), Y, size=SIZE, chunk=150)
    later.run(jax.random.key(2), Y)
    for name, values in later.get_samples().items():
        np.testing.assert_array_equal(kept.variables[name].values, np.asarray(values)[kept.ids[:, 1]])
    assert kept.settings["seen"] == 400


@pytest.mark.parametrize("method", ["sequential", "vectorized"])
def test_several_chains_continue_from_the_last_state(method):
    mcmc, start = hmc(chain_method=method), np.zeros((2, DIM))
    mcmc.run(jax.random.key(2), init_params=start)
    mcmc.post_warmup_state = mcmc.last_state
    keys = mcmc.post_warmup_state.rng_key
    kept = ss.integrations.numpyro.sample(mcmc, keys, init_params=start, size=SIZE)
    mcmc.run(keys, init_params=start)
    chain, draw = kept.ids.T
    np.testing.assert_array_equal(kept.draws, np.asarray(mcmc.get_samples(True))[chain, draw])


def test_convergence_and_divergences_of_the_chains_are_recorded(kept):
    source = kept.settings["source"]
    assert source["tool"] == "numpyro" and source["draws"] == [400]
    assert source["divergences"] < 40 and 0.99 < source["rhat"] < 1.1 and 50 < source["ess"] <= 400
    wild = infer.MCMC(
        infer.HMC(potential_fn=potential, step_size=5.0, adapt_step_size=False),
        num_warmup=0,
        num_samples=100,
        progress_bar=False,
    )
    bad = ss.integrations.numpyro.sample(wild, jax.random.key(0), init_params=np.ones(DIM), size=5)
    wild.run(jax.random.key(0), init_params=np.ones(DIM), extra_fields=("diverging",))
    assert bad.settings["source"]["divergences"] == int(wild.get_extra_fields()["diverging"].sum()) > 50


def test_samples_and_summary_are_those_of_the_kept_draws(kept, capsys):
    samples = ss.integrations.numpyro.get_samples(kept)
    assert {name: values.shape for name, values in samples.items()} == {
        "centre": (SIZE,), "level": (SIZE, 2), "mu": (SIZE,), "shift": (SIZE, 2), "sigma": (SIZE,), "w": (SIZE, 3),
    }  # fmt: skip
    ss.integrations.numpyro.print_summary(kept)
    printed = capsys.readouterr().out
    row = next(line for line in printed.splitlines() if line.strip().startswith("w[2]"))
    assert float(row.split()[1]) == pytest.approx(samples["w"][:, 2].mean(), rel=1e-3)
    assert "30 kept of 400 draws in 1 chains" in printed
    assert f"Number of divergences: {kept.settings['source']['divergences']}\n" in printed
    assert "R-hat" in printed


def test_settings_that_do_not_exist_are_errors():
    with pytest.raises(InputError, match="Unknown setting 'convergence'"):
        ss.integrations.numpyro.sample(nuts(), jax.random.key(0), Y, convergence=True)


@pytest.mark.parametrize("by_chain", [False, True])
def test_scores_of_a_finished_fit_are_those_of_the_sampler(whole, by_chain):
    draws, scores, samples = whole
    if by_chain:
        samples = {name: values.reshape(2, 200, *values.shape[1:]) for name, values in samples.items()}
        draws, scores = draws.reshape(2, 200, -1), scores.reshape(2, 200, -1)
    scored = ss.integrations.numpyro.scores(model, samples, Y)
    np.testing.assert_allclose(scored.draws, draws, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(scored.scores, scores, rtol=1e-5, atol=1e-5)
    kept = scored.thin(size=SIZE)
    assert kept.names == ("mu", "shift[0]", "shift[1]", "sigma", "w[0]", "w[1]")
    at = tuple(kept.ids.T) if by_chain else kept.ids[:, 1]
    for name, values in samples.items():
        np.testing.assert_array_equal(kept.variables[name].values, values[at])
    assert kept.variables["shift"].dims == ("group",)


def test_scores_can_be_computed_from_the_sampler_and_from_an_arviz_tree(whole):
    xarray = pytest.importorskip("xarray")
    mcmc = nuts(50)
    mcmc.run(jax.random.key(1), Y)
    fractions = []
    scored = ss.integrations.numpyro.scores(model, mcmc, progress=fractions.append, y=Y)
    assert fractions == [1.0]
    assert scored.draws.shape == (1, 50, 6)
    arrays = {
        name: (("chain", "draw", *(f"{name}_{i}" for i in range(values.ndim - 2))), np.asarray(values))
        for name, values in mcmc.get_samples(group_by_chain=True).items()
    }
    tree = xarray.DataTree.from_dict({"posterior": xarray.Dataset(arrays)})
    np.testing.assert_array_equal(ss.integrations.numpyro.scores(model, tree, Y).scores, scored.scores)


def test_scores_carry_the_divergences_of_a_fit_that_has_them():
    xarray = pytest.importorskip("xarray")
    mcmc = infer.MCMC(
        infer.HMC(model, num_steps=2, trajectory_length=None, step_size=50.0, adapt_step_size=False),
        num_warmup=20, num_samples=60, num_chains=2, progress_bar=False, chain_method="sequential",
    )  # fmt: skip
    mcmc.run(jax.random.key(1), Y)
    diverging = np.asarray(mcmc.get_extra_fields(group_by_chain=True)["diverging"])
    assert diverging.sum() > 0
    samples = mcmc.get_samples(group_by_chain=True)
    arrays = {
        name: (("chain", "draw", *(f"{name}_{i}" for i in range(values.ndim - 2))), np.asarray(values))
        for name, values in samples.items()
    }
    stats = xarray.Dataset({"diverging": (("draw", "chain"), diverging.T)})
    tree = xarray.DataTree.from_dict({"posterior": xarray.Dataset(arrays), "sample_stats": stats})
    for fit in (mcmc, tree):
        source = ss.integrations.numpyro.scores(model, fit, Y).thin(size=10, validate_scores=False).settings["source"]
        assert source["tool"] == "numpyro" and source["draws"] == [60, 60]
        assert source["divergences"] == diverging.sum() and "rhat" in source
    source = ss.integrations.numpyro.scores(model, samples, Y).thin(size=10, validate_scores=False).settings["source"]
    assert "divergences" not in source  # samples alone do not have them


def test_samples_that_do_not_fit_the_model_are_errors(whole):
    run, samples = ss.integrations.numpyro.scores, whole[2]
    with pytest.raises(InputError, match="no sigma, which are sites"):
        run(model, {name: values for name, values in samples.items() if name != "sigma"}, Y)
    with pytest.raises(InputError, match=r"samples of w do not have the shape \(n, ...\)"):
        run(model, {**samples, "w": samples["w"][:, :2]}, Y)
    with pytest.raises(InputError, match="discrete sites group have no score"):
        run(mixture, {"centre": np.zeros(3), "group": np.zeros(3, dtype=int)}, Y)
    with pytest.raises(InputError, match="Expected samples by site, got ndarray"):
        run(model, np.zeros((3, 2)), Y)


def test_missing_arguments_of_the_model_are_named(whole):
    mcmc, run = nuts(), ss.integrations.numpyro.sample
    with pytest.raises(InputError, match=r'y is an argument of the model.*model_kwargs=\{"y": y\}'):
        run(mcmc, jax.random.key(0), y=Y, size=SIZE)
    with pytest.raises(InputError, match=r"missing a required argument: 'y'.*sample\(mcmc, rng_key, y\)"):
        run(mcmc, jax.random.key(0), size=SIZE)
    samples = {name: np.zeros(5) for name in ("mu", "sigma", "w", "shift")}
    with pytest.raises(InputError, match=r"missing a required argument: 'y'.*scores\(model, samples, y\)"):
        ss.integrations.numpyro.scores(model, samples)

    def with_default(y=None):
        numpyro.sample("y", dist.Normal(numpyro.sample("mu", dist.Normal()), 1.0), obs=y)

    with pytest.raises(InputError, match=r"If they are data, pass them: scores\(model, samples, y=y\)"):
        ss.integrations.numpyro.scores(with_default, {"mu": np.zeros(5)})


def test_model_arguments_can_be_keywords(kept):
    again = ss.integrations.numpyro.sample(nuts(), jax.random.key(1), model_kwargs={"y": Y}, size=SIZE)
    assert_same(kept, again)


def test_wrong_samplers_and_thinners_are_errors():
    run, key = ss.integrations.numpyro.sample, jax.random.key(0)
    with pytest.raises(InputError, match=r"got NUTS.*Wrap the kernel"):
        run(infer.NUTS(model), key)
    with pytest.raises(InputError, match="every 2th draw"):
        run(infer.MCMC(infer.NUTS(model), num_warmup=1, num_samples=4, thinning=2), key)
    with pytest.raises(InputError, match=r"for 2 dimensions, the draws have 3"):
        mcmc = infer.MCMC(Independent(1.0), num_warmup=0, num_samples=10, progress_bar=False)
        run(mcmc, key, thinner=ss.Thinner(2))


def test_the_documentation_page(capsys):
    run_page("numpyro.md")
