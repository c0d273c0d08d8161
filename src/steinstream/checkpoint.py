"""Checkpoints: a versioned npz with a checksum, written aside and renamed, so that it is either whole or absent.

Nothing in the file is executed, and its bytes depend on the thinner's state alone, not on the order in which the engine
happens to store it.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steinstream.errors import CheckpointError
from steinstream.version import __version__

FORMAT = 1


def write(path: str | PathLike[str], about: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    """Replace the file at ``path`` by this state, or leave it as it is if that fails."""
    from steinstream.io.atomic import replacing

    head = json.dumps({"format": FORMAT, "steinstream": __version__, **about}, sort_keys=True)
    everything = {"about": np.array(head), **arrays}
    everything["checksum"] = np.array(_checksum(everything))
    with replacing(path) as file:
        np.savez(file, **everything)


def read(path: str | PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What :func:`write` wrote, or a :class:`CheckpointError` that says what is wrong with the file."""
    if not Path(path).is_file():
        raise CheckpointError(f"There is no checkpoint at {path}.")
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, NotImplementedError):
        raise CheckpointError(
            f"{path} is not a readable checkpoint: it is truncated or was made by something else.",
            "Delete it to start anew, or name another one.",
        ) from None
    if not {"about", "checksum"} <= arrays.keys():
        raise CheckpointError(f"{path} is an npz file but no steinstream checkpoint.", "Name another one.")
    checksum = str(arrays.pop("checksum"))
    if checksum != _checksum(arrays):
        raise CheckpointError(f"{path} is damaged: its checksum does not match.", "Delete it to start anew.")
    about = json.loads(str(arrays.pop("about")))
    if about["format"] != FORMAT:
        raise CheckpointError(
            f"{path} has checkpoint format {about['format']}, written by steinstream {about['steinstream']}; "
            f"this version reads format {FORMAT}.",
            "Finish the run with the version that began it.",
        )
    return about, arrays


def _checksum(arrays: dict[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
