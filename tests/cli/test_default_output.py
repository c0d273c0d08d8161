"""``steinstream thin`` without ``-o``: a summary, and a file next to the input that replaces nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import steinstream as ss
from steinstream.cli.paths import default_output
from tests.conftest import write_chain


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


def arrays(path):
    with np.load(path) as file:
        return file["draws"], file["scores"]


def test_a_kept_set_is_replaced_by_the_next_run(steinstream, tmp_path):
    write_chain(tmp_path / "chain.npz", draws=300)
    for size in (20, 30):
        assert steinstream("thin", "chain.npz", "--size", size).returncode == 0
        assert len(ss.Kept.load(tmp_path / "chain.kept.npz")) == size


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
        assert ran.returncode == 2 and "chain-1.kept.npz is also an input file" in ran.stderr, chains
    assert (tmp_path / "chain-1.kept.npz").read_bytes() == before
