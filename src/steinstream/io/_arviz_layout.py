"""Names and dimensions in the layout of ArviZ, which NetCDF files, Zarr stores and DataTrees share.

The groups ``log_likelihood``, ``log_prior``, ``posterior_predictive``, ``predictions`` and ``sample_stats`` have values
for each draw; observed and constant data describe the model. Dimensions are (chain, draw, ...), (sample, ...) with
coordinates ``chain`` and ``draw``, or (draw, ...).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from steinstream._typing import AnyArray, Integers
from steinstream.errors import InputError
from steinstream.io._labelled_arrays import (
    ArrayTree,
    DrawIds,
    StoredArray,
    read_rows,
    require_rows_held,
    text_as_str,
)
from steinstream.io._limits import require_length
from steinstream.result import MODEL_GROUPS, Variable

#: Locations of scores and draws.
GRADIENT, UNCONSTRAINED = "sample_stats/gradient", "sample_stats/unconstrained_draw"

#: Groups, and the dimension of the parameters.
TRANSFORMED, POSTERIOR, STATS, OWN = "unconstrained_posterior", "posterior", "sample_stats", "steinstream"
PARAMETER = "unconstrained_parameter"

#: Dimensions that number the draws, and their combinations.
SAMPLE_DIMS = ("chain", "draw", "sample")
SAMPLE_DIMENSIONS = (("chain", "draw"), ("sample",), ("draw",))

_DRAW_GROUPS = ("log_likelihood", "log_prior", "posterior_predictive", "predictions", STATS)
_OF_KEPT_SET = ("unconstrained_draw", "gradient", "second_gradient", "weight", "prefix_ksd", "prefix_mmd")
_STORED_KINDS = "fiubMmOUT"  # kinds of dtype that the formats store


def sample_dims(array: StoredArray) -> tuple[str, ...] | None:
    """Return the dimensions of a variable that number the draws; None if it does not have a value for each draw."""
    return next((dims for dims in SAMPLE_DIMENSIONS if set(dims) <= set(array.dims)), None)


def labelled_variable(values: AnyArray, dims: tuple[str, ...], coords: Mapping[str, StoredArray]) -> Variable:
    """Return values with the labels along their dimensions."""
    return Variable(values, dims, {dim: text_as_str(coords[dim].values()) for dim in dims if dim in coords})


def groups_of_tree(tree: ArrayTree, ids: Integers, path: Path) -> dict[str, dict[str, Variable]]:
    """Read the groups of the model, and the other groups at some draws, except those that lack one of the draws."""
    found: dict[str, dict[str, Variable]] = {}
    for name in (*MODEL_GROUPS, *_DRAW_GROUPS):
        if name not in tree.names:
            continue
        arrays, coords = tree.group(name)
        arrays = {key: array for key, array in arrays.items() if array.dtype.kind in _STORED_KINDS}
        if name in MODEL_GROUPS:
            require_rows_held(path, arrays.values())
            found[name] = {
                key: labelled_variable(text_as_str(array.values()), array.dims, coords) for key, array in arrays.items()
            }
            continue
        dims = next(
            (dims for dims in SAMPLE_DIMENSIONS if any(set(dims) <= set(one.dims) for one in arrays.values())), None
        )
        arrays = {
            key: array
            for key, array in arrays.items()
            if dims is not None and set(dims) <= set(array.dims) and (name != STATS or key not in _OF_KEPT_SET)
        }
        if dims is None or not arrays:
            continue
        require_rows_held(path, arrays.values(), dims, len(ids))
        stored = DrawIds(next(iter(arrays.values())).sizes, coords, dims)
        require_length(path, stored.chains * stored.draws, 1)
        try:
            chains, draws = stored.positions(ids, path)
        except InputError:  # for example predictions for some of the draws
            continue
        found[name] = {}
        for key, array in arrays.items():
            values = read_rows(array, dims, chains, draws)
            if values.dtype.kind == "O":  # text such as the message of a divergence; None or NaN if there was none
                text = ["" if one is None or one != one else one for one in values.ravel().tolist()]
                if not all(isinstance(one, str) for one in text):
                    continue
                values = np.array(text, dtype=object).reshape(values.shape)
            found[name][key] = labelled_variable(text_as_str(values), array.other_dims(dims), coords)
    return found
