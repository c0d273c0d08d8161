"""``steinstream inspect`` describes a chain, its problems, and the next command."""

from __future__ import annotations

import json
import shlex

import numpy as np
import pytest

import steinstream as ss
from tests.conftest import write_chain


def test_shape_sign_repeats_and_memory_are_printed(steinstream, tmp_path):
    x = np.random.default_rng(0).normal(size=(4, 500, 2))
    x[:, 1::2] = x[:, ::2]
    np.savez(tmp_path / "c.npz", draws=x, scores=-x)
    ran = steinstream("inspect", "c.npz")
    assert ran.returncode == 0, ran.stderr
    assert "4 chains x 500 draws, 2 parameters" in ran.stdout
    assert "sign as expected" in ran.stdout and "50% of draws repeat" in ran.stdout
    assert "all values are finite" in ran.stdout and "MB for" in ran.stdout
    assert "steinstream thin c.npz -o kept.npz" in ran.stdout


def test_problems_are_printed(steinstream, tmp_path):
    write_chain(tmp_path / "c.npz", sign=-1.0)
    assert "negated" in steinstream("inspect", "c.npz").stderr
    x = np.zeros((50, 2))
    x[7, 1] = np.nan
    np.savez(tmp_path / "c.npz", draws=x, scores=-x)
    ran = steinstream("inspect", "c.npz").stderr
    assert "1 of 50 draws" in ran and "chain 0, draw 7" in ran


def test_the_next_command_thins_the_chain(steinstream, tmp_path):
    x = np.random.default_rng(0).normal(size=(400, 2))
    x[7, 1] = np.nan
    np.savez(tmp_path / "my chain.npz", a=x, b=x)
    ran = steinstream("inspect", "my chain.npz", "--draws-name", "a", "--scores-name", "b", "--no-validate-scores")
    words = shlex.split(next(line for line in ran.stdout.splitlines() if line.startswith("next")))[2:]
    assert words[:2] == ["thin", "my chain.npz"] and words[-2:] == ["-o", "kept.npz"]
    assert {"--negate-scores", "--on-bad", "--no-validate-scores", "--draws-name"} <= set(words)
    ran = steinstream(*words)
    assert ran.returncode == 0 and "1 invalid draw skipped" in ran.stdout, ran.stderr


@pytest.fixture
def tables(tmp_path):
    """The same draws without scores in every format that this environment can write."""
    x = np.random.default_rng(0).normal(size=(2, 200, 2))
    np.save(tmp_path / "chain.npy", x)
    np.savez(tmp_path / "chain.npz", draws=x)
    lines = [f"{chain},{draw},{a!r},{b!r}" for chain in (0, 1) for draw, (a, b) in enumerate(x[chain].tolist())]
    (tmp_path / "chain.csv").write_text("\n".join(["chain,draw,x0,x1", *lines]) + "\n")
    files = ["chain.npy", "chain.npz", "chain.csv"]
    try:
        import h5py

        with h5py.File(tmp_path / "emcee.h5", "w") as file:  # as emcee.backends.HDFBackend writes it
            group = file.create_group("mcmc")
            group.attrs.update({"version": "3.1", "nwalkers": 2, "ndim": 2, "has_blobs": False, "iteration": 200})
            group["chain"], group["log_prob"] = x.swapaxes(0, 1), np.zeros((200, 2))
            group["accepted"] = np.zeros(2)
        files.append("emcee.h5")
    except ImportError:
        pass
    try:
        import pyarrow
        import pyarrow.parquet

        columns = {"chain": np.repeat([0, 1], 200), "draw": np.tile(np.arange(200), 2)}
        columns |= {"x0": x[..., 0].ravel(), "x1": x[..., 1].ravel()}
        pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "chain.parquet")
        files.append("chain.parquet")
    except ImportError:
        pass
    try:
        import xarray

        dims = ("chain", "draw")
        posterior = xarray.Dataset({"x0": (dims, x[..., 0]), "x1": (dims, x[..., 1])})
        xarray.DataTree.from_dict({"posterior": posterior}).to_netcdf(tmp_path / "posterior.nc", engine="h5netcdf")
        files.append("posterior.nc")
    except ImportError:
        pass
    return files


def test_files_without_scores_are_described_with_the_way_to_scores(steinstream, tables):
    for name in tables:
        ran = steinstream("inspect", name)
        assert ran.returncode == 0, ran.stderr
        assert "2 chains x 200 draws, 2 parameters (x0, x1)" in ran.stdout, name
        assert "scores      none: " in ran.stdout and f"next        steinstream thin {name} -o kept" in ran.stdout
        way = "integrations.pymc.scores" if name.endswith(".nc") else f"steinstream scores {name} --log-density"
        assert way in ran.stdout, name


def test_files_of_pymc_may_have_computed_variables(steinstream, tmp_path):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    x = np.random.default_rng(0).normal(size=(2, 100, 3))
    for library in ("pymc", "numpyro", "cmdstanpy"):
        arrays = {name: (("chain", "draw"), x[..., i]) for i, name in enumerate("abc")}
        posterior = xarray.Dataset(arrays, attrs={"inference_library": library})
        xarray.DataTree.from_dict({"posterior": posterior}).to_netcdf(tmp_path / f"{library}.nc", engine="h5netcdf")
    for library in ("pymc", "numpyro"):
        printed = steinstream("inspect", f"{library}.nc").stdout
        assert "not all variables that are functions of others are recognised: name the parameters" in printed
    assert "are recognised" not in steinstream("inspect", "pymc.nc", "--parameters", "a,b").stdout
    assert "are recognised" not in steinstream("inspect", "cmdstanpy.nc").stdout


def test_kept_sets_and_checkpoints_are_described(steinstream, chain, tmp_path):
    steinstream("thin", chain, "-o", "kept.npz", "--size", 20, "--weights", "--order")
    ran = steinstream("inspect", "kept.npz")
    assert "kept set    Kept(20 of " in ran.stdout and "with weights and order" in ran.stdout, ran.stderr
    thinner = ss.Thinner(2, size=10)
    x = np.random.default_rng(0).normal(size=(100, 2))
    thinner.extend(x, -x)
    thinner.save(tmp_path / "state.npz")
    ran = steinstream("inspect", "state.npz")
    assert ran.returncode == 0 and "checkpoint of a run: 100 draws, 2 parameters" in ran.stdout, ran.stderr
    assert f"10 draws, KSD {thinner.ksd:.3g}" in ran.stdout and "Thinner.load" in ran.stdout
    with np.load(tmp_path / "state.npz") as file:
        arrays = {**file, "checksum": np.array("0")}
    np.savez(tmp_path / "state.npz", **arrays)
    ran = steinstream("inspect", "state.npz")
    assert ran.returncode == 2 and "its checksum does not match" in ran.stderr and "Traceback" not in ran.stderr


def test_problems_are_warnings_for_scripts(steinstream, tmp_path):
    write_chain(tmp_path / "c.npz", sign=-1.0)
    ran = steinstream("inspect", "c.npz", "--strict", "--json")
    assert ran.returncode == 3 and "negated" in json.loads(ran.stdout)["warnings"][0]
    assert "negated" in steinstream("inspect", "c.npz", "--quiet").stderr
    write_chain(tmp_path / "c.npz")
    ran = steinstream("inspect", "c.npz", "--strict", "--quiet")
    assert ran.returncode == 0 and ran.stderr == ran.stdout == ""
    np.savez(tmp_path / "transposed.npz", draws=np.random.default_rng(0).normal(size=(3, 900)))
    assert "warning: axes:" in steinstream("inspect", "transposed.npz", "--quiet").stderr


def test_a_pattern_of_chains_is_not_called_a_damaged_kept_set(steinstream, tmp_path):
    for number in range(2):
        write_chain(tmp_path / f"c{number}.npz")
    ran = steinstream("inspect", "c*.npz")
    assert ran.returncode == 0 and "2 chains" in ran.stdout and "kept set" not in ran.stdout
    ran = steinstream("inspect", "c0*.npz")
    assert ran.returncode == 0 and "kept set" not in ran.stdout
