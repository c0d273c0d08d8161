"""NetCDF, as ArviZ, PyMC and nutpie write it: read lazily through xarray, in slabs.

Files of netCDF-4 (HDF5) go through h5netcdf, whichever library wrote them; classic ones through scipy. Classic files
have no groups, so that draws and scores have to be named.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import IO, Any

from steinstream.errors import InputError
from steinstream.io.chain import Chain, Request
from steinstream.io.datatree import chain_of_datatree, kept_of_datatree, to_datatree
from steinstream.io.problems import need, reading
from steinstream.kept import Kept

_HDF5, _CLASSIC = b"\x89HDF\r\n\x1a\n", (b"CDF\x01", b"CDF\x02", b"CDF\x05")

#: How a file is opened: nothing is read before it is asked for, not even the numbers of the draws.
LAZY: dict[str, Any] = {"create_default_indexes": False, "cache": False, "decode_timedelta": False}


def is_hdf5(path: Path, head: bytes) -> bool:
    """Whether a file that begins like this is HDF5."""
    return head.startswith(_HDF5)


def matches(path: Path, head: bytes) -> bool:
    """Whether a file that begins like this is NetCDF; every HDF5 file is read as such."""
    return head.startswith((_HDF5, *_CLASSIC))


def libraries() -> Any:
    """Xarray, with what it needs for NetCDF."""
    need("h5netcdf", "netcdf")
    return need("xarray", "netcdf")


def open_netcdf(request: Request) -> Chain:
    """Open the variables of one file."""
    alone(request)
    return chain_of_datatree(
        _tree(request.path),
        draws_name=request.draws_name,
        scores_name=request.scores_name,
        path=request.path,
        kind="NetCDF",
    )


def alone(request: Request) -> None:
    """Refuse a second file."""
    if request.scores is not None:
        raise InputError(
            f"--scores {request.scores} was given, but {request.path} holds draws and scores both.",
            "Leave out --scores, and name the variables with --draws-name and --scores-name.",
        )


def write_netcdf(kept: Kept, file: IO[bytes]) -> None:
    """The kept draws as a DataTree in a file of netCDF-4."""
    libraries()
    for name in (*(kept.names or ()), *kept.variables):
        if "\0" in name:
            raise InputError(f"NetCDF cannot hold the name {name!r}.", "Rename the parameter, or write npz or csv.")
    file.write(to_datatree(kept).to_netcdf(engine="h5netcdf"))


def read_netcdf(path: Path) -> Kept:
    """What ``write_netcdf`` wrote."""
    with reading(path, "NetCDF"), _tree(path) as tree:
        return kept_of_datatree(tree, str(path))


def _tree(path: Path) -> Any:
    xarray = libraries()
    with reading(path, "NetCDF"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with path.open("rb") as file:
            classic = file.read(4) in _CLASSIC
        if classic:
            need("scipy", "netcdf")
            return xarray.DataTree(xarray.open_dataset(path, engine="scipy", **LAZY))
        return xarray.open_datatree(path, engine="h5netcdf", phony_dims="access", **LAZY)
