"""Zarr stores, version 2 or 3, in a folder or a zip file: read lazily through xarray, in slabs of whole chunks."""

from __future__ import annotations

import warnings
import zipfile
from pathlib import Path
from typing import Any

from steinstream.io.chain import Chain, Request
from steinstream.io.datatree import chain_of_datatree, kept_of_datatree, to_datatree
from steinstream.io.netcdf import LAZY, alone
from steinstream.io.problems import need, reading
from steinstream.kept import Kept

_MARKS = ("zarr.json", ".zgroup", ".zmetadata")


def is_store(path: Path) -> bool:
    """Whether the folder is a Zarr store."""
    return any((path / mark).is_file() for mark in _MARKS)


def matches(path: Path, head: bytes) -> bool:
    """Whether this is a Zarr store, in a folder or a zip file that begins like this."""
    if path.is_dir():
        return is_store(path)
    if not head.startswith(b"PK"):
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            return any(mark in archive.NameToInfo for mark in _MARKS)
    except (zipfile.BadZipFile, OSError):
        return False


def libraries() -> Any:
    """Xarray and zarr."""
    need("zarr", "zarr")
    return need("xarray", "zarr")


def open_zarr(request: Request) -> Chain:
    """Open the variables of one store."""
    alone(request)
    return chain_of_datatree(
        _tree(request.path),
        draws_name=request.draws_name,
        scores_name=request.scores_name,
        path=request.path,
        kind="Zarr",
    )


def write_zarr(kept: Kept, folder: Path) -> None:
    """The kept draws as a DataTree in a store of version 2, which every zarr can read."""
    libraries()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        to_datatree(kept).to_zarr(folder, zarr_format=2, mode="w")


def read_zarr(path: Path) -> Kept:
    """What ``write_zarr`` wrote."""
    with reading(path, "Zarr"), _tree(path) as tree:
        return kept_of_datatree(tree, str(path))


def _tree(path: Path) -> Any:
    xarray = libraries()
    with reading(path, "Zarr"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        store = path if path.is_dir() else need("zarr", "zarr").storage.ZipStore(path, mode="r")
        return xarray.open_datatree(store, engine="zarr", **LAZY)
