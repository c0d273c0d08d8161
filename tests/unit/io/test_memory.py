"""Reading a file needs the memory of one block, whatever the length of the chain."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from steinstream.io import open_chain

PROGRAM = """
import sys
from pathlib import Path
from steinstream.io import open_chain, write_kept
from steinstream.api import ChainSource, thin_source
from steinstream.thinner.config import ThinConfig
write_kept(thin_source(ChainSource(open_chain(sys.argv[1])), ThinConfig.of(size=50)).kept, sys.argv[1] + sys.argv[2])
print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
"""
needs_proc = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="needs /proc to measure the peak of resident memory"
)


def resident(path, suffix=".npz"):
    """Megabytes that a process holds at most while it thins a file."""
    threads = {
        "ZARR_THREADING__MAX_WORKERS": "2"
    }  # as on the command line: each thread of zarr holds memory of its own
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path), suffix],
        capture_output=True,
        text=True,
        env={**os.environ, **threads},
    )
    assert ran.returncode == 0, ran.stderr
    return int(ran.stdout.split()[-1]) / 1024


@needs_proc
def test_a_long_npz_file_is_never_held_whole(tmp_path):
    """100 MB of draws and scores, against a file with a thousandth of them."""
    used = []
    for draws in (620, 620_000):
        x = np.random.default_rng(0).normal(size=(draws, 10))
        np.savez(tmp_path / f"{draws}.npz", draws=x, scores=-x)
        used.append(resident(tmp_path / f"{draws}.npz"))
    assert used[1] - used[0] < 25


@needs_proc
def test_a_long_csv_file_is_never_held_whole(tmp_path):
    """100 MB of text, against a hundredth of it."""
    x = np.random.default_rng(0).normal(size=(2500, 10))
    rows = "".join(",".join(f"{v:.17g}" for v in row) + "\n" for row in np.hstack([x, -x]).tolist())
    header = ",".join([f"a{i}" for i in range(10)] + [f"score_a{i}" for i in range(10)]) + "\n"
    used = []
    for times in (1, 100):
        with (tmp_path / f"{times}.csv").open("w") as file:
            file.write(header)
            for _ in range(times):
                file.write(rows)
        used.append(resident(tmp_path / f"{times}.csv"))
    assert used[1] - used[0] < 25 and used[1] < 300


@needs_proc
@pytest.mark.parametrize("kind", ["zarr 2", "zarr 3", "nc"])
def test_a_long_store_is_never_held_whole(kind, tmp_path):
    """100 MB of draws and scores in two chains, against a fiftieth of them; benchmarks/reading.py has 2 GB."""
    xarray = pytest.importorskip("xarray", reason="xarray is not installed")
    pytest.importorskip("h5netcdf" if kind == "nc" else "zarr")
    used = []
    for draws in (6250, 312_500):
        x = np.tile(np.random.default_rng(0).normal(size=(2, 6250, 10)), (1, draws // 6250, 1))
        dims = ("chain", "draw", "unconstrained_parameter")
        stats = xarray.Dataset({"unconstrained_draw": (dims, x), "gradient": (dims, -x)}, {"draw": np.arange(draws)})
        chunks = {"chunksizes" if kind == "nc" else "chunks": (1, 6250, 10)}
        how = {"encoding": {"/sample_stats": {"gradient": chunks, "unconstrained_draw": chunks}}}
        tree = xarray.DataTree.from_dict({"sample_stats": stats})
        path = tmp_path / f"{draws}"
        if kind == "nc":
            tree.to_netcdf(path, engine="h5netcdf", **how)
        else:
            tree.to_zarr(path, zarr_format=int(kind[-1]), consolidated=False, **how)
        del x, stats, tree
        if not used:
            resident(path)  # once, so that compiling does not count
        used.append(resident(path, ".npz" if kind == "zarr 2" else ".nc"))
    assert used[1] - used[0] < 50 and used[1] < 300


def test_a_block_of_a_wide_file_has_few_rows(tmp_path):
    width, path = 20_000, tmp_path / "wide.csv"
    row = ",".join(["1.5"] * width)
    path.write_text("\n".join([",".join(f"x{at}" for at in range(width)), *[row] * 3]) + "\n")
    tracemalloc.start()
    try:
        assert sum(len(block.draws) for block in open_chain(path).blocks()) == 3
        assert tracemalloc.get_traced_memory()[1] < 300e6  # 8192 rows would take 1300 MB
    finally:
        tracemalloc.stop()
