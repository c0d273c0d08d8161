"""ArviZ 0.x: its InferenceData is accepted and returned, and it reads the files with dimensions (chain, draw)."""

from __future__ import annotations

import numpy as np
import pytest

az = pytest.importorskip("arviz", reason="ArviZ is not installed")
if not az.__version__.startswith("0."):
    pytest.skip("ArviZ 0.x is not installed; the group all-tools has it on Python 3.11", allow_module_level=True)
jax = pytest.importorskip("jax")
numpyro = pytest.importorskip("numpyro")
dist = pytest.importorskip("numpyro.distributions")

import steinstream as ss  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto:UserWarning")
SIZE = 100
X = np.linspace(-1.0, 1.0, 20)
Y = 1.0 + X + 0.5 * np.random.default_rng(0).normal(size=20)


def model(x, y=None):
    level = numpyro.sample("level", dist.Normal(0.0, 5.0))
    slope = numpyro.sample("slope", dist.Normal(0.0, 5.0))
    sigma = numpyro.sample("sigma", dist.LogNormal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(level + slope * x, sigma), obs=y)


@pytest.fixture(scope="module")
def fit():
    """A fit of NumPyro as an InferenceData, with log_likelihood, sample_stats and observed_data."""
    kernel = numpyro.infer.NUTS(model)
    mcmc = numpyro.infer.MCMC(
        kernel, num_warmup=300, num_samples=500, num_chains=2, chain_method="vectorized", progress_bar=False
    )
    mcmc.run(jax.random.key(0), X, Y)
    return az.from_numpyro(mcmc)


def require_summary_and_loo(small, fit):
    """Require the answers of the whole fit from ArviZ's own functions."""
    assert isinstance(small, az.InferenceData)
    assert dict(small.posterior.sizes) == {"chain": 1, "draw": SIZE}
    few, many = (az.summary(each, kind="stats", round_to=10) for each in (small, fit))
    assert sorted(few.index) == ["level", "sigma", "slope"]
    many = many.loc[few.index]
    assert ((few["mean"] - many["mean"]).abs() < 0.15 * many["sd"]).all()
    np.testing.assert_allclose(few["sd"] / many["sd"], 1.0, atol=0.15)
    full = az.loo(fit)
    assert abs(az.loo(small, reff=1.0).elpd_loo - full.elpd_loo) < 0.2 * full.se
    assert {"observed_data", "sample_stats", "log_likelihood"} <= set(small.groups())
    assert "diverging" in small.sample_stats


@pytest.mark.parametrize("scored", [True, False])
def test_inference_data_is_accepted_and_returned(fit, scored):
    if scored:
        kept = ss.integrations.numpyro.scores(model, fit, X, Y).thin(size=SIZE)
        assert kept.settings["source"]["divergences"] == int(fit.sample_stats["diverging"].sum())
        small = ss.integrations.xarray.select(fit, kept, stacked=False)
    else:
        kept = ss.integrations.xarray.thin(fit, size=SIZE)
        small = ss.integrations.xarray.thin_tree(fit, size=SIZE)
    assert kept.settings["source"]["draws"] == [500, 500]
    assert (kept.scores is not None) == scored
    require_summary_and_loo(small, fit)
    np.testing.assert_array_equal(small.posterior["source_draw"].values[0], kept.ids[:, 1])
    if scored:
        assert small.attrs["ksd"] == kept.ksd
        assert ss.integrations.xarray.ksd(small) == pytest.approx(kept.ksd, rel=1e-9)


def test_the_command_line_writes_files_that_it_reads(fit, tmp_path, steinstream):
    fit.to_netcdf(str(tmp_path / "fit.nc"), engine="h5netcdf")
    words = ("thin", "fit.nc", "-o", "kept.nc", "--size", SIZE, "--layout", "chain-draw")
    ran = steinstream(*words)
    assert ran.returncode == 0, ran.stderr
    small = az.from_netcdf(str(tmp_path / "kept.nc"), engine="h5netcdf")
    require_summary_and_loo(small, fit)
    source = ss.Kept.load(tmp_path / "kept.nc").settings["source"]
    assert source["divergences"] == int(fit.sample_stats["diverging"].sum()) and source["rhat"] < 1.1
