"""Reading files of draws and scores, as a ratio to the tools' own readers.

Each reader goes through the whole file in blocks of 8192 draws and holds no more; the file is in the system's cache.
Megabytes are those of the file for csv and of the numbers for Zarr and NetCDF. *pandas* is `read_csv` with `chunksize`,
by default and with `float_precision="round_trip"`; ours always rounds exactly. *xarray* opens the store lazily and
reads draws and scores slice by slice, aligned with the chunks: one chain, 8192 draws.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.race import race
from benchmarks.table import Options, Row, at_least
from steinstream.io import open_chain

ROWS, DIM = 8192, 10


def run(options: Options) -> list[Row]:
    warnings.simplefilter("ignore")  # pandas about float_precision, zarr about strings
    draws, rounds = (60_000, 3) if options.quick else (100_000, 15)
    with tempfile.TemporaryDirectory(prefix="steinstream-benchmarks-") as folder:
        return [row for make in (csv, trees) for row in make(Path(folder), draws, rounds)]


def ours(path: Path) -> Callable[[], object]:
    return lambda: sum(len(block.draws) for block in open_chain(path).blocks(ROWS))


def rows(what: str, megabytes: float, contenders: dict[str, Callable[[], object]], rounds: int) -> list[Row]:
    best = race({name: lambda read=read: read for name, read in contenders.items()}, 0, rounds)
    return [
        {
            "file": what,
            "reader": name,
            "MB/s": megabytes / seconds,
            "speed of ours / its": seconds / best["steinstream"],
            "goal": "" if name == "steinstream" else at_least(seconds / best["steinstream"], 1.0),
        }
        for name, seconds in best.items()
    ]


def csv(folder: Path, draws: int, rounds: int) -> list[Row]:
    import pandas

    def panda(path: Path, **how: object) -> Callable[[], object]:
        return lambda: sum(len(part.to_numpy()) for part in pandas.read_csv(path, chunksize=ROWS, **how))

    table = np.random.default_rng(0).normal(size=(draws, 2 * DIM)) * 10.0 ** np.arange(-DIM, DIM)
    header = ",".join([f"a{i}" for i in range(DIM)] + [f"score_a{i}" for i in range(DIM)])
    found = []
    for digits in (17, 6):
        path = folder / f"{digits}.csv"
        np.savetxt(path, table, fmt=f"%.{digits}g", delimiter=",", header=header, comments="")
        contenders = {
            "steinstream": ours(path),
            "pandas": panda(path),
            "pandas, round_trip": panda(path, float_precision="round_trip"),
        }
        found += rows(f"csv, {digits} digits", path.stat().st_size / 1e6, contenders, rounds)
    return found


def trees(folder: Path, draws: int, rounds: int) -> list[Row]:
    import xarray

    table = np.random.default_rng(0).normal(size=(4, draws, DIM))
    dims = ("chain", "draw", "unconstrained_parameter")
    stats = xarray.Dataset({"unconstrained_draw": (dims, table), "gradient": (dims, -table)})
    tree = xarray.DataTree.from_dict({"sample_stats": stats})

    def encoded(how: dict[str, object]) -> dict[str, dict[str, object]]:
        return {"/sample_stats": {"unconstrained_draw": how, "gradient": how}}

    shape = (1, ROWS, DIM)
    for version in (2, 3):
        tree.to_zarr(folder / f"Zarr {version}", zarr_format=version, encoding=encoded({"chunks": shape}))
    for title, how in (("NetCDF", {}), ("NetCDF, deflated", {"zlib": True, "complevel": 1})):
        tree.to_netcdf(folder / title, engine="h5netcdf", encoding=encoded({"chunksizes": shape, **how}))

    def read(path: Path, engine: str) -> int:
        count = 0
        with xarray.open_datatree(path, engine=engine) as tree:
            arrays = [tree["sample_stats"][name] for name in ("unconstrained_draw", "gradient")]
            for chain in range(4):
                for start in range(0, draws, ROWS):
                    count += sum(array[chain, start : start + ROWS].values.size for array in arrays)
        return count

    found = []
    for title in ("Zarr 2", "Zarr 3", "NetCDF", "NetCDF, deflated"):
        path, engine = folder / title, "zarr" if title.startswith("Zarr") else "h5netcdf"
        contenders = {"steinstream": ours(path), "xarray": partial(read, path, engine)}
        found += rows(title, 2 * table.nbytes / 1e6, contenders, rounds)
    return found
