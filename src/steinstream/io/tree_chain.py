"""A chain in a tree of arrays, in memory or in a file.

Dimensions are (chain, draw, ...), (sample, ...) with coordinates ``chain`` and ``draw``, or (draw, ...). Arrays are
read in slabs of whole chunks along the draws, so that memory is a few slabs, whatever the length of the chain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from steinstream.errors import InputError
from steinstream.io.base import Chain, Floats, Ints, Request, alone, no_scores
from steinstream.io.chunked import Slabs, spans
from steinstream.io.draw_ids import Sampling
from steinstream.io.errors import listing, reading
from steinstream.io.tree import Array, Tree, plain
from steinstream.io.tree_parts import NAME_THEM, POSTERIOR, Part, find, flat_names, parameters, titles
from steinstream.result import Variable
from steinstream.validation import Block

_HOLD = 32 << 20  # bytes of small arrays, all together, that are read once and kept
_LARGE = 32  # megabytes of a chunk that are worth a word
_FEW = 100  # draws that tell whether scores were stored
_LAYOUTS = (("chain", "draw"), ("sample",), ("draw",))


class TreeChain(Chain):
    """Draws and scores as variables of a tree."""

    def __init__(self, tree: Tree, path: Path, kind: str, draws_name: str, scores_name: str) -> None:
        self._made_of = tree, path, kind, draws_name, scores_name
        self._tree, self._kind = tree, kind
        with reading(path, kind):
            draws, scores = find(tree, draws_name, scores_name, path)
            self._dims = _common_dims([*draws, *scores], path)
            self._sampling = Sampling(draws[0].array.sizes, draws[0].coords, self._dims)
            self._draws, self._scores = ([part.array for part in parts] for parts in (draws, scores))
            names = parameters(scores) or [name for part in draws for name in flat_names(part.array, self._dims)]
        width = _width(draws, scores, self._dims, path)
        total = self._sampling.chains * self._sampling.draws
        super().__init__(path, width, names, total, self._sampling.several)
        self.draws_from, self.scores_from = titles(draws), titles(scores)
        self._require_scores()

    def __reduce__(self) -> tuple[Any, ...]:
        return TreeChain, self._made_of, {"negated": self.negated}

    def variables(self, ids: Ints) -> dict[str, Variable]:
        """The variables of the posterior at these draws; of a file, only the chunks that hold them are read."""
        found = {}
        with reading(self.path, self._kind):
            carried, coords = self._carried()
            chain, draw = self._sampling.places(ids, self.path) if carried else (ids[:, 0], ids[:, 1])
            for name, array in carried.items():
                rest = array.rest(self._dims)
                places = {dim: plain(coords[dim].values()) for dim in rest if dim in coords}
                found[name] = Variable(plain(_picked(array, self._dims, chain, draw)), rest, places)
        return found

    def notes(self) -> list[tuple[str, str]]:
        """The variables that kept draws will carry, and chunks that are large, or read more than once."""
        shapes = {
            name: [array.sizes[dim] for dim in array.rest(self._dims)] for name, array in self._carried()[0].items()
        }
        told = [f"{name} ({' x '.join(map(str, shape))})" if shape else name for name, shape in shapes.items()]
        notes = [("variables", f"{POSTERIOR}: {listing(told)}")] if told else []
        columns = [column for each in self._columns() for column in each]
        held, again = max(column.held for column in columns) / 1e6, max(column.again for column in columns)
        if held > _LARGE:
            notes.append(
                ("chunks", f"of {held:.0f} MB, each read whole: shorter ones along the draws take less memory")
            )
        if again > 1:
            notes.append(("chunks", f"hold {again} chains, each read {again} times: chunks of one chain are faster"))
        return notes

    def _carried(self) -> tuple[dict[str, Array], Mapping[str, Array]]:
        """The variables of the posterior that every draw has, and their coordinates."""
        if POSTERIOR not in self._tree.names:
            return {}, {}
        with reading(self.path, self._kind):
            arrays, coords = self._tree.group(POSTERIOR)
        return {name: array for name, array in arrays.items() if set(self._dims) <= set(array.dims)}, coords

    def _columns(self) -> tuple[list[Column], list[Column]]:
        """Draws and scores from their beginning: what is held of them belongs to one iteration."""
        hold = _HOLD // (len(self._draws) + len(self._scores))
        draws, scores = ([Column(array, self._dims, hold) for array in each] for each in (self._draws, self._scores))
        return draws, scores

    def _read(self, rows: int, skip: int) -> Iterator[Block]:
        draws, scores = self._columns()
        with reading(self.path, self._kind):
            labels = self._sampling.labels()
        length = self._sampling.draws
        for chain in range(skip // length, self._sampling.chains):
            begin = max(skip - chain * length, 0)
            for start, stop in spans((*draws, *scores, *labels.slabs), begin, length, rows):
                with reading(self.path, self._kind):
                    block = Block(
                        _together(draws, chain, start, stop),
                        _together(scores, chain, start, stop),
                        labels.ids(chain, start, stop),
                    )
                yield block

    def _require_scores(self) -> None:
        """Refuse scores that were never stored: their array is there, full of NaN."""
        length = self._sampling.draws
        few = slice(0, _FEW), slice(max(length - _FEW, 0), length)
        with reading(self.path, self._kind):
            for chain, draws in ((0, few[0]), (self._sampling.chains - 1, few[1])):
                within = (slice(chain, chain + 1), draws)[-len(self._dims) :]
                for array in self._scores:
                    if not np.isnan(array.part(self._dims, *within).astype(np.float64)).all():
                        return
        raise no_scores(self.path, self.scores_from)


class Column(Slabs):
    """One variable as rows of numbers."""

    def rows(self, chain: int, start: int, stop: int) -> Floats:
        """Some draws within a slab, as an array of their own: a view would keep the slab while the next is read."""
        return super().rows(chain, start, stop).copy(order="C")

    def _load(self, chain: int, start: int) -> Floats:
        slab = super()._load(chain, start)
        return slab.reshape(*slab.shape[:2], -1).astype(np.float64, copy=False)


def open_tree(request: Request, look: Callable[[Path], Tree], kind: str) -> TreeChain:
    """The chain in a file that ``look`` finds a tree in."""
    alone(request)
    return TreeChain(look(request.path), request.path, kind, request.draws_name, request.scores_name)


def _common_dims(parts: Sequence[Part], path: Path) -> tuple[str, ...]:
    """The sampling dimensions that all arrays share."""
    first = parts[0]
    for title, array, _ in parts:
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


def _picked(array: Array, dims: tuple[str, ...], chains: Ints, draws: Ints) -> npt.NDArray[Any]:
    """Some draws of a variable, slab by slab."""
    slabs = Slabs(array, dims, 0)
    values = np.empty((len(draws), *(array.sizes[dim] for dim in array.rest(dims))), array.dtype)
    for place in np.lexsort((draws, chains)).tolist():
        draw = int(draws[place])
        values[place] = slabs.rows(int(chains[place]), draw, draw + 1)[0]
    return values


def _width(draws: Sequence[Part], scores: Sequence[Part], dims: tuple[str, ...], path: Path) -> int:
    """Numbers that a draw has, and its score too."""
    for title, array, _ in (*draws, *scores):
        if array.dtype.kind not in "fiu":
            raise InputError(f"{path}: {title} has dtype {array.dtype}.", "Draws and scores are real numbers.")
    width, other = (sum(part.array.size_of(part.array.rest(dims)) for part in parts) for parts in (draws, scores))
    if width != other:
        raise InputError(
            f"{path}: {width} numbers a draw ({titles(draws)}), but {other} a score ({titles(scores)}).",
            "Draws are unconstrained, as the gradient is: a simplex of 3 counts 2 there. " + NAME_THEM,
        )
    return width


def _together(columns: Sequence[Column], chain: int, start: int, stop: int) -> Floats:
    parts = [column.rows(chain, start, stop) for column in columns]
    return parts[0] if len(parts) == 1 else np.hstack(parts)


def _shape(array: Array) -> str:
    return " x ".join(f"{dim} {size}" for dim, size in array.sizes.items())
