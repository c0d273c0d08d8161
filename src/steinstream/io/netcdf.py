"""NetCDF, as ArviZ, PyMC and nutpie write it.

Files of netCDF-4 (HDF5) go through h5netcdf, whichever library wrote them; classic ones through xarray and scipy.
Classic files have no groups, so that draws and scores have to be named.
"""

from __future__ import annotations

import warnings
from contextlib import closing
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from steinstream.errors import InputError
from steinstream.io.base import Chain, Request
from steinstream.io.datatree import LAZY, DataTree, to_datatree
from steinstream.io.errors import need, reading
from steinstream.io.kept_tree import about, kept_of_tree, tables
from steinstream.io.tree import Array, Group, Stored, Tree, group_of
from steinstream.io.tree_chain import open_tree
from steinstream.result import Kept

_HDF5, _CLASSIC = b"\x89HDF\r\n\x1a\n", (b"CDF\x01", b"CDF\x02", b"CDF\x05")


def is_hdf5(path: Path, head: bytes) -> bool:
    """Whether a file that begins like this is HDF5."""
    return head.startswith(_HDF5)


def matches(path: Path, head: bytes) -> bool:
    """Whether a file that begins like this is NetCDF; every HDF5 file is read as such."""
    return head.startswith((_HDF5, *_CLASSIC))


def library() -> Any:
    """What reads and writes netCDF-4."""
    return need("h5netcdf", "netcdf")


def open_netcdf(request: Request) -> Chain:
    """Open the variables of one file."""
    return open_tree(request, _tree, "NetCDF")


def read_netcdf(path: Path) -> Kept:
    """What ``write_netcdf`` wrote."""
    with reading(path, "NetCDF"), closing(_tree(path)) as tree:
        return kept_of_tree(tree, str(path))


def write_netcdf(kept: Kept, file: IO[bytes]) -> None:
    """The kept draws in a file of netCDF-4, which xarray opens as a DataTree."""
    for name in (*(kept.names or ()), *kept.variables):
        if "\0" in name:
            raise InputError(f"NetCDF cannot hold the name {name!r}.", "Rename the parameter, or write npz or csv.")
    groups = tables(kept)
    if not all(table.is_plain for table in groups.values()):
        file.write(to_datatree(kept).to_netcdf(engine="h5netcdf"))
        return
    text = need("h5py", "netcdf").string_dtype()
    written = BytesIO()
    with library().File(written, "w") as root:
        root.attrs.update(about(kept))
        for title, table in groups.items():
            group = root.create_group(title)
            group.dimensions = table.sizes
            for name, dims, values, attrs in table.stored():
                kind = text if values.dtype.kind == "O" else values.dtype
                group.create_variable(name, dims, kind, data=values).attrs.update(attrs)
    file.write(written.getbuffer())


class NetcdfTree(Tree):
    """The groups of a file of netCDF-4."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._root = library().File(path, "r", decode_vlen_strings=True, phony_dims="access")
        self.names, self.attrs = tuple(self._root.groups), self._root.attrs

    def close(self) -> None:
        """Let go of the file."""
        self._root.close()

    def _look(self, name: str) -> Group:
        group = self._root[name] if name else self._root
        found = [Stored(_array(title, variable), variable.attrs) for title, variable in group.variables.items()]
        return group_of(found, group.attrs, lambda: self._decoded.group(name))

    @cached_property
    def _decoded(self) -> Tree:
        xarray = need("xarray", "netcdf")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return DataTree(xarray.open_datatree(self.source, engine="h5netcdf", phony_dims="access", **LAZY))


def _tree(path: Path) -> Tree:
    with reading(path, "NetCDF"):
        with path.open("rb") as file:
            classic = file.read(4) in _CLASSIC
        if not classic:
            return NetcdfTree(path)
        need("scipy", "netcdf")
        xarray = need("xarray", "netcdf")
        return DataTree(xarray.DataTree(xarray.open_dataset(path, engine="scipy", **LAZY)))


def _array(name: str, variable: Any) -> Array:
    return Array(name, variable.dimensions, variable.shape, variable.dtype, variable.chunks, variable.__getitem__)
