"""What a leaf of the tree reads: a chain of a file, a piece of an array, a sampler. Each is thinned where it lies."""

from __future__ import annotations

import hashlib
import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from steinstream import validation
from steinstream.errors import InputError
from steinstream.io import Chain, open_chain
from steinstream.result import Variable

ROWS = 8192  # draws in a block
BESIDE = ("scores", "output")  # options of ``open_chain`` that name a second file


@dataclass(frozen=True, eq=False)
class Source(ABC):
    """Draws in order, as often as wanted, each time the same ones."""

    title: str
    chain: int
    """The number of its chain, or of its first one."""
    repeatable: ClassVar[bool] = True
    """Whether reading it twice costs little, so that coordinates can be fitted first."""

    @property
    def values(self) -> tuple[Any, ...]:
        """What Dask has to compute before it can be read."""
        return ()

    def bare(self) -> Source:
        """The same without them."""
        return self

    def holding(self, *values: Any) -> Source:
        """The same with them, computed."""
        return self

    @abstractmethod
    def blocks(self, skip: int = 0) -> Iterator[validation.Block]:
        """Its draws but for the first ``skip``."""

    @abstractmethod
    def mark(self) -> dict[str, Any]:
        """What tells it from another one: a checkpoint must not go on with other draws."""

    def names(self) -> tuple[str, ...] | None:
        """The parameters' names, if it knows them."""
        return None

    def variables(self, ids: NDArray[np.int64]) -> dict[str, Variable]:
        """What else it has of these draws."""
        return {}


@dataclass(frozen=True, eq=False)
class FileSource(Source):
    """A file, or one of its chains."""

    path: str
    how: dict[str, Any]
    within: int | None = None
    """Which chain of the file; None for all."""
    skip: int = 0
    """Draws before it in the file."""

    def _open(self) -> Chain:
        return open_chain(self.path, **self.how)

    @property
    def _offset(self) -> int:
        return self.chain - (self.within or 0)

    def blocks(self, skip: int = 0) -> Iterator[validation.Block]:
        for block in self._open().blocks(ROWS, skip=self.skip + skip):
            if self.within is not None and int(block.ids[0, 0]) != self.within:
                return
            yield block._replace(ids=block.ids + np.array([self._offset, 0]))

    def mark(self) -> dict[str, Any]:
        size, changed = _stamp(self.path)
        read = {name: str(value) for name, value in sorted(self.how.items())}
        beside = {name: _stamp(self.how[name]) for name in BESIDE if self.how.get(name)}
        return {"file": self.path, "within": self.within, "bytes": size, "changed": changed, "read": read, **beside}

    def names(self) -> tuple[str, ...] | None:
        return self._open().names

    def variables(self, ids: NDArray[np.int64]) -> dict[str, Variable]:
        return self._open().variables(ids - np.array([self._offset, 0]))


def _stamp(path: str) -> list[int]:
    """Size and time of change, by which a file is known again."""
    about = Path(path).stat()
    return [about.st_size, about.st_mtime_ns]


@dataclass(frozen=True, eq=False)
class ArraySource(Source):
    """Draws and scores (n, d), or one chain of (chains, n, d), read in slices: numpy, Zarr, or a chunk of Dask's."""

    draws: Any
    scores: Any
    first: int = 0
    """The number of its first draw in the chain."""
    within: int | None = None
    """Which chain of the arrays; None where they have two dimensions."""

    @property
    def values(self) -> tuple[Any, ...]:
        return (self.draws, self.scores) if is_delayed(self.draws) else ()

    def bare(self) -> ArraySource:
        return replace(self, draws=None, scores=None) if self.values else self

    def holding(self, *values: Any) -> ArraySource:
        return replace(self, draws=values[0], scores=values[1]) if values else self

    def blocks(self, skip: int = 0) -> Iterator[validation.Block]:
        where = () if self.within is None else (self.within,)
        length = self.draws.shape[len(where)]
        for begin in range(skip, length, ROWS):
            rows = (*where, slice(begin, min(begin + ROWS, length)))
            x, s = validation.as_draws_and_scores(self.draws[rows], self.scores[rows])
            yield validation.Block(x, s, validation.consecutive_ids(self.chain, self.first + begin, len(x)))

    def mark(self) -> dict[str, Any]:
        digest = hashlib.sha256()
        for block in self.blocks():
            digest.update(block.draws.tobytes())
            digest.update(block.scores.tobytes())
        return {"array": digest.hexdigest(), "first": self.first}


@dataclass(frozen=True, eq=False)
class SamplerSource(Source):
    """A sampler: a function that gives blocks (draws, scores), or a delayed one, or a delayed pair of arrays.

    Called again it must give the same draws again. A function with a parameter ``skip`` is told how many draws to leave
    out; of another one they are dropped here.
    """

    sampler: Any
    repeatable: ClassVar[bool] = False

    @property
    def values(self) -> tuple[Any, ...]:
        return (self.sampler,) if is_delayed(self.sampler) else ()

    def bare(self) -> SamplerSource:
        return replace(self, sampler=None) if self.values else self

    def holding(self, *values: Any) -> SamplerSource | ArraySource:
        value = values[0] if values else self.sampler
        if isinstance(value, tuple | list) and len(value) == 2 and not callable(value):
            return ArraySource(self.title, self.chain, np.asarray(value[0]), np.asarray(value[1]))
        if not callable(value):
            raise InputError(
                f"{self.title} gave a {type(value).__name__}.",
                "A delayed sampler gives a pair of arrays (draws, scores), or a function that gives such pairs.",
            )
        return replace(self, sampler=value)

    def blocks(self, skip: int = 0) -> Iterator[validation.Block]:
        knows = "skip" in inspect.signature(self.sampler).parameters
        pairs: Iterable[Any] = self.sampler(skip=skip) if knows else self.sampler()
        number = skip if knows else 0
        for draws, scores in pairs:
            x, s = validation.as_draws_and_scores(np.atleast_2d(draws), np.atleast_2d(scores))
            begin = max(0, min(len(x), skip - number))
            if begin < len(x):
                yield validation.Block(
                    x[begin:], s[begin:], validation.consecutive_ids(self.chain, number + begin, len(x) - begin)
                )
            number += len(x)

    def mark(self) -> dict[str, Any]:
        return {"sampler": self.title}


@dataclass(frozen=True)
class File:
    """A file that nobody has looked into yet."""

    path: str
    how: dict[str, Any] = field(default_factory=dict)


class Contents(NamedTuple):
    """What a look into a file told."""

    names: tuple[str, ...]
    """Of the parameters."""
    chains: int
    apart: int | None
    """Draws in each chain, if its chains can be read one by one."""


def look(file: File) -> Contents:
    """What is in a file. One that names a chain with each draw is read through once, to count them."""
    chain = open_chain(file.path, **file.how)
    if chain.chains is None:
        return Contents(chain.names, 1 + max(int(block.ids[:, 0].max()) for block in chain.blocks(ROWS)), None)
    even = chain.chains > 1 and chain.length is not None and chain.length % chain.chains == 0
    each = (chain.length or 0) // chain.chains if even else None
    if each is not None and any(
        next(chain.blocks(1, skip=number * each)).ids.tolist() != [[number, 0]] for number in range(chain.chains)
    ):
        each = None
    return Contents(chain.names, chain.chains, each)


def leaves_of(file: File, contents: Contents, chain: int) -> list[Source]:
    """A leaf for each chain of the file, or one for all where they cannot be told apart before they are read."""
    name = Path(file.path).name
    if contents.apart is None:
        return [FileSource(name, chain, file.path, file.how)]
    return [
        FileSource(f"{name}[{number}]", chain + number, file.path, file.how, number, number * contents.apart)
        for number in range(contents.chains)
    ]


def is_delayed(value: Any) -> bool:
    """Whether Dask has still to compute it."""
    return hasattr(value, "dask") and hasattr(value, "key")


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "ndim")


def as_given(chains: Any, how: dict[str, Any]) -> list[File | Callable[[int], list[Source]]]:
    """What the user gave, one by one: files to look into, and for all else a function chain number -> leaves."""
    if isinstance(chains, str | os.PathLike):
        beside = {name: str(Path(how[name]).absolute()) for name in BESIDE if how.get(name)}
        return [File(str(Path(chains).absolute()), {**how, **beside})]
    if isinstance(chains, tuple) and len(chains) == 2 and all(map(_is_array, chains)):
        return [_arrays(*chains)]
    if callable(chains) or is_delayed(chains) or not isinstance(chains, Iterable):
        chains = [chains]
    given: list[File | Callable[[int], list[Source]]] = []
    for one in chains:
        if isinstance(one, str | os.PathLike) or (
            isinstance(one, tuple) and len(one) == 2 and all(map(_is_array, one))
        ):
            given += as_given(one, how)
        elif is_delayed(one) or callable(one):
            given.append(partial(_sampler, one))
        else:
            raise InputError(
                f"A chain is a {type(one).__name__}.",
                "Chains are files, pairs of arrays (draws, scores), delayed pairs, and functions that give such pairs.",
            )
    if not given:
        raise InputError("There are no chains to thin.", "Give at least one.")
    _require_own(given, how)
    return given


def _require_own(given: list[Any], how: dict[str, Any]) -> None:
    """A second file belongs to one chain, not to several."""
    for name in BESIDE:
        if how.get(name) and len(given) > 1:
            raise InputError(
                f"A file of {name}, {how[name]}, was given with {len(given)} chains; it goes with one.",
                "Thin the chains one by one, or join their files.",
            )


def _sampler(sampler: Any, chain: int) -> list[Source]:
    return [SamplerSource(f"sampler {chain}", chain, sampler)]


def _arrays(draws: Any, scores: Any) -> Callable[[int], list[Source]]:
    """Leaves of a pair of arrays: one for each chain, of Dask arrays one for each chunk of a chain."""
    if draws.shape != scores.shape or draws.ndim not in (2, 3):
        raise InputError(
            f"Draws have shape {draws.shape} and scores have shape {scores.shape}.",
            "Both are (draws, dimensions) or (chains, draws, dimensions).",
        )
    if hasattr(draws, "to_delayed"):
        return lambda chain: _chunks(draws, scores, chain)
    if draws.ndim == 2:
        return lambda chain: [ArraySource(f"chain {chain}", chain, draws, scores)]
    whole = not isinstance(draws, np.ndarray)  # what lies elsewhere is read by slices; what is in memory goes by parts
    return lambda chain: [
        ArraySource(f"chain {chain + i}", chain + i, draws, scores, within=i)
        if whole
        else ArraySource(f"chain {chain + i}", chain + i, draws[i], scores[i])
        for i in range(draws.shape[0])
    ]


def _chunks(draws: Any, scores: Any, chain: int) -> list[Source]:
    """One leaf for each chunk along the draws, so that no chunk has to wait for another or to travel."""
    if draws.ndim == 3:
        return [leaf for i in range(draws.shape[0]) for leaf in _chunks(draws[i], scores[i], chain + i)]
    draws = draws.rechunk({1: -1})
    scores = scores.rechunk(draws.chunks)
    edges = np.cumsum([0, *draws.chunks[0]]).tolist()
    pairs = zip(draws.to_delayed()[:, 0], scores.to_delayed()[:, 0], edges[:-1], edges[1:], strict=True)
    return [ArraySource(f"chain {chain}, draws {begin} to {end - 1}", chain, x, s, begin) for x, s, begin, end in pairs]
