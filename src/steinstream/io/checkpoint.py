"""Checkpoints of a thinner: a versioned npz file with a checksum, written to a temporary file and then renamed.

A checkpoint holds the configuration and the state of a thinner. It is complete or absent. Nothing in it is executed,
and everything in it is validated before it is used (:mod:`steinstream.thinner.state_checks`). Its bytes depend on the
state of the thinner alone, not on the order in which the engine stores it.
"""

from __future__ import annotations

import hashlib
import json
import math
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from steinstream import __version__, validation
from steinstream._typing import AnyArray, Integers
from steinstream.discrepancy.ksd import ksd
from steinstream.errors import CheckpointError, InputError
from steinstream.io._limits import check_archive, require_distinct
from steinstream.io.atomic import replacing
from steinstream.io.errors import DAMAGE
from steinstream.kernels import Kernel
from steinstream.preconditioning import Preconditioner
from steinstream.thinner import Thinner
from steinstream.thinner.config import NAMES, ThinConfig, described_functions
from steinstream.thinner.dictionary import Dictionary
from steinstream.thinner.dictionary_f32 import DictionaryF32
from steinstream.thinner.state import ThinnerState
from steinstream.thinner.state_checks import check_state

FORMAT = 7

_SMALL = 500  # kept draws whose kernel matrix is computed with NumPy, without loading compiled code
_MOST_CHECKED = 20_000  # draws whose KSD is computed again, which takes a second
_MOST_ROWS = 200  # rows of the kernel matrix that are computed again to compare stored sums
_SUM_TOLERANCE = 1e-8  # of the sum over the kernel matrix, relative to its bound
_TOLERANCE = 1e-4  # of KSD^2, relative to the mean diagonal of the Stein kernel; draws may be stored as float32

_ARRAY = "array"  # key of a reference to an array of the file

#: Returns draws and scores of a float32 dictionary by their ids, if they are not in the checkpoint.
ReadRows = Callable[[Integers], dict[str, AnyArray]]


def save(thinner: Thinner, path: str | PathLike[str], *, rows: bool = True, sync: bool = True) -> None:
    """Write the configuration and state of a thinner, or leave the file as it is if that fails.

    Without ``rows``, draws and scores that are stored as float32 are left out: pass them to `load`.
    """
    write(path, thinner.to_dict(rows=rows), sync)


def load(
    path: str | PathLike[str],
    *,
    read_rows: ReadRows | None = None,
    **settings: Any,
) -> Thinner:
    """Read a thinner that `save` wrote.

    ``read_rows`` returns draws and scores that were written without ``rows``. Settings that are functions are required,
    because a file cannot hold them.

    Returns
    -------
    Thinner
        The thinner.

    Raises
    ------
    CheckpointError
        If the file is not a checkpoint, if a function is missing, or if a setting differs.
    """
    ThinConfig.of(None, **settings)  # raises an error for an unknown name, or an invalid value
    content = read(path)
    with _invalid(path):
        config = _config(path, content["config"], settings)
        state: dict[str, Any] = content["state"]
        without_rows = state["kept"] is not None and "draws" not in state["kept"]
        ids = validation.as_ids(state["kept"]["ids"][:, :2], len(state["kept"]["ids"])) if without_rows else None
    if read_rows is not None and ids is not None:
        rows = read_rows(state["kept"]["ids"])
        state["kept"] |= {name: np.ascontiguousarray(value) for name, value in rows.items()}
    with _invalid(path):
        check_state(config, state)
        restored = ThinnerState.from_dict(config, state)
        _check_ksd(config.kernel, restored.dictionary)
        if state["kept"] is not None and restored.dictionary is not None:
            _check_sums(config.kernel, restored.dictionary, state["kept"])
        return Thinner.from_state(config, restored)


def _check_ksd(kernel: Kernel, kept: Dictionary | DictionaryF32 | None) -> None:
    """Raise an `InputError` if the stored sums do not belong to the stored draws, kernel and preconditioner."""
    if kept is None or not kept.layout.has_scores or not 0 < kept.size <= _MOST_CHECKED:
        return
    contents = kept.contents()
    with np.errstate(all="ignore"):
        x = kept.preconditioner.apply_to_draws(contents.draws)
        s = kept.preconditioner.apply_to_scores(contents.scores)
        ratios = np.ones(len(x)) if contents.ratios is None else contents.ratios[:, 0]
        diagonal = float(np.mean(ratios**2 * kernel.diagonal(s, x)))
        if kept.size <= _SMALL:
            exact = float(ratios @ kernel.matrix(x, s, x, s) @ ratios) / kept.size**2
        else:
            weights = None if contents.ratios is None else ratios
            plain = ksd(x, s, kernel=kernel, preconditioner=Preconditioner.identity(), weights=weights)
            exact = (plain * float(ratios.mean())) ** 2
    if math.isfinite(exact) and not abs(kept.ksd**2 - exact) <= _TOLERANCE * diagonal:
        raise InputError(f"KSD is {kept.ksd:.6g}, but {math.sqrt(max(exact, 0.0)):.6g} for the stored draws.")


def _check_sums(kernel: Kernel, kept: Dictionary | DictionaryF32, stored: Mapping[str, AnyArray]) -> None:
    """Raise an `InputError` if a stored sum over the kernel is not that of the stored draws; a sample of many sums."""
    if not kept.layout.has_scores or not kept.size:
        return
    points = stored["draws"]
    if "matrix" in stored:
        x = kept.preconditioner.apply_to_draws(np.asarray(points, dtype=np.float64))
        s = kept.preconditioner.apply_to_scores(np.asarray(stored["scores"], dtype=np.float64))
    else:
        x, s = np.split(points, 2, axis=1)
    ratios = np.ones(len(x))
    if kept.layout.has_ratios:
        x, s, ratios = x[:, :-1], s[:, :-1], s[:, -1]
    rows = np.unique(np.linspace(0, len(x) - 1, _MOST_ROWS).astype(np.int64))
    with np.errstate(all="ignore"):
        exact = np.outer(ratios[rows], ratios) * kernel.matrix(x[rows], s[rows], x, s)
        diagonal = ratios**2 * kernel.diagonal(s, x)
        if "matrix" in stored:
            difference, scale = stored["matrix"][rows] - exact, np.sqrt(np.outer(diagonal[rows], diagonal))
        else:
            copies = stored["copies"]
            difference = stored["influence"].sum(axis=1)[rows] - (exact @ copies - diagonal[rows] / 2.0)
            mass = np.sqrt(diagonal) @ copies
            scale = np.sqrt(diagonal[rows]) * mass  # bounds the sum by Cauchy and Schwarz
            total = copies @ (stored["influence"].sum(axis=1) + diagonal / 2.0)
            if not abs(stored["total"][0] - total) <= _SUM_TOLERANCE * mass**2 and math.isfinite(total):
                raise InputError(f"The sum over the kernel is {stored['total'][0]:.6g}, expected {total:.6g}.")
    if np.isfinite(exact).all() and not (np.abs(difference) <= _TOLERANCE * scale).all():
        raise InputError("A sum over the kernel is not that of the stored draws.")


@contextmanager
def _invalid(path: str | PathLike[str]) -> Iterator[None]:
    """Convert the errors of a checkpoint with invalid content to a `CheckpointError`."""
    try:
        yield
    except CheckpointError:
        raise
    except DAMAGE as error:
        problem = error.problem if isinstance(error, InputError) else f"{type(error).__name__}: {error}."
        raise CheckpointError(
            f"{path} is not a valid checkpoint. {problem}", "Delete it to start again, or give another file name."
        ) from error


def _config(path: str | PathLike[str], stored: Mapping[str, Any], given: Mapping[str, Any]) -> ThinConfig:
    """Return the stored configuration; functions, which a file cannot hold, must be given again."""
    missing = [name for name in NAMES if name not in stored]
    if missing:
        raise InputError(f"The setting {missing[0]} is missing.")
    functions = described_functions(stored)
    for name in functions:
        if given.get(name) is None:
            raise CheckpointError(
                f"{path} was written with a {name} that is a function, which a file cannot hold.",
                f"Pass it again: Thinner.load(path, {name}=...).",
            )
    config = ThinConfig.from_dict(stored, **{name: given[name] for name in functions})
    for name, before, now in config.differences(config.replace(**given)):
        raise CheckpointError(
            f"{path} was written with {name} {before}, but {now} was given.",
            f"Leave out {name} to continue with the stored one.",
        )
    return config


# -- the file ----------------------------------------------------------------------------------------------------------


def write(path: str | PathLike[str], content: Mapping[str, Any], sync: bool = True) -> None:
    """Write nested dictionaries of plain values and arrays as an npz file with a checksum."""
    arrays: dict[str, AnyArray] = {}
    plain = _without_arrays(content, "", arrays)
    try:
        head = json.dumps({"format": FORMAT, "steinstream": __version__, "content": plain}, sort_keys=True)
    except TypeError as problem:
        raise InputError(
            f"thinner.note must fit into JSON: {problem}.",
            "Use plain numbers, strings and lists; convert arrays with array.tolist().",
        ) from None
    arrays = {"head": np.array(head), **arrays}
    with replacing(path, sync=sync) as file:
        np.savez(file, **arrays, checksum=np.array(_checksum(arrays)))  # type: ignore[arg-type]


def read(path: str | PathLike[str]) -> dict[str, Any]:
    """Read a checkpoint; raise a `CheckpointError` if the file is missing, damaged or of another format."""
    if not Path(path).is_file():
        raise CheckpointError(f"No checkpoint exists at {path}.")
    try:
        with zipfile.ZipFile(path) as archive:
            require_distinct(Path(path), archive)
            check_archive(Path(path), archive)
            if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
                raise ValueError("compressed, unlike every checkpoint")  # its size in memory is unknown
        with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = {name: np.asarray(stored[name]) for name in stored.files}
    except DAMAGE:
        raise CheckpointError(
            f"{path} is not a readable checkpoint: it is truncated, or another program wrote it.",
            "Delete it to start again, or give another file name.",
        ) from None
    if not {"head", "checksum"} <= arrays.keys():
        raise CheckpointError(f"{path} is an npz file but not a steinstream checkpoint.", "Give another file name.")
    with _invalid(path):
        if str(arrays.pop("checksum")) != _checksum(arrays):
            raise CheckpointError(f"{path} is damaged: its checksum does not match.", "Delete it to start again.")
        head = json.loads(str(arrays.pop("head")))
        if head["format"] != FORMAT:
            raise CheckpointError(
                f"{path} has checkpoint format {head['format']}, written by steinstream {head['steinstream']}; "
                f"this version reads format {FORMAT}.",
                "Finish the run with the version that started it.",
            )
        content: dict[str, Any] = _with_arrays(dict(head["content"]), arrays)
        return content


def _without_arrays(value: Any, name: str, arrays: dict[str, AnyArray]) -> Any:
    """Replace every array by a reference, and collect the arrays by name."""
    if isinstance(value, np.ndarray):
        arrays[name] = value
        return {_ARRAY: name}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {
            key: _without_arrays(item, f"{name}.{key}" if name else str(key), arrays) for key, item in value.items()
        }
    return value


def _with_arrays(value: Any, arrays: dict[str, AnyArray]) -> Any:
    """Replace every reference by its array."""
    if not isinstance(value, dict):
        return value
    if value.keys() == {_ARRAY} and value[_ARRAY] in arrays:
        return arrays[value[_ARRAY]]
    return {key: _with_arrays(item, arrays) for key, item in value.items()}


def _checksum(arrays: Mapping[str, AnyArray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
