"""Files attached to the kept draws: one file per draw, deleted when the draw is dropped.

A thinner reports what a step changed (:class:`~steinstream.StepInfo`). :meth:`steinstream.DrawStore.commit` applies
these changes to a folder in an order that is safe against crashes:

1. The files of added draws are written to a temporary folder, flushed to disk and renamed, so that each file is
   complete or absent.
2. The checkpoint of the thinner is replaced, also atomically. The step takes effect at this point.
3. The files of dropped draws are deleted.

If the process is killed before 2, the old checkpoint is valid: all its files exist, and the new files belong to no
draw. If it is killed after 2, the new checkpoint is valid: all its files exist, and some old files belong to no draw.
In both cases every kept draw has its file, and :meth:`steinstream.DrawStore.reconcile` deletes the files that belong to
no draw of the checkpoint. A step that changes nothing needs no commit.

With ``sync=True`` (the default) files are flushed to disk before the checkpoint, and the checkpoint before deletions,
so that the order also holds after a power failure. Deletions are not flushed: ``reconcile`` repeats a lost deletion.
With ``sync=False`` nothing is flushed; the order then holds if the process is killed, but not if the machine stops.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from os import PathLike
from pathlib import Path

from steinstream._typing import Id
from steinstream.errors import CheckpointError, InputError
from steinstream.io.atomic import sync_path, write_error
from steinstream.io.file_lock import FileLock

#: Content of a file, or a function that writes the file at the path that it is given.
Content = bytes | Callable[[Path], object]


class DrawStore:
    """Folder with one file per kept draw.

    The file of draw 17 of chain 0 is ``0_17`` followed by the suffix. Only one process at a time can use a folder. Call
    :meth:`reconcile` before the first :meth:`commit`.

    Parameters
    ----------
    folder : path_like
        Folder of the files, created if it does not exist.
    suffix : str, default ".bin"
        Suffix of the file names: a dot followed by letters, digits, underscores or dots.
    sync : bool, default True
        Whether to flush files to disk, so that they also survive a power failure.

    Raises
    ------
    InputError
        If the suffix is invalid, or another process uses the folder.
    OutputError
        If the folder cannot be created.

    Examples
    --------
    >>> import tempfile
    >>> store = DrawStore(tempfile.mkdtemp(), suffix=".txt")
    >>> store.commit({(0, 1): b"one", (0, 2): b"two"}, [], checkpoint=lambda: None)
    >>> store.commit({(0, 3): b"three"}, [(0, 1)], checkpoint=lambda: None)
    >>> [store.path(id).read_text() for id in store.ids()]
    ['two', 'three']
    >>> store.reconcile([(0, 3)])  # the checkpoint contains only this draw
    ((0, 2),)
    >>> store.close()
    """

    def __init__(self, folder: str | PathLike[str], *, suffix: str = ".bin", sync: bool = True) -> None:
        if not re.fullmatch(r"\.[\w.]+", suffix):
            raise InputError(f"suffix must be a dot followed by letters or digits, got {suffix!r}.")
        self.folder = Path(folder)
        self.suffix = suffix
        self.sync = sync
        self._name = re.compile(rf"(-?\d+)_(\d+){re.escape(suffix)}")
        self._failed = False
        self._temporary = self.folder / ".new"  # files left there by a crash are deleted by reconcile
        try:
            self._temporary.mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(self.folder / ".lock", self.folder, remove=False)
        except OSError as error:
            raise write_error(folder, error) from error

    def path(self, id: Id) -> Path:
        """Return the path of a draw's file.

        Parameters
        ----------
        id : tuple of int
            Id (chain, draw).

        Returns
        -------
        Path
            The path, whether or not the file exists.
        """
        return self.folder / f"{id[0]}_{id[1]}{self.suffix}"

    def ids(self) -> list[Id]:
        """Return the ids of the draws that have a file, in ascending order.

        Returns
        -------
        list of tuple of int
            The ids (chain, index).
        """
        names = (self._name.fullmatch(path.name) for path in self.folder.iterdir())
        return sorted((int(name[1]), int(name[2])) for name in names if name)

    def commit(self, added: Mapping[Id, Content], dropped: Iterable[Id], checkpoint: Callable[[], object]) -> None:
        """Write the files of added draws, then the checkpoint, then delete the files of dropped draws.

        If the commit fails, the thinner in memory is ahead of the files, and the store refuses further commits.

        Parameters
        ----------
        added : mapping of id to bytes or callable
            Content of each new file, or a function that writes it to the path that it is given.
        dropped : iterable of id
            Draws whose files are deleted.
        checkpoint : callable
            Function without arguments that replaces the checkpoint of the thinner.

        Raises
        ------
        InputError
            If an earlier commit failed or the store is closed.
        OutputError
            If a file cannot be written or deleted.
        """
        if not self.open:
            raise InputError(
                f"{self.folder} accepts no more files: an earlier commit failed, or the store was closed.",
                "Restart from the checkpoint, which is complete.",
            )
        self._failed = True
        for id, content in added.items():
            self._write(id, content)
        if added and self.sync:
            sync_path(self.folder)
        checkpoint()
        for id in dropped:
            self._delete(self.path(id))
        self._failed = False

    def reconcile(self, kept: Iterable[Id]) -> tuple[Id, ...]:
        """Delete the files that belong to no kept draw, and temporary files.

        Parameters
        ----------
        kept : iterable of id
            Draws of the checkpoint.

        Returns
        -------
        tuple of id
            Draws whose files were deleted.

        Raises
        ------
        CheckpointError
            If a kept draw has no file. Nothing is deleted then.
        """
        expected, found = set(kept), self.ids()
        missing = sorted(expected.difference(found))
        if missing:
            chain, draw = missing[0]
            raise CheckpointError(
                f"{len(missing)} of {len(expected)} kept draws have no file in {self.folder}; "
                f"the first is draw {draw} of chain {chain}.",
                "Restore the deleted files, use the checkpoint of this run, or start again in another folder.",
            )
        orphans = tuple(id for id in found if id not in expected)
        for id in orphans:
            self._delete(self.path(id))
        for path in self._temporary.iterdir():
            self._delete(path)
        return orphans

    @property
    def open(self) -> bool:
        """Whether further commits are possible: no commit has failed, and the store is not closed."""
        return self._lock.held and not self._failed

    def close(self) -> None:
        """Release the folder for other processes."""
        self._lock.release()

    def _write(self, id: Id, content: Content) -> None:
        target = self.path(id)
        temporary = self._temporary / target.name
        try:
            if callable(content):
                content(temporary)
            else:
                temporary.write_bytes(content)
            if self.sync:
                with temporary.open("rb") as file:
                    os.fsync(file.fileno())
            temporary.replace(target)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            raise write_error(target, error) from error

    def _delete(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise write_error(path, error) from error
