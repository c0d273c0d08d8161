"""The documented path of each tool, from a fit or a file to the answer: means and sds are those of the full chains."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

import steinstream as ss
from tests.integrations.posterior import DIM, Y, constrained, log_density, score
from tests.stan_runs import DATA, sample

SIZE = 200


def require_same_answer(small, whole):
    """Require means within 0.15 sd and sds within 15 % for all variables, given as values (n, ...) by name."""
    assert small.keys() == whole.keys()
    for name in small:
        few, many = (np.reshape(each, (len(each), -1)) for each in (small[name], whole[name]))
        assert len(few) == SIZE < len(many) / 5
        sd = many.std(axis=0)
        np.testing.assert_array_less(np.abs(few.mean(axis=0) - many.mean(axis=0)) / sd, 0.15, err_msg=name)
        np.testing.assert_allclose(few.std(axis=0) / sd, 1.0, atol=0.15, err_msg=name)


def values_of(kept, *names):
    return {name: kept.variables[name].values for name in names}


def stacked(dataset, *names):
    """Return variables of a dataset with the dimensions (chain, draw) as values (n, ...)."""
    arrays = {name: dataset[name].transpose("chain", "draw", ...).values for name in names}
    return {name: array.reshape(-1, *array.shape[2:]) for name, array in arrays.items()}


# -- PyMC and nutpie ---------------------------------------------------------------------------------------------------

PPL = ("mu", "sigma", "share")


def test_pymc_while_it_runs_and_after_it_with_loo(tmp_path, steinstream):
    pm = pytest.importorskip("pymc", reason="PyMC is not installed; it needs Python 3.12")
    az = pytest.importorskip("arviz", minversion="1.0", reason="ArviZ 1 is not installed; it needs Python 3.12")
    from tests.integrations.constrained import model

    options = {"draws": 1000, "tune": 500, "chains": 4, "cores": 1, "random_seed": 1, "quiet": True}
    with model():
        live = ss.integrations.pymc.Callback(size=SIZE)
        fit = pm.sample(callback=live, progressbar=False, **options)
        pm.compute_log_likelihood(fit, var_names=["height"], progressbar=False)
    whole = stacked(fit.posterior, *PPL)
    require_same_answer(values_of(live.kept, *PPL), whole)
    tree = ss.integrations.pymc.with_scores(model(), fit)
    later = tree.stein.thin(size=SIZE, stacked=False)
    require_same_answer(stacked(later.posterior, *PPL), whole)
    fit.to_netcdf(tmp_path / "fit.nc", engine="h5netcdf")  # the same from the command line, without scores
    words = ("thin", "fit.nc", "-o", "kept.nc", "--size", SIZE, "--layout", "chain-draw")
    assert steinstream(*words, "--parameters", "mu,sigma,share").returncode == 0
    read = az.from_netcdf(str(tmp_path / "kept.nc"))
    require_same_answer(stacked(read.posterior, *PPL), whole)
    full = az.loo(fit)
    for kept in (later, read):
        assert abs(az.loo(kept, reff=1.0).elpd - full.elpd) < 0.2 * full.se
        assert {"observed_data", "constant_data", "sample_stats"} <= set(kept.children)
        assert "diverging" in kept.sample_stats


def test_nutpie():
    pytest.importorskip("pymc", reason="PyMC is not installed; it needs Python 3.12")
    nutpie = pytest.importorskip("nutpie", reason="nutpie is not installed; it needs Python 3.12")
    from tests.integrations.constrained import model

    fit = nutpie.sample(
        nutpie.compile_pymc_model(model()), draws=1000, tune=500, chains=4, cores=1, seed=5, progress_bar=False,
        store_gradient=True, store_unconstrained=True,
    )  # fmt: skip
    kept = ss.integrations.nutpie.thin(fit, size=SIZE)
    require_same_answer(values_of(kept, *PPL), stacked(fit.posterior, *PPL))
    source = kept.settings["source"]
    assert source["draws"] == [1000] * 4 and source["rhat"] < 1.1 and "divergences" in source


# -- NumPyro and BlackJAX ----------------------------------------------------------------------------------------------


@pytest.fixture
def jax():
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        yield jax


def test_numpyro_while_it_runs_and_after_it(jax):
    numpyro, dist = pytest.importorskip("numpyro"), pytest.importorskip("numpyro.distributions")

    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
        sigma = numpyro.sample("sigma", dist.LogNormal(0.0, 1.0))
        w = numpyro.sample("w", dist.Dirichlet(np.array([2.0, 3.0, 4.0])))
        numpyro.sample("y", dist.Normal(mu + w[0] - w[2], sigma), obs=y)

    mcmc = numpyro.infer.MCMC(
        numpyro.infer.NUTS(model), num_warmup=300, num_samples=1000, num_chains=2, chain_method="vectorized",
        progress_bar=False,
    )  # fmt: skip
    live = ss.integrations.numpyro.sample(mcmc, jax.random.key(0), Y, size=SIZE)
    mcmc.run(jax.random.key(0), Y)
    whole = {name: np.asarray(values) for name, values in mcmc.get_samples().items()}
    require_same_answer(ss.integrations.numpyro.get_samples(live), whole)
    later = ss.integrations.numpyro.scores(model, mcmc, Y).thin(size=SIZE)
    require_same_answer(ss.integrations.numpyro.get_samples(later), whole)


def test_blackjax_after_window_adaptation(jax):
    blackjax = pytest.importorskip("blackjax")

    def density(x):
        return log_density(x, jax.numpy)

    warmup, key = blackjax.window_adaptation(blackjax.nuts, density), jax.random.key(0)
    (state, parameters), _ = warmup.run(key, jax.numpy.zeros(DIM), num_steps=300)
    nuts = blackjax.nuts(density, **parameters)
    kept = ss.integrations.blackjax.sample(
        nuts, state, 2000, key, transform=lambda x: constrained(x, jax.numpy), size=SIZE
    )

    def step(state, key):
        state, _ = nuts.step(key, state)
        return state, constrained(state.position, jax.numpy)

    _, whole = jax.lax.scan(step, state, jax.random.split(key, 2000))
    require_same_answer(values_of(kept, "mu", "sigma", "w"), {name: np.asarray(v) for name, v in whole.items()})


# -- Stan, emcee -------------------------------------------------------------------------------------------------------


def stan_files(folder, shared):
    """Write the files of two chains: real ones of CmdStan, or those of the program that stands for it in the tests."""
    if not shared:
        for chain in (1, 2):
            sample(folder, chain, samples=2000)
        return "out-diagnostic-*.csv", "out-{}.csv"
    if not DATA.is_dir():
        pytest.skip("the CmdStan files are not in ../shared/data/stan")
    for path in DATA.glob("*.csv.gz"):
        (folder / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
    return "normal_simplex-diagnostic-*.csv", "normal_simplex-{}.csv"


@pytest.mark.parametrize("shared", [True, False])
def test_files_of_cmdstan(shared, tmp_path, steinstream):
    diagnostic, output = stan_files(tmp_path, shared)
    assert steinstream("thin", diagnostic, "-o", "kept.npz", "--size", SIZE).returncode == 0
    kept = ss.Kept.load(tmp_path / "kept.npz")
    tables = []
    for chain in (1, 2):
        lines = [line for line in (tmp_path / output.format(chain)).read_text().splitlines() if line[:1] != "#"]
        titles, rows = lines[0].split(","), np.array([line.split(",") for line in lines[1:]], dtype=np.float64)
        tables.append(rows[:, [titles.index(name) for name in ("mu", "sigma", "w.1", "w.2", "w.3")]])
    table = np.concatenate(tables)
    whole = {"mu": table[:, 0], "log sigma": np.log(table[:, 1]), "w": table[:, 2:]}
    small = {**values_of(kept, "mu", "w"), "log sigma": np.log(kept.variables["sigma"].values)}
    require_same_answer(small, whole)
    assert kept.scores is not None


def test_emcee():
    emcee = pytest.importorskip("emcee")
    start = np.array([1.0, 0.5, 0.0, 0.0]) + 0.1 * np.random.default_rng(1).normal(size=(10, DIM))

    def run(backend):
        sampler = emcee.EnsembleSampler(
            10, DIM, lambda x: (log_density(x), score(x)), backend=backend, blobs_dtype=[("score", float, DIM)]
        )
        sampler.random_state = np.random.RandomState(3).get_state()
        sampler.run_mcmc(start, 1000)
        return sampler

    backend = ss.integrations.emcee.Backend(size=SIZE, discard=200)
    run(backend)
    whole = run(None).get_chain(discard=200, flat=True)
    require_same_answer({"x": backend.kept.draws}, {"x": whole})


# -- PyTorch -----------------------------------------------------------------------------------------------------------


def hamiltonian(torch, log_density, dim, count=1200, warmup=100, step=0.18):
    """Sample weights (count, dim) by Hamiltonian Monte Carlo."""
    generator = torch.Generator().manual_seed(0)

    def evaluate(weights):
        weights = weights.detach().requires_grad_(True)
        value = log_density(weights)
        return value.detach(), torch.autograd.grad(value, weights)[0]

    here, draws = torch.zeros(dim, dtype=torch.float64), []
    value, gradient = evaluate(here)
    for _ in range(warmup + count):
        momentum = torch.randn(dim, generator=generator, dtype=torch.float64)
        energy, there, slope = value - momentum @ momentum / 2, here, gradient
        for _ in range(6):
            momentum = momentum + step / 2 * slope
            there = there + step * momentum
            proposed, slope = evaluate(there)
            momentum = momentum + step / 2 * slope
        if torch.rand((), generator=generator).log() < proposed - momentum @ momentum / 2 - energy:
            here, value, gradient = there, proposed, slope
        draws.append(here)
    return torch.stack(draws[warmup:])


def test_networks_while_they_are_sampled_and_after_it():
    """The predictions of the kept networks are those of all networks, on inputs that were not used for training."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("safetensors", reason="safetensors is not installed")
    from steinstream.ensemble import EnsemblePrediction
    from steinstream.integrations.torch import Collector, Posterior

    generator = torch.Generator().manual_seed(1)
    inputs, new = (torch.randn(count, 2, generator=generator, dtype=torch.float64) for count in (60, 20))
    labels = (inputs[:, 0] * inputs[:, 1] > 0).long()
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(2, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2)).double()
    network[0].requires_grad_(False)  # features; the weights of the last layer are sampled
    features, entropy = network[:2](inputs), torch.nn.functional.cross_entropy

    def log_density(weights):
        logits = features @ weights[:12].view(2, 6).T + weights[12:]
        return -entropy(logits, labels, reduction="sum") - 2.0 * torch.sum(weights**2)

    def predict(module):
        return torch.softmax(module(new), 1)[:, 1].detach().numpy()

    draws = hamiltonian(torch, log_density, 14)
    posterior = Posterior(lambda module, x, y: entropy(module(x), y), prior=0.5, examples=60)
    collector = Collector(
        network, posterior, data=[(inputs, labels)], predict_on=new, predictions=EnsemblePrediction("classes"),
        size=SIZE,
    )  # fmt: skip
    whole = []
    for weights in draws:
        torch.nn.utils.vector_to_parameters(weights, network[2].parameters())
        collector()
        whole.append(predict(network))
    whole = np.array(whole)
    few = np.array([predict(module) for _, module in collector.networks()])
    require_same_answer({"probability": few}, {"probability": whole})
    np.testing.assert_allclose(collector.predictions.mean[:, 1], whole.mean(axis=0), atol=0.02)
    scores = ss.integrations.torch.scores(log_density, draws)
    stored = scores[collector.kept.ids[:, 1]]
    np.testing.assert_allclose(collector.kept.scores, stored, rtol=1e-8, atol=1e-8)
    later = ss.thin(draws.numpy(), scores, size=SIZE, features=whole)
    require_same_answer({"probability": whole[later.ids[:, 1]]}, {"probability": whole})
    source = collector.kept.settings["source"]
    assert source["tool"] == "torch" and source["draws"] == [1200] and source["rhat"] < 1.05


# -- a log density without a gradient, a live run ----------------------------------------------------------------------


def metropolis(count=30_000):
    """Return every fifth draw of a random walk on the posterior."""
    rng, x = np.random.default_rng(4), np.array([1.0, 0.5, 0.0, 0.0])
    here, draws = log_density(x), np.empty((count, DIM))
    for t in range(count):
        there = x + 0.5 * rng.normal(size=DIM)
        proposed = log_density(there)
        if np.log(rng.random()) < proposed - here:
            x, here = there, proposed
        draws[t] = x
    return draws[::5]


@pytest.fixture(scope="module")
def walk():
    return metropolis()


def test_a_black_box_log_density_in_two_stages(walk):
    first = ss.thin(walk, size=1000)
    scores = ss.integrations.generic.finite_difference_scores(log_density, first.draws)
    kept = ss.merge([first.with_scores(scores)], size=SIZE)
    np.testing.assert_allclose(kept.scores, np.apply_along_axis(score, 1, kept.draws), rtol=1e-4, atol=1e-4)
    require_same_answer({"x": kept.draws}, {"x": walk})


def test_a_live_run_that_is_interrupted(walk, tmp_path):
    scores = np.apply_along_axis(score, 1, walk)
    thinner = ss.Thinner(DIM, size=SIZE)
    for start in range(0, len(walk), 500):
        thinner.extend(walk[start : start + 500], scores[start : start + 500])
        thinner.save(tmp_path / "run.npz")
        thinner = ss.Thinner.load(tmp_path / "run.npz")
    require_same_answer({"x": thinner.kept.draws}, {"x": walk})
