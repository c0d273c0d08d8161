"""NetCDF files in the layout of ArviZ (:mod:`steinstream.io.arviz_chain`), as ArviZ, PyMC and nutpie write them.

h5netcdf describes the arrays of a netCDF-4 file, which is an HDF5 file, and h5py reads them. Classic files are read
with SciPy. They have no groups, so draws and scores have to be named.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import numpy as np

from steinstream._typing import AnyArray
from steinstream.errors import InputError
from steinstream.io._labelled_arrays import CF_ATTRIBUTES, ArrayTree, Group, StoredArray, describe_group
from steinstream.io.arviz_chain import open_tree
from steinstream.io.arviz_kept import check_names, kept_attributes, kept_groups, kept_of_tree
from steinstream.io.base import Chain, Request
from steinstream.io.errors import need, reading
from steinstream.result import Kept

_NOT_COMPRESSORS = (2, 3)  # numbers of the filters shuffle and fletcher32 of HDF5
_HDF5, _CLASSIC = b"\x89HDF\r\n\x1a\n", (b"CDF\x01", b"CDF\x02", b"CDF\x05")


def is_hdf5(path: Path, head: bytes) -> bool:
    """Return whether a file that begins with ``head`` is HDF5."""
    return head.startswith(_HDF5)


def is_netcdf(path: Path, head: bytes) -> bool:
    """Return whether a file that begins with ``head`` is NetCDF; every HDF5 file is read as such."""
    return head.startswith((_HDF5, *_CLASSIC))


def import_h5netcdf() -> Any:
    """Import h5netcdf."""
    return need("h5netcdf", "netcdf")


def open_netcdf(request: Request) -> Chain:
    """Open the chain in a file."""
    return open_tree(request, open_array_tree, "NetCDF")


def read_netcdf(path: Path) -> Kept:
    """Read a kept set that `write_netcdf` wrote."""
    with reading(path, "NetCDF"), closing(open_array_tree(path)) as tree:
        return kept_of_tree(tree, str(path))


def write_netcdf(kept: Kept, file: IO[bytes], *, stacked: bool = True) -> None:
    """Write a kept set as netCDF-4, which xarray opens as a DataTree."""
    check_names(kept, "NetCDF")
    text = need("h5py", "netcdf").string_dtype()
    written = BytesIO()
    with import_h5netcdf().File(written, "w") as root:
        root.attrs.update(kept_attributes(kept))
        for title, content in kept_groups(kept, stacked=stacked).items():
            group = root.create_group(title)
            group.dimensions = content.sizes
            for name, dims, values, attrs in content.encoded():
                kind = text if values.dtype.kind == "O" else values.dtype
                group.create_variable(name, dims, kind, data=values).attrs.update(attrs)
    file.write(written.getbuffer())


def open_array_tree(path: Path) -> ArrayTree:
    """Open a netCDF-4 or a classic file."""
    with reading(path, "NetCDF"):
        with path.open("rb") as file:
            classic = file.read(4) in _CLASSIC
        return ClassicTree(path) if classic else NetcdfTree(path)


class NetcdfTree(ArrayTree):
    """The groups of a netCDF-4 file."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        # Whole chunks are read once, so the chunk cache of HDF5 would only cost time and memory.
        self._file = need("h5py", "netcdf").File(path, "r", rdcc_nbytes=0)
        _check_dimension_lists(self._file)
        self._root = _open_h5netcdf(self._file)
        self.names, self.attrs = tuple(self._root.groups), self._root.attrs

    def close(self) -> None:
        self._root.close()
        self._file.close()

    def _inspect(self, name: str) -> Group:
        if name:
            _check_dimension_lists(self._file[name])
        group = self._root[name] if name else self._root
        found = ((self._describe(title, variable), variable.attrs) for title, variable in group.variables.items())
        return describe_group(self.source, found, group.attrs)

    def attributes(self, name: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._root[name].attrs
        return found

    def _describe(self, name: str, variable: Any) -> StoredArray:
        # h5py reads numbers more than twice as fast as h5netcdf, which is needed for strings and its own types. A
        # variable with the name of a dimension that it does not label is stored under another name.
        folder, _, last = variable.name.rpartition("/")
        stored = self._file.get(f"{folder}/_nc4_non_coord_{last}") or self._file.get(variable.name)
        numeric = stored is not None and stored.shape == variable.shape and stored.dtype.kind in "fiu"
        source = stored if numeric else variable

        def read(box: tuple[slice, ...]) -> AnyArray:
            require_one_compressor(self.source, stored)
            values: AnyArray = source[box]
            return values

        return StoredArray(name, variable.dimensions, variable.shape, variable.dtype, variable.chunks, read)


def require_one_compressor(path: Path, array: Any) -> None:
    """Raise an `InputError` if an array of h5py is compressed several times, which multiplies what a chunk expands to.

    HDF5 decompresses a whole chunk, whatever its size is afterwards.
    """
    if array is None:
        return
    properties = array.id.get_create_plist()
    filters = [properties.get_filter(at)[0] for at in range(properties.get_nfilters())]
    if len([one for one in filters if one not in _NOT_COMPRESSORS]) > 1:
        raise InputError(f"{path}: {array.name} is compressed more than once.", "Write it with one filter, or none.")


def _check_dimension_lists(group: Any) -> None:
    """Raise a `ValueError` if the dimensions of an array in an HDF5 group are not stored as HDF5 expects.

    The functions of HDF5 for dimension scales read the attribute ``DIMENSION_LIST`` into a buffer with one element per
    dimension of the array, whatever the size and the type of the attribute. Another one overwrites memory.
    """
    h5py = need("h5py", "netcdf")
    for name in group:
        array = group.get(name)
        if isinstance(array, h5py.Dataset) and "DIMENSION_LIST" in array.attrs:
            stored = array.attrs.get_id("DIMENSION_LIST")
            kind = stored.get_type()
            references = kind.get_class() == h5py.h5t.VLEN and kind.get_super().equal(h5py.h5t.STD_REF_OBJ)
            if not references or stored.shape != (array.id.rank,):
                raise ValueError(f"the list of the dimensions of {name} is damaged")


def _open_h5netcdf(file: Any) -> Any:
    """Open the file of h5py with h5netcdf."""

    class File(import_h5netcdf().File):  # type: ignore[misc]
        """A file whose destructor prints nothing if the constructor fails because the file is damaged."""

        _writable = False

    return File(file, "r", decode_vlen_strings=True, phony_dims="access")


class ClassicTree(ArrayTree):
    """The variables of a classic NetCDF file. The file is mapped into memory for each read."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.names = ()
        with self._map() as file:
            self.attrs = _cf_attributes(file)
            self._found = [(self._describe(name, one), _cf_attributes(one)) for name, one in file.variables.items()]

    def _map(self) -> Any:
        return need("scipy.io", "netcdf").netcdf_file(self.source, "r", mmap=True, maskandscale=False)

    def _inspect(self, name: str) -> Group:
        return describe_group(self.source, self._found, self.attrs)

    def _describe(self, name: str, variable: Any) -> StoredArray:
        dtype = variable.data.dtype.newbyteorder("=")

        def read(box: tuple[slice, ...]) -> AnyArray:
            with self._map() as file:
                return np.array(file.variables[name].data[box], dtype)

        return StoredArray(name, variable.dimensions, variable.shape, dtype, None, read)


def _cf_attributes(owner: Any) -> dict[str, Any]:
    """Return the attributes of a classic file or variable that belong to the CF conventions."""
    found = {name: getattr(owner, name) for name in CF_ATTRIBUTES if hasattr(owner, name)}
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in found.items()}
