"""Arrays with named dimensions in groups, as NetCDF files, Zarr stores and DataTrees contain them.

Each format describes its arrays as `StoredArray`, with a function that reads a box. `ChunkReader` reads an array along
its draws in whole chunks. Arrays that use a CF convention (scale and offset, dates, fill values) are read in the same
way and decoded by ``xarray.decode_cf``, which is imported only then.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from steinstream._typing import AnyArray, Integers
from steinstream.errors import InputError
from steinstream.io._limits import require_held
from steinstream.io.errors import need

_SLAB = 4 << 20  # bytes that are read at a time, unless a single chunk is larger
_ID_BUFFER = 8 << 20  # bytes of coordinates that are read once and held
_ID_ROWS = 1 << 16  # ids that are compared at a time
_FILLS = ("_FillValue", "missing_value")
_LONGEST_TEXTS, _TEXT_RATIO = 1 << 22, 4  # characters of all texts of an array, in total and relative to their sum
_REMEDY = "Write the variables that are needed, with smaller chunks and without compression."
_ENCODINGS = ("scale_factor", "add_offset", "_Unsigned", "_Encoding")

#: Attributes of the CF conventions, and those that xarray adds.
CF_ATTRIBUTES = (*_FILLS, *_ENCODINGS, "units", "calendar", "coordinates", "dtype")


@dataclass(frozen=True)
class StoredArray:
    """An array with named dimensions."""

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunks: tuple[int, ...] | None  # shape of the chunks; None if the array is stored contiguously
    read: Callable[[tuple[slice, ...]], AnyArray]  # reads a box, given by one slice per dimension, into a new array

    @property
    def sizes(self) -> dict[str, int]:
        """Size of each dimension."""
        return dict(zip(self.dims, self.shape, strict=True))

    @property
    def is_text(self) -> bool:
        """Whether the values are strings."""
        return self.dtype.kind in "OUT"

    def values(self) -> AnyArray:
        """Read the whole array."""
        return self.part(())

    def part(self, dims: Sequence[str], *within: slice) -> AnyArray:
        """Read a slice along each of ``dims``; these become the first dimensions of the result."""
        slices = dict(zip(dims, within, strict=True))
        part = self.read(tuple(slices.get(dim, slice(None)) for dim in self.dims))
        return part.transpose([self.dims.index(dim) for dim in (*dims, *self.other_dims(dims))])

    def other_dims(self, dims: Sequence[str]) -> tuple[str, ...]:
        """Return the dimensions that are not in ``dims``."""
        return tuple(dim for dim in self.dims if dim not in dims)

    def row_shape(self, dims: Sequence[str]) -> tuple[int, ...]:
        """Return the shape of a row: the sizes of the dimensions that are not in ``dims``."""
        return tuple(self.sizes[dim] for dim in self.other_dims(dims))

    def chunk_size(self, dim: str) -> int:
        """Return the size of a chunk along a dimension."""
        return 1 if self.chunks is None else self.chunks[self.dims.index(dim)]


class Group(NamedTuple):
    """Variables of a group, and the coordinates that label their dimensions."""

    arrays: dict[str, StoredArray]
    coords: dict[str, StoredArray]


class ArrayTree(ABC):
    """Groups of arrays by name; a group is inspected when it is first used. The name of the root is empty.

    Another process opens the tree again from its ``source``.
    """

    names: tuple[str, ...]  # of the groups below the root
    attrs: Mapping[str, Any]  # of the root

    def __init__(self, source: Any) -> None:
        self.source = source
        self._groups: dict[str, Group] = {}

    def group(self, name: str) -> Group:
        if name not in self._groups:
            self._groups[name] = self._inspect(name)
        return self._groups[name]

    @abstractmethod
    def _inspect(self, name: str) -> Group:
        """Describe the arrays of a group."""

    def attributes(self, name: str) -> Mapping[str, Any]:
        """Return the attributes of a group below the root; none if the format has no groups."""
        return {}

    def close(self) -> None:
        """Close the file."""
        return

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.source,)


def describe_group(
    path: Path, found: Iterable[tuple[StoredArray, Mapping[str, Any]]], attrs: Mapping[str, Any]
) -> Group:
    """Decode the arrays of a group, given with their attributes, and separate variables and coordinates."""
    pairs = list(found)
    listed = {name for each in (*(own for _, own in pairs), attrs) for name in str(each.get("coordinates", "")).split()}
    group = Group({}, {})
    for array, own in pairs:
        if len(array.dims) != len(array.shape):
            raise InputError(
                f"{path}: the array {array.name} is missing the names of its dimensions.",
                "Name the dimensions: dimension_names in Zarr version 3, the attribute _ARRAY_DIMENSIONS in version 2.",
            )
        # A coordinate has the name of its dimension, or is listed in an attribute.
        is_coord = array.name in listed or array.dims == (array.name,)
        (group.coords if is_coord else group.arrays)[array.name] = _decode(_limited(array, path), own)
    return group


def _limited(array: StoredArray, path: Path) -> StoredArray:
    """Return the array with a ``read`` that raises an `InputError` for a box or chunk that needs too much memory."""
    chunk = math.prod(array.chunks or ()) * array.dtype.itemsize

    def read(box: tuple[slice, ...]) -> AnyArray:
        lengths = (len(range(*part.indices(size))) for part, size in zip(box, array.shape, strict=True))
        require_held(path, f"a part of {array.name}", math.prod(lengths) * array.dtype.itemsize, _REMEDY)
        require_held(path, f"a chunk of {array.name}", chunk, _REMEDY)
        return array.read(box)

    return replace(array, read=read)


def require_rows_held(path: Path, arrays: Iterable[StoredArray], dims: Sequence[str] = (), rows: int = 1) -> None:
    """Raise an `InputError` if rows of several arrays, or whole arrays without ``dims``, need too much memory."""
    size = sum(rows * math.prod(array.row_shape(dims)) * array.dtype.itemsize for array in arrays)
    require_held(path, "the variables of the kept draws", size, _REMEDY)


def _decode(array: StoredArray, attrs: Mapping[str, Any]) -> StoredArray:
    """Return the array with decoded values, as the CF conventions define them."""
    if not _is_encoded(array.dtype, attrs):
        if attrs.get("dtype") == "bool":  # NetCDF stores booleans as integers
            return replace(array, dtype=np.dtype(bool), read=lambda box: array.read(box).astype(bool))
        return array
    xarray = need("xarray", "netcdf")
    timedelta = str(attrs.get("dtype", "")).startswith("timedelta64")
    used = {name: value for name, value in attrs.items() if name != "coordinates"}

    def decode(values: AnyArray) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            stored = xarray.Dataset({array.name: (array.dims, values, used)})
            return xarray.decode_cf(stored, decode_timedelta=timedelta)[array.name]

    # Characters have a last dimension along the string, which decoding removes.
    length = array.shape[-1] if array.dtype.kind == "S" and array.shape else 0
    example = decode(np.zeros(((0,) * len(array.shape))[:-1] + (length,) * bool(array.shape), array.dtype))
    rest = (slice(None),) * (len(array.dims) - example.ndim)
    return replace(
        array,
        dims=array.dims[: example.ndim],
        shape=array.shape[: example.ndim],
        dtype=example.dtype,
        chunks=array.chunks and array.chunks[: example.ndim],
        read=lambda box: np.asarray(decode(array.read((*box, *rest))).values),
    )


def _is_encoded(dtype: np.dtype[Any], attrs: Mapping[str, Any]) -> bool:
    """Return whether the stored values differ from what they mean."""
    if dtype.kind in "OUT":
        return "_Encoding" in attrs
    fills = [attrs[name] for name in _FILLS if name in attrs]
    filled = any(dtype.kind != "f" or not np.isnan(np.asarray(fill, np.float64)).all() for fill in fills)
    times = " since " in str(attrs.get("units", "")) or str(attrs.get("dtype", "")).startswith("timedelta64")
    return dtype.kind not in "fiub" or filled or times or any(name in attrs for name in _ENCODINGS)


def text_as_str(values: AnyArray) -> AnyArray:
    """Convert strings to numpy's fixed-length type, which npz files store without pickle."""
    if values.dtype.kind not in "OT":
        return values
    text = values.astype(object)
    lengths = [len(str(one)) for one in text.ravel()]
    if len(lengths) * max(lengths, default=0) > max(_LONGEST_TEXTS, _TEXT_RATIO * sum(lengths)):
        raise InputError(
            f"A text of {max(lengths)} characters is among {len(lengths)} texts that are stored with the same length.",
            "Shorten it, or leave out the variable.",
        )
    return text.astype(np.str_)


# -- reading in chunks -------------------------------------------------------------------------------------------------


class ChunkReader:
    """Reads rows of an array with dimensions (chain, draw), (draw) or (sample), and others, in whole chunks.

    A slab of a few megabytes of one chain is read at a time. If a chunk contains several chains, which are read one
    after another, they are read together and held if they fit into ``buffer`` bytes. Otherwise the chunk is read once
    for each chain, ``repeats`` times.
    """

    def __init__(self, array: StoredArray, dims: tuple[str, ...], buffer: int) -> None:
        self.array = array
        self._dims = tuple(dim for dim in dims if dim in array.dims)
        self._draws = array.sizes[dims[-1]]
        row = max(1, 8 * math.prod(array.row_shape(self._dims)))
        chunk = array.chunk_size(dims[-1])
        self._step = chunk * max(1, _SLAB // (chunk * row))
        self._chains, self._together = 1, 1
        if len(self._dims) == 2:
            self._chains, self._together = array.sizes[dims[0]], array.chunk_size(dims[0])
        self.repeats = 1
        chain = row * self._draws
        if chain * self._chains <= buffer:
            self._step, self._together = max(1, self._draws), self._chains
        elif chain * min(self._together, self._chains) <= buffer:
            self._step = self._draws if self._together > 1 else self._step
        else:
            self._together, self.repeats = 1, min(self._together, self._chains)
        self.slab_bytes = row * min(self._step, self._draws)
        self._at = (-1, -1)
        self._slab: AnyArray | None = None

    def border(self, start: int) -> int:
        """Return the end of the slab that contains this draw."""
        return min(start - start % self._step + self._step, self._draws)

    def rows(self, chain: int, start: int, stop: int) -> AnyArray:
        """Return some draws of one slab, as a view."""
        chain = chain if self._chains > 1 else 0
        at = chain - chain % self._together, start - start % self._step
        if self._slab is None or at != self._at:
            self._slab = None  # free the last one first
            self._slab, self._at = self._load(*at), at
        return self._slab[chain - at[0], start - at[1] : stop - at[1]]

    def take(self, chain: int, start: int, stop: int) -> AnyArray:
        """Return some draws of one slab, as a new array; a whole slab is handed over without a copy."""
        rows = self.rows(chain, start, stop)
        if self._slab is not None and rows.size == self._slab.size and rows.flags.c_contiguous and rows.flags.writeable:
            self._slab = None
            return rows
        return rows.copy(order="C")  # a view would keep the slab in memory while the next one is read

    def _load(self, chain: int, start: int) -> AnyArray:
        draws = slice(start, self.border(start))
        if len(self._dims) == 1:
            return self.array.part(self._dims, draws)[None]
        return self.array.part(self._dims, slice(chain, min(chain + self._together, self._chains)), draws)


def slab_ranges(readers: Iterable[ChunkReader], start: int, stop: int, rows: int) -> Iterator[tuple[int, int]]:
    """Divide start to stop into ranges of at most ``rows`` draws that do not cross the border of a slab."""
    readers = list(readers)
    while start < stop:
        end = min(stop, start + rows, *(reader.border(start) for reader in readers))
        yield start, end
        start = end


def read_rows(array: StoredArray, dims: tuple[str, ...], chains: Integers, draws: Integers) -> AnyArray:
    """Read some draws of a variable; only the slabs that contain them are read."""
    reader = ChunkReader(array, dims, 0)
    for places, dim in zip((draws, chains), reversed(dims), strict=False):
        if places.max(initial=-1) >= array.sizes[dim]:
            raise ValueError(f"{array.name} has shape {array.shape}, which lacks some of the draws")
    rows: list[AnyArray | None] = [None] * len(draws)
    for place in np.lexsort((draws, chains)).tolist():
        draw = int(draws[place])
        rows[place] = reader.rows(int(chains[place]), draw, draw + 1).copy()
    return np.concatenate(rows) if rows else np.empty((0, *array.row_shape(dims)), array.dtype)  # type: ignore[arg-type]


# -- ids ---------------------------------------------------------------------------------------------------------------


class DrawIds:
    """Ids (chain, draw) of all draws, from the coordinates of a group, or by counting.

    ``chain_count`` is None if a coordinate stores the chain of each draw.
    """

    def __init__(self, sizes: Mapping[str, int], coords: Mapping[str, StoredArray], dims: tuple[str, ...]) -> None:
        self._dims = dims
        self.chains = sizes["chain"] if len(dims) == 2 else 1
        self.draws = sizes[dims[-1]]
        self._coords = [_id_coordinate(coords, name, dims) for name in ("chain", "draw")]
        for coord in self._coords:
            if coord is not None and any(size != sizes[dim] for dim, size in coord.sizes.items()):
                raise ValueError(f"the coordinate {coord.name} has shape {coord.shape}, unlike the draws")
        mixed = "source_chain" in coords or (len(dims) == 1 and self._coords[0] is not None)
        self.chain_count = None if mixed else self.chains

    def reader(self) -> DrawIdReader:
        """Return a reader that starts at the first draw."""
        return DrawIdReader(self._coords, self._dims)

    def all(self) -> Iterator[tuple[int, int, Integers]]:
        """Iterate over parts of all ids: position of the chain, position of the first draw, and the ids."""
        reader = self.reader()
        for chain in range(self.chains):
            for start, stop in slab_ranges(reader.readers, 0, self.draws, _ID_ROWS):
                yield chain, start, reader.ids(chain, start, stop)

    def positions(self, ids: Integers, path: Path) -> tuple[Integers, Integers]:
        """Return the positions of the chains and of the draws with these ids."""
        different, inverse = np.unique(ids, axis=0, return_inverse=True)
        wanted = {tuple(pair): place for place, pair in enumerate(different.tolist())}
        found = np.full((len(different), 2), -1)
        draws = np.unique(ids[:, 1])
        for chain, start, here in self.all():
            for row in np.flatnonzero(np.isin(here[:, 1], draws)).tolist():
                place = wanted.get((int(here[row, 0]), int(here[row, 1])))
                if place is not None:
                    found[place] = chain, start + row
        missing = np.flatnonzero(found[:, 0] < 0)
        if missing.size:
            chain, draw = different[missing[0]].tolist()
            raise InputError(f"{path} has no chain {chain}, draw {draw}.", "Use ids of draws in this file.")
        return found[inverse.ravel(), 0], found[inverse.ravel(), 1]


class DrawIdReader:
    """Reads the ids; coordinates along the draws are read in chunks."""

    def __init__(self, coords: Sequence[StoredArray | None], dims: tuple[str, ...]) -> None:
        self._columns: list[ChunkReader | AnyArray | None] = [
            None
            if coord is None
            else ChunkReader(coord, dims, _ID_BUFFER)
            if dims[-1] in coord.dims
            else coord.values()
            for coord in coords
        ]
        self.readers = [column for column in self._columns if isinstance(column, ChunkReader)]

    def ids(self, chain: int, start: int, stop: int) -> Integers:
        """Return the ids of some draws of one slab."""
        ids = np.empty((stop - start, 2), np.int64)
        ids[:, 0], ids[:, 1] = chain, np.arange(start, stop)
        for at, column in enumerate(self._columns):
            if isinstance(column, ChunkReader):
                ids[:, at] = _as_ids(column.rows(chain, start, stop))
            elif column is not None:
                ids[:, at] = _as_ids(column)[chain]
        return ids


def _as_ids(values: AnyArray) -> Integers:
    """Convert a coordinate to int64."""
    if values.dtype.kind == "u" and values.size and int(values.max()) > np.iinfo(np.int64).max:
        raise ValueError(f"a coordinate of the draws contains {int(values.max())}, which is too large")
    return values.astype(np.int64, copy=False)


def _id_coordinate(coords: Mapping[str, StoredArray], name: str, dims: tuple[str, ...]) -> StoredArray | None:
    """Return the coordinate that contains chain or draw; None if there is none."""
    found = coords.get(f"source_{name}", coords.get(name))
    if found is None or found.dtype.kind not in "iu" or not found.dims or not set(found.dims) <= set(dims):
        return None
    return found
