"""A chain in an xarray DataTree, in memory or opened lazily from a file.

Dimensions are (chain, draw, ...), (sample, ...) with coordinates ``chain`` and ``draw``, or (draw, ...). Arrays are
read in slabs of whole chunks along the draws, so that memory is a few slabs, whatever the length of the chain.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from steinstream.door import Block
from steinstream.errors import InputError
from steinstream.io.chain import DRAWS, SCORES, Chain, Floats, Ints, no_scores
from steinstream.io.problems import listing, reading
from steinstream.io.tree_parts import NAME_THEM, POSTERIOR, Part, find, flat_names, parameters, titles
from steinstream.kept import Variable

_SLAB = 1 << 20  # bytes read at a time, unless a single chunk has more
_SMALL = 16 << 20  # bytes up to which an array is read once and kept
_LARGE = 32  # megabytes of a chunk that are worth a word
_LABELS = 1 << 16  # ids looked through at a time
_LAYOUTS = (("chain", "draw"), ("sample",), ("draw",))


class TreeChain(Chain):
    """Draws and scores as variables of a DataTree."""

    def __init__(self, tree: Any, path: Path, draws: Sequence[Part], scores: Sequence[Part], kind: str) -> None:
        self._kind, self._tree = kind, tree
        dims = _common_dims([*draws, *scores], path)
        self._sampling = Sampling(draws[0].array, dims)
        fresh = kind == "Zarr"  # where every slice is decoded into an array of its own
        self._draws = [Column(part, dims, fresh) for part in draws]
        self._scores = [Column(part, dims, fresh) for part in scores]
        width = sum(column.width for column in self._draws)
        other = sum(column.width for column in self._scores)
        if width != other:
            raise InputError(
                f"{path}: {width} numbers a draw ({titles(draws)}), but {other} a score ({titles(scores)}).",
                "Draws are unconstrained, as the gradient is: a simplex of 3 counts 2 there. " + NAME_THEM,
            )
        names = parameters(scores) or [name for part in draws for name in flat_names(part.array, dims)]
        total = self._sampling.chains * self._sampling.draws
        super().__init__(path, width, names, total, self._sampling.several)
        self.draws_from, self.scores_from = titles(draws), titles(scores)
        self._require_scores()

    def variables(self, ids: Ints) -> dict[str, Variable]:
        """The variables of the posterior at these draws; of a file, only the chunks that hold them are read."""
        node = self._tree.children.get(POSTERIOR)
        if node is None:
            return {}
        found = {}
        dims = self._sampling.dims
        with reading(self.path, self._kind):
            chain, draw = self._sampling.places(ids, self.path)
            for name, array in node.data_vars.items():
                if set(dims) <= set(array.dims):
                    array = array.transpose(*dims, ...)
                    rest = tuple(str(dim) for dim in array.dims[len(dims) :])
                    coords = {dim: np.asarray(array[dim].values) for dim in rest if dim in array.coords}
                    found[str(name)] = Variable(_picked(array, len(dims) == 2, chain, draw), rest, coords)
        return found

    def notes(self) -> list[tuple[str, str]]:
        """The variables that kept draws will carry, and chunks that are large."""
        dims = set(self._sampling.dims)
        node = self._tree.children.get(POSTERIOR)
        carried = {} if node is None else {k: v for k, v in node.data_vars.items() if dims <= set(v.dims)}
        shapes = {name: [array.sizes[dim] for dim in array.dims if dim not in dims] for name, array in carried.items()}
        told = [f"{name} ({' x '.join(map(str, shape))})" if shape else str(name) for name, shape in shapes.items()]
        notes = [("variables", f"{POSTERIOR}: {listing(told)}")] if told else []
        held = max(column.held for column in (*self._draws, *self._scores)) / 1e6
        if held > _LARGE:
            notes.append(
                ("chunks", f"of {held:.0f} MB, each read whole: shorter ones along the draws take less memory")
            )
        return notes

    def _read(self, rows: int, skip: int) -> Iterator[Block]:
        length = self._sampling.draws
        for chain in range(skip // length, self._sampling.chains):
            for start in range(max(skip - chain * length, 0), length, rows):
                stop = min(start + rows, length)
                with reading(self.path, self._kind):
                    block = Block(
                        _together(self._draws, chain, start, stop),
                        _together(self._scores, chain, start, stop),
                        self._sampling.ids(chain, start, stop),
                    )
                yield block
        for column in (*self._draws, *self._scores):
            column.forget()

    def _require_scores(self) -> None:
        """Refuse scores that were never stored: their array is there, full of NaN."""
        length = self._sampling.draws
        with reading(self.path, self._kind):
            for chain, start in ((0, 0), (self._sampling.chains - 1, max(length - 100, 0))):
                for column in self._scores:
                    if not np.isnan(column.rows(chain, start, min(start + 100, length))).all():
                        return
        raise no_scores(self.path, self.scores_from)


class Sampling:
    """How the draws are laid out, ``chains`` x ``draws`` or all in a row, and the id of each."""

    def __init__(self, array: Any, dims: tuple[str, ...]) -> None:
        self.dims = dims
        self.chains = array.sizes["chain"] if len(dims) == 2 else 1
        self.draws = array.sizes[dims[-1]]
        self._chain, self._draw = (_label(array, name, dims) for name in ("chain", "draw"))
        mixed = "source_chain" in array.coords or (len(dims) == 1 and self._chain is not None)
        self.several = None if mixed else self.chains
        """Number of chains, if the layout tells."""

    def ids(self, chain: int, start: int, stop: int) -> Ints:
        """(chain, draw) of some draws: as the coordinates have it, else by counting."""
        ids = np.empty((stop - start, 2), np.int64)
        ids[:, 0] = chain if self._chain is None else self._chain.of(chain, start, stop)
        ids[:, 1] = np.arange(start, stop) if self._draw is None else self._draw.of(chain, start, stop)
        return ids

    def places(self, ids: Ints, path: Path) -> tuple[Ints, Ints]:
        """Where the draws with these ids are: number of the chain, number of the draw."""
        different, back = np.unique(ids, axis=0, return_inverse=True)
        wanted = {tuple(pair): place for place, pair in enumerate(different.tolist())}
        found = np.full((len(different), 2), -1)
        draws = np.unique(ids[:, 1])
        for chain in range(self.chains):
            for start in range(0, self.draws, _LABELS):
                here = self.ids(chain, start, min(start + _LABELS, self.draws))
                for row in np.flatnonzero(np.isin(here[:, 1], draws)).tolist():
                    place = wanted.get((int(here[row, 0]), int(here[row, 1])))
                    if place is not None:
                        found[place] = chain, start + row
        missing = np.flatnonzero(found[:, 0] < 0)
        if missing.size:
            chain, draw = different[missing[0]].tolist()
            raise InputError(f"{path} has no chain {chain}, draw {draw}.", "Give ids of its own draws.")
        return found[back.ravel(), 0], found[back.ravel(), 1]


class Column:
    """One variable, as rows of numbers, read in slabs."""

    def __init__(self, part: Part, dims: tuple[str, ...], fresh: bool) -> None:
        array = part.array.transpose(*dims, ...)
        if array.dtype.kind not in "fiu":
            raise InputError(f"{part.title} has dtype {array.dtype}.", "Draws and scores are real numbers.")
        self._array = array
        self._chained = len(dims) == 2
        self._draws = array.sizes[dims[-1]]
        self.width = math.prod(array.shape[len(dims) :])
        self._extent = extent(array, len(dims) - 1)
        self._small = array.dtype.itemsize * math.prod(array.shape) <= _SMALL
        self._fresh = fresh and not self._small
        self._whole: Any = None
        self._at: tuple[int, int] = (-1, 0)
        self._slab: Floats = np.empty((0, self.width))

    @property
    def held(self) -> int:
        """Bytes that are held at a time."""
        return int(min(self._extent, self._draws) * self.width * self._array.dtype.itemsize)

    def rows(self, chain: int, start: int, stop: int) -> Floats:
        """Some draws of a chain, as an array of their own."""
        parts: list[Floats] = []
        while start < stop:
            at = (chain, start - start % self._extent)
            if at != self._at:
                self._slab = np.empty((0, self.width))  # let the last one go first
                self._slab, self._at = self._load(chain, at[1]), at
            if self._fresh and not parts and start == at[1] and len(self._slab) == stop - start:
                slab = self._slab  # the block is the slab, which nobody else holds
                self.forget()
                return np.require(slab, np.float64, ["C", "W"])
            part = self._slab[start - at[1] : stop - at[1]]
            parts.append(part)
            start += len(part)
        return np.concatenate(parts).astype(np.float64, copy=False)

    def forget(self) -> None:
        """Let go of what is held between two blocks."""
        self._at, self._whole, self._slab = (-1, 0), None, np.empty((0, self.width))

    def _load(self, chain: int, start: int) -> Floats:
        if self._small and self._whole is None:
            self._whole = self._array.values
        source = self._array if self._whole is None else self._whole
        within = slice(start, min(start + self._extent, self._draws))
        part = source[chain, within] if self._chained else source[within]
        return np.asarray(part).reshape(-1, self.width)


def chain_of_datatree(
    tree: Any,
    *,
    draws_name: str = DRAWS,
    scores_name: str = SCORES,
    negate: bool = False,
    path: str | Path = "the tree",
    kind: str = "a DataTree",
) -> TreeChain:
    """The draws and scores in a DataTree, as a stream; ``path`` is what errors call it."""
    path = Path(path)
    with reading(path, kind):
        chain = TreeChain(tree, path, *find(tree, draws_name, scores_name, path), kind)
    chain.negated = negate
    return chain


def labels(dataset: Any, dims: tuple[str, ...]) -> Ints:
    """The (chain, draw) of every draw of a small dataset."""
    sampling = Sampling(dataset, dims)
    return np.concatenate([sampling.ids(chain, 0, sampling.draws) for chain in range(sampling.chains)])


class Label(NamedTuple):
    """A coordinate that tells chain or draw, and whether it differs from chain to chain, and from draw to draw."""

    array: Any
    by_chain: bool
    by_draw: bool

    def of(self, chain: int, start: int, stop: int) -> Any:
        """The labels of some draws of a chain."""
        array = self.array[chain] if self.by_chain else self.array
        return (array[start:stop] if self.by_draw else array).values


def _label(array: Any, name: str, dims: tuple[str, ...]) -> Label | None:
    """How to get the chain or the draw from the coordinates; None if they do not tell."""
    found = array.coords.get(f"source_{name}", array.coords.get(name))
    if found is None or found.dtype.kind not in "iu" or found.ndim == 0 or not set(found.dims) <= set(dims):
        return None
    order = [dim for dim in dims if dim in found.dims]
    return Label(found.transpose(*order), len(dims) == 2 and "chain" in order, dims[-1] in order)


def _common_dims(parts: Sequence[Part], path: Path) -> tuple[str, ...]:
    """The sampling dimensions that all arrays share."""
    first = parts[0]
    for title, array in parts:
        dims = next((dims for dims in _LAYOUTS if set(dims) <= set(array.dims)), None)
        if dims is None:
            raise InputError(
                f"{path}: {title} has dimensions {array.dims}, neither (chain, draw, ...) nor (sample, ...).",
                "Rename its dimensions, for instance with xarray's rename.",
            )
        if any(array.sizes[dim] != first.array.sizes.get(dim) for dim in dims):
            raise InputError(
                f"{path}: {title} is {_shape(array)}, but {first.title} is {_shape(first.array)}.",
                "Each draw needs its own score: name variables of the same draws.",
            )
    return dims or ()


def extent(array: Any, axis: int) -> int:
    """Draws to read at a time: whole chunks, some megabytes of them."""
    row = max(1, int(array.dtype.itemsize) * math.prod(array.shape[axis + 1 :]))
    chunk: int = 1
    if array.chunks is not None:  # dask
        chunk = int(max(array.chunks[axis]))
    else:
        stored = array.encoding.get("chunks") or array.encoding.get("chunksizes")
        if stored is not None and len(stored) == array.ndim:
            chunk = int(stored[axis])
    return chunk * max(1, int(_SLAB // (chunk * row)))


def _picked(array: Any, chained: bool, chains: Ints, draws: Ints) -> Any:
    """Some draws of a variable, slab by slab."""
    first = int(chained)
    if array.chunks is None and isinstance(array.variable._data, np.ndarray):
        return array.values[chains, draws] if chained else array.values[draws]
    values = np.empty((len(draws), *array.shape[first + 1 :]), array.dtype)
    step = extent(array, first)

    def slab(place: Any) -> tuple[int, int]:
        return int(chains[place]), int(draws[place]) // step

    for (chain, number), places in groupby(np.lexsort((draws, chains)).tolist(), slab):
        here = np.array(list(places))
        start = number * step
        within = slice(start, start + step)
        part = (array[chain, within] if chained else array[within]).values
        values[here] = part[draws[here] - start]
    return values


def _together(columns: Sequence[Column], chain: int, start: int, stop: int) -> Floats:
    parts = [column.rows(chain, start, stop) for column in columns]
    return parts[0] if len(parts) == 1 else np.hstack(parts)


def _shape(array: Any) -> str:
    return " x ".join(f"{dim} {size}" for dim, size in array.sizes.items())
