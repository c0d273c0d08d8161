"""Checkpoints of a command: they replace no other file, and are continued with the same data and options only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from steinstream.cli.options import CheckpointOptions
from steinstream.cli.paths import check_distinct, check_writable
from steinstream.errors import CheckpointError, InputError, OutputError, SteinstreamError

if TYPE_CHECKING:
    from steinstream._typing import Array, Integers
    from steinstream.io.base import Chain
    from steinstream.io.file_lock import FileLock
    from steinstream.thinner import Thinner
    from steinstream.thinner.config import ThinConfig
    from steinstream.validation import Block

_ENDS = 1 << 16  # bytes at the start and the end of a file that identify it
_ENDS_IN_FOLDER = 512  # the same for each file of a folder
_OR_DELETE = "or delete the checkpoint to start again."


@contextmanager
def reading_note(path: Path | None) -> Iterator[None]:
    """Convert the errors of a checkpoint whose note was changed by hand to a `CheckpointError`."""
    try:
        yield
    except SteinstreamError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(
            f"{path} is not a valid checkpoint of this command: {type(error).__name__} {error}.",
            "Delete it to start again.",
        ) from error


class Checkpoint:
    """The file in which a command saves its state, if one is given."""

    def __init__(self, path: Path | None, resume: bool = False, lock: FileLock | None = None) -> None:
        self.path, self._resume, self._lock = path, resume, lock
        self._written = False  # whether this run wrote the file or continues from it

    @classmethod
    def prepare(cls, saving: CheckpointOptions, outputs: Mapping[str, Path | None], inputs: Sequence[Path]) -> Self:
        """Check the options of a checkpoint, that it fits the other files, and that no output replaces an input."""
        path, resume = saving
        if resume and path is None:
            raise InputError("--resume requires a checkpoint.", "Add --checkpoint FILE.")
        if path is not None:
            check_writable("--checkpoint", path)
        check_distinct({**outputs, "--checkpoint": path}, inputs)
        lock = None if path is None else _lock(path)
        if path is not None and path.exists():
            _require_checkpoint(path)
            if not resume:
                raise CheckpointError(
                    f"{path} contains the state of a run that was stopped.",
                    "Add --resume to continue it, or delete the file to start again.",
                )
        return cls(path, resume, lock)

    def __bool__(self) -> bool:
        return self.path is not None

    def load(self) -> Thinner | None:
        """Return the thinner to continue with; None if there is none."""
        from steinstream.thinner import Thinner

        if self.path is None or not self._resume or not self.path.exists():
            return None
        self._written = True
        return Thinner.load(self.path)

    def save(self, thinner: Thinner) -> None:
        """Write the state of a thinner."""
        if self.path is not None:
            thinner.save(self.path)
            self._written = True

    def remove(self) -> None:
        """Delete the file at the end of a run, if the run wrote it, and release it for other processes."""
        if self.path is not None and self._written:
            self.path.unlink(missing_ok=True)
        if self._lock is not None:
            self._lock.release()

    def check_command(self, note: Mapping[str, Any], command: str) -> None:
        """Raise a `CheckpointError` if the state is not that of this command."""
        if "command" not in note:
            raise CheckpointError(
                f"{self.path} was written by a program, not by this command.", "Give --checkpoint another file name."
            )
        if note["command"] != command:
            raise CheckpointError(
                f"{self.path} belongs to another command, steinstream {note['command']}.",
                "Give --checkpoint another file name.",
            )

    def check_settings(self, note: Mapping[str, Any], config: ThinConfig, options: Mapping[str, Any]) -> None:
        """Raise a `CheckpointError` if the state was written with other settings or other options."""
        from steinstream.thinner.config import ThinConfig

        changes: list[tuple[str, Any, Any]] = [*ThinConfig.from_dict(note["config"]).differences(config)]
        changes += [
            (name, before, options[name]) for name, before in note["options"].items() if before != options[name]
        ]
        for name, before, now in changes:
            option = f"--{name.replace('_', '-')}"
            differs = f"{option} {before}, but {now} was given" if str(before) != str(now) else f"another {option}"
            raise CheckpointError(
                f"{self.path} was written with {differs}.", f"Use the same options as before, {_OR_DELETE}"
            )

    def check_files(self, before: Sequence[Mapping[str, Any]], paths: Sequence[Path]) -> None:
        """Raise a `CheckpointError` if the state was written for files with other contents."""
        if len(before) != len(paths):
            raise CheckpointError(
                f"{self.path} was written for {len(before)} files, but {len(paths)} are given.",
                f"Give the same files as before, {_OR_DELETE}",
            )
        for path, then in zip(paths, before, strict=True):
            now = fingerprint(path)
            if now != then:
                longer = now["bytes"] != then["bytes"]
                how = f"it has {now['bytes']} bytes, not {then['bytes']}" if longer else "its contents differ"
                raise CheckpointError(
                    f"{path} is not the file for which {self.path} was written: {how}.",
                    f"Give the same files as before, {_OR_DELETE}",
                )

    def check_draws(self, thinner: Thinner, source: Chain, has_initial: bool) -> None:
        """Raise a `CheckpointError` if a draw of the state is not the draw of the chain that its id names.

        The file is read up to the last of these draws. Draws of an initial set are not compared: their ids are those of
        another file.
        """
        expected = _rows_of(thinner, has_initial)
        for block in source.blocks() if expected else ():
            for row, id in enumerate(map(tuple, block.ids.tolist())):
                if id in expected:
                    expected[id] = [same for same in expected[id] if not same(block, row)]
                    if not expected[id]:
                        del expected[id]
            if not expected:
                return
        if expected:
            chain, index = min(expected)
            raise CheckpointError(
                f"{self.path} is damaged: its draw {index} of chain {chain} is not that of {source.title}.",
                "Delete it to start again.",
            )

    def check_heads(self, before: Sequence[Mapping[str, Any]], paths: Sequence[Path]) -> None:
        """Raise a `CheckpointError` if one of these growing files was replaced since the state was written."""
        for path, then in zip(paths, before, strict=True):
            head = b""
            if path.is_file():
                with path.open("rb") as file:
                    head = file.read(then["bytes"])
            if head_fingerprint(head) != then:
                raise CheckpointError(
                    f"{path} was restarted since the checkpoint was written.", "Delete the checkpoint to start again."
                )


def _rows_of(thinner: Thinner, has_initial: bool) -> dict[tuple[int, ...], list[Callable[[Block, int], bool]]]:
    """Return functions by id that compare a row of a block with a kept or pending draw of a thinner."""
    import numpy as np

    found: dict[tuple[int, ...], list[Callable[[Block, int], bool]]] = {}

    def add(draws: Array, scores: Array, ids: Integers) -> None:
        def same(at: int, block: Block, row: int) -> bool:
            equal = np.array_equal(block.draws[row].astype(draws.dtype), draws[at])
            return equal and np.array_equal(block.scores[row].astype(scores.dtype), scores[at])

        for at, id in enumerate(map(tuple, ids.tolist())):
            found.setdefault(id, []).append(partial(same, at))

    pending, contents = thinner.pending, thinner.stored
    add(pending.draws, pending.scores[:, : thinner.dim], pending.ids)
    if contents is not None:
        own = contents.ids[:, 2] > 0 if has_initial else np.ones(len(contents.ids), dtype=np.bool_)
        add(contents.draws[own], contents.scores[own], contents.ids[own, :2])
    return found


def _lock(path: Path) -> FileLock:
    """Lock a checkpoint against other processes until the command ends."""
    from steinstream.io.file_lock import FileLock

    target = path.resolve()
    try:
        return FileLock(target.with_name(f".{target.name}.lock"), path)
    except OSError as error:
        raise OutputError(f"Cannot write next to {path}: {error.strerror}.", "Choose another folder.") from None


def _require_checkpoint(path: Path) -> None:
    """Raise a `CheckpointError` if the file is not a checkpoint."""
    from steinstream.io import checkpoint

    try:
        checkpoint.read(path)
    except CheckpointError as error:
        raise CheckpointError(error.problem, "Give --checkpoint another file name.") from None


def head_fingerprint(head: bytes) -> dict[str, Any]:
    """Return what identifies a growing file: length and hash of the part that was read first."""
    import hashlib  # not for the help

    return {"bytes": len(head), "sha256": hashlib.sha256(head).hexdigest()}


def fingerprint(path: Path) -> dict[str, Any]:
    """Return what identifies a file or folder wherever it is: its size, and a hash of its start and end."""
    import hashlib

    digest, size = hashlib.sha256(), 0
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    for each in files:
        bytes_here, length = each.stat().st_size, _ENDS if each == path else _ENDS_IN_FOLDER
        size += bytes_here
        digest.update(f"{each.relative_to(path)} {bytes_here}\n".encode())
        with each.open("rb") as file:
            digest.update(file.read(length))
            file.seek(max(bytes_here - length, 0))
            digest.update(file.read(length))
    return {"bytes": size, "sha256": digest.hexdigest()}
