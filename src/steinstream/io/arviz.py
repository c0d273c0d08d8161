"""The layout of ArviZ, in NetCDF files, Zarr stores and DataTrees: chains and kept sets.

**Chains.** The score is ``sample_stats/gradient``. Its draws are ``sample_stats/unconstrained_draw`` (nutpie), or the
variables of ``unconstrained_posterior``, ordered by the names along the dimension of the gradient. Other locations are
named by their paths, separated by commas: a variable, or a group with all its variables. Dimensions are (chain, draw,
...), (sample, ...) with coordinates ``chain`` and ``draw``, or (draw, ...). The kept draws get the variables of
``posterior``.

Without scores (also if the gradient is NaN throughout, or is not accompanied by unconstrained draws), the draws are
``sample_stats/unconstrained_draw``, or the variables of ``unconstrained_posterior`` and ``posterior``: numbers with one
value or array per draw, without log densities, without values per observation (dimension ``__obs__`` of Bambi), and
without variables of which there is a transformed one (``sigma`` if there is ``sigma_log__``), and without linear
functions of other variables and monotone functions of one. A file does not tell which other variables of ``posterior``
are deterministic functions of the parameters; the user may name the parameters.

**Kept sets.** Group ``posterior`` contains the variables of the user's model, or the unconstrained parameters if there
are none; ``sample_stats`` contains ``unconstrained_draw``, and ``gradient`` (the score), ``second_gradient``,
``weight`` and ``prefix_ksd`` if the kept set has them; ``steinstream`` contains the preconditioner and the history; the
attributes contain KSD, MMD and all settings. Chains are thinned to different sizes, so there is one dimension
``sample``, with the coordinates ``chain`` and ``draw``. In the layout chain-draw, the kept draws are a single chain.
Statistics of the sampler, and the groups ``log_likelihood``, ``log_prior``, ``posterior_predictive`` and
``predictions`` are those of the chains at the kept draws; observed and constant data are copied.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from steinstream import __version__
from steinstream._formatting import listing, nearest
from steinstream._typing import AnyArray, Array, Integers
from steinstream.errors import InputError, SteinstreamError
from steinstream.io._columns import not_a_parameter, split_names
from steinstream.io._dependent_variables import dependent_variables
from steinstream.io._kept_checks import checked_kept, parse_kernel
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
    DRAWS,
    NAMES_HINT,
    NOT_CHOSEN,
    PARAMETERS_HINT,
    SCORES,
    SCORES_GUIDE,
    Chain,
    Request,
    array_name,
    default_names,
    no_scores,
    reject_scores_file,
    scores_all_nan,
)
from steinstream.io.errors import DAMAGE, need, reading
from steinstream.preconditioning import Preconditioner
from steinstream.result import MODEL_GROUPS, History, Kept, Variable
from steinstream.validation import Block

#: Locations of scores and draws.
GRADIENT, UNCONSTRAINED = "sample_stats/gradient", "sample_stats/unconstrained_draw"

#: Attribute ``inference_library`` of kept sets.
LIBRARY = "steinstream"

_DEPENDENCE_DRAWS, _DEPENDENCE_WIDTH = 512, 1000  # draws, and elements of a variable, to look for functions of others
_TRANSFORMED, _POSTERIOR, _OWN = "unconstrained_posterior", "posterior", "steinstream"
_PARAMETER = "unconstrained_parameter"
_STATS = "sample_stats"
_DRAW_GROUPS = ("log_likelihood", "log_prior", "posterior_predictive", "predictions", _STATS)
_OF_KEPT_SET = ("unconstrained_draw", "gradient", "second_gradient", "weight", "prefix_ksd", "prefix_mmd")
_STORED_KINDS = "fiubMmOUT"  # kinds of dtype that the formats store
_SAMPLE_DIMS = ("chain", "draw", "sample")
_LAYOUTS = (("chain", "draw"), ("sample",), ("draw",))

_BUFFER = 32 << 20  # bytes of small arrays, in total, that are read once and held
_LARGE_SLAB = 32  # megabytes of a slab that `notes` reports
_MIN_DRAWS = 100  # draws that show whether scores were stored
_MAX_SEPARATE = 200  # parameters above which they are written as one array instead of one each

_NAME_THEM = f"Name them with {NAMES_HINT}: a variable as GROUP/NAME, or a whole GROUP."
_NUTPIE = "nutpie stores both with nutpie.sample(..., store_gradient=True, store_unconstrained=True)."
_ROUTES = (
    "PyMC: steinstream.integrations.pymc.scores(model, idata); nutpie: sample with store_gradient=True, "
    f"store_unconstrained=True; {SCORES_GUIDE}"
)
_TRANSFORM = re.compile(r"(.+)_[a-z][a-z0-9-]*__")  # a transformed variable of PyMC: sigma_log__
_IN_ORDER = "List the variables in the order of the gradient: draws_name (--draws-name) GROUP/NAME,GROUP/NAME,..."

# -- finding draws and scores ------------------------------------------------------------------------------------------


class _Part(NamedTuple):
    """A variable with its path, and the coordinates of its group."""

    title: str
    array: StoredArray
    coords: Mapping[str, StoredArray]


class _Found(NamedTuple):
    """Variables of draws and scores, in the same order."""

    draws: list[_Part]
    scores: list[_Part]  # empty if the draws have no scores
    left_out: dict[str, str]  # variable that is not read -> why not
    unused: str = ""  # why scores that are in the file are not used


class _Finder:
    """Finds the variables that are the draws and the scores."""

    def __init__(self, tree: ArrayTree, request: Request) -> None:
        self._tree, self._path, self._request = tree, request.path, request

    def find(self) -> _Found:
        """Return the variables of draws and scores."""
        request = self._request
        place = request.scores_name if request.names_scores else self._default_scores()
        if place is None:
            return self._without_scores("")
        scores = self._named(place)
        if _never_filled(scores):
            if request.names_scores:
                raise scores_all_nan(self._path, _titles(scores))
            return self._without_scores(f"{place} is NaN throughout, because no gradient was stored")
        name = request.draws_name if request.draws_name != DRAWS else self._default_draws()
        if name is None:
            if request.names_scores:
                raise InputError(
                    f"{self._path} has scores but no unconstrained draws: neither {UNCONSTRAINED} nor a group "
                    f"{_TRANSFORMED}.",
                    f"{_NUTPIE} If no parameter is constrained, use draws_name={_POSTERIOR} (--draws-name "
                    f"{_POSTERIOR}).",
                )
            return self._without_scores(f"{place} is not used, because unconstrained draws are missing")
        return _Found(*self._with_scores(name, scores), {})

    def _with_scores(self, name: str, scores: list[_Part]) -> tuple[list[_Part], list[_Part]]:
        """Return the variables of the draws ``name``, and their scores in the same order."""
        if name not in self._tree.names:
            return self._named(name), scores
        draws = self._group(name)
        if self._request.scores_name in self._tree.names:
            return draws, self._match(draws, scores)
        names = _parameter_names(scores)
        if names:
            return self._assemble(name, names), scores
        if len(draws) != 1:
            raise InputError(
                f"{self._path}: the order in which {_titles(scores)} refers to {_titles(draws)} is unknown.", _IN_ORDER
            )
        return draws, scores

    def _without_scores(self, unused: str) -> _Found:
        """Return the variables of draws without scores; unconstrained ones if there are any."""
        request, place = self._request, self._request.draws_name
        if place == DRAWS:
            place = next((place for place in (UNCONSTRAINED, DRAWS) if self._lookup(place) is not None), DRAWS)
        if place != DRAWS or self._lookup(DRAWS) is not None:
            if place.strip("/") not in self._tree.names:
                return _Found(self._named(place), [], {}, unused)
            pool = self._group(place.strip("/"))
        else:
            groups = [group for group in (_TRANSFORMED, _POSTERIOR) if group in self._tree.names]
            pool = [part for group in groups or [""] for part in self._group(group)]
        if request.parameters is not None:
            return self._chosen(pool, request.parameters, unused)
        reasons = _reasons(pool)
        reasons |= _dependent([part for part in pool if part.title not in reasons])
        draws = [part for part in pool if part.title not in reasons]
        if not draws:
            raise InputError(
                f"{self._path} has no draws: no variable of real numbers with dimensions (chain, draw, ...) or "
                f"(sample, ...) among {listing(self._known())}.",
                f"{_NAME_THEM} {PARAMETERS_HINT}",
            )
        return _Found(draws, [], reasons, unused)

    def _chosen(self, pool: list[_Part], parameters: Sequence[str], unused: str) -> _Found:
        """Return the variables that contain the chosen parameters, which are selected later by their elements."""
        wanted = {*parameters, *map(array_name, parameters)}
        draws = [part for part in pool if part.array.name in wanted]
        known = [part.array.name for part in pool]
        for name in parameters:
            if name not in known and array_name(name) not in known:
                raise InputError(
                    f"{self._path} has no parameter {name}; it has {listing(known)}.",
                    nearest(name, known) + PARAMETERS_HINT,
                )
        return _Found(draws, [], {part.title: NOT_CHOSEN for part in pool if part not in draws}, unused)

    def _default_scores(self) -> str | None:
        return next((place for place in (GRADIENT, SCORES) if self._lookup(place) is not None), None)

    def _default_draws(self) -> str | None:
        for place in (UNCONSTRAINED, DRAWS):
            if self._lookup(place) is not None:
                return place
        return _TRANSFORMED if _TRANSFORMED in self._tree.names else None

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


def _reasons(pool: Sequence[_Part]) -> dict[str, str]:
    """Return which variables are not parameters of draws without scores, and why."""
    unconstrained = {name: part.title for part in pool for name in _untransformed_names(part)}
    reasons = {}
    for title, array, _ in pool:
        instead = unconstrained.get(array.name)
        if instead is not None and instead != title:
            reasons[title] = f"{instead} is read instead"
        elif not any(set(dims) <= set(array.dims) for dims in _LAYOUTS):
            reasons[title] = "not one value per draw"
        elif array.dtype.kind not in "fiub":
            reasons[title] = "not numbers"
        elif any(dim.startswith("__") for dim in array.dims):
            reasons[title] = "one value per observation"
        else:
            reason = not_a_parameter(array.name)
            if reason is not None and not _TRANSFORM.fullmatch(array.name):
                reasons[title] = reason
    return reasons


def _dependent(parts: Sequence[_Part]) -> dict[str, str]:
    """Return which variables are functions of the others, and of which, by the first draws of the first chain."""
    values: dict[str, Array] = {}
    for title, array, _ in parts:
        dims = next(dims for dims in _LAYOUTS if set(dims) <= set(array.dims))
        within = (slice(0, 1), slice(0, _DEPENDENCE_DRAWS))[-len(dims) :]
        if math.prod(array.row_shape(dims)) <= _DEPENDENCE_WIDTH:
            some = array.part(dims, *within).astype(np.float64)
            values[title] = some[0] if len(dims) > 1 else some
    lengths = {len(one) for one in values.values()}
    return dependent_variables(values) if len(lengths) == 1 else {}


def _untransformed_names(part: _Part) -> list[str]:
    """Return the names of the constrained variable that an unconstrained one stands for: sigma for sigma_log__."""
    match = _TRANSFORM.fullmatch(part.array.name)
    own = [part.array.name] if part.title.startswith(f"{_TRANSFORMED}/") else []
    return own + ([match[1]] if match else [])


def _never_filled(parts: Sequence[_Part]) -> bool:
    """Return whether the first and the last scores are NaN: the array exists, but was never filled."""
    for _, array, _ in parts:
        dims = next((dims for dims in _LAYOUTS if set(dims) <= set(array.dims)), None)
        if dims is None or array.dtype.kind not in "fiu":
            return False
        length = array.sizes[dims[-1]]
        first, last = slice(0, _MIN_DRAWS), slice(max(length - _MIN_DRAWS, 0), length)
        for chain, draws in ((0, first), (max(array.sizes[dims[0]] - 1, 0), last)):
            within = (slice(chain, chain + 1), draws)[-len(dims) :]
            if not np.isnan(array.part(dims, *within).astype(np.float64)).all():
                return False
    return True


def _element_names(array: StoredArray) -> list[list[str]]:
    """Return the names of the elements of a variable, in the notation of ``flat_names`` and of several tools."""
    shape = array.row_shape(_SAMPLE_DIMS)
    if not shape:
        return [[array.name]]
    places = [[str(i) for i in place] for place in np.ndindex(*shape)]
    notations = (("[", ",", "]"), ("_", "_", ""), ("[", ", ", "]"), (".", ".", ""))
    return [[f"{array.name}{a}{b.join(place)}{c}" for place in places] for a, b, c in notations]


def _parameter_names(parts: Sequence[_Part]) -> list[str]:
    """Return the names along the last dimension of draws or scores that are one array."""
    array = parts[0].array
    if len(parts) != 1 or not array.dims or array.dims[-1] in _SAMPLE_DIMS:
        return []
    last = parts[0].coords.get(array.dims[-1])
    return [str(name) for name in last.values()] if last is not None and last.is_text else []


def _titles(parts: Sequence[_Part]) -> str:
    return listing((part.title for part in parts), 6)


# -- chains ------------------------------------------------------------------------------------------------------------


class ArvizChain(Chain):
    """Draws, and scores if there are any, as variables of a tree."""

    def __init__(self, tree: ArrayTree, request: Request, kind: str) -> None:
        self._arguments = tree, request, kind
        self._tree, self._kind = tree, kind
        path = request.path
        with reading(path, kind):
            draws, scores, left_out, unused = _Finder(tree, request).find()
            self._dims = _common_dims([*draws, *scores], path)
            self._ids = DrawIds(draws[0].array.sizes, draws[0].coords, self._dims)
            self._draws, self._scores = ([part.array for part in parts] for parts in (draws, scores))
            labelled = scores or [part for part in draws if part.array.dims[-1:] == (_PARAMETER,)]
            names = _parameter_names(labelled) if labelled else []
            names = names or [name for array in self._draws for name in _element_names(array)[0]]
        dim = _common_width(draws, scores, self._dims, path)
        super().__init__(
            path,
            dim,
            names,
            self._ids.chains * self._ids.draws,
            self._ids.chain_count,
            has_scores=bool(scores),
            left_out=left_out,
        )
        self.draws_from, self.scores_from = _titles(draws), _titles(scores) if scores else ""
        self.scores_hint = f"{unused}; {_ROUTES}" if unused else _ROUTES
        if request.parameters is not None:
            self.select(request.parameters)

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

    def groups(self, ids: Integers) -> dict[str, dict[str, Variable]]:
        """Read the groups of the model, and the other groups at these draws."""
        with reading(self.path, self._kind):
            return groups_of_tree(self._tree, ids, self.path)

    def notes(self) -> list[tuple[str, str]]:
        """Return the variables that kept draws will get, and chunks that are large or read more than once."""
        shapes = {name: array.row_shape(self._dims) for name, array in self._posterior()[0].items()}
        titles = [f"{name} ({' x '.join(map(str, shape))})" if shape else name for name, shape in shapes.items()]
        notes = super().notes() + ([("variables", f"{_POSTERIOR}: {listing(titles)}")] if titles else [])
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
                        _take_all(scores, chain, start, stop) if scores else no_scores(stop - start),
                        ids.ids(chain, start, stop),
                    )
                yield block


def groups_of_tree(tree: ArrayTree, ids: Integers, path: Path) -> dict[str, dict[str, Variable]]:
    """Read the groups of the model, and the other groups at some draws, except those that lack one of the draws."""
    found: dict[str, dict[str, Variable]] = {}
    for name in (*MODEL_GROUPS, *_DRAW_GROUPS):
        if name not in tree.names:
            continue
        arrays, coords = tree.group(name)
        arrays = {key: array for key, array in arrays.items() if array.dtype.kind in _STORED_KINDS}
        if name in MODEL_GROUPS:
            found[name] = {
                key: _variable(text_as_str(array.values()), array.dims, coords) for key, array in arrays.items()
            }
            continue
        dims = next((dims for dims in _LAYOUTS if any(set(dims) <= set(one.dims) for one in arrays.values())), None)
        arrays = {
            key: array
            for key, array in arrays.items()
            if dims is not None and set(dims) <= set(array.dims) and (name != _STATS or key not in _OF_KEPT_SET)
        }
        if dims is None or not arrays:
            continue
        try:
            chains, draws = DrawIds(next(iter(arrays.values())).sizes, coords, dims).positions(ids, path)
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
            found[name][key] = _variable(text_as_str(values), array.other_dims(dims), coords)
    return found


class _FloatReader(ChunkReader):
    """Reads a variable as rows of float64."""

    def _load(self, chain: int, start: int) -> Array:
        slab = super()._load(chain, start)
        return slab.reshape(*slab.shape[:2], -1).astype(np.float64, copy=False)


def open_tree(request: Request, open_file: Callable[[Path], ArrayTree], kind: str) -> ArvizChain:
    """Open the chain in a file that ``open_file`` opens as a tree."""
    reject_scores_file(request)
    return ArvizChain(open_file(request.path), request, kind)


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
        if array.dtype.kind not in "fiub":
            raise InputError(f"{path}: {title} has dtype {array.dtype}.", "Draws and scores are real numbers.")
    width, other = (sum(math.prod(part.array.row_shape(dims)) for part in parts) for parts in (draws, scores))
    if scores and width != other:
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


def check_names(kept: Kept, format: str) -> None:
    """Raise an `InputError` for a name that a tree of arrays cannot store; variables are files or nodes of a tree."""
    wrong = [name for name in kept.names or () if "\0" in name]
    wrong += [name for name in kept.variables if name in ("", ".", "..") or "/" in name]
    if wrong:
        raise InputError(f"{format} cannot store the name {wrong[0]!r}.", "Rename the parameter, or write npz or csv.")


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
    stats = {"unconstrained_draw": sample.labelled(kept.draws, _PARAMETER)}
    for name, scores in (("gradient", kept.scores), ("second_gradient", kept.second_scores)):
        if scores is not None:
            stats[name] = sample.labelled(scores, _PARAMETER)
    for name, values in (("weight", kept.weights), ("prefix_ksd", kept.prefix_ksd), ("prefix_mmd", kept.prefix_mmd)):
        if values is not None:
            stats[name] = sample.labelled(values)
    of_sampler = others.pop(_STATS, KeptGroup({}, {}))
    return {
        _POSTERIOR: posterior,
        _STATS: KeptGroup(
            {**of_sampler.arrays, **stats}, {**of_sampler.coords, **sample.coords, **_parameter_labels(names)}
        ),
        **others,
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


class _NoSampleDims:
    """Stands for `_SampleDims` in groups that do not depend on the draws."""

    dims: tuple[str, ...] = ()
    coords: Mapping[str, Labelled] = MappingProxyType({})

    def labelled(self, values: AnyArray, *dims: str) -> Labelled:
        """Label values."""
        return Labelled(dims, values)


def _posterior_group(kept: Kept, names: tuple[str, ...], sample: _SampleDims) -> KeptGroup:
    """Return the variables of the posterior, or the parameters if there are none."""
    if kept.variables:
        return _labelled_group(kept.variables, sample)
    invalid = any(not name or "/" in name or name in (*sample.coords, *sample.dims) for name in names)
    if len(set(names)) == len(names) <= _MAX_SEPARATE and not invalid:
        return KeptGroup({name: sample.labelled(kept.draws[:, i]) for i, name in enumerate(names)}, sample.coords)
    return KeptGroup(
        {"parameters": sample.labelled(kept.draws, _PARAMETER)}, {**sample.coords, **_parameter_labels(names)}
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
        return checked_kept(_read_kept(tree, where), where)
    except SteinstreamError:
        raise
    except DAMAGE as problem:
        raise InputError(
            f"{where} is not a kept set, or it is damaged: {problem}.", "Use what steinstream thin or Kept.save wrote."
        ) from problem


def _read_kept(tree: ArrayTree, where: str) -> Kept:
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
        names=tuple(str(name) for name in stats.coords[_PARAMETER].values()),
        weights=optional("weight"),
        prefix_ksd=optional("prefix_ksd"),
        prefix_mmd=optional("prefix_mmd"),
        bound=settings.get("bound"),
        second_scores=optional("second_gradient"),
        variables=variables,
        groups=groups_of_tree(tree, ids, Path(where)),
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
    parameters: Sequence[str] | None = None,
) -> ArvizChain:
    """Open the draws, and the scores if there are any, in an ``xarray.DataTree`` as a chain.

    Parameters
    ----------
    tree : xarray.DataTree
        The tree, in memory or opened lazily from a file.
    draws_name : str
        Variables as GROUP/NAME, separated by commas, or a whole GROUP. Default: see :mod:`steinstream.io.arviz`.
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
