"""What a command reads it does not write over, and where it writes can be written: looked at before any work."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from steinstream.errors import InputError, OutputError


def data_of(chain: Iterable[Path], options: Mapping[str, Any]) -> list[Path]:
    """The files of draws and scores; a pattern stands for those that it matches."""
    from steinstream.io.multi_file import matching_files

    scores = options.get("scores_file")
    return [file for path in chain for file in matching_files(path)] + ([] if scores is None else [scores])


def read_by(chain: Iterable[Path], options: Mapping[str, Any]) -> list[Path]:
    """Every file that a command reads, CmdStan's output beside its diagnostics among them."""
    from steinstream.io.cmdstan import find_output_of

    files = data_of(chain, options)
    others = [options.get("initial"), *options.get("output_csv", ()), *map(find_output_of, files)]
    return files + [Path(path) for path in others if path is not None]


def check_apart(outputs: Mapping[str, Path | None], inputs: Sequence[Path]) -> None:
    """Raise if one of the outputs, by their options, would take the place of an input or of another output."""
    places = {option: path for option, path in outputs.items() if path is not None}
    for option, path in places.items():
        if any(_covers(path, other) for other in inputs):
            raise InputError(f"{path} is the input too, and would be lost.", f"Give {option} a name of its own.")
    for (one, path), (two, other) in combinations(places.items(), 2):
        if _covers(path, other):
            raise InputError(f"{one} and {two} are the same file, {path}.", "Give them two names.")


def _covers(output: Path, other: Path) -> bool:
    """Whether a new file or folder at the one place takes away what is at the other."""
    place, there = Path(os.path.realpath(output)), Path(os.path.realpath(other))
    same = place.exists() and there.exists() and place.samefile(there)  # where a name can be written in two ways
    return same or place == there or place in there.parents


def check_place(option: str, path: Path) -> None:
    """Raise now if no file can be written there later."""
    if path.exists() and not path.is_file():
        raise OutputError(f"cannot write {path}: it is no file.", f"Give {option} the name of a file.")
    place = Path(os.path.realpath(path))
    if not place.parent.is_dir():
        raise OutputError(f"cannot write {path}: there is no folder {place.parent}.", "Make the folder first.")
    try:
        with NamedTemporaryFile(dir=place.parent, prefix=f".{place.name}.", suffix=".tmp"):
            pass
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise OutputError(f"cannot write {path}: {reason}.", f"Give {option} another place.") from None
