"""Kept sets in the layout of ArviZ: their groups and attributes, written and read.

Group ``posterior`` contains the variables of the user's model, or the unconstrained parameters if there are none;
``sample_stats`` contains ``unconstrained_draw``, and ``gradient`` (the score), ``second_gradient``, ``weight`` and
``prefix_ksd`` if the kept set has them; ``steinstream`` contains the preconditioner, the summary of the stream and the
history; the attributes contain KSD, MMD and all settings. Chains are thinned to different sizes, so there is one
dimension ``sample``, with the coordinates ``chain`` and ``draw``. In the layout chain-draw, the kept draws are a single
chain. Statistics of the sampler, and the groups ``log_likelihood``, ``log_prior``, ``posterior_predictive`` and
``predictions`` are those of the chains at the kept draws; observed and constant data are copied.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from steinstream import __version__
from steinstream._typing import AnyArray
from steinstream.errors import InputError, NotKeptError, SteinstreamError
from steinstream.io._arviz_layout import (
    GRADIENT,
    OWN,
    PARAMETER,
    POSTERIOR,
    SAMPLE_DIMS,
    STATS,
    UNCONSTRAINED,
    groups_of_tree,
    labelled_variable,
)
from steinstream.io._kept_checks import (
    SUMMARY_DRAWS,
    SUMMARY_WEIGHTS,
    checked_kept,
    parse_kernel,
    summary_from_arrays,
    summary_to_arrays,
)
from steinstream.io._labelled_arrays import ArrayTree, DrawIds, StoredArray, require_rows_held, text_as_str
from steinstream.io._limits import require_length
from steinstream.io.base import default_names
from steinstream.io.errors import DAMAGE
from steinstream.preconditioning import Preconditioner
from steinstream.result import MODEL_GROUPS, History, Kept, Variable

#: Attribute ``inference_library`` of kept sets.
LIBRARY = "steinstream"

_MAX_SEPARATE = 200  # parameters above which they are written as one array instead of one each

# -- writing kept sets -------------------------------------------------------------------------------------------------


class Labelled(NamedTuple):
    """Values with the names of their dimensions, as xarray expects them."""

    dims: tuple[str, ...]
    values: Any


class Encoded(NamedTuple):
    """An array as a file stores it."""

    name: str
    dims: tuple[str, ...]
    values: AnyArray
    attrs: dict[str, Any]


class KeptGroup(NamedTuple):
    """A group to be written: variables and coordinates by name."""

    arrays: dict[str, Labelled]
    coords: dict[str, Labelled]

    @property
    def sizes(self) -> dict[str, int]:
        labelled = (*self.coords.values(), *self.arrays.values())
        return {dim: size for dims, values in labelled for dim, size in zip(dims, np.shape(values), strict=True)}

    def encoded(self) -> Iterator[Encoded]:
        """Iterate over all arrays, encoded by the CF conventions; strings are objects."""
        for name, (dims, given) in {**self.coords, **self.arrays}.items():
            values, attrs = np.asarray(given), dict[str, Any]()
            if name in self.arrays:
                others = [key for key, (own, _) in self.coords.items() if own != (key,) and set(own) <= set(dims)]
                attrs = {"coordinates": " ".join(others)} if others else {}
            if values.dtype.kind == "b":
                values, attrs = values.astype(np.int8), {**attrs, "dtype": "bool"}
            elif values.dtype.kind == "M":
                attrs |= {"units": "nanoseconds since 1970-01-01", "calendar": "proleptic_gregorian"}
                values = values.astype("datetime64[ns]").view(np.int64)
            elif values.dtype.kind == "m":
                attrs |= {"units": "nanoseconds", "dtype": "timedelta64[ns]"}
                values = values.astype("timedelta64[ns]").view(np.int64)
            elif values.dtype.kind not in "fiuO":
                raise InputError(f"The variable {name} has dtype {values.dtype}.", "Write the kept set as npz.")
            yield Encoded(name, dims, values, attrs)


def check_names(kept: Kept, format: str) -> None:
    """Raise an `InputError` for a name that a tree of arrays cannot store; variables are files or nodes of a tree."""
    wrong = [name for name in kept.names or () if "\0" in name]
    wrong += [name for name in kept.variables if name in ("", ".", "..", *SAMPLE_DIMS) or "/" in name]
    if wrong:
        raise InputError(f"{format} cannot store the name {wrong[0]!r}.", "Rename the parameter, or write npz.")


def kept_attributes(kept: Kept) -> dict[str, Any]:
    """Return the attributes of the root."""
    measures = {"ksd": float(kept.ksd), "normalised_ksd": kept.normalised_ksd, "mmd": float(kept.mmd)}
    return {
        "inference_library": LIBRARY,
        "inference_library_version": __version__,
        **{name: value for name, value in measures.items() if not math.isnan(value)},  # JSON has no NaN
        "settings": json.dumps(dict(kept.settings)),
        "variables": json.dumps(list(kept.variables)),  # a store may change their order
        "draws_from": UNCONSTRAINED,
        **({} if kept.scores is None else {"scores_from": GRADIENT}),
    }


def kept_groups(kept: Kept, *, stacked: bool = True) -> dict[str, KeptGroup]:
    """Return the groups of a kept set; without ``stacked`` as a single chain with dimensions (chain, draw)."""
    sample = _SampleDims(kept, stacked)
    names = kept.names if kept.names is not None else default_names(kept.draws.shape[1])
    posterior = _posterior_group(kept, names, sample)
    others = {
        name: _labelled_group(group, _NoSampleDims() if name in MODEL_GROUPS else sample)
        for name, group in kept.groups.items()
    }
    stats = {"unconstrained_draw": sample.labelled(kept.draws, PARAMETER)}
    for name, scores in (("gradient", kept.scores), ("second_gradient", kept.second_scores)):
        if scores is not None:
            stats[name] = sample.labelled(scores, PARAMETER)
    for name, values in (("weight", kept.weights), ("prefix_ksd", kept.prefix_ksd), ("prefix_mmd", kept.prefix_mmd)):
        if values is not None:
            stats[name] = sample.labelled(values)
    of_sampler = others.pop(STATS, KeptGroup({}, {}))
    return {
        POSTERIOR: posterior,
        STATS: KeptGroup(
            {**of_sampler.arrays, **stats}, {**of_sampler.coords, **sample.coords, **_parameter_labels(names)}
        ),
        **others,
        OWN: KeptGroup(_own_arrays(kept), {}),
    }


class _SampleDims:
    """Dimensions and coordinates that number the kept draws."""

    def __init__(self, kept: Kept, stacked: bool) -> None:
        chain, draw = kept.ids.T
        self.dims: tuple[str, ...] = ("sample",) if stacked else ("chain", "draw")
        count = np.arange(len(kept))
        if stacked:
            self.coords = {
                name: Labelled(self.dims, values)
                for name, values in (("sample", count), ("chain", chain), ("draw", draw))
            }
        else:
            self.coords = {
                "chain": Labelled(("chain",), np.zeros(1, np.int64)),
                "draw": Labelled(("draw",), count),
                "source_chain": Labelled(self.dims, chain[None]),
                "source_draw": Labelled(self.dims, draw[None]),
            }

    def labelled(self, values: AnyArray, *dims: str) -> Labelled:
        """Label values (n, ...)."""
        return Labelled((*self.dims, *dims), values if len(self.dims) == 1 else values[None])


class _NoSampleDims:
    """Stands for `_SampleDims` in groups that do not depend on the draws."""

    dims: tuple[str, ...] = ()
    coords: Mapping[str, Labelled] = MappingProxyType({})

    def labelled(self, values: AnyArray, *dims: str) -> Labelled:
        return Labelled(dims, values)


def _posterior_group(kept: Kept, names: tuple[str, ...], sample: _SampleDims) -> KeptGroup:
    """Return the variables of the posterior, or the parameters if there are none."""
    if kept.variables:
        return _labelled_group(kept.variables, sample)
    invalid = any(not name or "/" in name or name in (*sample.coords, *sample.dims) for name in names)
    if len(set(names)) == len(names) <= _MAX_SEPARATE and not invalid:
        return KeptGroup({name: sample.labelled(kept.draws[:, i]) for i, name in enumerate(names)}, sample.coords)
    return KeptGroup(
        {"parameters": sample.labelled(kept.draws, PARAMETER)}, {**sample.coords, **_parameter_labels(names)}
    )


def _labelled_group(group: Mapping[str, Variable], sample: _SampleDims | _NoSampleDims) -> KeptGroup:
    """Return variables with the labels along their dimensions."""
    variables: dict[str, Labelled] = {}
    labels: dict[str, Labelled] = {}
    sizes: dict[str, int] = {}
    for name, (values, dims, coords) in group.items():
        own_dims = []
        for dim, size in zip(dims, values.shape[len(values.shape) - len(dims) :], strict=True):
            # Dimensions with the same name but other labels are different dimensions.
            clash = dim in sample.coords or dim in group or sizes.get(dim, size) != size
            if dim in coords and dim in labels:
                clash = clash or not np.array_equal(labels[dim].values, coords[dim])
            title = f"{name}_{dim}" if clash else dim
            sizes[title] = size
            if dim in coords:
                labels[title] = Labelled((title,), _text_as_object(coords[dim]))
            own_dims.append(title)
        variables[name] = sample.labelled(_text_as_object(values), *own_dims)
    return KeptGroup(variables, {**sample.coords, **labels})


def _parameter_labels(names: Sequence[str]) -> dict[str, Labelled]:
    return {PARAMETER: Labelled((PARAMETER,), _text_as_object(names))}


def _own_arrays(kept: Kept) -> dict[str, Labelled]:
    """Return the history, the summary of the stream and the preconditioner."""
    arrays = {f"history_{name}": Labelled(("step",), part) for name, part in kept.history._asdict().items()}
    for name, values in summary_to_arrays(kept.stream_summary).items():
        arrays[name] = Labelled(("stream_draw", "row")[: values.ndim], values)
    if kept.preconditioner is not None:
        factor = np.asarray(kept.preconditioner.factor)
        arrays["preconditioner"] = Labelled(("row", "column")[: factor.ndim], factor)
        if kept.preconditioner.centre is not None:
            arrays["centre"] = Labelled(("row",), kept.preconditioner.centre)
    return arrays


def _text_as_object(values: Any) -> AnyArray:
    """Convert strings to objects, which every file format accepts."""
    array = np.asarray(values)
    return array.astype(object) if array.dtype.kind in "UT" else array


# -- reading kept sets -------------------------------------------------------------------------------------------------


def kept_of_tree(tree: ArrayTree, where: str) -> Kept:
    """Read a kept set, stacked or not."""
    try:
        return checked_kept(_read_kept(tree, where), where)
    except SteinstreamError:
        raise
    except DAMAGE as problem:
        raise InputError(
            f"{where} is not a kept set, or it is damaged: {problem}.", "Use what steinstream thin or Kept.save wrote."
        ) from problem


def _read_kept(tree: ArrayTree, where: str) -> Kept:
    if tree.attrs.get("inference_library") != LIBRARY and OWN not in tree.names:
        raise NotKeptError(f"{where} is not a kept set.", "Use what steinstream thin or Kept.save wrote.")
    settings, names = (json.loads(tree.attrs[name]) for name in ("settings", "variables"))
    stats, own = tree.group(STATS), tree.group(OWN).arrays
    path = Path(where)
    require_rows_held(path, [*stats.arrays.values(), *own.values()])
    sizes = stats.arrays["unconstrained_draw"].sizes
    dims = ("sample",) if "sample" in sizes else ("chain", "draw")

    def optional(name: str) -> AnyArray | None:
        return _all_rows(stats.arrays[name], dims) if name in stats.arrays else None

    variables = {}
    if names:
        arrays, coords = tree.group(POSTERIOR)
        require_rows_held(path, arrays.values())
        for name in names:
            values = text_as_str(_all_rows(arrays[name], dims))
            variables[name] = labelled_variable(values, arrays[name].other_dims(dims), coords)
    require_length(path, math.prod(sizes[dim] for dim in dims), 1)
    ids = np.concatenate([ids for _, _, ids in DrawIds(sizes, stats.coords, dims).all()])
    factor = own["preconditioner"].values() if "preconditioner" in own else None
    centre = own["centre"].values() if "centre" in own else None
    return Kept(
        draws=_all_rows(stats.arrays["unconstrained_draw"], dims),
        scores=optional("gradient"),
        ids=ids,
        ksd=float(tree.attrs.get("ksd", math.nan)),
        mmd=float(tree.attrs.get("mmd", math.nan)),
        history=History(*(own[f"history_{name}"].values() for name in History._fields)),
        kernel=parse_kernel(settings.get("kernel")),
        preconditioner=None if factor is None else Preconditioner(factor, centre),
        settings=settings,
        names=tuple(str(name) for name in stats.coords[PARAMETER].values()),
        weights=optional("weight"),
        prefix_ksd=optional("prefix_ksd"),
        prefix_mmd=optional("prefix_mmd"),
        bound=settings.get("bound"),
        second_scores=optional("second_gradient"),
        stream_summary=summary_from_arrays(
            {name: own[name].values() for name in {SUMMARY_DRAWS, SUMMARY_WEIGHTS} & own.keys()}
        ),
        variables=variables,
        groups=groups_of_tree(tree, ids, path),
    )


def _all_rows(array: StoredArray, dims: tuple[str, ...]) -> AnyArray:
    """Read all draws of a variable, chain after chain."""
    values = array.part(dims, *(slice(None) for _ in dims))
    return values.reshape(-1, *values.shape[len(dims) :])
