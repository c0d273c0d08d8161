"""Every format of file there is, in one table: known by its content, else by its name.

A format says of a file's first bytes whether they are its own. Where no format claims them, the suffix decides.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, NamedTuple

from steinstream.errors import InputError, OutputError
from steinstream.io import emcee, netcdf, stan, zarr
from steinstream.io.atomic import replacing, replacing_folder, unwritable
from steinstream.io.base import DRAWS, SCORES, Chain, Request
from steinstream.io.csv import open_csv, write_csv, write_csv_gz
from steinstream.io.errors import listing, nearest, reading
from steinstream.io.npy import open_npy
from steinstream.io.npz import open_npz, read_npz, write_npz
from steinstream.io.parquet import open_parquet, pyarrow, write_parquet
from steinstream.result import Kept

_HEAD = 4096  # bytes at the start of a file that a format may judge by


class Format(NamedTuple):
    """How to know a file, how to open one, and how to write one."""

    suffixes: tuple[str, ...]
    matches: Callable[[Path, bytes], bool]
    """Whether a file, or a folder, is of this format by its first bytes, unzipped or not."""
    open: Callable[[Request], Chain]
    write: Callable[[Kept, IO[bytes]], None] | None = None
    write_folder: Callable[[Kept, Path], None] | None = None
    read: Callable[[Path], Kept] | None = None
    """How to get a whole kept set back."""
    need: Callable[[], object] = lambda: None
    """Raises if a library is missing."""


def _starts(*marks: bytes) -> Callable[[Path, bytes], bool]:
    return lambda path, head: head.startswith(marks)


def _is_npz(path: Path, head: bytes) -> bool:
    return head.startswith(b"PK") and not zarr.matches(path, head)


def _never(path: Path, head: bytes) -> bool:
    return False


#: By name, in the order in which they are asked whether a file is theirs.
FORMATS = {
    "npz": Format((".npz",), _is_npz, open_npz, write_npz, read=read_npz),
    "npy": Format((".npy",), _starts(b"\x93NUMPY"), open_npy),
    "stan": Format((), stan.matches, stan.open_stan),
    "csv": Format((".csv",), _never, open_csv, write_csv),
    "csv.gz": Format((".csv.gz",), _starts(b"\x1f\x8b"), open_csv, write_csv_gz),
    "parquet": Format((".parquet",), _starts(b"PAR1"), open_parquet, write_parquet, need=pyarrow),
    "zarr": Format((".zarr", ".zarr.zip"), zarr.matches, zarr.open_zarr, write_folder=zarr.write_zarr,
                   read=zarr.read_zarr, need=zarr.library),
    "emcee": Format((), emcee.matches, emcee.open_emcee),
    "netcdf": Format((".nc", ".nc4", ".netcdf", ".h5", ".hdf5"), netcdf.matches, netcdf.open_netcdf,
                     netcdf.write_netcdf, read=netcdf.read_netcdf, need=netcdf.library),
}  # fmt: skip


def open_chain(
    path: str | os.PathLike[str],
    *,
    scores: str | os.PathLike[str] | None = None,
    draws_name: str = DRAWS,
    scores_name: str = SCORES,
    negate: bool = False,
    format: str | None = None,
    transposed: bool | None = None,
    output: str | os.PathLike[str] | None = None,
) -> Chain:
    """Open the draws in a file, and their scores in the same file or in ``scores``.

    ``draws_name`` and ``scores_name`` name arrays (npz), variables or groups (NetCDF, Zarr), columns of lists (parquet)
    or, separated by commas, columns of numbers (csv, parquet). ``negate`` flips the sign of the scores. ``format`` says
    what the file is, where content and name mislead. ``transposed`` says whether a pair of csv files has one row for
    each parameter instead of one for each draw; left alone, files of more columns than rows are taken to be such.
    ``output`` is the file of the constrained draws, where a tool has them apart (CmdStan) and it is not beside the
    draws under its usual name.
    """
    source = _existing(Path(path))
    other = None if scores is None else _existing(Path(scores))
    constrained = None if output is None else _existing(Path(output))
    form = _format(source, format)
    if constrained is not None and form is not FORMATS["stan"]:
        raise InputError(f"{source} is no CmdStan file, so {constrained} cannot be its output.", "Leave it out.")
    chain = form.open(Request(source, other, draws_name, scores_name, transposed, constrained))
    chain.negated = negate
    return chain


def write_kept(kept: Kept, path: str | os.PathLike[str]) -> None:
    """Write kept draws in the format the suffix names: whole, or not at all."""
    form = _writable(path)
    if form.write_folder is not None:
        with replacing_folder(path, zarr.is_store) as folder:
            form.write_folder(kept, folder)
    elif form.write is not None:
        with replacing(path) as file:
            form.write(kept, file)


def read_kept(path: str | os.PathLike[str]) -> Kept:
    """The kept draws in an npz, NetCDF or Zarr file, with all that is known about them."""
    source = _existing(Path(path))
    read = _format(source, None).read
    if read is None:
        raise InputError(
            f"{source} does not remember kernel and coordinates, as a kept set in npz does.",
            "Write the kept set as npz, nc or zarr; its draws alone can be read with open_chain.",
        )
    return read(source)


def check_output(path: str | os.PathLike[str]) -> None:
    """Raise now what writing ``path`` would raise after a long run."""
    form = _writable(path)
    target = Path(path)
    if target.is_dir() and not (form.write_folder is not None and zarr.is_store(target)):
        raise unwritable(path, OSError(errno.EISDIR, os.strerror(errno.EISDIR)))
    folder = Path(os.path.realpath(target)).parent
    if not folder.is_dir():
        raise OutputError(
            f"cannot write {path}: there is no folder {folder}.",
            "Make the folder first, or choose another with -o.",
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise unwritable(path, OSError(errno.EACCES, os.strerror(errno.EACCES)))


def _writable(path: str | os.PathLike[str]) -> Format:
    name = _by_suffix(Path(path))
    form = FORMATS[name] if name else None
    if form is None or not (form.write or form.write_folder):
        known = listing(form.suffixes[0] for form in FORMATS.values() if form.write or form.write_folder)
        raise InputError(f"cannot tell from its name what {path} should be.", f"Let it end in one of {known}.")
    form.need()
    return form


def _format(path: Path, wanted: str | None) -> Format:
    """The format that was asked for, or that the content or the name tells."""
    if wanted is not None:
        if wanted not in FORMATS:
            raise InputError(f"there is no format {wanted}.", f"{nearest(wanted, FORMATS)}It reads {listing(FORMATS)}.")
        return FORMATS[wanted]
    head = b""
    if path.is_file():  # what a pipe gives is gone
        with reading(path, "a file of draws"), path.open("rb") as file:
            head = file.read(_HEAD)
        if not head:
            raise InputError(
                f"{path}: the chain is empty: 0 bytes.", "Check that the sampler wrote its draws to this file."
            )
    name = next((name for name, form in FORMATS.items() if form.matches(path, head)), None) or _by_suffix(path)
    if name is not None and not (path.is_dir() and FORMATS[name].write_folder is None):
        return FORMATS[name]
    if path.is_dir():
        raise InputError(f"{path} is a folder.", "Give a file in it, or a Zarr store.")
    known = listing((suffix for form in FORMATS.values() for suffix in form.suffixes), 20)
    raise InputError(
        f"{path} has a suffix steinstream does not know.",
        f"It reads {known}; convert it to one, or say what it is with --format.",
    )


def _by_suffix(path: Path) -> str | None:
    name = path.name.lower()
    return next((title for title, form in FORMATS.items() if name.endswith(form.suffixes)), None)


def _existing(path: Path) -> Path:
    if not path.exists():
        beside = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
        raise InputError(f"{path}: there is no such file.", f"{nearest(path.name, beside)}Check the path.")
    return path
