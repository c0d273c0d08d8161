"""A run's checkpoint takes no other file's place, and goes on with the same data and options alone."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steinstream.cli.paths import check_apart, check_place
from steinstream.errors import CheckpointError, InputError

if TYPE_CHECKING:
    from steinstream.thinner import Thinner

_ENDS = 1 << 16  # bytes at the start and the end of a file by which it is known again
_OF_MANY = 512  # the same, of each file in a folder
_ANEW = "or delete the checkpoint to start anew."


class Checkpoint:
    """Where the state of a run is saved, if anywhere. What another run left there is not taken away."""

    def __init__(
        self, path: Path | None, resume: bool, others: Mapping[str, Path | None], inputs: Sequence[Path]
    ) -> None:
        if resume and path is None:
            raise InputError("--resume needs to know from where.", "Add --checkpoint FILE.")
        if path is not None:
            check_place("--checkpoint", path)
        check_apart({**others, "--checkpoint": path}, inputs)
        if path is not None and path.exists():
            _check_ours(path)
            if not resume:
                raise CheckpointError(
                    f"{path} holds the state of a run that was stopped.",
                    "Add --resume to go on with it, or delete it to start anew.",
                )
        self.path, self._resume, self._ours = path, resume, False

    def __bool__(self) -> bool:
        return self.path is not None

    def load(self) -> Thinner | None:
        """The thinner to go on with, if there is one and it is wanted."""
        from steinstream.thinner import Thinner

        if self.path is None or not self._resume or not self.path.exists():
            return None
        self._ours = True
        return Thinner.load(self.path)

    def save(self, thinner: Thinner) -> None:
        """Put the state there."""
        if self.path is not None:
            thinner.save(self.path)
            self._ours = True

    def remove(self) -> None:
        """The run is over: what it saved, or went on from, is of no use any more."""
        if self.path is not None and self._ours:
            self.path.unlink(missing_ok=True)

    def check_options(self, before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> None:
        """Raise if the state was made with other options; what an older version did not note is not compared."""
        if before is None:
            raise CheckpointError(
                f"{self.path} was saved by a program, not by this command.", "Give --checkpoint another name."
            )
        for name, value in now.items():
            if name in before and before[name] != value:
                raise CheckpointError(
                    f"{self.path} was made with --{name.replace('_', '-')} {before[name]}, and now it is {value}.",
                    f"Use the same options as before, {_ANEW}",
                )

    def check_files(self, before: Sequence[Mapping[str, Any]] | None, paths: Sequence[Path]) -> None:
        """Raise if the state was made from other data, wherever they are now."""
        if before is None:
            return
        if len(before) != len(paths):
            raise CheckpointError(
                f"{self.path} was made from {len(before)} files, and now there are {len(paths)}.",
                f"Name the same files as before, {_ANEW}",
            )
        for path, then in zip(paths, before, strict=True):
            now = fingerprint(path)
            if now != then:
                other = now["bytes"] != then["bytes"]
                how = f"it has {now['bytes']} bytes, not {then['bytes']}" if other else "it has other contents"
                raise CheckpointError(
                    f"{path} is not the file that {self.path} was made from: {how}.",
                    f"Name the same files as before, {_ANEW}",
                )

    def check_heads(self, before: Sequence[Mapping[str, Any]] | None, paths: Sequence[Path]) -> None:
        """The same for files that grow, of which only the beginning stays."""
        for path, then in zip(paths, before or [], strict=False):
            begins = b""
            if path.is_file():
                with path.open("rb") as file:
                    begins = file.read(then["bytes"])
            if known_by(begins) != then:
                raise CheckpointError(
                    f"{path} was begun anew since the checkpoint was made.", "Delete the checkpoint to start anew."
                )


def _check_ours(path: Path) -> None:
    """Raise if there is something else."""
    from steinstream.io import checkpoint

    try:
        checkpoint.read(path)
    except CheckpointError as error:
        raise CheckpointError(error.problem, "Give --checkpoint another name.") from None


def known_by(head: bytes) -> dict[str, Any]:
    """What tells a file that grows from another: how what was read of it begins."""
    return {"bytes": len(head), "sha256": hashlib.sha256(head).hexdigest()}


def fingerprint(path: Path) -> dict[str, Any]:
    """What tells a file, or a folder of files, from another wherever it is: its size, how it begins and how it ends."""
    digest, size = hashlib.sha256(), 0
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    for each in files:
        bytes_here, length = each.stat().st_size, _ENDS if each == path else _OF_MANY
        size += bytes_here
        digest.update(f"{each.relative_to(path)} {bytes_here}\n".encode())
        with each.open("rb") as file:
            digest.update(file.read(length))
            file.seek(max(bytes_here - length, 0))
            digest.update(file.read(length))
    return {"bytes": size, "sha256": digest.hexdigest()}


def check_folder(folder: Path | None, files: Sequence[Path]) -> None:
    """Raise if one of the files would go when a folder is cleared of the leaves of workers."""
    for file in files:
        if folder is not None and file.name.startswith("leaf-") and file.resolve().parent == folder.resolve():
            raise InputError(f"{file} would be taken for a leaf in {folder}, and deleted.", "Name another folder.")
