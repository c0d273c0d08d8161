"""npz: arrays in a zip file, read row by row, stored or compressed.

``np.load`` would decompress a whole array. Here each array is a stream of bytes: draws, scores and ids are read in
parallel, so the memory is that of one block. Skipping rows still decompresses them.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy_format

from steinstream._formatting import listing, nearest
from steinstream._typing import AnyArray
from steinstream.errors import InputError
from steinstream.io.base import NAMES_HINT, Chain, Request, default_names, reject_scores_file
from steinstream.io.errors import reading, truncated
from steinstream.io.npy import ChainShape, NpyHeader, as_new_floats
from steinstream.kernels import IMQ, RBF, Kernel
from steinstream.preconditioning import Preconditioner
from steinstream.result import History, Kept, Variable
from steinstream.validation import Block

_IDS, _NAMES = "ids", "names"
_VARIABLE = "variable/"  # followed by the name of a variable, and by /dims or /coords/DIM

# -- chains ------------------------------------------------------------------------------------------------------------


class NpzChain(Chain):
    """Draws and scores as two arrays of an npz file."""

    def __init__(self, request: Request) -> None:
        reject_scores_file(request, "arrays")
        path, self._members = request.path, [request.draws_name, request.scores_name]
        with reading(path, "npz"), zipfile.ZipFile(path) as archive:
            draws, scores = (_header(path, archive, name) for name in self._members)
            self._shape = ChainShape.of(draws, scores, *(f"{path}: {name}" for name in self._members))
            self._has_ids = _has_ids(path, archive, self._shape.total)
            names = _names(archive, self._shape.dim)
        chains = None if self._has_ids else self._shape.chains
        super().__init__(path, self._shape.dim, names, self._shape.total, chains)
        self.draws_from, self.scores_from = (f"array {name}" for name in self._members)

    def _read(self, rows: int, skip: int) -> Iterator[Block]:
        total = self._shape.total
        with ExitStack() as stack:
            with reading(self.path, "npz"):
                archive = stack.enter_context(zipfile.ZipFile(self.path))
                draws, scores = (_Member(self.path, archive, name, stack) for name in self._members)
                ids = _Member(self.path, archive, _IDS, stack) if self._has_ids else None
                for member in (draws, scores, ids):
                    if member is not None:
                        member.skip(min(skip, total))
            for start in range(skip, total, rows):
                stop = min(start + rows, total)
                with reading(self.path, "npz"):
                    own_ids = ids.take(stop - start) if ids else self._shape.ids(start, stop)
                    block = Block(
                        as_new_floats(draws.take(stop - start)),
                        as_new_floats(scores.take(stop - start)),
                        own_ids.astype(np.int64, copy=False),
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
            self._file = stack.enter_context(archive.open(f"{name}.npy"))
            self._whole = npy_format.read_array(self._file, allow_pickle=False).reshape(-1, self._width)

    def skip(self, count: int) -> None:
        """Skip the next ``count`` rows."""
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
            f"{nearest(name, known)}Name the arrays with {NAMES_HINT}, or pass a separate file of scores as scores "
            "(--scores FILE).",
        )
    with archive.open(f"{name}.npy") as file:
        header = NpyHeader.read(file, f"{path}: {name}")
        if archive.getinfo(f"{name}.npy").file_size - file.tell() < header.nbytes:
            raise truncated(path, name)
    return header


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


def _names(archive: zipfile.ZipFile, dim: int) -> list[str] | None:
    """Read the parameter names; an array called ``names`` with other content is ignored."""
    if f"{_NAMES}.npy" not in archive.namelist():
        return None
    with archive.open(f"{_NAMES}.npy") as file:
        try:
            names = npy_format.read_array(file, allow_pickle=False)
        except ValueError:
            return None
    return names.tolist() if names.dtype.kind == "U" and names.shape == (dim,) else None


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
        **_variables_to_arrays(kept.variables),
        "draws": kept.draws,
        "scores": kept.scores,
        _IDS: kept.ids,
        _NAMES: np.array(names, dtype=np.str_),
        "ksd": np.float64(kept.ksd),
        **{f"history_{name}": values for name, values in kept.history._asdict().items()},
        "settings": np.array(json.dumps(dict(kept.settings))),
    }
    np.savez(file, **{name: array for name, array in arrays.items() if array is not None})


def read_npz(path: Path) -> Kept:
    """Read a kept set that `write_npz` wrote."""
    with reading(path, "npz"):
        with zipfile.ZipFile(path):  # np.load also accepts other files
            pass
        with np.load(path, allow_pickle=False) as archive:
            _require_kept(path, set(archive.files))  # before a large chain is read
            arrays = {name: archive[name] for name in archive.files}
        draws, settings = arrays["draws"], json.loads(str(arrays["settings"]))
        if draws.ndim != 2 or draws.dtype != np.float64:
            raise InputError(f"{path}: draws has shape {draws.shape} and dtype {draws.dtype}.", "Write it again.")
        rows = draws.shape[:1]
        shapes = {"scores": draws.shape, "second_scores": draws.shape, _IDS: (*rows, 2), "weights": rows}
        for name, shape in {**shapes, "prefix_ksd": rows}.items():
            if name in arrays and arrays[name].shape != shape:
                raise InputError(f"{path}: {name} has shape {arrays[name].shape}, expected {shape}.", "Write it again.")
        factor, names = arrays.get("preconditioner"), arrays.get(_NAMES)
        return Kept(
            draws=draws,
            scores=arrays["scores"],
            ids=arrays[_IDS],
            ksd=float(arrays["ksd"]),
            history=History(*(arrays[f"history_{name}"] for name in History._fields)),
            kernel=parse_kernel(settings.get("kernel")),
            preconditioner=None if factor is None else Preconditioner(factor, arrays.get("centre")),
            settings=settings,
            names=None if names is None else tuple(names.tolist()),
            bound=settings.get("bound"),
            second_scores=arrays.get("second_scores"),
            weights=arrays.get("weights"),
            prefix_ksd=arrays.get("prefix_ksd"),
            variables=_variables_from_arrays(arrays),
        )


def _require_kept(path: Path, names: set[str]) -> None:
    """Raise if these are not the names of the arrays of a kept set."""
    if {"head", "checksum"} <= names:
        raise InputError(
            f"{path} is the checkpoint of a run, not a kept set.",
            "Continue the run (--resume), or load it with ss.Thinner.load(path) and use its kept.",
        )
    missing = {"draws", "scores", _IDS, "ksd", "history_step", "history_size", "history_ksd", "settings"} - names
    if missing:
        raise InputError(
            f"{path} is not a kept set: missing arrays {listing(sorted(missing))}.",
            "Use a file that steinstream thin or Kept.save wrote as npz.",
        )


def parse_kernel(text: object) -> Kernel | None:
    """Create a kernel from its representation in the settings; None for an unknown kernel."""
    name, _, rest = str(text).rstrip(")").partition("(")
    kernel: type[Kernel] | None = {"IMQ": IMQ, "RBF": RBF}.get(name)
    if kernel is None:
        return None
    pairs = [part.partition("=") for part in rest.split(", ") if part]
    return kernel(**{key: None if value == "None" else float(value) for key, _, value in pairs})


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
