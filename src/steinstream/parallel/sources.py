"""Sources that a leaf reads: a chain of a file, part of an array, or a sampler."""

from __future__ import annotations

import hashlib
import inspect
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from steinstream import validation
from steinstream._typing import Integers
from steinstream.api import MarkedBlock
from steinstream.errors import InputError, ParametersWarning
from steinstream.io import Chain, open_chain
from steinstream.result import Variable
from steinstream.validation import Block

ROWS = 8192  # draws in a block
SECOND_FILES = ("scores", "output")  # options of `open_chain` that name a second file


@dataclass(frozen=True, eq=False)
class WorkerSource(ABC):
    """A `DrawSource` that can be sent to a worker; every reading returns the same draws."""

    title: str
    chain: int
    """Number of the chain, or of the first one."""
    repeatable: ClassVar[bool] = True
    in_memory: ClassVar[bool] = False
    has_pins_or_features: ClassVar[bool] = False

    @property
    @abstractmethod
    def dim(self) -> int:
        """Number of dimensions."""

    @abstractmethod
    def blocks(self, skip: int = 0, *, interleaved: bool = False) -> Iterator[MarkedBlock]:
        """Read the draws in order, without the first ``skip`` ones."""

    @abstractmethod
    def origin(self) -> dict[str, Any]:
        """Return what identifies the draws, so that a checkpoint does not continue with other ones."""

    @property
    def values(self) -> tuple[Any, ...]:
        """Values that Dask has to compute before the source can be read."""
        return ()

    def without_values(self) -> WorkerSource:
        """Return the source without the values that Dask has to compute."""
        return self

    def with_values(self, *values: Any) -> WorkerSource:
        return self

    def names(self) -> tuple[str, ...] | None:
        """Return the parameter names, if they are known."""
        return None

    def variables(self, ids: Integers) -> dict[str, Variable]:
        """Return the variables of some draws."""
        return {}

    def divergences(self) -> int | None:
        """Return the number of draws that ended a divergent transition, if it is known."""
        return None


@dataclass(frozen=True, eq=False)
class FileSource(WorkerSource):
    """A file, or one of its chains."""

    path: str
    options: dict[str, Any]
    """Options of `open_chain`."""
    within: int | None = None
    """Chain of the file; None for all."""
    skip: int = 0
    """Number of draws of the file before this chain."""

    def _open(self) -> Chain:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ParametersWarning)  # given by `open_sources`
            return open_chain(self.path, **self.options)

    @property
    def _offset(self) -> int:
        return self.chain - (self.within or 0)

    @cached_property
    def dim(self) -> int:
        return self._open().dim

    def blocks(self, skip: int = 0, *, interleaved: bool = False) -> Iterator[MarkedBlock]:
        in_turns = interleaved and self.within is None
        for block in self._open().blocks(ROWS, skip=self.skip + skip, interleaved=in_turns):
            if self.within is not None and int(block.ids[0, 0]) != self.within:
                return
            yield MarkedBlock(block._replace(ids=block.ids + np.array([self._offset, 0])))

    def origin(self) -> dict[str, Any]:
        size, changed = _size_and_time(self.path)
        read = {name: str(value) for name, value in sorted(self.options.items())}
        second = {name: _size_and_time(self.options[name]) for name in SECOND_FILES if self.options.get(name)}
        return {"file": self.path, "within": self.within, "bytes": size, "changed": changed, "read": read, **second}

    def names(self) -> tuple[str, ...] | None:
        return self._open().names

    def variables(self, ids: Integers) -> dict[str, Variable]:
        return self._open().variables(ids - np.array([self._offset, 0]))

    def divergences(self) -> int | None:
        found = self._open().diverging()
        if found is None:
            return None
        return sum(int((flags & (self.within is None or ids[:, 0] == self.within)).sum()) for ids, flags in found)


def _size_and_time(path: str) -> list[int]:
    """Return size and time of the last change, which identify a file."""
    status = Path(path).stat()
    return [status.st_size, status.st_mtime_ns]


@dataclass(frozen=True, eq=False)
class SliceSource(WorkerSource):
    """Draws and scores (n, d), or one chain of (chains, n, d), read in slices: NumPy, Zarr, or a chunk of Dask."""

    draws: Any
    scores: Any
    """None without scores."""
    first: int = 0
    """Index of the first draw within the chain."""
    within: int | None = None
    """Chain of the arrays; None if they have two dimensions."""
    parameters: tuple[str, ...] | None = None
    """Names of the parameters, if they are known."""

    @property
    def dim(self) -> int:
        return int(self.draws.shape[-1])

    @property
    def values(self) -> tuple[Any, ...]:
        both = (self.draws,) if self.scores is None else (self.draws, self.scores)
        return both if is_delayed(self.draws) else ()

    def without_values(self) -> SliceSource:
        return replace(self, draws=None, scores=None) if self.values else self

    def with_values(self, *values: Any) -> SliceSource:
        return replace(self, draws=values[0], scores=values[1] if len(values) > 1 else None) if values else self

    def blocks(self, skip: int = 0, *, interleaved: bool = False) -> Iterator[MarkedBlock]:
        chain = () if self.within is None else (self.within,)
        length = self.draws.shape[len(chain)]
        for begin in range(skip, length, ROWS):
            rows = (*chain, slice(begin, min(begin + ROWS, length)))
            scores = None if self.scores is None else self.scores[rows]
            x, s = validation.as_draws_and_scores(self.draws[rows], scores)
            yield MarkedBlock(Block(x, s, validation.consecutive_ids(self.chain, self.first + begin, len(x))))

    def names(self) -> tuple[str, ...] | None:
        return self.parameters

    def origin(self) -> dict[str, Any]:
        digest = hashlib.sha256()
        for block, _, _ in self.blocks():
            digest.update(block.draws.tobytes())
            digest.update(block.scores.tobytes())
        return {"array": digest.hexdigest(), "first": self.first}


@dataclass(frozen=True, eq=False)
class SamplerSource(WorkerSource):
    """A function that yields blocks of draws or pairs (draws, scores), a delayed one, or delayed arrays.

    Every call of the function must yield the same draws. If it has a parameter ``skip``, that is the number of draws to
    leave out; otherwise they are dropped here.
    """

    sampler: Any
    repeatable: ClassVar[bool] = False

    @cached_property
    def dim(self) -> int:
        for block, _, _ in self.blocks():
            return int(block.draws.shape[1])
        raise InputError(f"{self.title} has no draws.")

    @property
    def values(self) -> tuple[Any, ...]:
        return (self.sampler,) if is_delayed(self.sampler) else ()

    def without_values(self) -> SamplerSource:
        return replace(self, sampler=None) if self.values else self

    def with_values(self, *values: Any) -> SamplerSource | SliceSource:
        value = values[0] if values else self.sampler
        if isinstance(value, tuple | list) and len(value) == 2 and not callable(value):
            scores = None if value[1] is None else np.asarray(value[1])
            return SliceSource(self.title, self.chain, np.asarray(value[0]), scores)
        if _is_array(value):
            return SliceSource(self.title, self.chain, np.asarray(value), None)
        if not callable(value):
            raise InputError(
                f"{self.title} returned a {type(value).__name__}.",
                "A delayed sampler must return draws, a pair (draws, scores), or a function that yields these.",
            )
        return replace(self, sampler=value)

    def blocks(self, skip: int = 0, *, interleaved: bool = False) -> Iterator[MarkedBlock]:
        skips = "skip" in inspect.signature(self.sampler).parameters
        blocks: Iterable[Any] = self.sampler(skip=skip) if skips else self.sampler()
        index = skip if skips else 0
        for block in blocks:
            draws, scores = block if isinstance(block, tuple) else (block, None)
            x, s = validation.as_draws_and_scores(
                np.atleast_2d(draws), None if scores is None else np.atleast_2d(scores)
            )
            begin = max(0, min(len(x), skip - index))
            if begin < len(x):
                ids = validation.consecutive_ids(self.chain, index + begin, len(x) - begin)
                yield MarkedBlock(Block(x[begin:], s[begin:], ids))
            index += len(x)

    def origin(self) -> dict[str, Any]:
        return {"sampler": self.title}


@dataclass(frozen=True)
class UnopenedFile:
    """A file whose number of chains is not known yet."""

    path: str
    options: dict[str, Any] = field(default_factory=dict)


class FileContents(NamedTuple):
    """Parameter names and chains of a file."""

    names: tuple[str, ...]
    has_scores: bool
    chains: int
    chain_length: int | None
    """Number of draws in each chain, if the chains can be read separately."""
    warning: str
    """A `ParametersWarning`, or nothing."""


def inspect_file(file: UnopenedFile) -> FileContents:
    """Open a file and count its chains. A file with a chain number per draw is read once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ParametersWarning)
        chain = open_chain(file.path, **file.options)
    warning = next((str(one.message) for one in caught if issubclass(one.category, ParametersWarning)), "")
    if chain.chains != 1:  # a file with few draws of a large model may be one chain of many
        chain.require_plausible_axes()
    if chain.chains is None:
        last = max(int(block.ids[:, 0].max()) for block in chain.blocks(ROWS))
        return FileContents(chain.names, chain.has_scores, last + 1, None, warning)
    return FileContents(chain.names, chain.has_scores, chain.chains, chain.chain_length, warning)


def file_sources(file: UnopenedFile, contents: FileContents, chain: int) -> list[WorkerSource]:
    """Return a source for each chain of a file, or one for all if they cannot be read separately."""
    name = Path(file.path).name
    if contents.chain_length is None:
        return [FileSource(name, chain, file.path, file.options)]
    return [
        FileSource(f"{name}[{number}]", chain + number, file.path, file.options, number, number * contents.chain_length)
        for number in range(contents.chains)
    ]


def is_delayed(value: Any) -> bool:
    """Return whether Dask has to compute a value first."""
    return hasattr(value, "dask") and hasattr(value, "key")


#: One of the chains given by the user: a file, or a function that returns the sources for a chain number.
GivenChain = UnopenedFile | Callable[[int], list[WorkerSource]]


def as_given_chains(chains: Any, options: dict[str, Any]) -> list[GivenChain]:
    """Convert the argument ``chains`` of `thin` to files and functions that return sources."""
    if isinstance(chains, str | os.PathLike):
        second = {name: str(Path(options[name]).absolute()) for name in SECOND_FILES if options.get(name)}
        return [UnopenedFile(str(Path(chains).absolute()), {**options, **second})]
    if _is_pair_of_arrays(chains):
        return [_array_sources(*chains)]
    if _is_array(chains):
        return [_array_sources(chains, None)]
    if callable(chains) or is_delayed(chains) or not isinstance(chains, Iterable):
        chains = [chains]
    given: list[GivenChain] = []
    for one in chains:
        if isinstance(one, str | os.PathLike) or _is_pair_of_arrays(one) or _is_array(one):
            given += as_given_chains(one, options)
        elif is_delayed(one) or callable(one):
            given.append(partial(_sampler_sources, one))
        else:
            raise InputError(
                f"A chain is a {type(one).__name__}.",
                "Pass files, arrays of draws, pairs (draws, scores), delayed ones, or functions that yield these.",
            )
    if not given:
        raise InputError("No chains are given.", "Pass at least one.")
    for name in SECOND_FILES:
        if options.get(name) and len(given) > 1:
            raise InputError(
                f"A file of {name}, {options[name]}, was given with {len(given)} chains, but it belongs to one.",
                "Thin the chains separately, or join their files.",
            )
    return given


def with_scores(chains: Any, scores: Any) -> Any:
    """Return an array, or a list of arrays, together with its scores, as pairs."""
    if _is_array(chains) and _is_array(scores):
        return chains, scores
    lists = isinstance(chains, list | tuple) and isinstance(scores, list | tuple)
    if lists and len(chains) == len(scores) and all(map(_is_array, [*chains, *scores])):
        return [*zip(chains, scores, strict=True)]
    raise InputError(
        f"The chains are a {type(chains).__name__} and the scores a {type(scores).__name__}.",
        "Pass arrays, ss.parallel.thin(draws, scores), or lists of the same number of arrays.",
    )


def _is_array(value: Any) -> bool:
    return isinstance(getattr(value, "shape", None), tuple)


def _is_pair_of_arrays(value: Any) -> bool:
    """Return whether a value is a pair of draws and scores; the scores may be None."""
    pair = isinstance(value, tuple) and len(value) == 2
    return pair and _is_array(value[0]) and (value[1] is None or _is_array(value[1]))


def _is_read_by_workers(array: Any) -> bool:
    """Return whether an array is a Dask array, or one in a file (Zarr, HDF5), of which workers read their part."""
    return hasattr(array, "chunks") and not hasattr(array, "dims")


def _sampler_sources(sampler: Any, chain: int) -> list[WorkerSource]:
    return [SamplerSource(f"sampler {chain}", chain, sampler)]


def _array_sources(draws: Any, scores: Any) -> Callable[[int], list[WorkerSource]]:
    """Return a function that returns a source for each chain of arrays, or for each chunk of Dask arrays."""
    if hasattr(getattr(draws, "data", None), "to_delayed"):  # an xarray.DataArray in chunks
        draws, scores = (
            one if one is None else one.transpose("chain", "draw", "sample", ..., missing_dims="ignore").data
            for one in (draws, scores)
        )
    if not _is_read_by_workers(draws):
        names = validation.parameter_names(draws)
        blocks = validation.as_chains(draws, scores)
        return lambda chain: [
            SliceSource(f"chain {i}", i, block.draws, block.scores if block.has_scores else None, parameters=names)
            for i, block in enumerate(blocks, start=chain)
        ]
    if draws.ndim not in (2, 3) or (scores is not None and draws.shape != scores.shape):
        of_scores = "" if scores is None else f" and the scores have shape {scores.shape}"
        raise InputError(
            f"The draws have shape {draws.shape}{of_scores}.",
            "Both must be (draws, dimensions) or (chains, draws, dimensions).",
        )
    if hasattr(draws, "to_delayed"):
        return lambda chain: _chunk_sources(draws, scores, chain)
    if draws.ndim == 2:
        return lambda chain: [SliceSource(f"chain {chain}", chain, draws, scores)]
    return lambda chain: [
        SliceSource(f"chain {chain + i}", chain + i, draws, scores, within=i) for i in range(draws.shape[0])
    ]


def _chunk_sources(draws: Any, scores: Any, chain: int) -> list[WorkerSource]:
    """Return a source for each chunk along the draws, so that chunks are neither joined nor moved."""
    if draws.ndim == 3:
        each = [None] * draws.shape[0] if scores is None else scores
        return [source for i in range(draws.shape[0]) for source in _chunk_sources(draws[i], each[i], chain + i)]
    draws = draws.rechunk({1: -1})
    edges = np.cumsum([0, *draws.chunks[0]]).tolist()
    chunks = draws.to_delayed()[:, 0]
    of_scores = [None] * len(chunks) if scores is None else scores.rechunk(draws.chunks).to_delayed()[:, 0]
    pairs = zip(chunks, of_scores, edges[:-1], edges[1:], strict=True)
    return [SliceSource(f"chain {chain}, draws {begin} to {end - 1}", chain, x, s, begin) for x, s, begin, end in pairs]
