"""Time and memory of reading a chain of 2 GB in the layout of ArviZ, against xarray.

Every reader iterates over one file in a process of its own, and the file is in the system's cache. *xarray* opens the
file lazily and reads draws and scores with `isel`, in slices of whole chunks of about 4 MB. The time is the shortest of
three; the memory is the peak of the process, imports included. A quick pass reads 100 MB.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.table import Options, Row, at_most

CHAINS, DIM = 4, 1000
DIMS = ("chain", "draw", "unconstrained_parameter")
NAMES = ("unconstrained_draw", "gradient")
LIMIT = 300  # megabytes

PROGRAM = """
import json, sys, time, warnings
from pathlib import Path
warnings.simplefilter("ignore")
reader, path = sys.argv[1:]

def steinstream():
    from steinstream.io import open_chain
    for block in open_chain(path).blocks():
        yield block.draws, block.scores

def xarray():
    import xarray
    engine = "zarr" if path.endswith(".zarr") else "h5netcdf"
    tree = xarray.open_datatree(path, engine=engine, cache=False, create_default_indexes=False)
    draws, scores = (tree["sample_stats"][name] for name in ("unconstrained_draw", "gradient"))
    chunks = draws.encoding.get("chunks") or draws.encoding.get("chunksizes") or (1, 1)
    rows = chunks[1] * max(1, (4 << 20) // (8 * chunks[1] * draws.shape[2]))
    for chain in range(draws.sizes["chain"]):
        for start in range(0, draws.sizes["draw"], rows):
            box = {"chain": chain, "draw": slice(start, start + rows)}
            yield draws.isel(box).values, scores.isel(box).values

start, total = time.perf_counter(), 0.0
for draws, scores in globals()[reader]():
    total += float(draws[:, 0].sum() + 2 * scores[:, -1].sum())
peak = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024  # maxrss is inherited
print(json.dumps({"seconds": time.perf_counter() - start, "megabytes": peak, "total": total}))
"""


def run(options: Options) -> list[Row]:
    draws, rounds = (1600, 1) if options.quick else (31_250, 3)
    rows = []
    with tempfile.TemporaryDirectory(prefix="steinstream-benchmarks-") as folder:
        for title, (suffix, write, settings) in FILES.items():
            path = Path(folder) / f"chain{suffix}"
            write(path, draws, settings)
            rows += compare(title, path, 2 * 8 * CHAINS * draws * DIM / 1e9, rounds)
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return rows


def compare(title: str, path: Path, gigabytes: float, rounds: int) -> list[Row]:
    """Read a file with both readers in turn."""
    runs: dict[str, list[dict[str, float]]] = {"steinstream": [], "xarray": []}
    for _ in range(rounds + 1):  # the first round brings the file into the cache
        for reader, found in runs.items():
            found.append(measure(reader, path))
    totals = {round(run["total"], 6) for found in runs.values() for run in found}
    if len(totals) > 1:
        raise AssertionError(f"{title}: the readers disagree: {totals}")
    seconds = {reader: min(run["seconds"] for run in found[1:]) for reader, found in runs.items()}
    megabytes = {reader: max(run["megabytes"] for run in found) for reader, found in runs.items()}
    return [
        {
            "file": title,
            "GB": gigabytes,
            "reader": reader,
            "s": seconds[reader],
            "time / xarray's": seconds[reader] / seconds["xarray"],
            "peak MB": megabytes[reader],
            "goal": "" if reader == "xarray" else at_most(megabytes[reader], LIMIT),
        }
        for reader in runs
    ]


def measure(reader: str, path: Path) -> dict[str, float]:
    """Run one reader in a process of its own."""
    environment = {**os.environ, "ZARR_THREADING__MAX_WORKERS": "2"}  # as on the command line
    command = [sys.executable, "-c", PROGRAM, reader, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def fill(arrays: list[object], draws: int) -> None:
    """Write normal draws, and minus the draws as scores, chain by chain."""
    rng = np.random.default_rng(0)
    step = 2048
    for chain in range(CHAINS):
        for start in range(0, draws, step):
            block = rng.normal(size=(min(step, draws - start), DIM))
            for sign, array in zip((1.0, -1.0), arrays, strict=True):
                array[chain, start : start + step] = sign * block


def netcdf(path: Path, draws: int, settings: dict[str, object]) -> None:
    import h5netcdf

    with h5netcdf.File(path, "w") as file:
        group = file.create_group("sample_stats")
        group.dimensions = dict(zip(DIMS, (CHAINS, draws, DIM), strict=True))
        fill([group.create_variable(name, DIMS, float, **settings) for name in NAMES], draws)


def zarr(path: Path, draws: int, settings: dict[str, object]) -> None:
    import zarr

    group = zarr.create_group(path, zarr_format=3).create_group("sample_stats")
    shape = (CHAINS, draws, DIM)
    fill(
        [group.create_array(name, shape=shape, dtype=float, dimension_names=DIMS, **settings) for name in NAMES], draws
    )


FILES: dict[str, tuple[str, Callable[[Path, int, dict[str, object]], None], dict[str, object]]] = {
    "NetCDF, contiguous": (".nc", netcdf, {}),
    "NetCDF, chunks of 4 MB": (".nc", netcdf, {"chunks": (1, 512, DIM)}),
    "NetCDF, deflated": (".nc", netcdf, {"chunks": (1, 512, DIM), "compression": "gzip", "compression_opts": 1}),
    "Zarr, chunks of 4 MB": (".zarr", zarr, {"chunks": (1, 512, DIM)}),
    "Zarr, automatic chunks": (".zarr", zarr, {"chunks": "auto"}),
}
