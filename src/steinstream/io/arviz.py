"""The layout of ArviZ, in NetCDF files, Zarr stores and DataTrees: chains and kept sets.

**Chains.** The score is ``sample_stats/gradient``. Its draws are ``sample_stats/unconstrained_draw`` (nutpie), or the
variables of ``unconstrained_posterior``, ordered by the names along the dimension of the gradient. Other locations are
named by their paths, separated by commas: a variable, or a group with all its variables. Dimensions are (chain, draw,
...), (sample, ...) with coordinates ``chain`` and ``draw``, or (draw, ...). The kept draws get the variables of
``posterior``.

**Kept sets.** Group ``posterior`` contains the variables of the user's model, or the unconstrained parameters if there
are none; ``sample_stats`` contains ``unconstrained_draw``, ``gradient`` (the score), and ``second_gradient``,
``weight`` and ``prefix_ksd`` if the kept set has them; ``steinstream`` contains the preconditioner and the history; the
attributes contain KSD and all settings. Chains are thinned to different sizes, so there is one dimension ``sample``,
with the coordinates ``chain`` and ``draw``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from steinstream import __version__
from steinstream._formatting import listing, nearest
from steinstream._typing import AnyArray, Array, Integers
from steinstream.errors import InputError
from steinstream.io._columns import split_names
from steinstream.io._labelled_arrays import (
    ArrayTree,
    ChunkReader,
    DrawIds,
    Group,
    StoredArray,
    read_rows,
    slab_ranges,
    text_as_str,
)
from steinstream.io.base import (
    ALL_PARAMETERS,
    DRAWS,
    NAMES_HINT,
    NO_SCORES_HINT,
    SCORES,
    Chain,
    Request,
    default_names,
    reject_scores_file,
    scores_all_nan,
)
from steinstream.io.errors import need, reading
from steinstream.io.npz import parse_kernel
from steinstream.preconditioning import Preconditioner
from steinstream.result import History, Kept, Variable
from steinstream.validation import Block

#: Locations of scores and draws.
GRADIENT, UNCONSTRAINED = "sample_stats/gradient", "sample_stats/unconstrained_draw"

_TRANSFORMED, _POSTERIOR, _OWN = "unconstrained_posterior", "posterior", "steinstream"
_PARAMETER = "unconstrained_parameter"
_SAMPLE_DIMS = ("chain", "draw", "sample")
_LAYOUTS = (("chain", "draw"), ("sample",), ("draw",))

_BUFFER = 32 << 20  # bytes of small arrays, in total, that are read once and held
_LARGE_SLAB = 32  # megabytes of a slab that `notes` reports
_MIN_DRAWS = 100  # draws that show whether scores were stored
_MAX_SEPARATE = 200  # parameters above which they are written as one array instead of one each

_NAME_THEM = f"Name them with {NAMES_HINT}: a variable as GROUP/NAME, or a whole GROUP."
_NUTPIE = "nutpie stores both with nutpie.sample(..., store_gradient=True, store_unconstrained=True)."
_IN_ORDER = "List the variables in the order of the gradient: draws_name (--draws-name) GROUP/NAME,GROUP/NAME,..."

# -- finding draws and scores ------------------------------------------------------------------------------------------


class _Part(NamedTuple):
    """A variable with its path, and the coordinates of its group."""

    title: str
    array: StoredArray
    coords: Mapping[str, StoredArray]


class _Finder:
    """Finds the variables that are the draws and the scores."""

    def __init__(self, tree: ArrayTree, path: Path) -> None:
        self._tree, self._path = tree, path

    def find(self, draws_name: str, scores_name: str) -> tuple[list[_Part], list[_Part]]:
        """Return the variables of draws and scores, in the same order."""
        if draws_name == ALL_PARAMETERS:
            draws = self._named(self._all_parameters())
            return draws, draws
        scores = self._named(scores_name if scores_name != SCORES else self._default_scores())
        name = draws_name if draws_name != DRAWS else self._default_draws()
        if name not in self._tree.names:
            return self._named(name), scores
        draws = self._group(name)
        if scores_name in self._tree.names:
            return draws, self._match(draws, scores)
        names = _parameter_names(scores)
        if names:
            return self._assemble(name, names), scores
        if len(draws) != 1:
            raise InputError(
                f"{self._path}: the order in which {_titles(scores)} refers to {_titles(draws)} is unknown.", _IN_ORDER
            )
        return draws, scores

    def _all_parameters(self) -> str:
        """Return the location of the draws if no scores are needed; unconstrained ones if there are any."""
        places = [place for place in (UNCONSTRAINED, DRAWS) if self._lookup(place) is not None]
        groups = [group for group in (_TRANSFORMED, _POSTERIOR) if group in self._tree.names]
        return next(iter([*places, *groups]), _POSTERIOR)

    def _default_scores(self) -> str:
        for place in (GRADIENT, SCORES):
            if self._lookup(place) is not None:
                return place
        raise InputError(
            f"{self._path} has no scores: no variable {GRADIENT} among {listing(self._known())}.",
            f"{_NAME_THEM} {_NUTPIE} {NO_SCORES_HINT}",
        )

    def _default_draws(self) -> str:
        for place in (UNCONSTRAINED, DRAWS):
            if self._lookup(place) is not None:
                return place
        if _TRANSFORMED in self._tree.names:
            return _TRANSFORMED
        raise InputError(
            f"{self._path} has scores but no unconstrained draws: neither {UNCONSTRAINED} nor a group {_TRANSFORMED}.",
            f"{_NUTPIE} If no parameter is constrained, use draws_name={_POSTERIOR} (--draws-name {_POSTERIOR}).",
        )

    def _named(self, text: str) -> list[_Part]:
        """Return the variables of a list of paths."""
        found: list[_Part] = []
        for name in split_names(text):
            if name.strip("/") in self._tree.names:
                found += self._group(name.strip("/"))
                continue
            part = self._lookup(name)
            if part is None:
                known = self._known()
                raise InputError(
                    f"{self._path} has no variable or group {name}; it has {listing(known)}.",
                    nearest(name, [*known, *self._tree.names]) + _NAME_THEM,
                )
            found.append(part)
        if not found:
            raise InputError(f"{self._path}: {text} has no variables.", _NAME_THEM)
        return found

    def _assemble(self, group: str, names: Sequence[str]) -> list[_Part]:
        """Return the variables of a group in the order of the names along the gradient.

        PyMC writes only transformed variables to ``unconstrained_posterior``; the others are taken from ``posterior``.
        """
        own = self._group(group)
        pool = own + (self._group(_POSTERIOR) if group == _TRANSFORMED and _POSTERIOR in self._tree.names else [])
        order: list[_Part] = []
        at = 0
        while at < len(names):
            for part in pool:
                size = math.prod(part.array.row_shape(_SAMPLE_DIMS))
                if list(names[at : at + size]) in _element_names(part.array):
                    order.append(part)
                    at += size
                    break
            else:
                raise InputError(
                    f"{self._path}: no variable of {group} corresponds to the parameter {names[at]} of the gradient; "
                    f"there are {_titles(own)}.",
                    _IN_ORDER,
                )
        return order

    def _match(self, draws: list[_Part], scores: list[_Part]) -> list[_Part]:
        """Return the scores in the order of the draws, for two groups with the same names."""
        by_name = {part.array.name: part for part in scores}
        if {part.array.name for part in draws} != by_name.keys():
            raise InputError(f"{self._path}: draws are {_titles(draws)}, scores are {_titles(scores)}.", _NAME_THEM)
        return [by_name[part.array.name] for part in draws]

    def _lookup(self, name: str) -> _Part | None:
        group, _, last = name.strip("/").rpartition("/")
        for place in [group] if group else ["", _TRANSFORMED, "sample_stats", _POSTERIOR]:
            if not place or place in self._tree.names:
                found = self._tree.group(place)
                if last in found.arrays:
                    return _Part(f"{place}/{last}".strip("/"), found.arrays[last], found.coords)
        return None

    def _group(self, name: str) -> list[_Part]:
        found = self._tree.group(name)
        return [_Part(f"{name}/{title}".strip("/"), array, found.coords) for title, array in found.arrays.items()]

    def _known(self) -> list[str]:
        return [part.title for group in ("", *self._tree.names) for part in self._group(group)]


def _element_names(array: StoredArray) -> list[list[str]]:
    """Return the names of the elements of a variable, in the notation of ``flat_names`` and of several tools."""
    shape = array.row_shape(_SAMPLE_DIMS)
    if not shape:
        return [[array.name]]
    places = [[str(i) for i in place] for place in np.ndindex(*shape)]
    notations = (("[", ",", "]"), ("_", "_", ""), ("[", ", ", "]"), (".", ".", ""))
    return [[f"{array.name}{a}{b.join(place)}{c}" for place in places] for a, b, c in notations]


def _parameter_names(scores: Sequence[_Part]) -> list[str]:
    """Return the names along the last dimension of a gradient that is one array."""
    array = scores[0].array
    if len(scores) != 1 or not array.dims or array.dims[-1] in _SAMPLE_DIMS:
        return []
    last = scores[0].coords.get(array.dims[-1])
    return [str(name) for name in last.values()] if last is not None and last.is_text else []


def _titles(parts: Sequence[_Part]) -> str:
    return listing((part.title for part in parts), 6)


# -- chains ------------------------------------------------------------------------------------------------------------


class ArvizChain(Chain):
    """Draws and scores as variables of a tree."""

    def __init__(self, tree: ArrayTree, path: Path, kind: str, draws_name: str, scores_name: str) -> None:
        self._arguments = tree, path, kind, draws_name, scores_name
        self._tree, self._kind = tree, kind
        with reading(path, kind):
            draws, scores = _Finder(tree, path).find(draws_name, scores_name)
            self._dims = _common_dims([*draws, *scores], path)
            self._ids = DrawIds(draws[0].array.sizes, draws[0].coords, self._dims)
            self._draws, self._scores = ([part.array for part in parts] for parts in (draws, scores))
            names = _parameter_names(scores) or [name for array in self._draws for name in _element_names(array)[0]]
        dim = _common_width(draws, scores, self._dims, path)
        super().__init__(path, dim, names, self._ids.chains * self._ids.draws, self._ids.chain_count)
        self.draws_from, self.scores_from = _titles(draws), _titles(scores)
        self._require_scores()

    def __reduce__(self) -> tuple[Any, ...]:
        return ArvizChain, self._arguments, {"negated": self.negated}

    def variables(self, ids: Integers) -> dict[str, Variable]:
        """Read the variables of the posterior; only the chunks that contain these draws are read."""
        found = {}
        with reading(self.path, self._kind):
            arrays, coords = self._posterior()
            chains, draws = self._ids.positions(ids, self.path) if arrays else (ids[:, 0], ids[:, 1])
            for name, array in arrays.items():
                values = text_as_str(read_rows(array, self._dims, chains, draws))
                found[name] = _variable(values, array.other_dims(self._dims), coords)
        return found

    def notes(self) -> list[tuple[str, str]]:
        """Return the variables that kept draws will get, and chunks that are large or read more than once."""
        shapes = {name: array.row_shape(self._dims) for name, array in self._posterior()[0].items()}
        titles = [f"{name} ({' x '.join(map(str, shape))})" if shape else name for name, shape in shapes.items()]
        notes = [("variables", f"{_POSTERIOR}: {listing(titles)}")] if titles else []
        readers = [reader for each in self._readers() for reader in each]
        size, repeats = max(one.slab_bytes for one in readers) / 1e6, max(one.repeats for one in readers)
        if size > _LARGE_SLAB:
            notes.append(("chunks", f"of {size:.0f} MB are read whole; shorter ones along the draws need less memory"))
        if repeats > 1:
            notes.append(("chunks", f"contain {repeats} chains and are read {repeats} times; use chunks of one chain"))
        return notes

    def _posterior(self) -> Group:
        """Return the variables of the posterior that every draw has, and their coordinates."""
        if _POSTERIOR not in self._tree.names:
            return Group({}, {})
        with reading(self.path, self._kind):
            arrays, coords = self._tree.group(_POSTERIOR)
        return Group({name: array for name, array in arrays.items() if set(self._dims) <= set(array.dims)}, coords)

    def _readers(self) -> tuple[list[ChunkReader], list[ChunkReader]]:
        """Return readers of draws and scores for one iteration."""
        buffer = _BUFFER // (len(self._draws) + len(self._scores))
        return (
            [_FloatReader(array, self._dims, buffer) for array in self._draws],
            [_FloatReader(array, self._dims, buffer) for array in self._scores],
        )

    def _read(self, rows: int, skip: int) -> Iterator[Block]:
        draws, scores = self._readers()
        with reading(self.path, self._kind):
            ids = self._ids.reader()
        length = self._ids.draws
        for chain in range(skip // length, self._ids.chains):
            begin = max(skip - chain * length, 0)
            for start, stop in slab_ranges((*draws, *scores, *ids.readers), begin, length, rows):
                with reading(self.path, self._kind):
                    block = Block(
                        _take_all(draws, chain, start, stop),
                        _take_all(scores, chain, start, stop),
                        ids.ids(chain, start, stop),
                    )
                yield block

    def _require_scores(self) -> None:
        """Raise if the first and the last scores are NaN: the array exists, but was never filled."""
        length = self._ids.draws
        first, last = slice(0, _MIN_DRAWS), slice(max(length - _MIN_DRAWS, 0), length)
        with reading(self.path, self._kind):
            for chain, draws in ((0, first), (self._ids.chains - 1, last)):
                within = (slice(chain, chain + 1), draws)[-len(self._dims) :]
                for array in self._scores:
                    if not np.isnan(array.part(self._dims, *within).astype(np.float64)).all():
                        return
        raise scores_all_nan(self.path, self.scores_from)


class _FloatReader(ChunkReader):
    """Reads a variable as rows of float64."""

    def _load(self, chain: int, start: int) -> Array:
        slab = super()._load(chain, start)
        return slab.reshape(*slab.shape[:2], -1).astype(np.float64, copy=False)


def open_tree(request: Request, open_file: Callable[[Path], ArrayTree], kind: str) -> ArvizChain:
    """Open the chain in a file that ``open_file`` opens as a tree."""
    reject_scores_file(request)
    return ArvizChain(open_file(request.path), request.path, kind, request.draws_name, request.scores_name)


def _common_dims(parts: Sequence[_Part], path: Path) -> tuple[str, ...]:
    """Return the dimensions of the draws, which all variables must share."""
    first = parts[0]
    for title, array, _ in parts:
        dims = next((dims for dims in _LAYOUTS if set(dims) <= set(array.dims)), None)
        if dims is None:
            raise InputError(
                f"{path}: {title} has dimensions {array.dims}, expected (chain, draw, ...) or (sample, ...).",
                "Rename its dimensions, for example with the method rename of xarray.",
            )
        if any(array.sizes[dim] != first.array.sizes.get(dim) for dim in dims):
            raise InputError(
                f"{path}: {title} has shape {_shape(array)}, but {first.title} has shape {_shape(first.array)}.",
                "Every draw needs its own score: name variables of the same draws.",
            )
    return dims or ()


def _common_width(draws: Sequence[_Part], scores: Sequence[_Part], dims: tuple[str, ...], path: Path) -> int:
    """Return the number of parameters, which must be the same for draws and scores."""
    for title, array, _ in (*draws, *scores):
        if array.dtype.kind not in "fiu":
            raise InputError(f"{path}: {title} has dtype {array.dtype}.", "Draws and scores are real numbers.")
    width, other = (sum(math.prod(part.array.row_shape(dims)) for part in parts) for parts in (draws, scores))
    if width != other:
        raise InputError(
            f"{path}: a draw has {width} numbers ({_titles(draws)}), but a score has {other} ({_titles(scores)}).",
            "Draws must be unconstrained, as the gradient is: a simplex of 3 has 2 parameters. " + _NAME_THEM,
        )
    return width


def _take_all(readers: Sequence[ChunkReader], chain: int, start: int, stop: int) -> Array:
    parts = [reader.take(chain, start, stop) for reader in readers]
    return parts[0] if len(parts) == 1 else np.hstack(parts)


def _shape(array: StoredArray) -> str:
    return " x ".join(f"{dim} {size}" for dim, size in array.sizes.items())


def _variable(values: AnyArray, dims: tuple[str, ...], coords: Mapping[str, StoredArray]) -> Variable:
    return Variable(values, dims, {dim: text_as_str(coords[dim].values()) for dim in dims if dim in coords})


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
        """Sizes of the dimensions."""
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


def kept_attributes(kept: Kept) -> dict[str, Any]:
    """Return the attributes of the root."""
    return {
        "inference_library": _OWN,
        "inference_library_version": __version__,
        "ksd": float(kept.ksd),
        "normalised_ksd": kept.normalised_ksd,
        "settings": json.dumps(dict(kept.settings)),
        "variables": json.dumps(list(kept.variables)),  # a store may change their order
        "draws_from": UNCONSTRAINED,
        "scores_from": GRADIENT,
    }


def kept_groups(kept: Kept, *, stacked: bool = True) -> dict[str, KeptGroup]:
    """Return the groups of a kept set; without ``stacked`` as a single chain with dimensions (chain, draw)."""
    sample = _SampleDims(kept, stacked)
    names = kept.names if kept.names is not None else default_names(kept.draws.shape[1])
    posterior, labels = _posterior_variables(kept, names, sample)
    stats = {
        "unconstrained_draw": sample.labelled(kept.draws, _PARAMETER),
        "gradient": sample.labelled(kept.scores, _PARAMETER),
    }
    if kept.second_scores is not None:
        stats["second_gradient"] = sample.labelled(kept.second_scores, _PARAMETER)
    for name, values in (("weight", kept.weights), ("prefix_ksd", kept.prefix_ksd)):
        if values is not None:
            stats[name] = sample.labelled(values)
    return {
        _POSTERIOR: KeptGroup(posterior, {**sample.coords, **labels}),
        "sample_stats": KeptGroup(stats, {**sample.coords, **_parameter_labels(names)}),
        _OWN: KeptGroup(_own_arrays(kept), {}),
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


def _posterior_variables(
    kept: Kept, names: tuple[str, ...], sample: _SampleDims
) -> tuple[dict[str, Labelled], dict[str, Labelled]]:
    """Return the variables of the posterior, and the labels along their dimensions."""
    if not kept.variables:
        invalid = any(not name or "/" in name or name in (*sample.coords, *sample.dims) for name in names)
        if len(set(names)) == len(names) <= _MAX_SEPARATE and not invalid:
            return {name: sample.labelled(kept.draws[:, i]) for i, name in enumerate(names)}, {}
        return {"parameters": sample.labelled(kept.draws, _PARAMETER)}, _parameter_labels(names)
    variables: dict[str, Labelled] = {}
    labels: dict[str, Labelled] = {}
    sizes: dict[str, int] = {}
    for name, (values, dims, coords) in kept.variables.items():
        own_dims = []
        for dim, size in zip(dims, values.shape[1:], strict=True):
            # Dimensions with the same name but other labels are different dimensions.
            clash = dim in sample.coords or dim in kept.variables or sizes.get(dim, size) != size
            if dim in coords and dim in labels:
                clash = clash or not np.array_equal(labels[dim].values, coords[dim])
            title = f"{name}_{dim}" if clash else dim
            sizes[title] = size
            if dim in coords:
                labels[title] = Labelled((title,), _text_as_object(coords[dim]))
            own_dims.append(title)
        variables[name] = sample.labelled(_text_as_object(values), *own_dims)
    return variables, labels


def _parameter_labels(names: Sequence[str]) -> dict[str, Labelled]:
    return {_PARAMETER: Labelled((_PARAMETER,), _text_as_object(names))}


def _own_arrays(kept: Kept) -> dict[str, Labelled]:
    """Return the history and the preconditioner."""
    arrays = {f"history_{name}": Labelled(("step",), part) for name, part in kept.history._asdict().items()}
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
        return _read_kept(tree)
    except (KeyError, TypeError) as problem:
        raise InputError(
            f"{where} is not a kept set, or it is damaged: {problem}.", "Use what steinstream thin or Kept.save wrote."
        ) from problem


def _read_kept(tree: ArrayTree) -> Kept:
    settings, names = (json.loads(tree.attrs[name]) for name in ("settings", "variables"))
    stats, own = tree.group("sample_stats"), tree.group(_OWN).arrays
    sizes = stats.arrays["unconstrained_draw"].sizes
    dims = ("sample",) if "sample" in sizes else ("chain", "draw")

    def optional(name: str) -> AnyArray | None:
        return _all_rows(stats.arrays[name], dims) if name in stats.arrays else None

    variables = {}
    if names:
        arrays, coords = tree.group(_POSTERIOR)
        for name in names:
            values = text_as_str(_all_rows(arrays[name], dims))
            variables[name] = _variable(values, arrays[name].other_dims(dims), coords)
    factor = own["preconditioner"].values() if "preconditioner" in own else None
    centre = own["centre"].values() if "centre" in own else None
    return Kept(
        draws=_all_rows(stats.arrays["unconstrained_draw"], dims),
        scores=_all_rows(stats.arrays["gradient"], dims),
        ids=np.concatenate([ids for _, _, ids in DrawIds(sizes, stats.coords, dims).all()]),
        ksd=float(tree.attrs["ksd"]),
        history=History(*(own[f"history_{name}"].values() for name in History._fields)),
        kernel=parse_kernel(settings.get("kernel")),
        preconditioner=None if factor is None else Preconditioner(factor, centre),
        settings=settings,
        names=tuple(str(name) for name in stats.coords[_PARAMETER].values()),
        weights=optional("weight"),
        prefix_ksd=optional("prefix_ksd"),
        bound=settings.get("bound"),
        second_scores=optional("second_gradient"),
        variables=variables,
    )


def _all_rows(array: StoredArray, dims: tuple[str, ...]) -> AnyArray:
    """Read all draws of a variable, chain after chain."""
    values = array.part(dims, *(slice(None) for _ in dims))
    return values.reshape(-1, *values.shape[len(dims) :])


# -- DataTree ----------------------------------------------------------------------------------------------------------


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
) -> ArvizChain:
    """Open the draws and scores in an ``xarray.DataTree`` as a chain.

    Parameters
    ----------
    tree : xarray.DataTree
        The tree, in memory or opened lazily from a file.
    draws_name, scores_name : str
        Variables as GROUP/NAME, separated by commas, or a whole GROUP. Default: see :mod:`steinstream.io.arviz`.
    negate : bool, default False
        Change the sign of the scores.
    path : str or Path, optional
        Name of the tree in error messages.

    Returns
    -------
    Chain
        The chain.

    Raises
    ------
    InputError
        If the tree does not contain draws and scores.

    """
    chain = ArvizChain(DataTreeAdapter(tree), Path(path), "a DataTree", draws_name, scores_name)
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


def kept_of_datatree(tree: Any, where: str = "the DataTree") -> Kept:
    """Restore the kept set from the result of `to_datatree`.

    Parameters
    ----------
    tree : xarray.DataTree
        The tree, stacked or not.
    where : str, optional
        Name of the tree in error messages.

    Returns
    -------
    Kept
        The kept set.

    Raises
    ------
    InputError
        If the tree is not a kept set.

    """
    return kept_of_tree(DataTreeAdapter(tree), where)
