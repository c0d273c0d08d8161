"""Zarr stores in the layout of ArviZ (:mod:`steinstream.io.arviz_chain`): version 2 or 3, in a folder or a zip file."""

from __future__ import annotations

import hashlib
import json
import struct
import warnings
import zipfile
from base64 import standard_b64decode
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from steinstream._typing import AnyArray
from steinstream.errors import InputError
from steinstream.io._labelled_arrays import ArrayTree, Group, StoredArray, describe_group
from steinstream.io._limits import check_archive, largest_held, require_held
from steinstream.io._zarr_codecs import check_texts, compressor_of, decoded_size
from steinstream.io.arviz_chain import open_tree
from steinstream.io.arviz_kept import check_names, kept_attributes, kept_groups, kept_of_tree
from steinstream.io.base import Chain, Request
from steinstream.io.errors import DAMAGE, need, reading
from steinstream.result import Kept

_DIMS = "_ARRAY_DIMENSIONS"
_JSON = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")
_METADATA = ("zarr.json", ".zgroup", ".zmetadata")
_MANIFEST, _BLANK = "steinstream_manifest", "0" * 64  # attribute of the root, and its value before the digest is known
_ZIPPED, _ZIP_RATIO = 1 << 20, 16  # bytes of a compressed file in a zip file, in total and per stored byte


def is_zarr_folder(path: Path) -> bool:
    """Return whether a folder is a Zarr store."""
    return any((path / name).is_file() for name in _METADATA)


def is_own_store(path: Path) -> bool:
    """Return whether a folder is a store that `write_zarr` wrote, without any change since."""
    try:
        manifest = json.loads((path / ".zattrs").read_text("utf-8")).get(_MANIFEST, "")
        return len(manifest) == len(_BLANK) and manifest == _digest(path, manifest)
    except DAMAGE:
        return False


def _digest(folder: Path, manifest: str) -> str:
    """Return the digest of the names and contents of all files in a folder, with ``manifest`` left blank."""
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        if file.is_symlink() or not file.is_dir():
            name, content = file.relative_to(folder).as_posix(), b"" if file.is_symlink() else file.read_bytes()
            content = content.replace(manifest.encode(), _BLANK.encode()) if file.parent == folder else content
            kind = "symlink" if file.is_symlink() else "file"
            digest.update(json.dumps([name, kind, len(content)]).encode() + content)
    return digest.hexdigest()


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
        root = zarr.create_group(
            folder, zarr_format=2, overwrite=True, attributes={**kept_attributes(kept), _MANIFEST: _BLANK}
        )
        for title, content in kept_groups(kept, stacked=stacked).items():
            group = root.create_group(title)
            for name, dims, values, attrs in content.encoded():
                kind = str if values.dtype.kind == "O" else values.dtype
                own = {_DIMS: list(dims), **attrs}
                array = group.create_array(name, shape=values.shape, dtype=kind, fill_value=None, attributes=own)
                array[...] = values
        zarr.consolidate_metadata(folder)
    manifest = _digest(folder, _BLANK)
    for file in (folder / ".zattrs", folder / ".zmetadata"):
        file.write_bytes(file.read_bytes().replace(_BLANK.encode(), manifest.encode()))


class ZarrTree(ArrayTree):
    """The groups of a store."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._largest = 0  # bytes of a decoded chunk; 0 before it is needed
        self._compressors: dict[str, str] = {}  # path of an array -> its compressor, for arrays that are read
        self._texts = set[str]()  # paths of arrays of texts
        with reading(path, "Zarr"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._root = import_zarr().open_group(_checked_store(path, self._check), mode="r")
            self.names, self.attrs = tuple(self._root.group_keys()), self._root.attrs

    def close(self) -> None:
        self._root.store.close()

    def attributes(self, name: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._root[name].attrs
        return found

    def _inspect(self, name: str) -> Group:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            group = self._root[name] if name else self._root
            found = [self._describe(title, array) for title, array in group.arrays()]
            return describe_group(self.source, found, group.attrs)

    def _describe(self, name: str, array: Any) -> tuple[StoredArray, dict[str, Any]]:
        """Describe an array, and return its attributes; its codecs are validated when it is read."""
        stored, attrs = _describe(name, array)

        def read(box: tuple[slice, ...]) -> AnyArray:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # types without a specification
                self._compressors[array.path], is_text = compressor_of(name, array.metadata.to_dict())
                self._texts |= {array.path} if is_text else set()
            values: AnyArray = array[box]
            return values

        return replace(stored, read=read), attrs

    def _check(self, key: str, data: memoryview) -> None:
        """Raise an exception if a chunk is truncated, or if it needs too much memory after it is decoded."""
        place = key.rpartition("/")[0]
        while place and place not in self._compressors:
            place = place.rpartition("/")[0]
        if not place or key.endswith(_JSON):
            return
        compressor = self._compressors[place]
        if compressor:
            self._largest = self._largest or largest_held(self.source)
            size = decoded_size(compressor, data, self._largest)
            require_held(self.source, f"a chunk of {place}", size, "Write it with smaller chunks.")
        if place in self._texts:
            check_texts(compressor, data)


def _checked_store(path: Path, check: Callable[[str, memoryview], None]) -> Any:
    """Return a store that calls ``check`` with the key and the content of each file that is read."""
    if not path.is_dir():
        with zipfile.ZipFile(path) as archive:
            check_archive(path, archive)
            for member in archive.infolist():
                if member.file_size > max(_ZIPPED, _ZIP_RATIO * member.compress_size):
                    raise InputError(
                        f"{path}: {member.filename[:100]!r} has {member.file_size / 1e6:.0f} MB.",
                        "Write the zip file without compression, as zarr does.",
                    )

    class Store(import_zarr().storage.WrapperStore):  # type: ignore[misc]
        """A store whose contents are checked before they are decoded."""

        async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
            """Read a file of the store."""
            found = await super().get(key, prototype, byte_range)
            if found is not None:
                check(key, memoryview(found.as_numpy_array()))
            return found

    storage = import_zarr().storage
    return Store(storage.LocalStore(path, read_only=True) if path.is_dir() else storage.ZipStore(path, mode="r"))


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
