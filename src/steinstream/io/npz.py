"""npz: arrays in a zip file, streamed row by row, stored or deflated.

``np.load`` would inflate an array whole. Here each member is a stream of bytes of its own: draws, scores
and ids are read side by side, so that memory is one block, whatever the length of the chain. Skipping still
inflates what is skipped, which a deflated stream cannot avoid.
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

from steinstream.errors import InputError
from steinstream.io.base import Chain, Request, alone, default_names
from steinstream.io.errors import listing, nearest, reading, truncated
from steinstream.io.npy_header import Header, as_floats, layout, read_header
from steinstream.kernels import IMQ, RBF, Kernel
from steinstream.preconditioning import Preconditioner
from steinstream.result import History, Kept, Variable
from steinstream.validation import Block

IDS, NAMES = "ids", "names"


class NpzChain(Chain):
    """Draws and scores as two arrays of one .npz file."""

    def __init__(self, request: Request) -> None:
        self._members = [request.draws_name, request.scores_name]
        path = request.path
        with reading(path, "npz"), zipfile.ZipFile(path) as archive:
            draws, scores = (_header(path, archive, name) for name in self._members)
            self._shape = layout(draws, scores, f"{path}: {self._members[0]}", f"{path}: {self._members[1]}")
            total = self._shape.chains * self._shape.draws
            self._has_ids = _has_ids(path, archive, total)
            names = _names(archive, self._shape.dim)
        super().__init__(path, self._shape.dim, names, total, None if self._has_ids else self._shape.chains)
        self.draws_from, self.scores_from = (f"array {name}" for name in self._members)

    def _read(self, rows: int, skip: int) -> Iterator[Block]:
        total = self._shape.chains * self._shape.draws
        with ExitStack() as stack:
            with reading(self.path, "npz"):
                archive = stack.enter_context(zipfile.ZipFile(self.path))
                draws, scores = (Member(self.path, archive, name, stack) for name in self._members)
                ids = Member(self.path, archive, IDS, stack) if self._has_ids else None
                streams = [stream for stream in (draws, scores, ids) if stream]
                for stream in streams:
                    stream.skip(min(skip, total))
            for start in range(skip, total, rows):
                stop = min(start + rows, total)
                with reading(self.path, "npz"):
                    numbered = ids.take(stop - start) if ids else self._shape.ids(start, stop)
                    block = Block(
                        as_floats(draws.take(stop - start)),
                        as_floats(scores.take(stop - start)),
                        numbered.astype(np.int64, copy=False),
                    )
                yield block


class Member:
    """One array of the archive, read in rows along its last axis."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, name: str, stack: ExitStack) -> None:
        self._path, self._name = path, name
        self._file: IO[bytes] = stack.enter_context(archive.open(f"{name}.npy"))
        header = read_header(self._file, f"{path}: {name}")
        self._dtype, self._width = header.dtype, header.shape[-1]
        self._whole: np.ndarray[Any, Any] | None = None
        self._row = 0
        if header.fortran:
            # The bytes run column by column: the first row is complete only where the last column begins, so
            # that a single pass has to hold the array whole.
            self._file = stack.enter_context(archive.open(f"{name}.npy"))
            whole = npy_format.read_array(self._file, allow_pickle=False)
            self._whole = whole.reshape(-1, self._width)

    def skip(self, count: int) -> None:
        """Leave out the next ``count`` rows."""
        self._row += count
        if self._whole is None:
            self._file.seek(count * self._width * self._dtype.itemsize, 1)

    def take(self, count: int) -> np.ndarray[Any, Any]:
        """The next ``count`` rows."""
        self._row += count
        if self._whole is not None:
            return self._whole[self._row - count : self._row]
        wanted = count * self._width * self._dtype.itemsize
        data = self._file.read(wanted)
        if len(data) < wanted:
            raise truncated(self._path, self._name)
        return np.frombuffer(data, self._dtype).reshape(count, self._width)


def write_npz(kept: Kept, file: IO[bytes]) -> None:
    """Everything there is to know about ``kept``, as plain arrays."""
    names = kept.names if kept.names is not None else default_names(kept.draws.shape[1])
    preconditioner = kept.preconditioner
    optional = {
        "preconditioner": None if preconditioner is None else preconditioner.factor,
        "centre": None if preconditioner is None else preconditioner.centre,
        "second_scores": kept.second_scores,
        "weights": kept.weights,
        "order": kept.order,
        "prefix_ksd": kept.prefix_ksd,
        **_flat(kept.variables),
    }
    np.savez(
        file,
        **{name: array for name, array in optional.items() if array is not None},
        draws=kept.draws,
        scores=kept.scores,
        ids=kept.ids,
        names=np.array(names, dtype=np.str_),
        ksd=np.float64(kept.ksd),
        history_step=kept.history.step,
        history_size=kept.history.size,
        history_ksd=kept.history.ksd,
        settings=np.array(json.dumps(dict(kept.settings))),
    )


def _require_kept(path: Path, names: set[str]) -> None:
    """Raise if these are not the arrays of a kept set."""
    if "waiting_draws" in names:
        raise InputError(
            f"{path} is the checkpoint of a run, not what it kept.",
            "Go on with it (--resume), or load it with ss.Thinner.load and take .kept.",
        )
    missing = {"draws", "scores", IDS, "ksd", "history_step", "history_size", "history_ksd", "settings"} - names
    if missing:
        raise InputError(
            f"{path} is no kept set: it has no {listing(sorted(missing))}.",
            "Give a file that steinstream thin or Kept.save wrote as npz.",
        )


def read_npz(path: Path) -> Kept:
    """What ``write_npz`` wrote."""
    with reading(path, "npz"):
        with zipfile.ZipFile(path):  # np.load takes other files too
            pass
        with np.load(path, allow_pickle=False) as archive:
            _require_kept(path, set(archive.files))  # before a chain, which may be large, is read for nothing
            arrays = {name: archive[name] for name in archive.files}
        points, settings = arrays["draws"], json.loads(str(arrays["settings"]))
        each = points.shape[:1]
        shapes = {
            "scores": points.shape,
            "second_scores": points.shape,
            IDS: (*each, 2),
            "weights": each,
            "prefix_ksd": each,
        }
        for name, shape in shapes.items():
            if name in arrays and arrays[name].shape != shape:
                raise InputError(f"{path}: {name} has shape {arrays[name].shape}, expected {shape}.", "Write it again.")
        factor, names = arrays.get("preconditioner"), arrays.get(NAMES)
        return Kept(
            points,
            arrays["scores"],
            arrays[IDS],
            float(arrays["ksd"]),
            History(*(arrays[f"history_{name}"] for name in History._fields)),
            kernel_of(settings.get("kernel")),
            None if factor is None else Preconditioner(factor, arrays.get("centre")),
            settings,
            None if names is None else tuple(names.tolist()),
            bound=settings.get("bound"),
            second_scores=arrays.get("second_scores"),
            weights=arrays.get("weights"),
            prefix_ksd=arrays.get("prefix_ksd"),
            variables=_variables(arrays),
        )


_VARIABLE = (
    "variable/"  # followed by its name, and for its dimensions and the places along them, by /dims and /coords/D
)


def _flat(variables: dict[str, Variable]) -> dict[str, Any]:
    arrays: dict[str, Any] = {}
    for name, (values, dims, coords) in variables.items():
        arrays |= {f"{_VARIABLE}{name}": values, f"{_VARIABLE}{name}/dims": np.array(dims, dtype=np.str_)}
        arrays |= {f"{_VARIABLE}{name}/coords/{dim}": np.asarray(places) for dim, places in coords.items()}
    return arrays


def _variables(arrays: dict[str, Any]) -> dict[str, Variable]:
    suffix = "/dims"
    found = [name for name in arrays if name.startswith(_VARIABLE) and name.endswith(suffix)]
    variables = {}
    for name in found:
        own, where = name.removesuffix(suffix), name.removesuffix(suffix) + "/coords/"
        coords = {other.removeprefix(where): places for other, places in arrays.items() if other.startswith(where)}
        dims = tuple(arrays[name].tolist())
        variables[own.removeprefix(_VARIABLE)] = Variable(arrays[own], dims, coords)
    return variables


def kernel_of(text: object) -> Kernel | None:
    """The kernel that the settings name.

    >>> kernel_of("IMQ(c=2.0, beta=-0.5, linear=0.1)"), kernel_of("RBF(h=None)")
    (IMQ(c=2.0, beta=-0.5, linear=0.1), RBF(h=None))
    """
    name, _, rest = str(text).rstrip(")").partition("(")
    kernel: type[Kernel] | None = {"IMQ": IMQ, "RBF": RBF}.get(name)
    if kernel is None:
        return None
    pairs = [part.partition("=") for part in rest.split(", ") if part]
    return kernel(**{key: None if value == "None" else float(value) for key, _, value in pairs})


def _header(path: Path, archive: zipfile.ZipFile, name: str) -> Header:
    known = [member.removesuffix(".npy") for member in archive.namelist() if member.endswith(".npy")]
    if name not in known:
        raise InputError(
            f"{path} has no array {name}; it has {listing(known)}.",
            f"{nearest(name, known)}Name the arrays with --draws-name and --scores-name; "
            "scores that are in a file of their own with --scores FILE.",
        )
    with archive.open(f"{name}.npy") as file:
        header = read_header(file, f"{path}: {name}")
        if archive.getinfo(f"{name}.npy").file_size - file.tell() < header.nbytes:
            raise truncated(path, name)
    return header


def _has_ids(path: Path, archive: zipfile.ZipFile, total: int) -> bool:
    if f"{IDS}.npy" not in archive.namelist():
        return False
    header = _header(path, archive, IDS)
    if header.shape != (total, 2) or header.dtype.kind not in "iu":
        raise InputError(
            f"{path}: ids has shape {header.shape} and dtype {header.dtype}, expected whole numbers of shape "
            f"({total}, 2).",
            "Save one pair (chain, draw) for each draw, or leave ids out.",
        )
    return True


def _names(archive: zipfile.ZipFile, dim: int) -> list[str] | None:
    """The parameters' names; an array of that name that is something else is none of our business."""
    if f"{NAMES}.npy" not in archive.namelist():
        return None
    with archive.open(f"{NAMES}.npy") as file:
        try:
            names = npy_format.read_array(file, allow_pickle=False)
        except ValueError:
            return None
    return names.tolist() if names.dtype.kind == "U" and names.shape == (dim,) else None


def open_npz(request: Request) -> NpzChain:
    """Open the two arrays of one archive."""
    alone(request, "arrays")
    return NpzChain(request)
