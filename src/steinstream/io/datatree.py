"""Chains and kept sets in an ``xarray.DataTree``, which has the layout of ArviZ."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from steinstream.io._labelled_arrays import ArrayTree, Group, StoredArray
from steinstream.io.arviz_chain import ArvizChain
from steinstream.io.arviz_kept import kept_attributes, kept_groups, kept_of_tree
from steinstream.io.base import DRAWS, SCORES, Request
from steinstream.io.errors import need
from steinstream.result import Kept


class DataTreeAdapter(ArrayTree):
    """The groups of an ``xarray.DataTree``, in memory or opened lazily from a file."""

    def __init__(self, source: Any) -> None:
        super().__init__(source)
        self.names, self.attrs = tuple(source.children), source.attrs

    def _inspect(self, name: str) -> Group:
        node = self.source.children[name] if name else self.source
        arrays, coords = ({str(key): _adapt(each) for key, each in of.items()} for of in (node.data_vars, node.coords))
        return Group(arrays, coords)


def _adapt(array: Any) -> StoredArray:
    """Describe an ``xarray.DataArray``, with the chunks of dask or of the file that it was opened from."""
    chunks = array.chunks or array.encoding.get("chunks") or array.encoding.get("chunksizes") or ()
    return StoredArray(
        str(array.name),
        tuple(str(dim) for dim in array.dims),
        array.shape,
        array.dtype,
        tuple(max(1, int(np.max(size))) for size in chunks) if len(chunks) == array.ndim > 0 else None,
        lambda box: np.array(array[box].values),
    )


def chain_of_datatree(
    tree: Any,
    *,
    draws_name: str = DRAWS,
    scores_name: str = SCORES,
    negate: bool = False,
    path: str | Path = "the DataTree",
    parameters: Sequence[str] | None = None,
) -> ArvizChain:
    """Open the draws, and the scores if there are any, in an ``xarray.DataTree`` as a chain.

    Parameters
    ----------
    tree : xarray.DataTree
        The tree, in memory or opened lazily from a file.
    draws_name : str
        Variables as GROUP/NAME, separated by commas, or a whole GROUP. Default: see :mod:`steinstream.io.arviz_chain`.
    scores_name : str
        The same for the scores.
    negate : bool, default False
        Change the sign of the scores.
    path : str or Path, optional
        Name of the tree in error messages.
    parameters : sequence of str, optional
        Names of the parameters to read. Default: all.

    Returns
    -------
    Chain
        The chain.

    Raises
    ------
    InputError
        If the tree does not contain draws, or if ``scores_name`` is given and does not exist.
    """
    chosen = None if parameters is None else tuple(parameters)
    request = Request(Path(path), None, draws_name, scores_name, parameters=chosen)
    chain = ArvizChain(DataTreeAdapter(tree), request, "a DataTree")
    chain.negated = negate
    return chain


def to_datatree(kept: Kept, *, stacked: bool = True) -> Any:
    """Convert a kept set to an ``xarray.DataTree``, which ArviZ 1.x accepts.

    Parameters
    ----------
    kept : Kept
        The kept set.
    stacked : bool, default True
        Use one dimension ``sample`` with coordinates ``chain`` and ``draw``. Otherwise the dimensions are (chain,
        draw) with a single chain, and the coordinates ``source_chain`` and ``source_draw`` are the ids.

    Returns
    -------
    xarray.DataTree
        The kept set, from which `kept_of_datatree` restores it.
    """
    xarray = need("xarray", "netcdf")
    groups = {name: xarray.Dataset(*group) for name, group in kept_groups(kept, stacked=stacked).items()}
    return xarray.DataTree.from_dict({"/": xarray.Dataset(attrs=kept_attributes(kept)), **groups})


def kept_of_datatree(tree: Any) -> Kept:
    """Restore the kept set from the result of `to_datatree`.

    Parameters
    ----------
    tree : xarray.DataTree
        The tree, stacked or not.

    Returns
    -------
    Kept
        The kept set.

    Raises
    ------
    InputError
        If the tree is not a kept set.
    """
    return kept_of_tree(DataTreeAdapter(tree), "the DataTree")
