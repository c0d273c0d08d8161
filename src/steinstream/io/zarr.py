"""Zarr stores in the layout of ArviZ (:mod:`steinstream.io.arviz_chain`): version 2 or 3, in a folder or a zip file."""

from __future__ import annotations

import json
import re
import struct
import warnings
import zipfile
from base64 import standard_b64decode
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from steinstream.io._labelled_arrays import ArrayTree, Group, StoredArray, describe_group
from steinstream.io.arviz_chain import open_tree
from steinstream.io.arviz_kept import LIBRARY, check_names, kept_attributes, kept_groups, kept_of_tree
from steinstream.io.base import Chain, Request
from steinstream.io.errors import DAMAGE, need, reading
from steinstream.result import Kept

_DIMS = "_ARRAY_DIMENSIONS"
_METADATA = ("zarr.json", ".zgroup", ".zmetadata")
_OWN_FILE = re.compile(r"\.z(group|attrs|array|metadata)|\d+(\.\d+)*")


def is_zarr_folder(path: Path) -> bool:
    """Return whether a folder is a Zarr store."""
    return any((path / name).is_file() for name in _METADATA)


def is_own_store(path: Path) -> bool:
    """Return whether a folder is a store that `write_zarr` wrote, with no other files in it."""
    try:
        attributes = json.loads((path / ".zattrs").read_text("utf-8"))
        own = attributes.get("inference_library") == LIBRARY
        files = [file for file in path.rglob("*") if file.is_symlink() or not file.is_dir()]
        return own and all(_OWN_FILE.fullmatch(file.name) and not file.is_symlink() for file in files)
    except DAMAGE:
        return False


def is_zarr(path: Path, head: bytes) -> bool:
    """Return whether this is a Zarr store, in a folder or a zip file that begins with ``head``."""
    if path.is_dir():
        return is_zarr_folder(path)
    if not head.startswith(b"PK"):
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name in archive.NameToInfo for name in _METADATA)
    except DAMAGE:
        return False


def import_zarr() -> Any:
    """Import zarr."""
    return need("zarr", "zarr")


def open_zarr(request: Request) -> Chain:
    """Open the chain in a store."""
    return open_tree(request, ZarrTree, "Zarr")


def read_zarr(path: Path) -> Kept:
    """Read a kept set that `write_zarr` wrote."""
    with reading(path, "Zarr"), closing(ZarrTree(path)) as tree:
        return kept_of_tree(tree, str(path))


def write_zarr(kept: Kept, folder: Path, *, stacked: bool = True) -> None:
    """Write a kept set as a store of version 2, which every zarr reads and xarray opens as a DataTree."""
    zarr = import_zarr()
    check_names(kept, "Zarr")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        root = zarr.create_group(folder, zarr_format=2, overwrite=True, attributes=kept_attributes(kept))
        for title, content in kept_groups(kept, stacked=stacked).items():
            group = root.create_group(title)
            for name, dims, values, attrs in content.encoded():
                kind = str if values.dtype.kind == "O" else values.dtype
                own = {_DIMS: list(dims), **attrs}
                array = group.create_array(name, shape=values.shape, dtype=kind, fill_value=None, attributes=own)
                array[...] = values
        zarr.consolidate_metadata(folder)


class ZarrTree(ArrayTree):
    """The groups of a store."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with reading(path, "Zarr"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            store = path if path.is_dir() else import_zarr().storage.ZipStore(path, mode="r")
            self._root = import_zarr().open_group(store, mode="r")
            self.names, self.attrs = tuple(self._root.group_keys()), self._root.attrs

    def close(self) -> None:
        """Close a zip file."""
        self._root.store.close()

    def attributes(self, name: str) -> Mapping[str, Any]:
        """Return the attributes of a group."""
        found: Mapping[str, Any] = self._root[name].attrs
        return found

    def _inspect(self, name: str) -> Group:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            group = self._root[name] if name else self._root
            found = [_describe(title, array) for title, array in group.arrays()]
            return describe_group(self.source, found, group.attrs)


def _describe(name: str, array: Any) -> tuple[StoredArray, dict[str, Any]]:
    """Describe an array, and return its attributes in the conventions of NetCDF."""
    attrs = dict(array.attrs)
    if array.metadata.zarr_format == 2:
        dims = attrs.get(_DIMS, ())
        if array.fill_value is not None:
            attrs.setdefault("_FillValue", array.fill_value)
    else:
        dims = array.metadata.dimension_names or ()
        if array.dtype.kind == "f" and isinstance(attrs.get("_FillValue"), str):
            attrs["_FillValue"] = struct.unpack("<d", standard_b64decode(attrs["_FillValue"]))[0]
    try:
        chunks = array.chunks
    except NotImplementedError:  # chunks of different sizes
        chunks = None
    return StoredArray(name, tuple(dims), array.shape, array.dtype, chunks, array.__getitem__), attrs
