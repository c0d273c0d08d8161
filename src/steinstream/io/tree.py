"""A tree of arrays with named dimensions: what NetCDF, Zarr and xarray have in common, and all we read of them.

A format gives an :class:`Array` for each variable, and with it a function that reads a box of it. Conventions of what
is stored (scales and offsets, dates, values that stand for none) are xarray's to decode: an array that uses one is
read through xarray, every other one without.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Box: TypeAlias = tuple[slice, ...]

_ENCODED = {"scale_factor", "add_offset", "_Unsigned", "_Encoding"}
_FILLS = ("_FillValue", "missing_value")


@dataclass(frozen=True)
class Array:
    """An array and the names of its dimensions."""

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunks: tuple[int, ...] | None
    """Shape of the pieces in which it is stored; None if it is all in one."""
    read: Callable[[Box], npt.NDArray[Any]]
    """A box of it, as an array that is the caller's own."""

    @property
    def sizes(self) -> dict[str, int]:
        """Its shape by name."""
        return dict(zip(self.dims, self.shape, strict=True))

    @property
    def is_text(self) -> bool:
        """Whether it holds strings."""
        return self.dtype.kind in "OUT"

    def values(self) -> npt.NDArray[Any]:
        """All of it."""
        return self.part(())

    def part(self, dims: Sequence[str], *within: slice) -> npt.NDArray[Any]:
        """What lies within these slices of these dimensions, which become the first."""
        places = dict(zip(dims, within, strict=True))
        part = self.read(tuple(places.get(dim, slice(None)) for dim in self.dims))
        return part.transpose([*map(self.dims.index, dims), *(self.dims.index(dim) for dim in self.rest(dims))])

    def rest(self, dims: Sequence[str]) -> tuple[str, ...]:
        """Its other dimensions."""
        return tuple(dim for dim in self.dims if dim not in dims)

    def size_of(self, dims: Iterable[str]) -> int:
        """Numbers along these dimensions together."""
        return math.prod(self.sizes[dim] for dim in dims)

    def chunk_of(self, dim: str) -> int:
        """How much of a dimension is stored together."""
        return 1 if self.chunks is None else self.chunks[self.dims.index(dim)]


class Group(NamedTuple):
    """The variables of a group, and the coordinates that tell their places."""

    arrays: dict[str, Array]
    coords: dict[str, Array]


class Tree(ABC):
    """Groups by name, each looked into when it is first asked for; the root's own name is empty.

    ``source`` is all it takes to open it again, in another process say.
    """

    names: tuple[str, ...]
    """Of the groups below the root."""
    attrs: Mapping[str, Any]

    def __init__(self, source: Any) -> None:
        self.source = source
        self._groups: dict[str, Group] = {}

    def group(self, name: str) -> Group:
        """The group of this name."""
        if name not in self._groups:
            self._groups[name] = self._look(name)
        return self._groups[name]

    @abstractmethod
    def _look(self, name: str) -> Group:
        """See what is in a group."""

    def close(self) -> None:
        """Let go of the file."""
        return

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.source,)


class Stored(NamedTuple):
    """An array as it is stored, with its attributes and the values that stand for none."""

    array: Array
    attrs: Mapping[str, Any]
    fills: tuple[Any, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether what is stored is what is meant."""
        kind = self.array.dtype.kind
        if len(self.array.dims) != len(self.array.shape):  # their names are kept in a way of its own
            return False
        if kind in "OUT":
            return "_Encoding" not in self.attrs
        fills = (*self.fills, *(self.attrs[name] for name in _FILLS if name in self.attrs))
        dated = " since " in str(self.attrs.get("units", ""))
        filled = any(kind != "f" or not _is_nan(fill) for fill in fills)
        return kind in "fiub" and not filled and not dated and not self.attrs.keys() & _ENCODED

    def decoded(self) -> Array:
        """The array of what is stored plainly; NetCDF has bytes for truth values."""
        array = self.array
        if self.attrs.get("dtype") != "bool":
            return array
        return replace(array, dtype=np.dtype(bool), read=lambda box: array.read(box).astype(bool))


def group_of(found: Sequence[Stored], attrs: Mapping[str, Any], by_xarray: Callable[[], Group]) -> Group:
    """The variables of a group and its coordinates, each told from the other as xarray does.

    Coordinates bear the name of their dimension, or are listed in an attribute ``coordinates``.
    """
    group = Group({}, {})
    texts = [*(stored.attrs.get("coordinates", "") for stored in found), attrs.get("coordinates", "")]
    listed = {name for text in texts for name in str(text).split()}
    for stored in found:
        name = stored.array.name
        if stored.is_plain:
            array = stored.decoded()
        else:
            other = by_xarray()
            if name not in other.arrays.keys() | other.coords.keys():  # a part of another's encoding
                continue
            array = other.arrays.get(name) or other.coords[name]
        is_coord = name in listed or stored.array.dims == (name,)
        (group.coords if is_coord else group.arrays)[name] = array
    return group


def plain(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Strings as numpy's own, which need no pickle in an npz file, and all else as it is."""
    return values.astype(object).astype(np.str_) if values.dtype.kind in "OT" else values


def _is_nan(fill: Any) -> bool:
    try:
        return bool(np.isnan(np.asarray(fill, np.float64)).all())
    except (TypeError, ValueError):
        return False
