"""Chains in the layout of ArviZ: which variables are draws and scores, and how they are read.

The score is ``sample_stats/gradient``. Its draws are ``sample_stats/unconstrained_draw`` (nutpie), or the
variables of ``unconstrained_posterior``, ordered by the names along the dimension of the gradient. Other locations are
named by their paths, separated by commas: a variable, or a group with all its variables. Dimensions are (chain, draw,
...), (sample, ...) with coordinates ``chain`` and ``draw``, or (draw, ...). The kept draws get the variables of
``posterior``.

Without scores (also if the gradient is NaN throughout, or is not accompanied by unconstrained draws), the draws are
``sample_stats/unconstrained_draw``, or the variables of ``unconstrained_posterior`` and ``posterior``: numbers with one
value or array per draw, without log densities, without values per observation (dimension ``__obs__`` of Bambi), and
without variables of which there is a transformed one (``sigma`` if there is ``sigma_log__``), and without variables
that :mod:`steinstream.io._dependent_variables` recognises as functions of others, about which there is a
`ParametersWarning`. A file does not tell which other variables of ``posterior`` are deterministic functions of the
parameters; the user may name the parameters.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from steinstream._formatting import listing, nearest
from steinstream._typing import Array, Flags, Integers
from steinstream.errors import InputError, ParametersWarning
from steinstream.io._arviz_layout import (
    GRADIENT,
    PARAMETER,
    POSTERIOR,
    SAMPLE_DIMS,
    STATS,
    TRANSFORMED,
    UNCONSTRAINED,
    diverging_draws,
    groups_of_tree,
    labelled_variable,
    sample_dims,
)
from steinstream.io._columns import not_a_parameter, split_names
from steinstream.io._dependent_variables import dependent_variables
from steinstream.io._kept_checks import VARIABLE_KINDS
from steinstream.io._labelled_arrays import (
    ArrayTree,
    ChunkReader,
    DrawIds,
    Group,
    StoredArray,
    read_rows,
    require_rows_held,
    slab_ranges,
    text_as_str,
)
from steinstream.io._limits import require_length
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
    no_scores,
    reject_scores_file,
    scores_all_nan,
)
from steinstream.io.errors import reading
from steinstream.result import Variable
from steinstream.validation import Block

_DEPENDENCE_DRAWS, _DEPENDENCE_WIDTH = 512, 1000  # draws, and elements of a variable, to look for functions of others
_BUFFER = 32 << 20  # bytes of small arrays, in total, that are read once and held
_COMPUTED = "not all variables that are functions of others are recognised: name the parameters with --parameters"
_LARGE_SLAB = 32  # megabytes of a slab that `notes` reports
_MIN_DRAWS = 100  # draws that show whether scores were stored

_NAME_THEM = f"Name them with {NAMES_HINT}: a variable as GROUP/NAME, or a whole GROUP."
_NUTPIE = "nutpie stores both with nutpie.sample(..., store_gradient=True, store_unconstrained=True)."
_ROUTES = (
    "PyMC: steinstream.integrations.pymc.scores(model, idata); nutpie: sample with store_gradient=True, "
    f"store_unconstrained=True; {SCORES_GUIDE}"
)
#: Libraries that store deterministic variables among the parameters.
PYMC, NUMPYRO = "pymc", "numpyro"
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
    left_out: Mapping[str, str]  # variable that is not read -> why not
    functions: Mapping[str, str] = {}  # those of them that are functions of others
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
                    f"{TRANSFORMED}.",
                    f"{_NUTPIE} If no parameter is constrained, use draws_name={POSTERIOR} (--draws-name {POSTERIOR}).",
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
                return _Found(self._named(place), [], {}, unused=unused)
            pool = self._group(place.strip("/"))
        else:
            groups = [group for group in (TRANSFORMED, POSTERIOR) if group in self._tree.names]
            pool = [part for group in groups or [""] for part in self._group(group)]
        if request.parameters is not None:
            return self._chosen(pool, request.parameters, unused)
        reasons = _reasons(pool)
        functions = _dependent([part for part in pool if part.title not in reasons], _library(self._tree) == NUMPYRO)
        reasons |= functions
        draws = [part for part in pool if part.title not in reasons]
        if not draws:
            raise InputError(
                f"{self._path} has no draws: no variable of real numbers with dimensions (chain, draw, ...) or "
                f"(sample, ...) among {listing(self._known())}.",
                f"{_NAME_THEM} {PARAMETERS_HINT}",
            )
        return _Found(draws, [], reasons, functions, unused)

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
        return _Found(draws, [], {part.title: NOT_CHOSEN for part in pool if part not in draws}, unused=unused)

    def _default_scores(self) -> str | None:
        return next((place for place in (GRADIENT, SCORES) if self._lookup(place) is not None), None)

    def _default_draws(self) -> str | None:
        for place in (UNCONSTRAINED, DRAWS):
            if self._lookup(place) is not None:
                return place
        return TRANSFORMED if TRANSFORMED in self._tree.names else None

    def _named(self, text: str) -> list[_Part]:
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
        pool = own + (self._group(POSTERIOR) if group == TRANSFORMED and POSTERIOR in self._tree.names else [])
        order: list[_Part] = []
        at = 0
        while at < len(names):
            for part in pool:
                size = math.prod(part.array.row_shape(SAMPLE_DIMS))
                if size <= len(names) - at and list(names[at : at + size]) in _element_names(part.array):
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
        for place in [group] if group else ["", TRANSFORMED, STATS, POSTERIOR]:
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
        elif sample_dims(array) is None:
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


def _dependent(parts: Sequence[_Part], sorted_by_name: bool) -> dict[str, str]:
    """Return which variables are functions of the others, and of which, by the first draws of the first chain."""
    values: dict[str, Array] = {}
    for title, array, _ in parts:
        dims = sample_dims(array) or ()
        within = (slice(0, 1), slice(0, _DEPENDENCE_DRAWS))[-len(dims) :]
        if math.prod(array.row_shape(dims)) <= _DEPENDENCE_WIDTH:
            some = array.part(dims, *within)
            values[title] = some[0] if len(dims) > 1 else some
    lengths = {len(one) for one in values.values()}
    return dependent_variables(values, sorted_by_name=sorted_by_name) if len(lengths) == 1 else {}


def _untransformed_names(part: _Part) -> list[str]:
    """Return the names of the constrained variable that an unconstrained one stands for: sigma for sigma_log__."""
    match = _TRANSFORM.fullmatch(part.array.name)
    own = [part.array.name] if part.title.startswith(f"{TRANSFORMED}/") else []
    return own + ([match[1]] if match else [])


def _never_filled(parts: Sequence[_Part]) -> bool:
    """Return whether the first and the last scores are NaN: the array exists, but was never filled."""
    for _, array, _ in parts:
        dims = sample_dims(array)
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
    shape = array.row_shape(SAMPLE_DIMS)
    if not shape:
        return [[array.name]]
    places = [[str(i) for i in place] for place in np.ndindex(*shape)]
    notations = (("[", ",", "]"), ("_", "_", ""), ("[", ", ", "]"), (".", ".", ""))
    return [[f"{array.name}{a}{b.join(place)}{c}" for place in places] for a, b, c in notations]


def _parameter_names(parts: Sequence[_Part]) -> list[str]:
    """Return the names along the last dimension of draws or scores that are one array of vectors."""
    array = parts[0].array
    if len(parts) != 1 or len(array.row_shape(SAMPLE_DIMS)) != 1 or array.dims[-1] in SAMPLE_DIMS:
        return []
    last = parts[0].coords.get(array.dims[-1])
    return [str(name) for name in last.values()] if last is not None and last.is_text else []


def _library(tree: ArrayTree) -> str:
    """Return the name of the library that sampled the draws, in lower case."""
    attributes = tree.attributes(POSTERIOR) if POSTERIOR in tree.names else tree.attrs
    return str(attributes.get("inference_library", "")).lower()


def _warn_of_functions(titles: Iterable[str]) -> None:
    """Warn that variables are left out because they are functions of others."""
    warnings.warn(
        f"Left out as functions of other variables: {listing(titles, 6)}. To keep one, name all "
        "parameters with parameters (--parameters a,b,c).",
        ParametersWarning,
        stacklevel=4,
    )


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
            draws, scores, left_out, functions, unused = _Finder(tree, request).find()
            self._dims = _common_dims([*draws, *scores], path)
            self._ids = DrawIds(draws[0].array.sizes, draws[0].coords, self._dims)
            self._draws, self._scores = ([part.array for part in parts] for parts in (draws, scores))
            dim = _common_width(draws, scores, self._dims, path)
            require_length(path, self._ids.chains * self._ids.draws, dim)
            labelled = scores or [part for part in draws if part.array.dims[-1:] == (PARAMETER,)]
            names = _parameter_names(labelled) if labelled else []
            names = names or [name for array in self._draws for name in _element_names(array)[0]]
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
        guessed = not scores and request.parameters is None and len(draws) > 1
        self._may_have_computed = guessed and _library(tree) in (PYMC, NUMPYRO)
        self.scores_hint = f"{unused}; {_ROUTES}" if unused else _ROUTES
        if request.parameters is not None:
            self.select(request.parameters)
        if functions:
            _warn_of_functions(functions)

    def __reduce__(self) -> tuple[Any, ...]:
        return ArvizChain, self._arguments, {"negated": self.negated}

    def variables(self, ids: Integers) -> dict[str, Variable]:
        """Read the variables of the posterior; only the chunks that contain these draws are read."""
        found = {}
        with reading(self.path, self._kind):
            arrays, coords = self._posterior()
            require_rows_held(self.path, arrays.values(), self._dims, len(ids))
            chains, draws = self._ids.positions(ids, self.path) if arrays else (ids[:, 0], ids[:, 1])
            for name, array in arrays.items():
                if array.dtype.kind not in f"{VARIABLE_KINDS}T":  # T: text of any length, converted below
                    raise InputError(f"{self.path}: {name} has dtype {array.dtype}.", "Write it as numbers or text.")
                values = text_as_str(read_rows(array, self._dims, chains, draws))
                found[name] = labelled_variable(values, array.other_dims(self._dims), coords)
        return found

    def diverging(self) -> Iterator[tuple[Integers, Flags]] | None:
        with reading(self.path, self._kind):
            found = diverging_draws(self._tree)
        return None if found is None else self._guarded(found)

    def _guarded(self, parts: Iterator[tuple[Integers, Flags]]) -> Iterator[tuple[Integers, Flags]]:
        """Iterate over parts of the file, and report damage as an `InputError`."""
        with reading(self.path, self._kind):
            yield from parts

    def groups(self, ids: Integers) -> dict[str, dict[str, Variable]]:
        """Read the groups of the model, and the other groups at these draws."""
        with reading(self.path, self._kind):
            return groups_of_tree(self._tree, ids, self.path)

    def notes(self) -> list[tuple[str, str]]:
        """Return the variables that kept draws will get, and chunks that are large or read more than once."""
        shapes = {name: array.row_shape(self._dims) for name, array in self._posterior()[0].items()}
        titles = [f"{name} ({' x '.join(map(str, shape))})" if shape else name for name, shape in shapes.items()]
        notes = super().notes() + ([("variables", f"{POSTERIOR}: {listing(titles)}")] if titles else [])
        if self._may_have_computed:
            notes.append(("computed", _COMPUTED))
        readers = [reader for each in self._readers() for reader in each]
        size, repeats = max(one.slab_bytes for one in readers) / 1e6, max(one.repeats for one in readers)
        if size > _LARGE_SLAB:
            notes.append(("chunks", f"of {size:.0f} MB are read whole; shorter ones along the draws need less memory"))
        if repeats > 1:
            notes.append(("chunks", f"contain {repeats} chains and are read {repeats} times; use chunks of one chain"))
        return notes

    def _posterior(self) -> Group:
        """Return the variables of the posterior that every draw has, and their coordinates."""
        if POSTERIOR not in self._tree.names:
            return Group({}, {})
        with reading(self.path, self._kind):
            arrays, coords = self._tree.group(POSTERIOR)
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
    first, common = parts[0], sample_dims(parts[0].array)
    for title, array, _ in parts:
        dims = sample_dims(array)
        if dims is None:
            raise InputError(
                f"{path}: {title} has dimensions {array.dims}, expected (chain, draw, ...) or (sample, ...).",
                "Rename its dimensions, for example with the method rename of xarray.",
            )
        if dims != common or any(array.sizes[dim] != first.array.sizes[dim] for dim in dims):
            raise InputError(
                f"{path}: {title} has shape {_shape(array)}, but {first.title} has shape {_shape(first.array)}.",
                "Every draw needs its own score: name variables of the same draws.",
            )
    return common or ()


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
