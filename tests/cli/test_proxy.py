"""``steinstream thin --proxy gaussian``: chains without scores in every format."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import steinstream as ss


def without_scores(path, draws):
    """Two parameters, in the way that each tool writes them, without a score."""
    header, more = "a,b", np.zeros((len(draws), 0))
    if path.suffix == ".npz":
        np.savez(path, draws=draws)
    elif path.suffix == ".npy":
        np.save(path, draws)
    elif path.suffix == ".parquet":
        arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
        importlib.import_module("pyarrow.parquet").write_table(arrow.table(dict(zip("ab", draws.T, strict=True))), path)
    elif path.suffix == ".nc":
        xarray = pytest.importorskip("xarray", reason="xarray is not installed")
        pytest.importorskip("h5netcdf", reason="h5netcdf is not installed")
        named = zip("ab", draws.T, strict=True)
        posterior = xarray.Dataset({name: (("chain", "draw"), column[None]) for name, column in named})
        posterior.to_netcdf(path, group="posterior", engine="h5netcdf")
    else:
        if path.stem == "stan":
            header, more = "lp__,accept_stat__,a,b", np.ones((len(draws), 2))
        elif path.stem == "ids":
            header, more = "chain,draw,a,b", np.column_stack([np.zeros(len(draws)), np.arange(len(draws))])
        np.savetxt(path, np.hstack([more, draws]), fmt="%.17g", delimiter=",", header=header, comments="")


@pytest.mark.parametrize(
    "name", ["chain.npz", "chain.npy", "chain.csv", "ids.csv", "stan.csv", "chain.parquet", "chain.nc"]
)
def test_a_file_without_scores_is_thinned_by_the_gaussian(steinstream, tmp_path, name):
    draws = np.random.default_rng(0).normal(size=(1000, 2)) * [1.0, 3.0]
    without_scores(tmp_path / name, draws)
    ran = steinstream("thin", name, "-o", "kept.npz", "--size", "20")
    assert ran.returncode == 2 and (name == "chain.npz" or "--proxy gaussian" in ran.stderr)
    ran = steinstream("thin", name, "-o", "kept.npz", "--size", "20", "--proxy", "gaussian")
    assert ran.returncode == 0, ran.stderr
    kept = ss.Kept.load(tmp_path / "kept.npz")
    expected = ss.thin(draws, proxy="gaussian", size=20)
    np.testing.assert_array_equal(kept.ids, expected.ids)
    np.testing.assert_array_equal(kept.scores, expected.scores)
    assert kept.settings["proxy"] == "gaussian"


def test_invalid_draws_are_skipped_and_scores_are_not_expected(steinstream, tmp_path):
    draws = np.random.default_rng(0).normal(size=(500, 2))
    draws[7, 1] = np.nan
    np.savez(tmp_path / "chain.npz", draws=draws)
    options = ["chain.npz", "-o", "kept.npz", "--size", 20, "--proxy", "gaussian"]
    ran = steinstream("thin", *options)
    assert ran.returncode == 2 and "draw 7 is nan" in ran.stderr
    ran = steinstream("thin", *options, "--on-bad", "skip")
    assert ran.returncode == 0 and "1 invalid draw skipped" in ran.stdout, ran.stderr
    ran = steinstream("thin", *options, "--scores", "chain.npz")
    assert ran.returncode == 2 and "--proxy has no effect because --scores is given" in ran.stderr
