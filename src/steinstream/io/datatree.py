"""Kept draws as an xarray DataTree, the object of ArviZ 1.x, and back.

- ``posterior``: the user's own parameters if the chain's file or model had them, else the unconstrained ones by name;
- ``sample_stats``: ``unconstrained_draw``, ``gradient`` (the score), and ``weight`` and ``prefix_ksd`` if there are
  any;
- ``steinstream``: the coordinates KSD was measured in, and its history;
- attributes: KSD and all settings.

Chains are thinned to different sizes, so there is one dimension ``sample``, along which ``chain`` and ``draw`` tell
where a draw came from.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from steinstream.coordinates import Coordinates
from steinstream.errors import InputError
from steinstream.io.chain import default_names
from steinstream.io.npz import kernel_of
from steinstream.io.problems import need
from steinstream.io.tree_chain import chain_of_datatree, labels
from steinstream.io.tree_parts import GRADIENT, UNCONSTRAINED
from steinstream.kept import History, Kept, Variable
from steinstream.version import __version__

__all__ = ["chain_of_datatree", "kept_of_datatree", "to_datatree"]

PARAMETER = "unconstrained_parameter"
OWN = "steinstream"
_ALONE = 200  # parameters beyond which they are one array instead of one each

_Columns = dict[str, tuple[tuple[str, ...], Any]]


def to_datatree(kept: Kept, *, stacked: bool = True) -> Any:
    """The kept draws as an ``xarray.DataTree``; without ``stacked`` as a single chain, dimensions (chain, draw).

    Then ``source_chain`` and ``source_draw`` tell where a draw came from.
    """
    xarray = need("xarray", "netcdf")
    sample = _Sample(kept, stacked)
    names = kept.names if kept.names is not None else default_names(kept.points.shape[1])
    posterior, places = _posterior(kept, names, sample)
    stats: _Columns = {
        "unconstrained_draw": sample.column(kept.points, PARAMETER),
        "gradient": sample.column(kept.scores, PARAMETER),
    }
    optional = {"weight": kept.weights, "prefix_ksd": kept.prefix_ksd}
    stats |= {name: sample.column(values) for name, values in optional.items() if values is not None}
    if kept.checks is not None:
        stats["check_gradient"] = sample.column(kept.checks, PARAMETER)
    parameters = {PARAMETER: ((PARAMETER,), _text(names))}
    groups = {
        "/": xarray.Dataset(attrs=_about(kept)),
        "/posterior": xarray.Dataset(posterior, {**sample.coords, **places}),
        "/sample_stats": xarray.Dataset(stats, {**sample.coords, **parameters}),
        f"/{OWN}": xarray.Dataset(_own(kept)),
    }
    return xarray.DataTree.from_dict(groups)


def kept_of_datatree(tree: Any, where: str = "the tree") -> Kept:
    """What :func:`to_datatree` made, stacked or not."""
    groups = {name: node.dataset for name, node in tree.children.items()}
    if not {"sample_stats", OWN} <= groups.keys() or "settings" not in tree.attrs:
        raise InputError(
            f"{where} is no kept set: it lacks the settings of one.", "Give what steinstream thin or Kept.save wrote."
        )
    stats, own = groups["sample_stats"], groups[OWN]
    sample = ("sample",) if "sample" in stats.dims else ("chain", "draw")

    def rows(dataset: Any, name: str) -> Any:
        array = dataset[name].transpose(*sample, ...)
        return array.values.reshape(-1, *array.shape[len(sample) :])

    def optional(dataset: Any, name: str) -> Any:
        return rows(dataset, name) if name in dataset else None

    settings = json.loads(tree.attrs["settings"])
    factor = own["coordinates"].values if "coordinates" in own else None
    return Kept(
        rows(stats, "unconstrained_draw"),
        rows(stats, "gradient"),
        labels(stats, sample),
        float(tree.attrs["ksd"]),
        History(*(own[f"history_{name}"].values for name in History._fields)),
        kernel_of(settings.get("kernel")),
        None if factor is None else Coordinates(factor, own["centre"].values if "centre" in own else None),
        settings,
        tuple(str(name) for name in stats[PARAMETER].values),
        weights=optional(stats, "weight"),
        prefix_ksd=optional(stats, "prefix_ksd"),
        bound=settings.get("bound"),
        checks=optional(stats, "check_gradient"),
        excess=float(tree.attrs.get("excess", 0.0)),
        variables=_read_variables(groups, sample, json.loads(tree.attrs["variables"])),
    )


class _Sample:
    """The dimensions that number the kept draws."""

    def __init__(self, kept: Kept, stacked: bool) -> None:
        chain, draw = kept.ids.T
        self.dims: tuple[str, ...] = ("sample",) if stacked else ("chain", "draw")
        count = np.arange(len(kept))
        self.coords: _Columns = (
            {"sample": (self.dims, count), "chain": (self.dims, chain), "draw": (self.dims, draw)}
            if stacked
            else {
                "chain": (("chain",), np.zeros(1, np.int64)),
                "draw": (("draw",), count),
                "source_chain": (self.dims, chain[None]),
                "source_draw": (self.dims, draw[None]),
            }
        )

    def column(self, values: Any, *dims: str) -> tuple[tuple[str, ...], Any]:
        """An array (n, ...) as xarray wants it."""
        return (*self.dims, *dims), values if len(self.dims) == 1 else values[None]


def _posterior(kept: Kept, names: tuple[str, ...], sample: _Sample) -> tuple[_Columns, _Columns]:
    """The variables, and the places along their dimensions."""
    if not kept.variables:
        plain = len(set(names)) == len(names) <= _ALONE and not any(
            not name or "/" in name or name in sample.coords or name in sample.dims for name in names
        )
        if plain:
            return {name: sample.column(kept.points[:, i]) for i, name in enumerate(names)}, {}
        return {"parameters": sample.column(kept.points, PARAMETER)}, {PARAMETER: ((PARAMETER,), _text(names))}
    columns: _Columns = {}
    places: _Columns = {}
    sizes: dict[str, int] = {}
    for name, (values, dims, coords) in kept.variables.items():
        own = []
        for dim, size in zip(dims, values.shape[1:], strict=True):
            # A dimension of the same name with other places is another dimension.
            known = places.get(dim, ((), None))[1]
            clash = dim in sample.coords or dim in kept.variables or sizes.get(dim, size) != size
            clash = clash or (dim in coords and known is not None and not np.array_equal(known, coords[dim]))
            title = f"{name}_{dim}" if clash else dim
            sizes[title] = size
            if dim in coords:
                places[title] = ((title,), _text(coords[dim]))
            own.append(title)
        columns[name] = sample.column(_text(values), *own)
    return columns, places


def _read_variables(groups: dict[str, Any], sample: tuple[str, ...], names: list[str]) -> dict[str, Variable]:
    found = {}
    for name in names:
        array = groups["posterior"][name].transpose(*sample, ...)
        dims = tuple(str(dim) for dim in array.dims[len(sample) :])
        values = array.values.reshape(-1, *array.shape[len(sample) :])
        found[name] = Variable(values, dims, {dim: array[dim].values for dim in dims if dim in array.coords})
    return found


def _own(kept: Kept) -> _Columns:
    columns: _Columns = {f"history_{name}": (("step",), part) for name, part in kept.history._asdict().items()}
    if kept.coordinates is not None:
        factor = np.asarray(kept.coordinates.factor)
        columns["coordinates"] = (("row", "column")[: factor.ndim], factor)
        if kept.coordinates.centre is not None:
            columns["centre"] = (("row",), kept.coordinates.centre)
    return columns


def _about(kept: Kept) -> dict[str, Any]:
    return {
        "inference_library": OWN,
        "inference_library_version": __version__,
        "ksd": float(kept.ksd),
        "normalised_ksd": kept.normalised_ksd,
        "excess": float(kept.excess),
        "settings": json.dumps(dict(kept.settings)),
        "variables": json.dumps(list(kept.variables)),  # a store may keep them in another order
        "draws_from": UNCONSTRAINED,
        "scores_from": GRADIENT,
    }


def _text(values: Any) -> Any:
    """Strings as objects, which every store takes, and all else as it is."""
    array = np.asarray(values)
    return array.astype(object) if array.dtype.kind in "UT" else array
