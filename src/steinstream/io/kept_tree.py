"""Kept draws as a tree of arrays, in the layout of ArviZ, and back: what NetCDF, Zarr and xarray files hold of them.

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
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from steinstream import __version__
from steinstream.errors import InputError
from steinstream.io.base import default_names
from steinstream.io.draw_ids import Sampling
from steinstream.io.npz import kernel_of
from steinstream.io.tree import Group, Tree, plain
from steinstream.io.tree_parts import GRADIENT, UNCONSTRAINED
from steinstream.preconditioning import Preconditioner
from steinstream.result import History, Kept, Variable

PARAMETER = "unconstrained_parameter"
OWN = "steinstream"
_ALONE = 200  # parameters beyond which they are one array instead of one each

#: Arrays by name, each with its dimensions.
Columns: TypeAlias = dict[str, tuple[tuple[str, ...], Any]]


class Table(NamedTuple):
    """A group to be written."""

    arrays: Columns
    coords: Columns

    def stored(self) -> Iterator[tuple[str, tuple[str, ...], Any, dict[str, str]]]:
        """All of it as files hold it: name, dimensions, values, attributes."""
        for name, (dims, values) in {**self.coords, **self.arrays}.items():
            values = np.asarray(values)
            attrs = {}
            if name in self.arrays:
                others = [key for key, (own, _) in self.coords.items() if own != (key,) and set(own) <= set(dims)]
                attrs = {"coordinates": " ".join(others)} if others else {}
            if values.dtype == bool:
                values, attrs = values.astype(np.int8), {**attrs, "dtype": "bool"}
            yield name, dims, values, attrs

    @property
    def sizes(self) -> dict[str, int]:
        """Its dimensions."""
        columns = (*self.coords.values(), *self.arrays.values())
        return {dim: size for dims, values in columns for dim, size in zip(dims, np.shape(values), strict=True)}

    @property
    def is_plain(self) -> bool:
        """Whether it has nothing but numbers and strings."""
        kinds = [np.asarray(values).dtype.kind for _, values in (*self.arrays.values(), *self.coords.values())]
        return set(kinds) <= set("fiubO")


def tables(kept: Kept, *, stacked: bool = True) -> dict[str, Table]:
    """The groups; without ``stacked`` as a single chain, dimensions (chain, draw).

    Then ``source_chain`` and ``source_draw`` tell where a draw came from.
    """
    sample = _Sample(kept, stacked)
    names = kept.names if kept.names is not None else default_names(kept.draws.shape[1])
    posterior, places = _posterior(kept, names, sample)
    stats: Columns = {
        "unconstrained_draw": sample.column(kept.draws, PARAMETER),
        "gradient": sample.column(kept.scores, PARAMETER),
    }
    optional = {"weight": kept.weights, "prefix_ksd": kept.prefix_ksd}
    stats |= {name: sample.column(values) for name, values in optional.items() if values is not None}
    if kept.second_scores is not None:
        stats["second_gradient"] = sample.column(kept.second_scores, PARAMETER)
    parameters = {PARAMETER: ((PARAMETER,), _text(names))}
    return {
        "posterior": Table(posterior, {**sample.coords, **places}),
        "sample_stats": Table(stats, {**sample.coords, **parameters}),
        OWN: Table(_own(kept), {}),
    }


def kept_of_tree(tree: Tree, where: str) -> Kept:
    """What :func:`tables` and :func:`about` made, stacked or not."""
    if not {"sample_stats", OWN} <= set(tree.names) or "settings" not in tree.attrs:
        raise InputError(
            f"{where} is no kept set: it lacks the settings of one.", "Give what steinstream thin or Kept.save wrote."
        )
    stats, own = tree.group("sample_stats"), tree.group(OWN).arrays
    sizes = stats.arrays["unconstrained_draw"].sizes
    sample = ("sample",) if "sample" in sizes else ("chain", "draw")

    def optional(name: str) -> Any:
        return _rows(stats, name, sample) if name in stats.arrays else None

    settings = json.loads(tree.attrs["settings"])
    variables = json.loads(tree.attrs["variables"])
    factor = own["preconditioner"].values() if "preconditioner" in own else None
    return Kept(
        _rows(stats, "unconstrained_draw", sample),
        _rows(stats, "gradient", sample),
        np.concatenate([ids for _, _, ids in Sampling(sizes, stats.coords, sample).ids()]),
        float(tree.attrs["ksd"]),
        History(*(own[f"history_{name}"].values() for name in History._fields)),
        kernel_of(settings.get("kernel")),
        None if factor is None else Preconditioner(factor, own["centre"].values() if "centre" in own else None),
        settings,
        tuple(str(name) for name in stats.coords[PARAMETER].values()),
        weights=optional("weight"),
        prefix_ksd=optional("prefix_ksd"),
        bound=settings.get("bound"),
        second_scores=optional("second_gradient"),
        variables=_read_variables(tree.group("posterior"), sample, variables) if variables else {},
    )


class _Sample:
    """The dimensions that number the kept draws."""

    def __init__(self, kept: Kept, stacked: bool) -> None:
        chain, draw = kept.ids.T
        self.dims: tuple[str, ...] = ("sample",) if stacked else ("chain", "draw")
        count = np.arange(len(kept))
        self.coords: Columns = (
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


def _posterior(kept: Kept, names: tuple[str, ...], sample: _Sample) -> tuple[Columns, Columns]:
    """The variables, and the places along their dimensions."""
    if not kept.variables:
        plain = len(set(names)) == len(names) <= _ALONE and not any(
            not name or "/" in name or name in sample.coords or name in sample.dims for name in names
        )
        if plain:
            return {name: sample.column(kept.draws[:, i]) for i, name in enumerate(names)}, {}
        return {"parameters": sample.column(kept.draws, PARAMETER)}, {PARAMETER: ((PARAMETER,), _text(names))}
    columns: Columns = {}
    places: Columns = {}
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


def _read_variables(posterior: Group, sample: tuple[str, ...], names: list[str]) -> dict[str, Variable]:
    found = {}
    for name in names:
        array = posterior.arrays[name]
        dims = array.rest(sample)
        places = {dim: plain(posterior.coords[dim].values()) for dim in dims if dim in posterior.coords}
        found[name] = Variable(plain(_rows(posterior, name, sample)), dims, places)
    return found


def _rows(group: Group, name: str, sample: tuple[str, ...]) -> Any:
    """All draws of a variable, one after another."""
    values = group.arrays[name].part(sample, *(slice(None) for _ in sample))
    return values.reshape(-1, *values.shape[len(sample) :])


def _own(kept: Kept) -> Columns:
    columns: Columns = {f"history_{name}": (("step",), part) for name, part in kept.history._asdict().items()}
    if kept.preconditioner is not None:
        factor = np.asarray(kept.preconditioner.factor)
        columns["preconditioner"] = (("row", "column")[: factor.ndim], factor)
        if kept.preconditioner.centre is not None:
            columns["centre"] = (("row",), kept.preconditioner.centre)
    return columns


def about(kept: Kept) -> dict[str, Any]:
    """The attributes of the tree."""
    return {
        "inference_library": OWN,
        "inference_library_version": __version__,
        "ksd": float(kept.ksd),
        "normalised_ksd": kept.normalised_ksd,
        "settings": json.dumps(dict(kept.settings)),
        "variables": json.dumps(list(kept.variables)),  # a store may keep them in another order
        "draws_from": UNCONSTRAINED,
        "scores_from": GRADIENT,
    }


def _text(values: Any) -> Any:
    """Strings as objects, which every store takes, and all else as it is."""
    array = np.asarray(values)
    return array.astype(object) if array.dtype.kind in "UT" else array
