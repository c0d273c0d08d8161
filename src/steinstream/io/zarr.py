"""Zarr stores, version 2 or 3, in a folder or a zip file."""

from __future__ import annotations

import struct
import warnings
import zipfile
from base64 import standard_b64decode
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any

from steinstream.errors import InputError
from steinstream.io.base import Chain, Request
from steinstream.io.datatree import LAZY, DataTree, to_datatree
from steinstream.io.errors import need, reading
from steinstream.io.kept_tree import about, kept_of_tree, tables
from steinstream.io.tree import Array, Group, Stored, Tree, group_of
from steinstream.io.tree_chain import open_tree
from steinstream.result import Kept

_DIMS = "_ARRAY_DIMENSIONS"
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


def library() -> Any:
    """What reads and writes Zarr."""
    return need("zarr", "zarr")


def open_zarr(request: Request) -> Chain:
    """Open the variables of one store."""
    return open_tree(request, ZarrTree, "Zarr")


def read_zarr(path: Path) -> Kept:
    """What ``write_zarr`` wrote."""
    with reading(path, "Zarr"), closing(ZarrTree(path)) as tree:
        return kept_of_tree(tree, str(path))


def write_zarr(kept: Kept, folder: Path) -> None:
    """The kept draws in a store of version 2, which every zarr can read, and which xarray opens as a DataTree."""
    groups, zarr = tables(kept), library()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not all(table.is_plain for table in groups.values()):
            to_datatree(kept).to_zarr(folder, zarr_format=2, mode="w")
            return
        root = zarr.create_group(folder, zarr_format=2, overwrite=True, attributes=about(kept))
        for title, table in groups.items():
            group = root.create_group(title)
            for name, dims, values, attrs in table.stored():
                kind = str if values.dtype.kind == "O" else values.dtype
                about_it = {_DIMS: list(dims), **attrs}
                array = group.create_array(name, shape=values.shape, dtype=kind, fill_value=None, attributes=about_it)
                array[...] = values
        zarr.consolidate_metadata(folder)


class ZarrTree(Tree):
    """The groups of a store."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with reading(path, "Zarr"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._root = library().open_group(self._store(), mode="r")
            self.names, self.attrs = tuple(self._root.group_keys()), self._root.attrs

    def close(self) -> None:
        """Let go of a zip file."""
        self._root.store.close()

    def _store(self) -> Any:
        return self.source if self.source.is_dir() else library().storage.ZipStore(self.source, mode="r")

    def _look(self, name: str) -> Group:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            group = self._root[name] if name else self._root
            found = [_stored(title, array) for title, array in group.arrays()]
            return group_of(found, group.attrs, lambda: self._decoded.group(name))

    @cached_property
    def _decoded(self) -> Tree:
        xarray = need("xarray", "zarr")
        try:
            return DataTree(xarray.open_datatree(self._store(), engine="zarr", **LAZY))
        except KeyError as problem:
            raise InputError(
                f"{self.source}: {problem.args[0]}",
                f"Name the dimensions: dimension_names in version 3, the attribute {_DIMS} in version 2.",
            ) from problem


def _stored(name: str, array: Any) -> Stored:
    """An array with its attributes, whose conventions differ between the versions."""
    attrs = dict(array.attrs)
    fills: tuple[Any, ...] = ()
    if array.metadata.zarr_format == 2:
        dims = attrs.get(_DIMS, ())
        fills = () if array.fill_value is None else (array.fill_value,)
    else:
        dims = array.metadata.dimension_names or ()
        if array.dtype.kind == "f" and "_FillValue" in attrs:
            fills = struct.unpack("<d", standard_b64decode(attrs.pop("_FillValue")))
    try:
        chunks = array.chunks
    except NotImplementedError:  # they differ in size
        chunks = None
    return Stored(Array(name, tuple(dims), array.shape, array.dtype, chunks, array.__getitem__), attrs, fills)
