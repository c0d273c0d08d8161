"""Memory follows what is kept, not what was seen."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import steinstream as ss


def peak(work):
    """Megabytes that the work takes at its height, compilation left out."""
    work(200)
    tracemalloc.start()
    try:
        work(None)
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


def test_ksd_of_many_points_needs_no_matrix():
    x = np.random.default_rng(0).normal(size=(20_000, 3))
    assert peak(lambda count: ss.ksd(x[:count], -x[:count])) < 20  # the matrix would take 3200


def test_a_long_stream_leaves_no_trace():
    rng = np.random.default_rng(0)

    def work(blocks):
        thinner = ss.Thinner(4, size=100)
        for _ in range(blocks or 300):
            x = rng.normal(size=(1000, 4))
            thinner.extend(x, -x)

    assert peak(work) < 2


PROGRAM = """
import sys
from pathlib import Path
from steinstream.cli import commands
commands.main(["thin", sys.argv[1], "-o", sys.argv[1] + sys.argv[2], "--size", "50"], standalone_mode=False)
print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
"""
needs_proc = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="needs /proc to tell the peak of resident memory"
)


def resident(path, suffix=".npz"):
    """Megabytes that a process holds at most while it thins a file."""
    ran = subprocess.run([sys.executable, "-c", PROGRAM, str(path), suffix], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return int(ran.stdout.split()[-1]) / 1024


@needs_proc
def test_the_command_line_never_holds_a_file_whole(tmp_path):
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
    """200 MB of draws and scores in two chains, against a hundredth of them; 2 GB differ only in time."""
    xarray = pytest.importorskip("xarray", reason="xarray is not installed")
    pytest.importorskip("h5netcdf" if kind == "nc" else "zarr")
    used = []
    for draws in (6250, 625_000):
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
