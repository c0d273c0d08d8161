"""``steinstream thin`` without ``-o``: a summary, and a file next to the input that replaces nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import steinstream as ss
from steinstream.cli.paths import default_output
from steinstream.io import open_chain
from tests.conftest import write_chain
from tests.stan_runs import sample


@pytest.mark.parametrize(
    ("chain", "output"),
    [
        ("chain.npz", "chain.kept.npz"),
        ("chain.csv", "chain.kept.csv"),
        ("chain.csv.gz", "chain.kept.csv.gz"),
        ("runs/fit.nc", "runs/fit.kept.nc"),
        ("fit.zarr", "fit.kept.zarr"),
        ("draws.parquet", "draws.kept.parquet"),
        ("draws.npy", "draws.kept.npz"),
        ("samples.h5", "samples.kept.npz"),
        ("out.1.csv", "out.1.kept.csv"),
    ],
)
def test_the_output_is_named_after_the_first_file(chain, output):
    assert default_output([Path(chain), Path("other.csv")]) == Path(output)


def test_the_summary_of_the_parameters_is_printed(steinstream, tmp_path):
    write_chain(tmp_path / "chain.npz", draws=500)
    ran = steinstream("thin", "chain.npz", "--size", 40)
    assert ran.returncode == 0, ran.stderr
    kept = ss.Kept.load(tmp_path / "chain.kept.npz")
    assert len(kept) == 40 and "wrote chain.kept.npz" in ran.stdout
    table = str(ss.thin(*arrays(tmp_path / "chain.npz"), size=40).with_names(kept.names).summary())
    assert table in ran.stdout
    assert table not in steinstream("thin", "chain.npz", "--size", 40, "-o", "kept.npz").stdout


def test_a_table_is_not_a_complete_kept_set(steinstream, tmp_path):
    x = np.random.default_rng(0).normal(size=(300, 2))
    np.savetxt(tmp_path / "chain.csv", x, delimiter=",", header="a,b", comments="")
    ran = steinstream("thin", "chain.csv", "--size", 40)
    assert ran.returncode == 0 and "need a complete kept set: -o kept.npz" in ran.stdout
    np.savez(tmp_path / "chain.npz", draws=x)
    assert "complete kept set" not in steinstream("thin", "chain.npz", "--size", 40).stdout


def write_format(suffix, folder):
    """Write 300 draws of two parameters to a file; return it, and whether it has scores."""
    x = np.random.default_rng(0).normal(size=(300, 2))
    path = folder / f"chain{suffix}"
    if suffix == ".npy":
        np.save(path, x)
    elif suffix == ".h5":
        h5py = pytest.importorskip("h5py")
        with h5py.File(path, "w") as file:  # as emcee writes it
            group = file.create_group("mcmc")
            group.attrs.update(version="3", nwalkers=6, ndim=2, has_blobs=False, iteration=50)
            group["chain"], group["log_prob"], group["accepted"] = x.reshape(50, 6, 2), np.zeros((50, 6)), np.zeros(6)
    elif suffix == "-diagnostic-1.csv":
        return sample(folder, samples=300, name="chain"), True
    else:
        pytest.importorskip({".parquet": "pyarrow", ".nc": "h5netcdf", ".zarr": "zarr"}.get(suffix, "numpy"))
        ss.thin(x, -x, size=300).with_names(["a", "b"]).save(path)
    return path, suffix not in (".npy", ".h5")


@pytest.mark.parametrize(
    "suffix", [".npz", ".npy", ".csv", ".csv.gz", ".parquet", ".nc", ".zarr", ".h5", "-diagnostic-1.csv"]
)
def test_every_format_is_thinned_to_a_file_next_to_it(steinstream, tmp_path, suffix):
    chain, has_scores = write_format(suffix, tmp_path)
    output = default_output([chain])
    ran = steinstream("thin", chain.name, "--size", 30)
    assert ran.returncode == 0, ran.stderr
    assert f"wrote {output}" in ran.stdout.replace("wrote ", f"wrote {tmp_path}/") and output.exists()
    for word in ("kept 30 of 300 draws", "mean", "sd", "5%", "50%", "95%", "difference"):
        assert word in ran.stdout
    kept = open_chain(output)
    assert sum(len(block.ids) for block in kept.blocks()) == 30 and kept.has_scores == has_scores


def arrays(path):
    with np.load(path) as file:
        return file["draws"], file["scores"]


def test_a_result_is_replaced_on_request_only(steinstream, tmp_path):
    write_chain(tmp_path / "chain.npz", draws=300)
    assert steinstream("thin", "chain.npz", "--size", 20).returncode == 0
    ran = steinstream("thin", "chain.npz", "--size", 30)
    assert ran.returncode == 2 and "chain.kept.npz exists" in ran.stderr and "add -o chain.kept.npz" in ran.stderr
    assert len(ss.Kept.load(tmp_path / "chain.kept.npz")) == 20
    assert steinstream("thin", "chain.npz", "--size", 30, "-o", "chain.kept.npz").returncode == 0


@pytest.mark.parametrize("name", ["chain.kept.npz", "chain.kept.csv"])
def test_another_file_is_never_replaced(steinstream, tmp_path, name):
    write_chain(tmp_path / "chain.npz", draws=300)
    x, s = arrays(tmp_path / "chain.npz")
    header = "a,b,c,score_a,score_b,score_c"
    np.savetxt(tmp_path / "chain.csv", np.hstack([x, s]), delimiter=",", header=header, comments="")
    chain = name.replace(".kept", "")
    (tmp_path / name).write_bytes((tmp_path / chain).read_bytes())
    ran = steinstream("thin", chain, "--size", 20)
    assert ran.returncode == 2 and f"To replace it, add -o {name}" in ran.stderr
    assert (tmp_path / name).read_bytes() == (tmp_path / chain).read_bytes()
    assert steinstream("thin", chain, "--size", 20, "-o", name).returncode == 0


def test_a_kept_set_among_the_chains_is_noticed(steinstream, tmp_path):
    for i in (1, 2):
        write_chain(tmp_path / f"chain-{i}.npz", draws=300, seed=i)
    assert steinstream("thin", "chain-1.npz", "chain-2.npz", "--size", 20).returncode == 0
    before = (tmp_path / "chain-1.kept.npz").read_bytes()
    for chains in (["chain-1.npz", "chain-1.kept.npz"], ["chain-1.kept.npz", "chain-1.npz"], ["chain-*.npz"]):
        ran = steinstream("thin", *chains, "--size", 20)
        assert ran.returncode == 2 and "error: chain-1.kept.npz " in ran.stderr, chains
    assert (tmp_path / "chain-1.kept.npz").read_bytes() == before
