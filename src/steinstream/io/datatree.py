"""xarray's DataTree, the object of ArviZ 1.x: as a tree of arrays, and kept draws as one.

The layout of kept draws is that of :mod:`steinstream.io.kept_tree`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from steinstream.io.base import DRAWS, SCORES
from steinstream.io.errors import need
from steinstream.io.kept_tree import about, kept_of_tree, tables
from steinstream.io.tree import Array, Group, Tree
from steinstream.io.tree_chain import TreeChain
from steinstream.result import Kept

#: How xarray opens a file: nothing is read before it is asked for, not even the numbers of the draws.
LAZY: dict[str, Any] = {"create_default_indexes": False, "cache": False, "decode_timedelta": False}


class DataTree(Tree):
    """The groups of an ``xarray.DataTree``, in memory or opened lazily from a file."""

    def __init__(self, source: Any) -> None:
        super().__init__(source)
        self.names, self.attrs = tuple(source.children), source.attrs

    def _look(self, name: str) -> Group:
        node = self.source.children[name] if name else self.source
        arrays, coords = ({str(key): _array(each) for key, each in of.items()} for of in (node.data_vars, node.coords))
        return Group(arrays, coords)


def chain_of_datatree(
    tree: Any,
    *,
    draws_name: str = DRAWS,
    scores_name: str = SCORES,
    negate: bool = False,
    path: str | Path = "the tree",
) -> TreeChain:
    """The draws and scores in an ``xarray.DataTree``, as a stream; ``path`` is what errors call it."""
    chain = TreeChain(DataTree(tree), Path(path), "a DataTree", draws_name, scores_name)
    chain.negated = negate
    return chain


def to_datatree(kept: Kept, *, stacked: bool = True) -> Any:
    """The kept draws as an ``xarray.DataTree``; without ``stacked`` as a single chain, dimensions (chain, draw).

    Then ``source_chain`` and ``source_draw`` tell where a draw came from.
    """
    xarray = need("xarray", "netcdf")
    groups = {name: xarray.Dataset(*table) for name, table in tables(kept, stacked=stacked).items()}
    return xarray.DataTree.from_dict({"/": xarray.Dataset(attrs=about(kept)), **groups})


def kept_of_datatree(tree: Any, where: str = "the tree") -> Kept:
    """What :func:`to_datatree` made, stacked or not."""
    return kept_of_tree(DataTree(tree), where)


def _array(array: Any) -> Array:
    chunks = [max(sizes) for sizes in array.chunks] if array.chunks is not None else _stored(array)
    return Array(
        str(array.name),
        tuple(str(dim) for dim in array.dims),
        array.shape,
        array.dtype,
        tuple(max(1, int(size)) for size in chunks) if chunks else None,
        lambda box: np.array(array[box].values),
    )


def _stored(array: Any) -> list[int]:
    """The chunks of the file that it came from, the largest where they differ; nothing if they are not known."""
    chunks = array.encoding.get("chunks") or array.encoding.get("chunksizes") or ()
    return [int(np.max(size)) for size in chunks] if len(chunks) == array.ndim else []
