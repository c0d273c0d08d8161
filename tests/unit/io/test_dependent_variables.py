"""Functions of other variables are recognised in a file, and parameters are never taken for one."""

from __future__ import annotations

import numpy as np
import pytest

from steinstream.errors import ParametersWarning
from steinstream.io import open_chain
from steinstream.io._dependent_variables import dependent_variables


@pytest.fixture
def x():
    return np.random.default_rng(0).normal(size=(300, 3))


def test_linear_and_monotone_functions_are_found(x):
    a, b, c = x.T
    found = dependent_variables(
        {
            "a": a,
            "b": b,
            "w": np.stack([c, a], axis=1),
            "twice": (2 * a).astype(np.float32),
            "odds": np.exp(-b),
            "both": np.stack([a + b, b - 3], axis=1),
            "ratio": a / b,
            "level": 1 / (1 + np.exp(-np.stack([a, b], axis=1))),
        }
    )
    assert found == {
        "twice": "function of a",
        "odds": "function of b",
        "both": "linear function of other variables",
        "level": "function of other variables",
    }


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("reverse", [False, True])
def test_affine_functions_of_products_are_found(dtype, reverse):
    rng = np.random.default_rng(0)
    mu, log_tau = rng.normal(size=(2, 300, 1)) * [[[100.0]], [[1.0]]]
    tau, z, x = np.exp(log_tau), *rng.normal(size=(2, 300, 8))
    variables = {"mu": mu[:, 0], "tau": tau[:, 0], "z": z, "x": x, "theta": mu + tau * z, "y": 2 * x * z - 3 * mu}
    variables = {name: variables[name].astype(dtype) for name in sorted(variables, reverse=reverse)}
    found = dependent_variables(variables, sorted_by_name=True)
    assert found == dict.fromkeys(["theta", "y"], "function of products of other variables")


def test_a_parameter_is_not_a_product_of_a_variable_that_was_computed_from_it(x):
    a, b, _ = x.T
    assert dependent_variables({"a": a, "b": b, "ratio": a / b, "share": a / (a + b)}) == {}
    assert dependent_variables({"a": a, "b": b, "ratio": a / b}, sorted_by_name=True).keys() == {"a"}


def test_functions_of_dependent_variables_are_found(x):
    a, b, c = x.T
    found = dependent_variables({"a": a, "b": b, "c": c, "eta": a + b, "p": 1 / (1 + np.exp(-a - b)), "y": c * (a + b)})
    assert found["p"] == "function of eta" and found.keys() == {"eta", "p", "y"}


def test_parameters_far_from_zero_or_with_heavy_tails_are_not_functions_of_others():
    rng = np.random.default_rng(0)
    far, wide = 1e6 + rng.normal(size=(4, 512)), np.exp(20 * rng.normal(size=(4, 512)))
    cauchy, huge = rng.standard_cauchy((4, 512)) * 1e4, 1e300 * rng.normal(size=(4, 512))
    groups = {"far": far, "wide": wide, "cauchy": cauchy, "huge": huge}
    assert dependent_variables({f"{name}{i}": row for name, rows in groups.items() for i, row in enumerate(rows)}) == {}


def test_parameters_are_not_functions_of_indicators_constants_or_few_draws(x):
    a, b, _ = x.T
    assert dependent_variables({"flag": (a > 0).astype(float), "a": a, "one": np.ones(300), "b": b}) == {}
    assert dependent_variables({"one": np.ones(300), "a": a}) == {}
    assert dependent_variables({"a": a[:30], "twice": 2 * a[:30]}) == {}  # too few draws to tell
    assert dependent_variables({"a": np.repeat(a[:5], 60), "b": np.repeat(b[:5], 60)}) == {}
    assert dependent_variables({"p": np.stack([a, 1 - a], axis=1), "b": np.where(x[:, 1] > 9, np.nan, b)}) == {}
    assert dependent_variables({"wide": np.random.default_rng(1).normal(size=(300, 400)), "a": a}) == {}
    assert dependent_variables({}) == {}


def test_a_file_of_a_posterior_is_read_without_deterministic_variables(x, tmp_path):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    a, b, _ = x.reshape(2, 150, 3).transpose(2, 0, 1)
    dims = ("chain", "draw")
    variables = {"mu": (dims, a), "sigma": (dims, np.exp(b)), "twice": (dims, 2 * a), "log_sigma": (dims, b)}
    tree = xarray.DataTree.from_dict({"posterior": xarray.Dataset(variables)})
    tree.to_netcdf(tmp_path / "posterior.nc", engine="h5netcdf")
    with pytest.warns(ParametersWarning, match="functions of other variables: posterior/twice, posterior/log_sigma. "):
        chain = open_chain(tmp_path / "posterior.nc")
    assert chain.names == ("mu", "sigma")
    assert chain.taken.left_out["posterior/twice"] == "function of posterior/mu"
    assert {"twice", "log_sigma"} <= chain.variables(np.array([[0, 3]])).keys()  # the kept draws have them
    assert open_chain(tmp_path / "posterior.nc", parameters=["twice"]).names == ("twice",)
