"""Table of all file formats, and the functions that open, read and write files of any format.

A format recognises its files by their first bytes. If no format does, the extension decides.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import IO, NamedTuple

from steinstream._formatting import listing, nearest
from steinstream.errors import InputError, NotKeptError, OutputError
from steinstream.io.atomic import foreign_folder, replacing, replacing_folder, write_error
from steinstream.io.base import DRAWS, SCORES, Chain, Request, printable
from steinstream.io.cmdstan import is_cmdstan, open_cmdstan
from steinstream.io.csv import gzipped, open_csv, write_csv, write_csv_for_r
from steinstream.io.discard_burn_in import without_burn_in
from steinstream.io.emcee import EmceeChain, is_emcee
from steinstream.io.errors import reading
from steinstream.io.netcdf import import_h5netcdf, is_netcdf, open_netcdf, read_netcdf, write_netcdf
from steinstream.io.npy import open_npy
from steinstream.io.npz import NpzChain, read_npz, write_npz
from steinstream.io.parquet import ParquetChain, pyarrow, write_parquet
from steinstream.io.zarr import import_zarr, is_own_store, is_zarr, open_zarr, read_zarr, write_zarr
from steinstream.result import Kept

_HEAD = 4096  # bytes at the start of a file by which a format recognises it
_LONGEST_NAME = 10_000  # characters; HDF5 and zip files have limits of 64 kB


class Format(NamedTuple):
    """A file format: how to recognise, open, write and read its files."""

    suffixes: tuple[str, ...]
    matches: Callable[[Path, bytes], bool]  # whether a file or folder has this format, by its path and first bytes
    open: Callable[[Request], Chain]
    write: Callable[[Kept, IO[bytes]], None] | None = None
    write_folder: Callable[[Kept, Path], None] | None = None
    layouts: Mapping[str, Callable[..., None]] = MappingProxyType({})  # other functions that write, by name
    read: Callable[[Path], Kept] | None = None  # reads a complete kept set
    need: Callable[[], object] = lambda: None  # raises an InputError if a library is missing


def _starts_with(*prefixes: bytes) -> Callable[[Path, bytes], bool]:
    return lambda path, head: head.startswith(prefixes)


def _is_npz(path: Path, head: bytes) -> bool:
    return head.startswith(b"PK") and not is_zarr(path, head)


def _never(path: Path, head: bytes) -> bool:
    return False


#: Formats by name, in the order in which they are tried.
FORMATS = {
    "npz": Format((".npz",), _is_npz, NpzChain, write_npz, read=read_npz),
    "npy": Format((".npy",), _starts_with(b"\x93NUMPY"), open_npy),
    "stan": Format((), is_cmdstan, open_cmdstan),
    "csv": Format((".csv",), _never, open_csv, write_csv, layouts={"r": write_csv_for_r}),
    "csv.gz": Format(
        (".csv.gz",),
        _starts_with(b"\x1f\x8b"),
        open_csv,
        gzipped(write_csv),
        layouts={"r": gzipped(write_csv_for_r)},
    ),
    "parquet": Format((".parquet",), _starts_with(b"PAR1"), ParquetChain, write_parquet, need=pyarrow),
    "zarr": Format(
        (".zarr", ".zarr.zip"),
        is_zarr,
        open_zarr,
        write_folder=write_zarr,
        layouts={"chain-draw": partial(write_zarr, stacked=False)},
        read=read_zarr,
        need=import_zarr,
    ),
    "emcee": Format((), is_emcee, EmceeChain),
    "netcdf": Format(
        (".nc", ".nc4", ".netcdf", ".h5", ".hdf5"),
        is_netcdf,
        open_netcdf,
        write_netcdf,
        layouts={"chain-draw": partial(write_netcdf, stacked=False)},
        read=read_netcdf,
        need=import_h5netcdf,
    ),
}


def open_chain(
    path: str | os.PathLike[str],
    *,
    scores: str | os.PathLike[str] | None = None,
    draws_name: str = DRAWS,
    scores_name: str = SCORES,
    negate: bool = False,
    format: str | None = None,
    output: str | os.PathLike[str] | None = None,
    parameters: Sequence[str] | None = None,
    burn_in: int | float = 0,
) -> Chain:
    """Open a file of draws, with scores if it contains any.

    Parameters
    ----------
    path : path
        The file.
    scores : path, optional
        Separate file of the scores (npy, csv). Default: the scores are in the same file, or there are none.
    draws_name : str
        Names of arrays (npz), variables or groups (NetCDF, Zarr), columns of lists (parquet) or, separated by commas,
        columns of numbers (csv, parquet).
    scores_name : str
        The same for the scores. If it is given, a file without these scores is an error.
    negate : bool, default False
        Change the sign of the scores, for tools that write minus the gradient.
    format : str, optional
        Name of the format, a key of `FORMATS`. Default: determined from the content, or else from the extension.
    output : path, optional
        CmdStan's file of the constrained draws. Default: the file next to ``path`` with the usual name.
    parameters : sequence of str, optional
        Names of the parameters to read; the name of an array stands for all its elements. Default: all, without ids,
        log densities and weights. `Chain.taken` lists what is read and what is left out.
    burn_in : int or float, default 0
        Number of draws to leave out at the start of each chain, or share of its draws.

    Returns
    -------
    Chain
        The chain. Its draws are read when `Chain.blocks` is called. `Chain.has_scores` says whether it has scores.

    Raises
    ------
    InputError
        If the file does not exist, is damaged, has an unknown format, does not contain draws, or does not contain
        scores or parameters that were named.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> draws = np.random.default_rng(0).normal(size=(1000, 2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(Path(folder) / "chain.npz", draws=draws, scores=-draws)
    ...     chain = open_chain(Path(folder) / "chain.npz")
    ...     sizes = [len(block.draws) for block in chain.blocks(rows=600)]
    >>> chain.names, chain.length, sizes
    (('x0', 'x1'), 1000, [600, 400])
    """
    source = _existing(Path(path))
    other = None if scores is None else _existing(Path(scores))
    constrained = None if output is None else _existing(Path(output))
    form = _find_format(source, format)
    if constrained is not None and form is not FORMATS["stan"]:
        raise InputError(
            f"{source} is not a CmdStan file, so it has no output file such as {constrained}.", "Leave out output."
        )
    if isinstance(parameters, str):
        raise InputError(f"parameters must be a sequence of names, got {parameters!r}.", f"Use [{parameters!r}].")
    chosen = None if parameters is None else tuple(parameters)
    chain = form.open(Request(source, other, draws_name, scores_name, constrained, chosen))
    chain.negated = negate
    return without_burn_in(chain, burn_in) if burn_in else chain


#: Layouts of files of kept draws, besides the default ones.
LAYOUTS = tuple(dict.fromkeys(layout for form in FORMATS.values() for layout in form.layouts))


def write_kept(kept: Kept, path: str | os.PathLike[str], layout: str | None = None) -> None:
    """Write a kept set in the format of the extension.

    Parameters
    ----------
    kept : Kept
        The kept set.
    path : path
        The file: npz, nc, zarr, csv, csv.gz or parquet. An existing file is replaced when the new one is complete.
    layout : {"r", "chain-draw"}, optional
        ``"r"``: csv for R's package posterior, with the columns ``.chain``, ``.iteration`` and ``.draw``, which count
        from 1, and elements ``w[1]``. ``"chain-draw"``: nc and zarr with the dimensions (chain, draw), as ArviZ 0.x and
        some functions of ArviZ 1.x expect; the kept draws are a single chain. Default: a table with scores; one
        dimension ``sample``.

    Raises
    ------
    InputError
        If the extension or the layout is unknown, or a library is missing.
    OutputError
        If the file cannot be written; the existing file is unchanged.
    """
    form = _find_writable(path, layout)
    for name in (*(kept.names or ()), *kept.variables):
        if printable(name) != name or ("\0" in name and name in kept.variables):
            raise InputError(f"No file can store the name {name!r}.", "Rename it: kept.with_names([...]).")
        if len(name) > _LONGEST_NAME:
            raise InputError(
                f"The name {name[:40]!r}... has {len(name)} characters; files can store {_LONGEST_NAME}.",
                "Rename it: kept.with_names([...]).",
            )
    if form.write_folder is not None:
        with replacing_folder(path, is_own_store) as folder:
            form.layouts.get(str(layout), form.write_folder)(kept, folder)
    elif form.write is not None:
        with replacing(path) as file:
            form.layouts.get(str(layout), form.write)(kept, file)


def read_kept(path: str | os.PathLike[str], format: str | None = None) -> Kept:
    """Read a kept set from an npz, NetCDF or Zarr file.

    Parameters
    ----------
    path : path
        A file that `write_kept` wrote.
    format : str, optional
        Name of the format, a key of `FORMATS`. Default: determined from the content, or else from the extension.

    Returns
    -------
    Kept
        The kept set with kernel, preconditioner, history, weights and settings.

    Raises
    ------
    NotKeptError
        If the file is not a kept set, or its format does not contain kernel and preconditioner.
    InputError
        If the file is damaged.
    """
    source = _existing(Path(path))
    read = _find_format(source, format).read
    if read is None:
        raise NotKeptError(
            f"{source} has a format without kernel and preconditioner, so it is not a complete kept set.",
            "Write the kept set as npz, nc or zarr. Its draws alone can be read with ss.io.open_chain.",
        )
    return read(source)


def check_output(path: str | os.PathLike[str], layout: str | None = None) -> None:
    """Raise the errors that `write_kept` would raise, before a long run."""
    form = _find_writable(path, layout)
    target = Path(path)
    if target.is_dir() and form.write_folder is not None and not is_own_store(target):
        raise foreign_folder(path)
    if target.is_dir() and form.write_folder is None:
        raise write_error(path, OSError(errno.EISDIR, os.strerror(errno.EISDIR)))
    folder = Path(os.path.realpath(target)).parent
    if not folder.is_dir():
        raise OutputError(f"Cannot write {path}: no folder {folder}.", "Make the folder first, or choose another one.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise write_error(path, OSError(errno.EACCES, os.strerror(errno.EACCES)))


def _find_writable(path: str | os.PathLike[str], layout: str | None) -> Format:
    """Return the format that the extension of an output file names, which must have the layout."""
    name = _by_suffix(Path(path))
    form = FORMATS[name] if name else None
    if form is None or not (form.write or form.write_folder):
        known = listing(form.suffixes[0] for form in FORMATS.values() if form.write or form.write_folder)
        raise InputError(f"The extension of {path} is not that of an output format.", f"Use one of {known}.")
    if layout is not None and layout not in form.layouts:
        having = listing(form.suffixes[0] for form in FORMATS.values() if layout in form.layouts)
        raise InputError(
            f"A file {form.suffixes[0]} has no layout {layout!r}.",
            f"Write {having}." if layout in LAYOUTS else f"Known: {listing(LAYOUTS)}.",
        )
    form.need()
    return form


def _find_format(path: Path, wanted: str | None) -> Format:
    """Return the format that was asked for, or that of the content or of the extension."""
    if wanted is not None:
        if wanted not in FORMATS:
            raise InputError(f"Unknown format {wanted}.", f"{nearest(wanted, FORMATS)}Known: {listing(FORMATS)}.")
        return FORMATS[wanted]
    head = b""
    if path.is_file():  # a pipe could be read only once
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
        f"{path} has an unknown format and an unknown extension.",
        f"Known extensions: {known}. Convert the file, or name its format with format (--format).",
    )


def _by_suffix(path: Path) -> str | None:
    name = path.name.lower()
    return next((title for title, form in FORMATS.items() if name.endswith(form.suffixes)), None)


def _existing(path: Path) -> Path:
    if not path.exists():
        others = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
        raise InputError(f"{path}: there is no such file.", f"{nearest(path.name, others)}Check the path.")
    return path
