"""Small valid files of every format, which the cases mutate."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
import zipfile
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np

import steinstream as ss
from steinstream.io import write_kept

NAMES = ["a", "b", "c"]
DRAWS = np.random.default_rng(0).normal(size=(2, 40, 3))  # (chain, draw, parameter)
SCORES = -DRAWS

#: Options of the commands whose checkpoints are forged.
RESUMABLE = {
    "default.state": ["thin", "chain.npz"],
    "size.state": ["thin", "chain.npz", "--size", "10", "--passes", "3"],
    "paper.state": ["thin", "chain.npz", "--paper", "--size", "8"],
    "scale.state": ["thin", "chain.npz", "--preconditioner", "streaming", "--candidates", "3"],
    "noscores.state": ["thin", "noscores.csv", "--size", "8"],
    "follow.state": ["follow", "chain.csv", "--size", "8", "--until-idle", "0"],
    "monotone.state": ["thin", "chain.csv", "--rule", "monotone", "--budget", "0.01", "--kernel", "rbf"],
}

#: The command that continues in a forged folder of workers, which contains the absolute path of the input.
WORKERS = ["thin", "/proc/self/cwd/chain.npz", "--size", "8", "--workers", "0", "--checkpoint", "work", "--resume"]


def tree() -> Any:
    """Return a run in the layout of ArviZ."""
    import xarray as xr

    dims, coords = ("chain", "draw", "unconstrained_parameter"), {"chain": np.arange(2), "draw": np.arange(40)}
    stats = {"gradient": (dims, SCORES), "unconstrained_draw": (dims, DRAWS)}
    labels = {"unconstrained_parameter": np.array(NAMES, object)}
    posterior = xr.Dataset({"mu": (("chain", "draw"), DRAWS[..., 0]), "p": (("chain", "draw", "k"), DRAWS)}, coords)
    return xr.DataTree.from_dict({"posterior": posterior, "sample_stats": xr.Dataset(stats, {**coords, **labels})})


def write_netcdf(path: Path) -> None:
    """Write netCDF-4."""
    tree().to_netcdf(path, engine="h5netcdf")


def write_classic(path: Path) -> None:
    """Write classic NetCDF."""
    import xarray as xr

    dims = ("chain", "draw", "k")
    xr.Dataset({"draws": (dims, DRAWS), "scores": (dims, SCORES)}).to_netcdf(path, engine="scipy")


def write_emcee(path: Path) -> None:
    """Write an HDF5 file as emcee does."""
    import h5py

    blobs = np.zeros((40, 2), [("score", float, 3)])
    blobs["score"] = SCORES.transpose(1, 0, 2)
    with h5py.File(path, "w") as file:
        group = file.create_group("mcmc")
        group.attrs.update({"nwalkers": 2, "ndim": 3, "iteration": 40})
        group["chain"], group["blobs"] = DRAWS.transpose(1, 0, 2), blobs


def write_zarr(path: Path, version: int) -> None:
    """Write a Zarr store of a version."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree().to_zarr(path, zarr_format=version)


def write_zarr_zip(path: Path) -> None:
    """Write a Zarr store as a zip file."""
    with TemporaryDirectory() as folder, zipfile.ZipFile(path, "w") as archive:
        store = Path(folder) / "store"
        write_zarr(store, 3)
        for file in sorted(store.rglob("*")):
            if file.is_file():
                archive.write(file, file.relative_to(store))


def write_npz(path: Path) -> None:
    """Write npz."""
    np.savez(path, draws=DRAWS, scores=SCORES, names=np.array(NAMES))


def write_csv(path: Path, scores: bool = True) -> None:
    """Write csv with the columns of ids, draws and scores."""
    titles = ["chain", "draw", *NAMES, *(f"score_{name}" for name in NAMES if scores)]
    rows = [",".join(titles)]
    for chain, draw in np.ndindex(2, 40):
        values = [*DRAWS[chain, draw], *(SCORES[chain, draw] if scores else [])]
        rows.append(",".join([str(chain), str(draw), *(f"{value:.17g}" for value in values)]))
    path.write_text("\n".join(rows) + "\n")


def write_parquet(path: Path) -> None:
    """Write parquet."""
    import pyarrow
    import pyarrow.parquet

    ids = {"chain": np.repeat([0, 1], 40), "draw": np.tile(np.arange(40), 2)}
    values = {name: DRAWS[..., i].ravel() for i, name in enumerate(NAMES)}
    scores = {f"score_{name}": SCORES[..., i].ravel() for i, name in enumerate(NAMES)}
    pyarrow.parquet.write_table(pyarrow.table({**ids, **values, **scores}), path)


def write_stan(path: Path) -> None:
    """Write a diagnostic file of CmdStan, with its output file next to it."""
    from tests import stan_runs

    made = stan_runs.sample(path.parent, samples=40, name="stan")
    made.rename(path)
    for name in path.parent.glob("stan-1*"):
        name.rename(path.with_name("stan-output.csv"))


def write_kept_set(path: Path, first: int = 0) -> None:
    """Write a kept set."""
    kept = ss.thin(DRAWS[first], SCORES[first], size=8, names=NAMES)
    write_kept(kept.weighted() if first else kept, path)


def write_checkpoint(path: Path) -> None:
    """Write the checkpoint of a command that stops in the middle of the file."""
    from steinstream.cli import _hooks, main
    from steinstream.cli.checkpoints import Checkpoint

    save, saved = Checkpoint.save, list[int]()

    def save_early(self: Checkpoint, thinner: Any) -> None:
        if len(saved) < 3:
            save(self, thinner)
        saved.append(1)

    words = [*RESUMABLE[path.name], "-o", "unused.npz", "--checkpoint", path.name, "--quiet"]
    words += ["--every", "0"] if words[0] == "follow" else []
    with (
        chdir(path.parent),
        patch.object(sys.modules["steinstream.cli.thin"], "_ROWS", 16),
        patch.object(_hooks, "_SAVE_INTERVAL", -1.0),
        patch.object(Checkpoint, "save", save_early),
        patch.object(Checkpoint, "remove", lambda self: None),
        patch.object(sys, "argv", ["steinstream", *words]),
    ):
        try:
            main()
        except SystemExit as ended:
            if ended.code:
                raise
    path.with_name("unused.npz").unlink()


def write_runs(kept: Path, table: Path, array: Path) -> None:
    """Write the outputs of simulations of the kept draws, as a table and as an array in order of use."""
    runs = ss.Kept.load(kept).to_runs().run
    outputs = np.random.default_rng(1).normal(size=(len(runs), 2))
    rows = [f"{run},0,{first:.17g},{second:.17g}" for run, (first, second) in zip(runs, outputs, strict=True)]
    table.write_text("\n".join(["run,status,peak,time", *rows]) + "\n")
    np.save(array, outputs)


def write_work(folder: Path) -> None:
    """Write the folder of a run with workers that was stopped: chain 0 is finished, chain 1 is not."""
    from steinstream import parallel
    from steinstream.cli import main

    save, saved = ss.Kept.save, list[int]()

    def stop(kept: Any, path: Any, *options: Any) -> None:
        if saved:
            raise KeyboardInterrupt
        save(kept, path, *options)
        saved.append(1)

    os.utime(folder.with_name("chain.npz"), ns=(0, 0))  # as in cases
    with (
        chdir(folder.parent),
        patch.object(ss.Kept, "save", stop),
        patch.dict(parallel.thin.__kwdefaults__, every=-1.0),
        patch.object(sys, "argv", ["steinstream", *WORKERS, "-o", "unused.npz", "--quiet"]),
    ):
        try:
            main()
        except SystemExit as ended:
            if ended.code != 130:
                raise
    found = sorted(path.name for path in folder.iterdir())
    if found != ["leaf-00000-stream.npz", "leaf-00000.npz", "leaf-00001-stream.npz", "leaf-00001.checkpoint"]:
        raise RuntimeError(f"unexpected files of workers: {found}")


def make(folder: Path) -> None:
    """Write all files that the installed libraries can write."""
    write_npz(folder / "chain.npz")
    np.save(folder / "chain.npy", DRAWS)
    np.save(folder / "scores.npy", SCORES)
    np.savez(folder / "single.npz", draws=DRAWS[0], scores=SCORES[0])
    write_csv(folder / "chain.csv")
    write_csv(folder / "noscores.csv", scores=False)
    write_stan(folder / "stan-diagnostic.csv")
    write_kept_set(folder / "kept.npz")
    write_kept_set(folder / "other.npz", 1)
    write_kept(ss.Kept.load(folder / "kept.npz").ordered(), folder / "ordered.npz")
    write_runs(folder / "ordered.npz", folder / "outputs.csv", folder / "outputs.npy")
    write_work(folder / "work")
    optional = {
        "chain.parquet": write_parquet,
        "chain.nc": write_netcdf,
        "classic.nc": write_classic,
        "run.h5": write_emcee,
        "two.zarr": lambda path: write_zarr(path, 2),
        "three.zarr": lambda path: write_zarr(path, 3),
        "chain.zarr.zip": write_zarr_zip,
        "kept.nc": write_kept_set,
        "kept.zarr": write_kept_set,
    }
    for name, write in optional.items():
        try:
            write(folder / name)
        except (ImportError, ss.SteinstreamError, ValueError) as error:  # a library is missing
            print(f"left out {name}: {error}", file=sys.stderr)
    for name in RESUMABLE:
        write_checkpoint(folder / name)


def make_in_process(folder: Path) -> None:
    """Write all files in another process, so that libraries start no threads in this one, which is forked later."""
    subprocess.run([sys.executable, "-m", "fuzz.seeds", str(folder)], check=True, cwd=Path(__file__).parents[1])


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files below a folder by their names."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


if __name__ == "__main__":
    make(Path(sys.argv[1]))
