"""Checks of input and output paths, made before any work: outputs are writable and do not replace an input."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from steinstream.cli.options import STANDARD, STDIN_NAME, InputOptions, layout
from steinstream.errors import InputError, OutputError

if TYPE_CHECKING:
    from steinstream.cli.messages import Messages
    from steinstream.result import Kept

_OUTPUT_SUFFIXES = (".csv.gz", ".csv", ".npz", ".nc", ".zarr", ".parquet")


def data_files(chain: Iterable[Path], files: InputOptions) -> list[Path]:
    """Return the files of draws and scores; a pattern stands for the files that it matches."""
    from steinstream.io.multi_file import matching_files

    found = [file for path in chain for file in matching_files(path)]
    require_different(found)
    return found + ([] if files.scores is None else [files.scores])


def require_different(files: Sequence[Path]) -> None:
    """Raise an `InputError` if a file is given twice, so that its draws would be counted twice."""
    places = [os.path.realpath(file) for file in files]
    twice = next((file for at, file in enumerate(files) if places[at] in places[:at]), None)
    if twice is not None:
        raise InputError(f"{twice} is given twice.", "Give each file once.")


def input_files(chain: Iterable[Path], files: InputOptions, initial: Path | None = None) -> list[Path]:
    """Return every file that a command reads, including CmdStan's output next to its diagnostic file."""
    from steinstream.io.cmdstan import find_output_of

    data = data_files(chain, files)
    others = [initial, *files.output_csv, *map(find_output_of, data)]
    return data + [path for path in others if path is not None]


def check_distinct(outputs: Mapping[str, Path | None], inputs: Sequence[Path]) -> None:
    """Raise an `InputError` if an output, by the name of its option, would replace an input or another output."""
    places = {option: path for option, path in outputs.items() if path not in (None, STANDARD)}
    for option, path in places.items():
        if any(_replaces(path, other) for other in inputs):
            raise InputError(
                f"{path} is also an input file and would be overwritten.", f"Give {option} another file name."
            )
    for (one, path), (two, other) in combinations(places.items(), 2):
        if _replaces(path, other):
            raise InputError(f"{one} and {two} are the same file, {path}.", "Give them different names.")


def _replaces(output: Path, other: Path) -> bool:
    """Return whether a new file or folder at ``output`` would replace ``other``."""
    place, there = Path(os.path.realpath(output)), Path(os.path.realpath(other))
    same = place.exists() and there.exists() and place.samefile(there)  # names may differ in case only
    return same or place == there or place in there.parents


# -- output of kept draws ----------------------------------------------------------------------------------------------


def default_output(chain: Sequence[Path]) -> Path:
    """Return ``chain.kept.csv`` for chain.csv, or an npz file if kept draws cannot be written in the format."""
    from steinstream.io.multi_file import matching_files

    first = matching_files(chain[0])[0]
    if first.name == STDIN_NAME:
        raise InputError(
            "The draws are read from standard input, so the output has no name.",
            "Add -o FILE, or -o - for csv on standard output.",
        )
    if not first.name:
        raise InputError(f"{first} is a folder.", "Give the files of the chain, for example chains/*.csv.")
    suffix = next((suffix for suffix in _OUTPUT_SUFFIXES if first.name.lower().endswith(suffix)), None)
    name = first.name[: -len(suffix)] if suffix else first.stem
    output = first.with_name(f"{name.removesuffix('.kept')}.kept{suffix or '.npz'}")
    if output.exists() and output != first:
        raise InputError(f"{output} exists.", f"To replace it, add -o {output}.")
    return output


def check_kept_output(output: Path, messages: Messages) -> None:
    """Raise an error if kept draws cannot be written to a file, or to standard output."""
    from steinstream.io import check_output

    if output == STANDARD:
        messages.write_draws_to_stdout()
    check_output(Path(STDIN_NAME) if output == STANDARD else output, layout())  # csv


def save_kept(kept: Kept, output: Path) -> None:
    """Write kept draws to a file, or as csv to standard output."""
    from steinstream.io import FORMATS

    form = FORMATS["csv"]
    if output == STANDARD and form.write is not None:
        if sys.stdout is None:
            raise OutputError("Standard output is closed.", "Give -o the name of a file.")
        form.layouts.get(str(layout()), form.write)(kept, sys.stdout.buffer)
    else:
        kept.save(output, layout())


def holds_groups(output: Path) -> bool:
    """Return whether the format of a file can hold the groups of ArviZ."""
    return output.suffix in (".nc", ".nc4", ".netcdf", ".h5", ".hdf5", ".zarr")


def is_complete(output: Path) -> bool:
    """Return whether the format of a file can hold a complete kept set, with kernel and preconditioner."""
    return output.suffix == ".npz" or holds_groups(output)


def check_writable(option: str, path: Path) -> None:
    """Raise an `OutputError` if no file can be written at ``path``, the value of ``option``."""
    if path == STANDARD:
        raise OutputError(f"{option} cannot be standard output.", f"Give {option} the name of a file.")
    if path.exists() and not path.is_file():
        raise OutputError(f"cannot write {path}: it is not a file.", f"Give {option} the name of a file.")
    place = Path(os.path.realpath(path))
    if not place.parent.is_dir():
        raise OutputError(f"cannot write {path}: the folder {place.parent} does not exist.", "Create the folder first.")
    from tempfile import NamedTemporaryFile  # not for the help

    try:
        with NamedTemporaryFile(dir=place.parent, prefix=f".{place.name}.", suffix=".tmp"):
            pass
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise OutputError(f"cannot write {path}: {reason}.", f"Give {option} another file name.") from None
