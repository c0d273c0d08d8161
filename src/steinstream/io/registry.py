"""Every format of file there is, by its suffix: one table, for reading and for writing."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, NamedTuple

from steinstream.errors import InputError, OutputError
from steinstream.io.atomic import replacing, unwritable
from steinstream.io.chain import DRAWS, SCORES, Chain, Request
from steinstream.io.csv import open_csv, write_csv, write_csv_gz
from steinstream.io.npy import open_npy
from steinstream.io.npz import open_npz, read_npz, write_npz
from steinstream.io.parquet import open_parquet, pyarrow, write_parquet
from steinstream.io.problems import listing, nearest
from steinstream.kept import Kept


class Format(NamedTuple):
    """How to open a file, and how to write one."""

    open: Callable[[Request], Chain]
    write: Callable[[Kept, IO[bytes]], None] | None


FORMATS = {
    ".npz": Format(open_npz, write_npz),
    ".npy": Format(open_npy, None),
    ".csv": Format(open_csv, write_csv),
    ".csv.gz": Format(open_csv, write_csv_gz),
    ".parquet": Format(open_parquet, write_parquet),
}


def open_chain(
    path: str | os.PathLike[str],
    *,
    scores: str | os.PathLike[str] | None = None,
    draws_name: str = DRAWS,
    scores_name: str = SCORES,
    negate: bool = False,
) -> Chain:
    """Open the draws in a file, and their scores in the same file or in ``scores``.

    ``draws_name`` and ``scores_name`` name arrays (npz), columns of lists (parquet) or, separated by commas,
    columns of numbers (csv, parquet). ``negate`` flips the sign of the scores.
    """
    source = _existing(Path(path))
    other = None if scores is None else _existing(Path(scores))
    suffix = _suffix(source)
    if suffix is None:
        raise InputError(
            f"{source} has a suffix steinstream does not know.",
            f"It reads {listing(FORMATS)}; convert it to one.",
        )
    chain = FORMATS[suffix].open(Request(source, other, draws_name, scores_name))
    chain.negated = negate
    return chain


def write_kept(kept: Kept, path: str | os.PathLike[str]) -> None:
    """Write kept draws in the format the suffix names: whole, or not at all."""
    write = _writer(path)
    with replacing(path) as file:
        write(kept, file)


def read_kept(path: str | os.PathLike[str]) -> Kept:
    """The kept draws in an npz file, with all that is known about them."""
    source = _existing(Path(path))
    if _suffix(source) != ".npz":
        raise InputError(
            f"{source} does not remember kernel and coordinates, as a kept set in npz does.",
            "Write the kept set as npz; its draws alone can be read with open_chain.",
        )
    return read_npz(source)


def check_output(path: str | os.PathLike[str]) -> None:
    """Raise now what writing ``path`` would raise after a long run."""
    _writer(path)
    target = Path(path)
    if target.is_dir():
        raise unwritable(path, OSError(errno.EISDIR, os.strerror(errno.EISDIR)))
    folder = Path(os.path.realpath(target)).parent
    if not folder.is_dir():
        raise OutputError(
            f"cannot write {path}: there is no folder {folder}.",
            "Make the folder first, or choose another with -o.",
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise unwritable(path, OSError(errno.EACCES, os.strerror(errno.EACCES)))


def _writer(path: str | os.PathLike[str]) -> Callable[[Kept, IO[bytes]], None]:
    suffix = _suffix(Path(path))
    write = FORMATS[suffix].write if suffix else None
    if write is None:
        known = listing(suffix for suffix, form in FORMATS.items() if form.write)
        raise InputError(f"cannot tell from its name what {path} should be.", f"Let it end in one of {known}.")
    if suffix == ".parquet":
        pyarrow()
    return write


def _suffix(path: Path) -> str | None:
    name = path.name.lower()
    return next((suffix for suffix in FORMATS if name.endswith(suffix)), None)


def _existing(path: Path) -> Path:
    if path.is_dir():
        raise InputError(f"{path} is a folder.", "Give a file in it.")
    if not path.exists():
        beside = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
        raise InputError(f"{path}: there is no such file.", f"{nearest(path.name, beside)}Check the path.")
    return path
