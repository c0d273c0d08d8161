"""npz: arrays in a zip file, read row by row, stored or compressed.

``np.load`` would decompress a whole array. Here each array is a stream of bytes: draws, scores and ids are read in
parallel, so the memory is that of one block. Skipping rows still decompresses them.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy_format

from steinstream._formatting import listing, nearest
from steinstream._typing import AnyArray, Array
from steinstream.errors import InputError, NotKeptError, SteinstreamError
from steinstream.io._kept_checks import checked_kept, parse_kernel, summary_from_arrays, summary_to_arrays
from steinstream.io._limits import check_archive, require_distinct, require_held, require_length
from steinstream.io.base import (
    NAMES_HINT,
    SCORES,
    Chain,
    Request,
    as_id_column,
    default_names,
    no_scores,
    reject_scores_file,
)
from steinstream.io.errors import DAMAGE, reading, truncated
from steinstream.io.npy import ChainShape, NpyHeader, as_new_floats
from steinstream.preconditioning import Preconditioner
from steinstream.result import History, Kept, Variable
from steinstream.validation import Block

_IDS, _NAMES, _LOG_DENSITY = "ids", "names", "log_density"
_VARIABLE = "variable/"  # followed by the name of a variable, and by /dims or /coords/DIM
_UNCOMPRESSED = "Write it without compression, for example with np.savez."

# -- chains ------------------------------------------------------------------------------------------------------------


class NpzChain(Chain):
    """Draws, and scores if there are any, as arrays of an npz file."""

    def __init__(self, request: Request) -> None:
        reject_scores_file(request, "arrays")
        path, self._members = request.path, [request.draws_name, request.scores_name]
        with reading(path, "npz"), zipfile.ZipFile(path) as archive:
            require_distinct(path, archive)
            check_archive(path, archive)
            draws = _header(path, archive, request.draws_name)
            others = _arrays_like(path, archive, draws, self._members)
            absent = f"{SCORES}.npy" not in archive.namelist() and not nearest(SCORES, others)
            if not request.names_scores and absent:
                self._members.pop()
            scores = _header(path, archive, request.scores_name) if len(self._members) > 1 else None
            where, where_scores = (f"{path}: {name}" for name in (request.draws_name, request.scores_name))
            self._shape = ChainShape.of(draws, scores, where, where_scores)
            require_length(path, self._shape.total, self._shape.dim)
            self._has_ids = _has_ids(path, archive, self._shape.total)
            names = _names(path, archive, self._shape.dim)
            self._has_log_density = _has_log_density(path, archive, draws)
        chains = None if self._has_ids else self._shape.chains
        super().__init__(
            path,
            self._shape.dim,
            names,
            self._shape.total,
            chains,
            has_scores=scores is not None,
            ids=(_IDS,) if self._has_ids else (),
        )
        self.has_unnamed_axes = not self._has_ids and names is None
        self.draws_from, self.scores_from = f"array {request.draws_name}", ""
        if scores is not None:
            self.scores_from = f"array {request.scores_name}"
        elif others:
            self.scores_hint = f"if {listing(others)} has them, name it with --scores-name; {self.scores_hint}"
        else:
            self.scores_hint = f"add an array {SCORES}; {self.scores_hint}"
        if request.parameters is not None:
            self.select(request.parameters)

    def log_density(self) -> Array | None:
        """Read the array ``log_density``, (n,) or (chains, n)."""
        if not self._has_log_density:
            return None
        require_held(self.path, _LOG_DENSITY, 8 * self._shape.total, _UNCOMPRESSED)
        with reading(self.path, "npz"), np.load(self.path, allow_pickle=False) as arrays:
            return np.asarray(arrays[_LOG_DENSITY], dtype=np.float64)

    def notes(self) -> list[tuple[str, str]]:
        """Return what is left out, how to get scores, and whether there are log densities."""
        unused = "" if self.has_scores else "; used by steinstream thin --gradient-free"
        density = [("log density", f"array {_LOG_DENSITY}{unused}")] if self._has_log_density else []
        return [*super().notes(), *density]

    def _read(self, rows: int, skip: int) -> Iterator[Block]:
        total = self._shape.total
        with ExitStack() as stack:
            with reading(self.path, "npz"):
                archive = stack.enter_context(zipfile.ZipFile(self.path))
                draws, *scores = (_Member(self.path, archive, name, stack) for name in self._members)
                ids = _Member(self.path, archive, _IDS, stack) if self._has_ids else None
                for member in (draws, *scores, ids):
                    if member is not None:
                        member.skip(min(skip, total))
            for start in range(skip, total, rows):
                count = min(start + rows, total) - start
                with reading(self.path, "npz"):
                    own_ids = ids.take(count) if ids else self._shape.ids(start, start + count)
                    block = Block(
                        as_new_floats(draws.take(count)),
                        as_new_floats(scores[0].take(count)) if scores else no_scores(count),
                        as_id_column(own_ids, self.path, _IDS),
                    )
                yield block


class _Member:
    """One array of the archive, read in rows of its last axis."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, name: str, stack: ExitStack) -> None:
        self._path, self._name = path, name
        self._file: IO[bytes] = stack.enter_context(archive.open(f"{name}.npy"))
        header = NpyHeader.read(self._file, f"{path}: {name}")
        self._dtype, self._width = header.dtype, header.shape[-1]
        self._whole: AnyArray | None = None
        self._row = 0
        if header.fortran:
            # The data are stored column by column, so a single pass has to hold the whole array.
            require_held(path, name, header.nbytes, f"Save it in C order: np.ascontiguousarray({name}).")
            self._file = stack.enter_context(archive.open(f"{name}.npy"))
            self._whole = npy_format.read_array(self._file, allow_pickle=False).reshape(-1, self._width)

    def skip(self, count: int) -> None:
        self._row += count
        if self._whole is None:
            self._file.seek(count * self._width * self._dtype.itemsize, 1)

    def take(self, count: int) -> AnyArray:
        """Return the next ``count`` rows."""
        self._row += count
        if self._whole is not None:
            return self._whole[self._row - count : self._row]
        size = count * self._width * self._dtype.itemsize
        data = self._file.read(size)
        if len(data) < size:
            raise truncated(self._path, self._name)
        return np.frombuffer(data, self._dtype).reshape(count, self._width)


def _header(path: Path, archive: zipfile.ZipFile, name: str) -> NpyHeader:
    known = [member.removesuffix(".npy") for member in archive.namelist() if member.endswith(".npy")]
    if name not in known:
        raise InputError(
            f"{path} has no array {name}; it has {listing(known)}.",
            f"{nearest(name, known)}Name the arrays with {NAMES_HINT}.",
        )
    with archive.open(f"{name}.npy") as file:
        header = NpyHeader.read(file, f"{path}: {name}")
        if archive.getinfo(f"{name}.npy").file_size - file.tell() < header.nbytes:
            raise truncated(path, name)
    return header


def _arrays_like(path: Path, archive: zipfile.ZipFile, draws: NpyHeader, taken: Sequence[str]) -> list[str]:
    """Return the names of further arrays with the shape of the draws, which may be the scores."""
    found = []
    for member in archive.namelist():
        name = member.removesuffix(".npy")
        if member != name not in (*taken, _IDS):
            with suppress(SteinstreamError, *DAMAGE):  # an array that is not read may be anything
                found += [name] if _header(path, archive, name).shape == draws.shape else []
    return found


def _has_ids(path: Path, archive: zipfile.ZipFile, total: int) -> bool:
    if f"{_IDS}.npy" not in archive.namelist():
        return False
    header = _header(path, archive, _IDS)
    if header.shape != (total, 2) or header.dtype.kind not in "iu":
        raise InputError(
            f"{path}: ids has shape {header.shape} and dtype {header.dtype}, expected whole numbers of shape "
            f"({total}, 2).",
            "Save one pair (chain, draw) for each draw, or leave out ids.",
        )
    return True


def _has_log_density(path: Path, archive: zipfile.ZipFile, draws: NpyHeader) -> bool:
    """Return whether there is one log density per draw; an array of this name with another shape is ignored."""
    if f"{_LOG_DENSITY}.npy" not in archive.namelist():
        return False
    header = _header(path, archive, _LOG_DENSITY)
    return header.shape == draws.shape[:-1] and header.dtype.kind in "fiu"


def _names(path: Path, archive: zipfile.ZipFile, dim: int) -> list[str] | None:
    """Read the parameter names; an array called ``names`` with other content is ignored."""
    if f"{_NAMES}.npy" not in archive.namelist():
        return None
    try:
        header = _header(path, archive, _NAMES)
        if header.dtype.kind != "U" or header.shape != (dim,):
            return None
        require_held(path, _NAMES, header.nbytes, _UNCOMPRESSED)
        with archive.open(f"{_NAMES}.npy") as file:
            names: list[str] = npy_format.read_array(file, allow_pickle=False).tolist()
            return names
    except (ValueError, SystemError):  # the latter for numbers that are not characters
        return None


# -- kept sets ---------------------------------------------------------------------------------------------------------


def write_npz(kept: Kept, file: IO[bytes]) -> None:
    """Write all fields of a kept set as plain arrays."""
    names = kept.names if kept.names is not None else default_names(kept.draws.shape[1])
    preconditioner = kept.preconditioner
    arrays: dict[str, Any] = {
        "preconditioner": None if preconditioner is None else preconditioner.factor,
        "centre": None if preconditioner is None else preconditioner.centre,
        "second_scores": kept.second_scores,
        "weights": kept.weights,
        "order": kept.order,
        "prefix_ksd": kept.prefix_ksd,
        "prefix_mmd": kept.prefix_mmd,
        **summary_to_arrays(kept.stream_summary),
        **_variables_to_arrays(kept.variables),
        "draws": kept.draws,
        "scores": kept.scores,
        _IDS: kept.ids,
        _NAMES: np.array(names, dtype=np.str_),
        "ksd": np.float64(kept.ksd),
        "mmd": np.float64(kept.mmd),
        **{f"history_{name}": values for name, values in kept.history._asdict().items()},
        "settings": np.array(json.dumps(dict(kept.settings))),
    }
    np.savez(file, **{name: array for name, array in arrays.items() if array is not None})


def read_npz(path: Path) -> Kept:
    """Read a kept set that `write_npz` wrote."""
    with reading(path, "npz"):
        with zipfile.ZipFile(path) as archive:  # np.load also accepts other files
            _require_kept(path, {name.removesuffix(".npy") for name in archive.namelist()})  # before a chain is read
        arrays = read_arrays(path)
        settings = json.loads(str(arrays["settings"]))
        factor, names = arrays.get("preconditioner"), arrays.get(_NAMES)
        kept = Kept(
            draws=arrays["draws"],
            scores=arrays.get("scores"),
            ids=arrays[_IDS],
            ksd=float(arrays["ksd"]),
            mmd=float(arrays["mmd"]),
            history=History(*(arrays[f"history_{name}"] for name in History._fields)),
            kernel=parse_kernel(settings.get("kernel")),
            preconditioner=None if factor is None else Preconditioner(factor, arrays.get("centre")),
            settings=settings,
            names=None if names is None else tuple(map(str, names.tolist())),
            bound=settings.get("bound"),
            second_scores=arrays.get("second_scores"),
            weights=arrays.get("weights"),
            prefix_ksd=arrays.get("prefix_ksd"),
            prefix_mmd=arrays.get("prefix_mmd"),
            stream_summary=summary_from_arrays(arrays),
            variables=_variables_from_arrays(arrays),
        )
        return checked_kept(kept, str(path))


def read_arrays(path: Path) -> dict[str, AnyArray]:
    """Read all arrays of an npz file."""
    with zipfile.ZipFile(path) as archive:
        require_distinct(path, archive)
        check_archive(path, archive)
        require_held(path, "all arrays", sum(member.file_size for member in archive.infolist()), _UNCOMPRESSED)
    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def _require_kept(path: Path, names: set[str]) -> None:
    """Raise if these are not the names of the arrays of a kept set."""
    if {"head", "checksum"} <= names:
        raise InputError(
            f"{path} is the checkpoint of a run, not a kept set.",
            "Continue the run (--resume), or load it with ss.Thinner.load(path) and use its kept.",
        )
    history = {f"history_{name}" for name in History._fields}
    own = {"ksd", "mmd", *history, "settings"}
    missing = {"draws", _IDS, *own} - names
    if missing:
        error = InputError if len(own & names) > 1 else NotKeptError
        raise error(
            f"{path} is not a kept set: missing arrays {listing(sorted(missing))}.",
            "Use a file that steinstream thin or Kept.save wrote as npz.",
        )


def _variables_to_arrays(variables: dict[str, Variable]) -> dict[str, AnyArray]:
    arrays: dict[str, AnyArray] = {}
    for name, (values, dims, coords) in variables.items():
        arrays |= {f"{_VARIABLE}{name}": values, f"{_VARIABLE}{name}/dims": np.array(dims, dtype=np.str_)}
        arrays |= {f"{_VARIABLE}{name}/coords/{dim}": np.asarray(labels) for dim, labels in coords.items()}
    return arrays


def _variables_from_arrays(arrays: dict[str, AnyArray]) -> dict[str, Variable]:
    suffix = "/dims"
    variables = {}
    for key in [name for name in arrays if name.startswith(_VARIABLE) and name.endswith(suffix)]:
        own = key.removesuffix(suffix)
        prefix = f"{own}/coords/"
        coords = {name.removeprefix(prefix): labels for name, labels in arrays.items() if name.startswith(prefix)}
        variables[own.removeprefix(_VARIABLE)] = Variable(arrays[own], tuple(arrays[key].tolist()), coords)
    return variables
